/* queue_users.h - the users who have sessions in the queue, and what else each of them has. */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "daemon/session/admission.h"

struct daemon;

struct queue_user {
    LIST_ENTRY(queue_user) next;
    uid_t uid;
    unsigned sessions; /* how many wait; the record is freed when none does */
    /* The GPUs as if this user's sessions were all there is; by queue_users_look(). */
    struct admission_state own;
    /* As far as the queue has been walked: a session of this user waits for this GPU because of the user's own
     * sessions. */
    bool is_behind[LEDGER_GPUS];
};

struct queue_users {
    LIST_HEAD(, queue_user) all;
    void *by_uid; /* a tree of tsearch() */
};

/* One more session of `uid` waits. NULL without memory. */
struct queue_user *queue_users_join(struct queue_users *users, uid_t uid);
/* One session less waits; frees the user's record with the last. */
void queue_users_leave(struct queue_users *users, struct queue_user *user);

/* Whether the users' sessions are `sessions` together, and each user has one record. */
bool queue_users_are_valid(const struct queue_users *users, unsigned sessions);

/* Find out what each of them has, and forget the last walk. */
void queue_users_look(struct queue_users *users, const struct daemon *daemon);
