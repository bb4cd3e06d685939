/* account.c - how many bytes of a simulated GPU each process holds. */
#include "simgpu/device/costs.h"
#include "simgpu/device/faults.h"
#include "simgpu/device/paging.h"
#include "simgpu/device/shared.h"

/* --- The account ----------------------------------------------------------------------------------- */

static bool account_add(struct shared_gpu *gpu, uint64_t bytes, uint64_t total_bytes)
{
    for (;;) {
        uint64_t seen;
        struct account *own = account_begin(gpu, shared_view()->slot, &seen);
        if (own->used_bytes > total_bytes || bytes > total_bytes - own->used_bytes)
            return false;
        own->used_bytes += bytes;
        own->bytes[shared_view()->slot] += bytes;
        if (account_end(gpu, seen))
            return true;
    }
}

static bool account_has(const struct account *account, uint32_t slot)
{
    if (slot < account->slot_count && account->bytes[slot] > 0)
        return true;
    for (uint32_t row = 0; row < account->share_count; row++)
        if (account->shares[row].slot == slot)
            return true;
    return false;
}

/* Drop a slot's line, unless the slot has a new owner by now. A new owner raises the generation before it
 * changes the account, and a change between our look at the generation and account_end() makes that fail. */
void account_drop(struct shared_gpu *gpu, uint32_t slot, uint64_t generation)
{
    for (;;) {
        uint64_t seen;
        struct account *own = account_begin(gpu, slot, &seen);
        if (atomic_load(&shared_view()->header->slots[slot].generation) != generation ||
            !account_has(own, slot))
            return;
        own->used_bytes -= own->bytes[slot];
        own->bytes[slot] = 0;
        for (uint32_t row = own->share_count; row-- > 0;) {
            uint64_t freed = 0;
            if (own->shares[row].slot == slot)
                share_row_drop(own, (unsigned)(gpu - shared_view()->gpus), row, &freed);
            own->used_bytes -= freed;
        }
        while (own->slot_count > 0 && own->bytes[own->slot_count - 1] == 0)
            own->slot_count--;
        if (account_end(gpu, seen))
            return;
    }
}

/* --- Taking and telling ---------------------------------------------------------------------------- */

static void account_reap(unsigned gpu)
{
    struct account copy;
    account_read(&shared_view()->gpus[gpu], &copy);
    if (shares_tidy(&copy, gpu))
        for (;;) {
            uint64_t seen;
            struct account *own = account_begin(&shared_view()->gpus[gpu], shared_view()->slot, &seen);
            if (!shares_tidy(own, gpu) || account_end(&shared_view()->gpus[gpu], seen))
                break;
        }
    account_read(&shared_view()->gpus[gpu], &copy);
    uint32_t slots = copy.slot_count;
    for (uint32_t row = 0; row < copy.share_count; row++)
        if (copy.shares[row].slot != SHARE_NOBODY && copy.shares[row].slot >= slots)
            slots = copy.shares[row].slot + 1;
    for (uint32_t slot = 0; slot < slots; slot++) {
        if (!account_has(&copy, slot))
            continue;
        uint64_t generation = atomic_load(&shared_view()->header->slots[slot].generation);
        if (!shared_slot_is_alive(slot))
            account_drop(&shared_view()->gpus[gpu], slot, generation);
    }
}

/* Count each share with the process that has held it longest: its first row. */
static void account_fold_shares(struct account *copy)
{
    for (uint32_t row = 0; row < copy->share_count; row++) {
        const struct account_share *share = &copy->shares[row];
        uint32_t first = 0;
        while (copy->shares[first].index != share->index ||
               copy->shares[first].generation != share->generation)
            first++;
        if (first < row || share->slot >= DEVICE_SLOTS)
            continue;
        while (copy->slot_count <= share->slot)
            copy->bytes[copy->slot_count++] = 0;
        copy->bytes[share->slot] += share->bytes;
    }
}

/* The account as it is once the dead are gone. */
static void account_read_reaped(unsigned gpu, struct account *copy)
{
    device_account_lock(gpu);
    account_reap(gpu);
    device_account_unlock(gpu);
    account_read(&shared_view()->gpus[gpu], copy);
}

bool device_charge(unsigned gpu, uint64_t bytes)
{
    uint64_t total_bytes = device_shape(gpu)->total_bytes;
    if (fault_of_memory())
        return false;
    cost_of_memory(bytes);
    device_account_lock(gpu);
    bool fits = account_add(&shared_view()->gpus[gpu], bytes, total_bytes);
    if (!fits) {
        account_reap(gpu);
        fits = account_add(&shared_view()->gpus[gpu], bytes, total_bytes);
    }
    device_account_unlock(gpu);
    return fits;
}

void device_credit(unsigned gpu, uint64_t bytes)
{
    if (bytes == 0)
        return;
    cost_of_memory(0);
    device_account_lock(gpu);
    for (;;) {
        uint64_t seen;
        struct account *own = account_begin(&shared_view()->gpus[gpu], shared_view()->slot, &seen);
        /* A program that closed all descriptors, ours too, looks dead to the others, which may have dropped
         * its bytes. */
        uint64_t held = bytes < own->bytes[shared_view()->slot] ? bytes : own->bytes[shared_view()->slot];
        own->used_bytes -= held;
        own->bytes[shared_view()->slot] -= held;
        if (account_end(&shared_view()->gpus[gpu], seen))
            break;
    }
    device_account_unlock(gpu);
}

void device_hide(unsigned gpu, uint64_t bytes)
{
    atomic_fetch_add(&shared_view()->header->slots[shared_view()->slot].hidden_bytes[gpu], bytes);
}

void device_unhide(unsigned gpu, uint64_t bytes)
{
    atomic_fetch_sub(&shared_view()->header->slots[shared_view()->slot].hidden_bytes[gpu], bytes);
}

uint64_t device_own_bytes(unsigned gpu)
{
    struct account copy;
    account_read(&shared_view()->gpus[gpu], &copy);
    account_fold_shares(&copy);
    return shared_view()->slot < copy.slot_count ? copy.bytes[shared_view()->slot] : 0;
}

uint64_t device_used_bytes(unsigned gpu)
{
    struct account copy;
    account_read_reaped(gpu, &copy);
    return copy.used_bytes + (paging_is_on() ? paging_held_bytes(gpu) : 0);
}

unsigned device_processes(unsigned gpu, struct device_process *processes, unsigned capacity)
{
    struct account copy;
    unsigned count = 0;
    account_read_reaped(gpu, &copy);
    account_fold_shares(&copy);
    for (uint32_t slot = 0; slot < copy.slot_count; slot++) {
        if (copy.bytes[slot] == 0)
            continue;
        uint64_t hidden = atomic_load(&shared_view()->header->slots[slot].hidden_bytes[gpu]);
        if (count < capacity)
            processes[count] = (struct device_process){
                .pid = shared_slot_pid(slot),
                .bytes = copy.bytes[slot] > hidden ? copy.bytes[slot] - hidden : 0,
            };
        count++;
    }
    return count;
}
