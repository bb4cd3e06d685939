/* types.h - types that the stages share with the callers of arbiter.h, where the words are
 * explained. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "ledger/ledger.h"
#include "wire/wire.h"

#define ARBITER_GPUS LEDGER_GPUS /* GPUs are bits of a 64-bit set */
#define ARBITER_PRIORITIES 4u
#define ARBITER_PRIORITY_NORMAL 1u
/* arbiter_session_achieved() looks back this far. */
#define ARBITER_WINDOW_S 10u

/* How long a process may take to drain, beyond its longest piece of work; and how long after that the arbiter waits
 * for its answer. */
#define ARBITER_PATIENCE_NS UINT64_C(100000000)
#define ARBITER_GRACE_NS UINT64_C(100000000)

/* The next session's gate opens when the work of the session before it should be done within this time. That is how
 * long the next session's agent and threads take to wake up and put something before the GPU. */
#define ARBITER_LEAD_NS UINT64_C(1500000)

struct arbiter;
struct arbiter_session;
struct arbiter_process;

enum arbiter_mode {
    ARBITER_MODE_FREE,   /* no share counts */
    ARBITER_MODE_OPEN,   /* shares count, and no session was kept from the GPU in the last second */
    ARBITER_MODE_SHARES, /* in the last second, a session waited for a turn or for its maximum */
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
