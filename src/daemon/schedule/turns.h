/* turns.h - who had which GPU's turn from when to when: the last TURNS_KEPT, in memory alone. Pure: it is told,
 * and asked.
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
    uint64_t session; /* its number */
    char session_id[SESSION_ID_TEXT];
    uid_t owner;
    uint64_t gpus; /* bits, of the daemon's GPUs */
    enum arbiter_lease lease;
    uint64_t begin_ns, end_ns; /* end 0: it goes on */
    /* When the daemon asked for it back (0: it did not), and the steps that were taken from then on. */
    uint64_t asked_ns;
    unsigned steps;
};

/* NULL without memory. */
struct turns *turns_new(void);
void turns_free(struct turns *turns);

/* `turn`'s session holds its lease now (LEASE_NONE and LEASE_FREE: no turn), which may be news. When it began and ended
 * is not looked at. */
void turns_note(struct turns *turns, const struct turn *turn, uint64_t now);

/* Call `take` for each turn that went on after `since_ns`, in the order of their ends, then for those that
 * still do. */
void turns_list(const struct turns *turns, uint64_t since_ns,
                void (*take)(const struct turn *turn, void *context), void *context);
