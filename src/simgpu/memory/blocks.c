#include "simgpu/memory/blocks.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "simgpu/device/constants.h"
#include "simgpu/device/device.h"
#include "simgpu/device/paging.h"

#define UNIT_BYTES 512u /* what an allocation's size is rounded up to inside a block */

/* What this process has in blocks. A forked child begins with nothing. */
static struct {
    pthread_mutex_t lock;
    pid_t owner;
    uint64_t taken_bytes[DEVICE_GPUS];
} blocks = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void forget_in_child(void)
{
    pthread_mutex_init(&blocks.lock, NULL);
}

/* Under the lock. */
static uint64_t block_bytes(void)
{
    pid_t self = getpid();
    static bool is_prepared;
    if (!is_prepared) {
        is_prepared = true;
        pthread_atfork(NULL, NULL, forget_in_child);
    }
    if (blocks.owner != self) {
        blocks.owner = self;
        for (unsigned gpu = 0; gpu < DEVICE_GPUS; gpu++)
            blocks.taken_bytes[gpu] = 0;
    }
    return constant_whole(SIM_BLOCK_BYTES);
}

static uint64_t whole(uint64_t bytes, uint64_t unit)
{
    return bytes > UINT64_MAX - unit ? UINT64_MAX : (bytes + unit - 1) / unit * unit;
}

static bool take_bytes(unsigned gpu, uint64_t bytes)
{
    bool fits = true;
    pthread_mutex_lock(&blocks.lock);
    uint64_t block = block_bytes(), had = blocks.taken_bytes[gpu];
    if (!block) {
        fits = device_charge(gpu, bytes);
    } else {
        uint64_t has =
            whole(bytes, UNIT_BYTES) > UINT64_MAX - had ? UINT64_MAX : had + whole(bytes, UNIT_BYTES);
        uint64_t more = whole(has, block) - whole(had, block);
        fits = more == 0 || device_charge(gpu, more);
        if (fits)
            blocks.taken_bytes[gpu] = has;
    }
    pthread_mutex_unlock(&blocks.lock);
    return fits;
}

static void give_back(unsigned gpu, uint64_t bytes)
{
    pthread_mutex_lock(&blocks.lock);
    uint64_t block = block_bytes(), had = blocks.taken_bytes[gpu];
    if (!block) {
        device_credit(gpu, bytes);
    } else {
        uint64_t rounded = whole(bytes, UNIT_BYTES), has = had > rounded ? had - rounded : 0;
        device_credit(gpu, whole(had, block) - whole(has, block));
        blocks.taken_bytes[gpu] = has;
    }
    pthread_mutex_unlock(&blocks.lock);
}

bool blocks_take(unsigned gpu, enum memory_kind kind, uint64_t bytes)
{
    if (kind != MEMORY_MANAGED)
        return take_bytes(gpu, bytes);
    if (paging_is_on()) /* managed memory takes what it brings to the GPU */
        return true;
    /* Hide the bytes first, so that NVML never shows them. */
    device_hide(gpu, bytes);
    bool fits = device_charge(gpu, bytes);
    if (!fits)
        device_unhide(gpu, bytes);
    return fits;
}

void blocks_give_back(unsigned gpu, enum memory_kind kind, uint64_t bytes)
{
    if (kind != MEMORY_MANAGED) {
        give_back(gpu, bytes);
        return;
    }
    if (paging_is_on())
        return;
    device_credit(gpu, bytes);
    device_unhide(gpu, bytes);
}
