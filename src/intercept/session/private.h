/* private.h - what the interceptor remembers of this process, and of no other.
 *
 * All of it lives in one area that a forked child finds zeroed, however the child was made (MADV_WIPEONFORK;
 * on kernels before 4.14, by fork's handler alone). Zero means: nothing decided, nothing held, no lock taken.
 * So a child owns no slot, and attaches as itself at its own first use, though another thread may have held
 * any lock as it was made. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "ledger/ledger.h"

struct attachment; /* session.h */

/* What other rooms remember: the layout is known there alone. Pages that nobody touches cost nothing. */
#define PRIVATE_MEMORY_BYTES (512u << 10) /* memory/area.h */
#define PRIVATE_GATE_BYTES (4608u << 10)  /* submit/gate_area.h */

struct private_area {
    /* session.c */
    _Atomic uint32_t mode; /* enum session_mode */
    _Atomic(struct attachment *) attachment;
    _Atomic uint64_t next_try_ns; /* CLOCK_MONOTONIC: no attempt to reach the daemon before */
    pthread_mutex_t deciding;     /* to set the three above */
    _Atomic uint64_t noticed_ns;  /* when notice was given last */
    struct lock slot_lock;        /* of struct ledger_slot */
    atomic_bool said_refused, said_denied;

    /* Of other rooms. */
    _Alignas(64) unsigned char memory[PRIVATE_MEMORY_BYTES];
    _Alignas(64) unsigned char gate[PRIVATE_GATE_BYTES];
};

extern _Atomic(struct private_area *) private_area;

/* In a forked child, in the thread that made it, `forget` is called: for what a room keeps outside of the area. It must
 * be async-signal-safe. Registered any number of times, it is called once. */
void private_at_fork(void (*forget)(void));

/* Make the area, or NULL without memory. */
struct private_area *private_make(void);

/* The area, made at the first call. NULL only when there is no memory for it. */
static inline struct private_area *private_get(void)
{
    struct private_area *area =
        atomic_load_explicit(&private_area, memory_order_acquire); /* private_make() */
    return area ? area : private_make();
}
