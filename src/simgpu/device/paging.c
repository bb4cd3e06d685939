#include "simgpu/device/paging.h"

#include "simgpu/device/constants.h"
#include "simgpu/device/shared.h"

bool paging_is_on(void)
{
    return constant_whole(SIM_PAGING) != 0;
}

static uint64_t room_bytes(unsigned gpu)
{
    uint64_t total = device_shape(gpu)->total_bytes, used = device_account_bytes(gpu);
    return total > used ? total - used : 0;
}

/* What the living processes believe that they have there, all together. */
static uint64_t believed_bytes(unsigned gpu)
{
    uint64_t sum = 0;
    for (uint32_t slot = 0; slot < DEVICE_SLOTS; slot++) {
        uint64_t bytes =
            atomic_load_explicit(&shared_view()->header->slots[slot].paged_bytes[gpu], memory_order_relaxed);
        if (bytes > 0 && shared_slot_is_alive(slot))
            sum += bytes;
    }
    return sum;
}

uint64_t paging_held_bytes(unsigned gpu)
{
    uint64_t sum = believed_bytes(gpu), room = room_bytes(gpu);
    return sum < room ? sum : room;
}

uint64_t paging_bring(unsigned gpu, uint64_t bytes, bool again)
{
    uint64_t room = room_bytes(gpu), held = paging_held_bytes(gpu);
    if (!again)
        atomic_fetch_add(&shared_view()->header->slots[shared_view()->slot].paged_bytes[gpu], bytes);
    atomic_fetch_add(&shared_view()->header->paged_in_bytes[gpu], bytes);
    return held + bytes > room ? held + bytes - room : 0;
}

void paging_use(unsigned gpu, uint64_t bytes)
{
    if (believed_bytes(gpu) > room_bytes(gpu))
        atomic_fetch_add(&shared_view()->header->paged_in_bytes[gpu], bytes);
}

void paging_leave(unsigned gpu, uint64_t bytes)
{
    atomic_fetch_sub(&shared_view()->header->slots[shared_view()->slot].paged_bytes[gpu], bytes);
}

uint64_t paging_age(unsigned gpu)
{
    return atomic_load(&shared_view()->header->paged_in_bytes[gpu]);
}

bool paging_holds(unsigned gpu, uint64_t age, uint64_t bytes)
{
    return paging_age(gpu) - age + bytes <= room_bytes(gpu);
}
