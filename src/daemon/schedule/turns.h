/* turns.h - which session had which GPUs' turn, from when to when: the last TURNS_KEPT turns, in memory only. Pure.
 *
 * turn   the time for which a session held a lease of one kind on its GPUs while shares counted. Times are
 *        nanoseconds of the clock of monotonic_ns() */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/schedule/arbiter.h"
#include "daemon/session/identity.h"

#define TURNS_KEPT 8192u

struct turns;

struct turn {
    uint64_t session; /* the session's number */
    char session_id[SESSION_ID_TEXT];
    uid_t owner;
    uint64_t gpus; /* bits, by the daemon's GPU numbers */
    enum arbiter_lease lease;
    uint64_t begin_ns, end_ns; /* end 0: the turn goes on */
    /* When the daemon asked for the turn back (0: it did not), and how many steps were taken from then on. */
    uint64_t asked_ns;
    unsigned steps;
};

/* Returns NULL without memory. */
struct turns *turns_new(void);
void turns_free(struct turns *turns);

/* `turn`'s session holds `turn`'s lease now, which may be news (LEASE_NONE and LEASE_FREE: no turn). turns_note()
 * sets the begin and the end itself. Without memory, the turn is not recorded. */
void turns_note(struct turns *turns, const struct turn *turn, uint64_t now);

/* Call `take` for each turn that ended after `since_ns`, in the order of their ends, then for those that go on. */
void turns_list(const struct turns *turns, uint64_t since_ns,
                void (*take)(const struct turn *turn, void *context), void *context);
