/* private.h - what the interceptor remembers of this process alone.
 *
 * All of it is in one area that a forked child finds zeroed, however the child was made (MADV_WIPEONFORK; on kernels
 * before 4.14, only by the handler of fork). Zero means: nothing decided, nothing held, no lock taken. So a child
 * owns no slot, and attaches as itself at its own first use. No lock there is taken in the child, even if another
 * thread of the parent held it at the fork. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "ledger/ledger.h"

struct attachment; /* session.h */

/* What other rooms remember; only those rooms know the layout. Pages that nobody touches cost nothing. */
#define PRIVATE_MEMORY_BYTES (512u << 10) /* memory/area.h */
#define PRIVATE_GATE_BYTES (5632u << 10)  /* submit/gate_area.h */

struct private_area {
    /* session.c */
    _Atomic uint32_t mode; /* enum session_mode */
    _Atomic(struct attachment *) attachment;
    _Atomic uint64_t next_try_ns;     /* CLOCK_MONOTONIC: do not try to reach the daemon before this */
    pthread_mutex_t deciding;         /* held to set the three fields above */
    _Atomic uint64_t noticed_ns;      /* when the last notice was sent */
    _Atomic uint64_t refusal_told_ns; /* the same of refusals */
    struct lock slot_lock;            /* of struct ledger_slot */
    atomic_bool said_refused, said_denied;

    /* For other rooms. */
    _Alignas(64) unsigned char memory[PRIVATE_MEMORY_BYTES];
    _Alignas(64) unsigned char gate[PRIVATE_GATE_BYTES];
};

extern _Atomic(struct private_area *) private_area;

/* Call `forget` in a forked child, in the thread that made it: for what a room keeps outside the area. `forget` must
 * be async-signal-safe. However often it is registered, it is called once. */
void private_at_fork(void (*forget)(void));

/* Make the area; NULL without memory. */
struct private_area *private_make(void);

/* The area, made at the first call. NULL if there is no memory for it. */
static inline struct private_area *private_get(void)
{
    struct private_area *area =
        atomic_load_explicit(&private_area, memory_order_acquire); /* private_make() */
    return area ? area : private_make();
}
