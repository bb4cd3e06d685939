/* http_turns.h - one request per round of the loop, user by user.
 *
 * However many requests are ready at once, the loop takes up one, then serves everything else that waits, then takes up one
 * of the next user. A long answer goes on in the same way, one piece a turn. */
#pragma once

#include <sys/queue.h>
#include <sys/types.h>

#include "base/error.h"

struct daemon;
struct http_turns;

/* Embedded in what waits for a turn, and zero at first. */
struct http_turn {
    TAILQ_ENTRY(http_turn) next;
    struct http_user *user; /* NULL: it does not wait */
    void *owner;            /* what it is embedded in */
};

/* `take` gets the owner of each turn that comes. NULL with `error` set on failure. */
struct http_turns *http_turns_start(struct daemon *daemon, void (*take)(void *owner), struct error *error);
/* Call when no request waits for its turn. */
void http_turns_stop(struct http_turns *turns);

/* Wait for a turn, behind the others of user `uid`; if it waits already, it keeps its place. Without memory for it, the
 * turn comes at once. */
void http_turns_join(struct http_turns *turns, uid_t uid, struct http_turn *turn, void *owner);
/* The owner has gone. Nothing if it does not wait. */
void http_turns_leave(struct http_turns *turns, struct http_turn *turn);
/* Let all turns come now. */
void http_turns_finish(struct http_turns *turns);
