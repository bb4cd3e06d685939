/* types.h - types that the stages share with the callers of arbiter.h, where the words are
 * explained. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "daemon/schedule/tunables.h"
#include "ledger/ledger.h"
#include "wire/wire.h"

#define ARBITER_GPUS LEDGER_GPUS /* GPUs are bits of a 64-bit set */
#define ARBITER_PRIORITIES 4u
#define ARBITER_PRIORITY_NORMAL 1u
/* arbiter_session_achieved() looks back this far. */
#define ARBITER_WINDOW_S 10u

struct arbiter;
struct arbiter_session;
struct arbiter_process;

enum arbiter_mode {
    ARBITER_MODE_FREE,   /* no share counts */
    ARBITER_MODE_OPEN,   /* shares count, and no session was kept from the GPU in the last second */
    ARBITER_MODE_SHARES, /* in the last second, a session waited for a turn or for its maximum */
};

/* Why a session is a guest or takes turns. */
enum arbiter_why {
    WHY_FREE,        /* no share counts on its GPUs */
    WHY_LIGHT,       /* a guest: it leaves gaps for others */
    WHY_CONTENT,     /* a guest: turns did not make it faster */
    WHY_MEASURED,    /* takes turns, so that its cost is measured */
    WHY_DENSE,       /* takes turns: it would keep the GPU busy all the time */
    WHY_UNDERSTATES, /* takes turns: NVML shows it busier than it says */
    WHY_NEEDY,       /* takes turns: as a guest it got less than its minimum */
    WHY_DONOR,       /* takes turns: it used what others lack */
    WHY_BELOW,       /* takes turns: a dense session of a higher priority wants the GPU */
};

enum arbiter_lease { LEASE_NONE, LEASE_FREE, LEASE_EXCLUSIVE, LEASE_GUEST, LEASE_LOOSE };

enum arbiter_event {
    ARBITER_OVERRUN,     /* a process did not answer REVOKE in time; its session's lease ended without it */
    ARBITER_UNDRAINED,   /* work in flight did not end in time; the session runs beside the next one */
    ARBITER_UNDRAINABLE, /* the same for the third time in a row; from now on, draining is tried rarely */
    ARBITER_DRAINED,     /* a session of one of the last two kinds has drained after all */
    ARBITER_UNDERSTATED, /* NVML shows the session's processes much busier than its agents say */
};

/* The arbiter's callbacks. They must not call the arbiter, nor make processes or sessions go away. `process` and
 * `session` are what these were added with. */
struct arbiter_calls {
    /* The gate may be open. `flags`: enum wire_lease_flags. `ahead_ns`: how much work may be before a stream; 0:
     * the agent decides. */
    void (*grant)(void *process, uint64_t lease, uint32_t flags, uint64_t ahead_ns);
    void (*revoke)(void *process, uint64_t lease, uint64_t patience_ns);
    /* `ns`: how long the session's lease had been closing by then; 0 if it was not. */
    void (*event)(void *session, enum arbiter_event event, uint64_t ns);
    void (*mode)(void *context, unsigned gpu, enum arbiter_mode mode);
};
