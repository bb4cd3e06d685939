/* history_query.h - answers from the history's file; for the history's helper thread. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "daemon/history/history_file.h"

#define HISTORY_POINTS_MAX 1000
#define HISTORY_SESSIONS_MAX 64

enum history_by { HISTORY_BY_SESSION, HISTORY_BY_USER, HISTORY_BY_GPU };

struct history_ask {
    int64_t from, to;                 /* seconds since 1970 */
    uid_t uid;                        /* the user who asks: root sees all sessions, others their own */
    unsigned points;                  /* how many at most */
    unsigned sessions;                /* how many at most: those that used most */
    char session_id[SESSION_ID_TEXT]; /* only that one; "": any */
    enum history_by by;
};

/* What was used over time, for plots. */
int history_query_plot(struct history_file *file, const struct history_ask *ask, json_t **answer,
                       struct error *error);

/* What was used in all, one row per session, user or GPU. */
int history_query_usage(struct history_file *file, const struct history_ask *ask, json_t **answer,
                        struct error *error);
