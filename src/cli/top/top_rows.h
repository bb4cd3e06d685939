/* top_rows.h - what `top` shows of sessions and GPUs: the numbers from the daemon's answers and their past, sorted
 * and filtered. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "cli/top/top_bars.h"
#include "client/session_fields.h"

enum top_order { TOP_BY_MEMORY, TOP_BY_COMPUTE, TOP_BY_WAIT, TOP_BY_NAME, TOP_ORDERS };

#define TOP_ID_TEXT 16
#define TOP_FILTER_TEXT 64

struct top_row {
    char id[TOP_ID_TEXT];
    const json_t *session; /* in the latest answer */
    const char *name, *owner, *status;
    enum session_tone tone;
    char gpus[24], share[UNITS_SHARE_TEXT];
    uint64_t used, limit;
    double achieved;      /* part of a GPU's time; -1: not measured */
    double busy;          /* the same by NVML, if it is not measured; 0: none, or unknown */
    double waiting;       /* threads that wait, averaged since the answer before */
    double waited;        /* seconds in total */
    uint64_t answered_ns; /* when the session was last in an answer */
    unsigned processes;
    struct top_past memory, compute;
    bool is_shown; /* it passes the filter */
};

struct top_gpu {
    char uuid[48], label[16];
    const char *name;
    bool is_healthy;
    uint64_t used, total, uncovered;
    double busy;           /* -1: unknown */
    double celsius, watts; /* -1: unknown */
    char outsider[64];     /* the process outside of sessions that holds the most memory; "": none */
    struct top_past past;
};

struct top_rows {
    json_t *sessions, *gpus_answer;
    struct top_row *rows; /* sorted; those that are shown come first */
    unsigned count, shown_count;
    struct top_gpu *gpus;
    unsigned gpu_count;
    enum top_order order;
    char filter[TOP_FILTER_TEXT];
    char selected[TOP_ID_TEXT]; /* "": the first */
    unsigned place;             /* where it was when it was last there */
    bool has_answer;
};

/* Take over new answers; NULL: none. */
void top_rows_take(struct top_rows *rows, json_t *sessions, json_t *gpus);
/* Take the values from before the first answer, for sparklines. */
void top_rows_take_history(struct top_rows *rows, const json_t *history);
void top_rows_free(struct top_rows *rows);

/* call it after a change of order or filter */
void top_rows_sort(struct top_rows *rows);
/* The index of the selected row among those shown. If it has gone, the one that is at its place now. */
unsigned top_rows_selected(const struct top_rows *rows);
/* The row of this ID; NULL: it has gone. */
const struct top_row *top_rows_find(const struct top_rows *rows, const char *id);
void top_rows_select(struct top_rows *rows, int place);
/* A line about the session's turns, waits and evicted memory. */
void top_row_lease(const struct top_row *row, char *text, size_t bytes);
const char *top_order_name(enum top_order order);
