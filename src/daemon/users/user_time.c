#include "daemon/users/user_time.h"

#include <stdlib.h>
#include <unistd.h>

#include "daemon/loop/daemon.h"
#include "daemon/users/lent_uids.h"

#define WINDOW_USEC UINT64_C(100000)
#define PART_USEC UINT64_C(10000)
/* After every source that has a priority of its own. */
#define BEHIND (SD_EVENT_PRIORITY_NORMAL + 10)

/* Kept while it has sources, and until the end of a window in which it had some. */
struct payer {
    LIST_ENTRY(payer) next;
    uint64_t key;
    uint64_t used_usec; /* in this window */
    LIST_HEAD(, paid_source) sources;
};

struct user_time {
    LIST_HEAD(, payer) payers;
    struct payer *working; /* whose callback is running; NULL: nobody's */
    sd_event_source *window_end;
    bool is_in_window;
};

uint64_t user_time_key(uid_t uid, uint64_t session_number)
{
    bool is_for_others = uid == 0 || uid == geteuid();
    return session_number && is_for_others ? UINT64_C(1) << 63 | session_number : uid;
}

static void put_back(struct paid_source *paid)
{
    if (!paid->is_behind)
        return;
    paid->is_behind = false;
    sd_event_source_set_priority(paid->source, paid->priority);
}

static int on_window_end(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct user_time *time = userdata;
    struct payer *next;
    time->is_in_window = false;
    for (struct payer *at = LIST_FIRST(&time->payers); at; at = next) {
        struct paid_source *paid;
        next = LIST_NEXT(at, next);
        if (at->used_usec > PART_USEC)
            LIST_FOREACH (paid, &at->sources, next)
                put_back(paid);
        at->used_usec = 0;
        if (LIST_EMPTY(&at->sources)) {
            LIST_REMOVE(at, next);
            free(at);
        }
    }
    return 0;
}

/* NULL without memory: then no time is counted. */
static struct user_time *time_of(struct daemon *daemon)
{
    if (daemon->user_time)
        return daemon->user_time;
    struct user_time *time = calloc(1, sizeof(*time));
    if (!time)
        return NULL;
    if (sd_event_add_time(daemon->loop, &time->window_end, CLOCK_MONOTONIC, 0, 1000, on_window_end, time) <
        0) {
        free(time);
        return NULL;
    }
    sd_event_source_set_enabled(time->window_end, SD_EVENT_OFF);
    sd_event_source_set_priority(time->window_end, SD_EVENT_PRIORITY_IMPORTANT - 5);
    LIST_INIT(&time->payers);
    daemon->user_time = time;
    return time;
}

static struct payer *find_payer(struct user_time *time, uint64_t key)
{
    struct payer *payer;
    LIST_FOREACH (payer, &time->payers, next) {
        if (payer->key == key)
            return payer;
    }
    payer = calloc(1, sizeof(*payer));
    if (!payer)
        return NULL;
    payer->key = key;
    LIST_INSERT_HEAD(&time->payers, payer, next);
    return payer;
}

void user_time_watch(struct daemon *daemon, struct paid_source *paid, sd_event_source *source,
                     int64_t priority, uid_t uid, uint64_t session_number)
{
    struct user_time *time = time_of(daemon);
    user_time_forget(paid);
    sd_event_source_set_priority(source, priority);
    paid->payer =
        time ? find_payer(time, user_time_key(lent_uids_account(daemon, uid), session_number)) : NULL;
    paid->source = source;
    paid->priority = priority;
    if (paid->payer)
        LIST_INSERT_HEAD(&paid->payer->sources, paid, next);
}

void user_time_forget(struct paid_source *paid)
{
    if (paid->payer)
        LIST_REMOVE(paid, next);
    *paid = (struct paid_source){.payer = NULL};
}

bool user_time_begin(struct daemon *daemon, struct paid_source *paid)
{
    if (!paid->payer)
        return true;
    if (paid->payer->used_usec > PART_USEC && !paid->is_behind) {
        paid->is_behind = true;
        sd_event_source_set_priority(paid->source, BEHIND);
        return false;
    }
    daemon->user_time->working = paid->payer;
    return true;
}

void user_time_end(struct daemon *daemon, uint64_t took_usec)
{
    struct user_time *time = daemon->user_time;
    if (!time || !time->working)
        return;
    time->working->used_usec += took_usec;
    time->working = NULL;
    if (time->is_in_window)
        return;
    time->is_in_window = true;
    sd_event_source_set_time_relative(time->window_end, WINDOW_USEC);
    sd_event_source_set_enabled(time->window_end, SD_EVENT_ONESHOT);
}

void user_time_stop(struct daemon *daemon)
{
    struct user_time *time = daemon->user_time;
    if (!time)
        return;
    while (!LIST_EMPTY(&time->payers)) {
        struct payer *payer = LIST_FIRST(&time->payers);
        LIST_REMOVE(payer, next);
        free(payer);
    }
    sd_event_source_disable_unref(time->window_end);
    free(time);
    daemon->user_time = NULL;
}
