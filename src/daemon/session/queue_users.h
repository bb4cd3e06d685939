/* queue_users.h - the users whose sessions wait in the queue, and what each of them has. */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "daemon/session/admission.h"

struct daemon;

struct queue_user {
    LIST_ENTRY(queue_user) next;
    uid_t uid;
    unsigned sessions; /* that wait; with the last of them the user goes */
    /* The GPUs as if nobody else had sessions, or held anything outside of them: by queue_users_look(). */
    struct admission_state own;
    bool is_behind
        [LEDGER_GPUS]; /* a session that its own user's keep out waits there, as far as the line was walked */
};

struct queue_users {
    LIST_HEAD(, queue_user) all;
    void *by_uid; /* a tree of tsearch()'s */
};

/* One more session of `uid` waits. NULL without memory. */
struct queue_user *queue_users_join(struct queue_users *users, uid_t uid);
/* One less. */
void queue_users_leave(struct queue_users *users, struct queue_user *user);

/* Find out what each of them has. */
void queue_users_look(struct queue_users *users, const struct daemon *daemon);
