/* top_rows.h - what `top` shows of sessions and GPUs: numbers out of the daemon's answers, what they were before,
 * sorted and filtered. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "cli/top/top_bars.h"

enum top_order { TOP_BY_MEMORY, TOP_BY_COMPUTE, TOP_BY_WAIT, TOP_BY_NAME, TOP_ORDERS };

#define TOP_ID_TEXT 16
#define TOP_FILTER_TEXT 64

struct top_row {
    char id[TOP_ID_TEXT];
    const json_t *session; /* of the latest answer */
    const char *name, *owner, *state;
    char gpus[24], share[UNITS_SHARE_TEXT];
    uint64_t used, limit;
    double achieved;      /* of a GPU's time, -1: not measured */
    double busy;          /* the same by NVML, while nobody measures it; 0: nothing, or not known */
    double waiting;       /* threads that wait, on the average since the answer before */
    double waited;        /* seconds, in all */
    uint64_t answered_ns; /* when the session was last there */
    unsigned processes;
    struct top_past memory, compute;
    bool is_shown; /* the filter lets it through */
};

struct top_gpu {
    char uuid[48], label[16];
    const char *name;
    bool is_healthy;
    uint64_t used, total, uncovered;
    double busy;       /* -1: not known */
    char outsider[64]; /* the process outside of sessions that holds most; "": none */
    struct top_past past;
};

struct top_rows {
    json_t *sessions, *gpus_answer;
    struct top_row *rows; /* sorted, those that are shown first */
    unsigned count, shown_count;
    struct top_gpu *gpus;
    unsigned gpu_count;
    enum top_order order;
    char filter[TOP_FILTER_TEXT];
    char selected[TOP_ID_TEXT]; /* "": none */
    bool has_answer;
};

/* New answers, taken over; NULL: none. */
void top_rows_take(struct top_rows *rows, json_t *sessions, json_t *gpus);
/* What was before the first answer, for sparklines. */
void top_rows_take_history(struct top_rows *rows, const json_t *history);
void top_rows_free(struct top_rows *rows);

void top_rows_sort(struct top_rows *rows); /* after another order or filter */
/* The place of the selected row among those shown; the first where it is not. */
unsigned top_rows_selected(const struct top_rows *rows);
void top_rows_select(struct top_rows *rows, int place);
/* How it stands in the line for the GPUs' time. */
void top_row_lease(const struct top_row *row, char *text, size_t bytes);
const char *top_order_name(enum top_order order);
