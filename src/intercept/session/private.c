#include "intercept/session/private.h"

#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "intercept/session/attach.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

_Atomic(struct private_area *) private_area;
static bool wiped_by_kernel;

/* What private_at_fork() was given: one from each room above this one. */
#define FORGETTERS 5
static _Atomic(void (*)(void)) forgetters[FORGETTERS];

void private_at_fork(void (*forget)(void))
{
    for (unsigned i = 0; i < FORGETTERS; i++) {
        void (*there)(void) = NULL;
        if (atomic_compare_exchange_strong_explicit(&forgetters[i], &there, forget, memory_order_relaxed,
                                                    memory_order_relaxed) ||
            there == forget)
            return;
    }
    GS_CHECK(false); /* FORGETTERS is too small */
}

/* Async-signal-safe, as what runs between fork and exec in a threaded program must be. */
static void forget_parent(void)
{
    attach_close();
    for (unsigned i = 0; i < FORGETTERS; i++) {
        void (*forget)(void) = atomic_load_explicit(&forgetters[i], memory_order_relaxed);
        if (forget)
            forget();
    }
    struct private_area *area = atomic_load_explicit(&private_area, memory_order_acquire);
    if (area && !wiped_by_kernel)
        memset(area, 0, sizeof(*area));
}

struct private_area *private_make(void)
{
    void *memory =
        mmap(NULL, sizeof(struct private_area), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return atomic_load_explicit(&private_area, memory_order_acquire);
    bool wiped = madvise(memory, sizeof(struct private_area), MADV_WIPEONFORK) == 0;

    /* No lock: a fork in another thread would leave it taken in the child. */
    struct private_area *area = NULL;
    if (!atomic_compare_exchange_strong_explicit(&private_area, &area, memory, memory_order_acq_rel,
                                                 memory_order_acquire)) { /* private_get() */
        munmap(memory, sizeof(struct private_area));
        return area;
    }
    wiped_by_kernel = wiped;
    pthread_atfork(NULL, NULL, forget_parent);
    return memory;
}
