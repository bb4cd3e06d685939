/* mover.c - what the agent calls to move this process's memory (agent.h). */
#include "intercept/memory/engine/swap/move/mover.h"

#include <errno.h>
#include <string.h>

#include "intercept/agent/agent.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/engine/swap/move/swap_move.h"
#include "intercept/memory/engine/swap/state.h"
#include "intercept/memory/engine/unmovable.h"
#include "intercept/memory/pool_charge.h"
#include "intercept/memory/registrations.h"
#include "intercept/resolve/guard.h"
#include "intercept/session/session.h"

static int take_chunk(int fd, uint64_t bytes)
{
    struct swap *swap = swap_state();
    guard_lock(&swap->lock);
    int result = arena_take_chunk(&swap->arena, fd, bytes);
    guard_unlock(&swap->lock);
    return result;
}

static int lock_pages(void)
{
    switch (page_lock_next()) {
    case PAGE_LOCK_DONE:
        return 1;
    case PAGE_LOCK_ALL:
        return 0;
    case PAGE_LOCK_NOT:
        break;
    }
    return -EAGAIN;
}

/* During a move the thread that reports progress holds the engine's lock, so what cannot move is counted before. It
 * does not change meanwhile. */
static bool is_moving;
/* None of the memory that could move does, as others may have registered it. */
static bool is_registered;
static uint64_t stays_before[WIRE_STAYS_COUNT];

/* Where the whole process is pinned, physical memory that the program makes is the driver's for that reason. */
static void add_unmovable(uint64_t bytes[static WIRE_STAYS_COUNT])
{
    uint64_t before = bytes[WIRE_STAYS_PROPERTIES];
    unmovable_add(bytes);
    if (swap_is_pinned()) {
        bytes[WIRE_STAYS_UNKNOWN] += bytes[WIRE_STAYS_PROPERTIES] - before;
        bytes[WIRE_STAYS_PROPERTIES] = before;
    }
}

static void begin_move(void)
{
    memset(stays_before, 0, sizeof(stays_before));
    add_unmovable(stays_before);
    is_moving = true;
}

static void add_stays(uint64_t bytes[static WIRE_STAYS_COUNT])
{
    if (!is_moving)
        add_unmovable(bytes);
    for (unsigned why = 0; why < WIRE_STAYS_COUNT; why++)
        bytes[why] += (is_moving ? stays_before[why] : 0) +
                      atomic_load_explicit(&swap_state()->pinned_bytes[why], memory_order_relaxed);
}

static void count(struct agent_memory *memory)
{
    struct swap_bytes bytes = swap_bytes();
    *memory = (struct agent_memory){
        .resident_bytes = bytes.resident_bytes,
        .evicted_bytes = bytes.evicted_bytes,
        .arena_bytes = swap_state()->arena.ready_bytes,
    };
    add_stays(memory->stays_bytes);
    if (!is_moving)
        is_registered = registrations_may_exist(false);
    if (is_registered) {
        memory->stays_bytes[WIRE_STAYS_REGISTERED] += memory->resident_bytes;
        memory->resident_bytes = 0;
    }
}

static int end_move(CUresult result)
{
    is_moving = false;
    if (result == CUDA_SUCCESS)
        return 0;
    if (result == CUDA_ERROR_NOT_READY)
        return -EBUSY;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
}

static int evict(void (*progress)(void))
{
    is_registered = registrations_may_exist(true);
    if (is_registered)
        return 0;
    begin_move();
    int result = end_move(swap_evict(progress));
    pool_charge_after_leaving();
    return result;
}

static int restore(void (*progress)(void))
{
    begin_move();
    return end_move(swap_restore(progress));
}

/* The device that is this GPU of the policy; -1: the program sees none. */
static CUdevice device_of(uint32_t gpu)
{
    struct charge charge;
    enum gpu_place place;
    for (CUdevice device = 0; (place = charge_place_device(&charge, device)) != PLACE_NOWHERE; device++)
        if (place == PLACE_ON_GPU && charge.gpu == gpu)
            return device;
    return -1;
}

static int restore_part(uint32_t gpu, uint64_t most_bytes, void (*progress)(void))
{
    CUdevice device = device_of(gpu);
    begin_move();
    return end_move(device >= 0 ? swap_restore_part(device, most_bytes, progress) : CUDA_SUCCESS);
}

const struct agent_mover swap_mover = {
    .takes_addresses = true,
    .take_chunk = take_chunk,
    .lock_pages = lock_pages,
    .count = count,
    .evict = evict,
    .restore = restore,
    .restore_part = restore_part,
    .has_spare_chunk = swap_has_spare_chunk,
    .give_back_chunk = swap_give_back_chunk,
};

void mover_register(void)
{
    swap_state()->arena.is_given = !session_is_standalone();
    agent_set_mover(&swap_mover);
}
