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

#include "cuda/driver.h"
#include "intercept/memory/records.h"
#include "intercept/submit/gate_area.h"
#include "ledger/ledger.h"

struct attachment; /* session.h */

/* A stream-ordered memory pool that this process allocated from. */
struct pool {
    pthread_mutex_t turn;   /* held while the pool may grow by us, and while its charge is set right */
    _Atomic(void *) handle; /* CUmemoryPool; NULL: this place was never used */
    uint64_t charged_bytes; /* under `turn`: what the ledger holds for it */
    uint32_t gpu;           /* under `turn`: index in the policy */
    bool made;              /* under `turn`: by the program, which destroys it: it outlives contexts */
    bool asleep; /* under `turn`: all contexts of the GPU are gone; not to be looked at before its next use */
    bool managed; /* under `turn`: of managed memory, wherever it is: NVML shows none of it (charge_hide()) */
    bool graphs;  /* under `turn`: no pool, but what the graphs of `device` reserve */
    atomic_bool dying;  /* the program destroyed it with allocations left: it goes with the last of them */
    CUdevice device;    /* of graphs and made pools */
    uint64_t mapped_by; /* under `turn`: of graphs: the one launched last, while its memory is surely there */
};
#define POOLS_MAX (1024 + 2 * LEDGER_GPUS)

struct private_area {
    /* session.c */
    _Atomic uint32_t mode; /* enum session_mode */
    _Atomic(struct attachment *) attachment;
    _Atomic uint64_t next_try_ns; /* CLOCK_MONOTONIC: no attempt to reach the daemon before */
    pthread_mutex_t deciding;     /* to set the three above */
    _Atomic uint64_t noticed_ns;  /* when notice was given last */
    struct lock turn;             /* the slot's: threads take turns to ask the ledger */
    atomic_bool said_refused, said_denied;

    /* hook_context.c: held while a context of that GPU dies, and while one is entered in the records */
    pthread_mutex_t contexts_turn[LEDGER_GPUS];
    atomic_bool cost_asked[LEDGER_GPUS];

    /* hook_vmm.c */
    _Atomic uint64_t allocations; /* numbers given out */

    /* hook_graph.c */
    atomic_bool graphs_used;

    /* hook_array.c */
    atomic_bool tiles_used;

    /* hook_pool.c */
    atomic_bool pool_charge_used;
    pthread_mutex_t pool_charge_turn; /* to add one */
    struct pool pools[POOLS_MAX];

    struct records records;

    /* gate.c, in_flight.c, agent.c */
    struct gate gate;
};

extern _Atomic(struct private_area *) private_area;

/* Make the area, or NULL without memory. */
struct private_area *private_make(void);

/* The area, made at the first call. NULL only when there is no memory for it. */
static inline struct private_area *private_get(void)
{
    struct private_area *area =
        atomic_load_explicit(&private_area, memory_order_acquire); /* private_make() */
    return area ? area : private_make();
}
