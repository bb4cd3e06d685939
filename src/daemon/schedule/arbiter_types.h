/* arbiter_types.h - what the arbiter's parts and those who ask it both speak of; the words are explained in arbiter.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "ledger/ledger.h"
#include "wire/wire.h"

#define ARBITER_GPUS LEDGER_GPUS /* GPUs are bits of a 64-bit set */
#define ARBITER_PRIORITIES 4u
#define ARBITER_PRIORITY_NORMAL 1u
#define ARBITER_WINDOW_S 10u /* over which an achieved share is told */

/* How long a process is given to drain beyond its longest piece of work, and how long after that its answer
 * is waited for. */
#define ARBITER_PATIENCE_NS UINT64_C(100000000)
#define ARBITER_GRACE_NS UINT64_C(100000000)

/* The next one's gate opens when the one before should be done within this time: what it takes the next one's
 * agent and threads to wake up and put something before the GPU. */
#define ARBITER_LEAD_NS UINT64_C(1500000)

struct arbiter;
struct arbiter_session;
struct arbiter_process;

enum arbiter_mode {
    ARBITER_MODE_FREE,   /* no share counts */
    ARBITER_MODE_OPEN,   /* shares count, and nobody was kept from the GPU in the last second */
    ARBITER_MODE_SHARES, /* somebody waits, for a turn or for what its maximum allows */
};

enum arbiter_lease { LEASE_NONE, LEASE_FREE, LEASE_EXCLUSIVE, LEASE_GUEST, LEASE_LOOSE };

enum arbiter_event {
    ARBITER_OVERRUN,     /* a process did not answer REVOKE in time; the lease moved on without it */
    ARBITER_UNDRAINED,   /* work in flight did not end in time; the session runs beside the next one */
    ARBITER_UNDRAINABLE, /* the same for the third time in a row; tried rarely from now on */
    ARBITER_DRAINED,     /* a session that was one of these has drained after all */
    ARBITER_UNDERSTATED, /* its agents say much less than the daemon sees */
};

/* Made while the arbiter is at work: they must not call it, nor make processes or sessions go away. `process`
 * and `session` are what these were added with. */
struct arbiter_calls {
    /* `flags`: enum wire_lease_flags. `ahead_ns`: how much work may be before a stream; 0: the agent decides. */
    void (*grant)(void *process, uint64_t lease, uint32_t flags, uint64_t ahead_ns);
    void (*revoke)(void *process, uint64_t lease, uint64_t patience_ns);
    /* `ns`: how long it had been closing by then. */
    void (*event)(void *session, enum arbiter_event event, uint64_t ns);
    void (*mode)(void *context, unsigned gpu, enum arbiter_mode mode);
};
