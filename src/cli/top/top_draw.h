/* top_draw.h - the screen of `top`. Needs ncurses to be started. */
#pragma once

#include <stdbool.h>

#include "cli/top/top_rows.h"

enum top_ask { TOP_ASK_NOTHING, TOP_ASK_FILTER, TOP_ASK_CHANGE, TOP_ASK_RELEASE, TOP_ASK_SUSPEND };

/* Whether a session is shown in detail. */
enum top_detail {
    TOP_DETAIL_ROOM, /* if the list leaves room for it */
    TOP_DETAIL_SHOWN,
    TOP_DETAIL_HIDDEN,
};

struct top_view {
    struct top_rows rows;
    bool has_colours, is_unicode;
    bool shows_help, is_lost, is_paused;
    enum top_detail detail;
    double interval_seconds;
    unsigned first; /* the row at the top of the list */
    enum top_ask ask;
    char asked[TOP_ID_TEXT]; /* the session that the question is about */
    char input[128];         /* what is being typed */
    char said[256];          /* the last message; "": none */
    bool is_bad;             /* the message is a refusal */
};

void top_draw_start(struct top_view *view);
void top_draw(struct top_view *view);
/* Whether a session is in detail on the screen. */
bool top_draw_shows_detail(const struct top_view *view);
/* How many rows the list has room for. */
unsigned top_draw_page(const struct top_view *view);
