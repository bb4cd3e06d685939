#include "simgpu/device/checkpoints.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include "simgpu/device/faults.h"
#include "simgpu/device/shared.h"

#define LOOK_NS 1000000

static struct shared_slot *slot_of(pid_t pid, uint32_t *slot)
{
    for (*slot = 0; *slot < DEVICE_SLOTS; (*slot)++)
        if (shared_slot_is_alive(*slot) && shared_slot_pid(*slot) == pid)
            return pid > 0 && kill(pid, 0) == 0 ? &shared_view()->header->slots[*slot] : NULL;
    return NULL;
}

CUresult checkpoint_state(pid_t pid, CUprocessState *state)
{
    uint32_t slot;
    const struct shared_slot *shared = slot_of(pid, &slot);
    if (!shared)
        return CUDA_ERROR_INVALID_VALUE;
    *state = (CUprocessState)atomic_load(&shared->checkpoint_state);
    return CUDA_SUCCESS;
}

static bool holds_shares(const struct account *account, uint32_t slot)
{
    for (uint32_t row = 0; row < account->share_count; row++)
        if (account->shares[row].slot == slot)
            return true;
    return false;
}

/* The process's bytes on one GPU are nobody's from now on. */
static CUresult give_up_bytes(unsigned gpu, uint32_t slot)
{
    struct shared_gpu *shared = &shared_view()->gpus[gpu];
    for (;;) {
        uint64_t seen;
        struct account *own = account_begin(shared, slot, &seen);
        uint64_t bytes = own->bytes[slot];
        if (holds_shares(own, slot))
            return CUDA_ERROR_NOT_SUPPORTED;
        own->used_bytes -= bytes;
        own->bytes[slot] = 0;
        if (!account_end(shared, seen))
            continue;
        atomic_store(&shared_view()->header->slots[slot].checkpointed_bytes[gpu], bytes);
        return CUDA_SUCCESS;
    }
}

static CUresult give_back(unsigned gpu, uint32_t slot)
{
    struct shared_gpu *shared = &shared_view()->gpus[gpu];
    _Atomic uint64_t *kept = &shared_view()->header->slots[slot].checkpointed_bytes[gpu];
    uint64_t bytes = atomic_load(kept), total = device_shape(gpu)->total_bytes;
    for (;;) {
        uint64_t seen;
        struct account *own = account_begin(shared, slot, &seen);
        if (own->used_bytes > total || bytes > total - own->used_bytes)
            return CUDA_ERROR_OUT_OF_MEMORY;
        own->used_bytes += bytes;
        own->bytes[slot] += bytes;
        if (account_end(shared, seen))
            break;
    }
    atomic_store(kept, 0);
    return CUDA_SUCCESS;
}

/* Do `one` on all GPUs, or on none. */
static CUresult move(uint32_t slot, CUresult (*one)(unsigned, uint32_t), CUresult (*undo)(unsigned, uint32_t))
{
    unsigned count = shared_view()->header->parameters.gpu_count;
    CUresult result = CUDA_SUCCESS;
    for (unsigned gpu = 0; gpu < count && result == CUDA_SUCCESS; gpu++) {
        device_account_lock(gpu);
        result = one(gpu, slot);
        device_account_unlock(gpu);
        for (unsigned done = gpu; result != CUDA_SUCCESS && done-- > 0;) {
            device_account_lock(done);
            undo(done, slot);
            device_account_unlock(done);
        }
    }
    return result;
}

CUresult checkpoint_change(pid_t pid, CUprocessState from, CUprocessState to)
{
    uint32_t slot;
    struct shared_slot *shared = slot_of(pid, &slot);
    CUresult result = CUDA_SUCCESS;
    if (!shared)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&shared->checkpoint_state) != (uint32_t)from)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (to == CU_PROCESS_STATE_CHECKPOINTED)
        result = move(slot, give_up_bytes, give_back);
    else if (from == CU_PROCESS_STATE_CHECKPOINTED)
        result = move(slot, give_back, give_up_bytes);
    uint32_t seen = (uint32_t)from;
    if (result == CUDA_SUCCESS &&
        !atomic_compare_exchange_strong(&shared->checkpoint_state, &seen, (uint32_t)to))
        result = CUDA_ERROR_ILLEGAL_STATE;
    return result;
}

uint64_t checkpoint_bytes(pid_t pid)
{
    uint32_t slot;
    struct shared_slot *shared = slot_of(pid, &slot);
    uint64_t sum = 0;
    for (unsigned gpu = 0; shared && gpu < shared_view()->header->parameters.gpu_count; gpu++)
        sum += atomic_load(&shared->checkpointed_bytes[gpu]);
    return sum;
}

static void hang_peers(const struct shared_slot *of)
{
    uint32_t peers = atomic_load(&of->peers);
    for (uint32_t slot = 0; peers && slot < DEVICE_SLOTS; slot++) {
        struct shared_slot *other = &shared_view()->header->slots[slot];
        if (other != of && shared_slot_is_alive(slot) && atomic_load(&other->peers) == peers &&
            atomic_load(&other->checkpoint_state) == CU_PROCESS_STATE_RUNNING)
            atomic_store(&other->is_stuck, 1);
    }
}

CUresult checkpoint_faulty(pid_t pid)
{
    uint32_t slot;
    struct shared_slot *shared = slot_of(pid, &slot);
    if (!shared)
        return CUDA_SUCCESS;
    hang_peers(shared);
    if (atomic_fetch_add(&shared->checkpoints, 1) + 1 != atomic_load(&shared->kills_at))
        return CUDA_SUCCESS;
    kill(pid, SIGKILL);
    return CUDA_ERROR_UNKNOWN;
}

bool checkpoint_has_failed(pid_t pid)
{
    uint32_t slot;
    const struct shared_slot *shared = slot_of(pid, &slot);
    uint32_t at = shared ? atomic_load(&shared->restore_fails_at) : 0;
    return at > 0 && atomic_load(&shared->failed_restores) >= at;
}

void checkpoint_note_no_room(pid_t pid)
{
    uint32_t slot;
    struct shared_slot *shared = slot_of(pid, &slot);
    if (shared)
        atomic_fetch_add(&shared->failed_restores, 1);
}

bool checkpoint_is_stuck(pid_t pid)
{
    uint32_t slot;
    const struct shared_slot *shared = slot_of(pid, &slot);
    return shared && atomic_load(&shared->is_stuck);
}

static struct shared_slot *own_slot;

void checkpoint_begin(void)
{
    own_slot = &shared_view()->header->slots[shared_view()->slot];
    struct checkpoint_faults faults = faults_of_checkpoint();
    atomic_store(&own_slot->checkpoint_state, CU_PROCESS_STATE_RUNNING);
    atomic_store(&own_slot->kills_at, faults.kills_at);
    atomic_store(&own_slot->restore_fails_at, faults.restore_fails_at);
    atomic_store(&own_slot->peers, faults.peers);
    atomic_store(&own_slot->checkpoints, 0);
    atomic_store(&own_slot->failed_restores, 0);
    atomic_store(&own_slot->is_stuck, 0);
    for (unsigned gpu = 0; gpu < DEVICE_GPUS; gpu++)
        atomic_store(&own_slot->checkpointed_bytes[gpu], 0);
}

void checkpoint_wait(void)
{
    int saved_errno = errno;
    while (own_slot && (atomic_load_explicit(&own_slot->checkpoint_state, memory_order_acquire) !=
                            CU_PROCESS_STATE_RUNNING ||
                        atomic_load_explicit(&own_slot->is_stuck, memory_order_relaxed)))
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    errno = saved_errno;
}
