#include "intercept/memory/context_locks.h"

#include "base/check.h"
#include "intercept/memory/area.h"
#include "intercept/resolve/guard.h"
#include "intercept/session/session.h"

void context_lock(uint32_t gpu)
{
    guard_lock(&memory_area()->context_locks[gpu]);
}

void context_unlock(uint32_t gpu)
{
    guard_unlock(&memory_area()->context_locks[gpu]);
}

void context_hold(uint32_t gpu, CUcontext context)
{
    struct context_hold *hold = &memory_area()->context_holds[gpu];
    GS_CHECK(!hold->context);
    hold->context = context;
}

void context_let_go(uint32_t gpu)
{
    struct context_hold *hold = &memory_area()->context_holds[gpu];
    context_lock(gpu);
    hold->context = NULL;
    pthread_cond_broadcast(&hold->ended);
    context_unlock(gpu);
}

void context_lock_to_end(uint32_t gpu, CUcontext context)
{
    struct context_hold *hold = &memory_area()->context_holds[gpu];
    context_lock(gpu);
    while (hold->context && (!context || hold->context == context))
        pthread_cond_wait(&hold->ended, &memory_area()->context_locks[gpu]);
}

uint32_t context_lock_all(void)
{
    uint32_t count = session_slot()->ledger.policy->gpu_count;
    count = count < LEDGER_GPUS ? count : LEDGER_GPUS;
    for (uint32_t gpu = 0; gpu < count; gpu++)
        context_lock(gpu);
    return count;
}

void context_unlock_all(uint32_t count)
{
    while (count--)
        context_unlock(count);
}
