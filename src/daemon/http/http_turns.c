#include "daemon/http/http_turns.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "daemon/loop/daemon.h"
#include "daemon/loop/deferred.h"

/* One user's turns, oldest first. Freed when the last one has come. */
struct http_user {
    TAILQ_ENTRY(http_user) next;
    uid_t uid;
    TAILQ_HEAD(, http_turn) waiting;
};

struct http_turns {
    TAILQ_HEAD(, http_user) users; /* the user whose turn is next comes first */
    void (*take)(void *owner);
    struct deferred *turn;
};

static struct http_user *find_user(struct http_turns *turns, uid_t uid)
{
    struct http_user *user;
    TAILQ_FOREACH (user, &turns->users, next) {
        if (user->uid == uid)
            return user;
    }
    user = calloc(1, sizeof(*user));
    if (!user)
        return NULL;
    user->uid = uid;
    TAILQ_INIT(&user->waiting);
    TAILQ_INSERT_TAIL(&turns->users, user, next);
    return user;
}

/* The oldest turn of the next user, who then comes last. NULL: no turn waits. */
static struct http_turn *take_first(struct http_turns *turns)
{
    struct http_user *user = TAILQ_FIRST(&turns->users);
    if (!user)
        return NULL;
    struct http_turn *turn = TAILQ_FIRST(&user->waiting);
    TAILQ_REMOVE(&user->waiting, turn, next);
    TAILQ_REMOVE(&turns->users, user, next);
    turn->user = NULL;
    if (TAILQ_EMPTY(&user->waiting))
        free(user);
    else
        TAILQ_INSERT_TAIL(&turns->users, user, next);
    return turn;
}

static void on_turn(void *context)
{
    struct http_turns *turns = context;
    struct http_turn *turn = take_first(turns);
    if (!TAILQ_EMPTY(&turns->users))
        deferred_wake(turns->turn);
    if (turn)
        turns->take(turn->owner);
}

void http_turns_join(struct http_turns *turns, uid_t uid, struct http_turn *turn, void *owner)
{
    if (turn->user)
        return;
    struct http_user *user = find_user(turns, uid);
    turn->owner = owner;
    if (!user) {
        turns->take(owner);
        return;
    }
    turn->user = user;
    TAILQ_INSERT_TAIL(&user->waiting, turn, next);
    deferred_wake(turns->turn);
}

void http_turns_leave(struct http_turns *turns, struct http_turn *turn)
{
    struct http_user *user = turn->user;
    if (!user)
        return;
    turn->user = NULL;
    TAILQ_REMOVE(&user->waiting, turn, next);
    if (!TAILQ_EMPTY(&user->waiting))
        return;
    TAILQ_REMOVE(&turns->users, user, next);
    free(user);
}

void http_turns_finish(struct http_turns *turns)
{
    for (struct http_turn *turn; (turn = take_first(turns));)
        turns->take(turn->owner);
}

struct http_turns *http_turns_start(struct daemon *daemon, void (*take)(void *owner), struct error *error)
{
    struct http_turns *turns = calloc(1, sizeof(*turns));
    int result = turns ? deferred_new(daemon->loop, on_turn, turns, &turns->turn) : -ENOMEM;
    if (result < 0) {
        free(turns);
        error_set_errno(error, -result, "cannot serve HTTP");
        return NULL;
    }
    TAILQ_INIT(&turns->users);
    turns->take = take;
    return turns;
}

void http_turns_stop(struct http_turns *turns)
{
    if (!turns)
        return;
    deferred_free(turns->turn);
    free(turns);
}
