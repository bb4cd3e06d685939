#include "daemon/session/queue_users.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/promises.h"
#include "daemon/session/session.h"

static int compare(const void *left, const void *right)
{
    const struct queue_user *a = left, *b = right;
    return (a->uid > b->uid) - (a->uid < b->uid);
}

static struct queue_user *find(const struct queue_users *users, uid_t uid)
{
    const struct queue_user key = {.uid = uid};
    struct queue_user **found = tfind(&key, &users->by_uid, compare);
    return found ? *found : NULL;
}

struct queue_user *queue_users_join(struct queue_users *users, uid_t uid)
{
    struct queue_user *user = find(users, uid);
    if (user) {
        user->sessions++;
        return user;
    }
    user = calloc(1, sizeof(*user));
    if (!user)
        return NULL;
    user->uid = uid;
    user->sessions = 1;
    if (!tsearch(user, &users->by_uid, compare)) {
        free(user);
        return NULL;
    }
    LIST_INSERT_HEAD(&users->all, user, next);
    return user;
}

void queue_users_leave(struct queue_users *users, struct queue_user *user)
{
    GS_CHECK(user->sessions > 0 && find(users, user->uid) == user);
    if (--user->sessions)
        return;
    tdelete(user, &users->by_uid, compare);
    LIST_REMOVE(user, next);
    free(user);
}

bool queue_users_are_valid(const struct queue_users *users, unsigned sessions)
{
    unsigned sum = 0;
    const struct queue_user *user;
    LIST_FOREACH (user, &users->all, next) {
        if (user->sessions == 0 || find(users, user->uid) != user)
            return false;
        sum += user->sessions;
    }
    return sum == sessions;
}

void queue_users_look(struct queue_users *users, const struct daemon *daemon)
{
    struct queue_user *user;
    LIST_FOREACH (user, &users->all, next) {
        promises_gather_none(daemon, &user->own);
        memset(user->is_behind, 0, sizeof(user->is_behind));
    }
    /* Sessions that wait have no GPUs yet. */
    for (const struct session *at = daemon->sessions; at; at = at->next)
        if (at->gpu_count && (user = find(users, at->owner)))
            promises_add(at, &user->own);
}
