/* ranges.c - host memory and mappings, in the order of their addresses. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu/memory/memory.h"

static pthread_rwlock_t ranges_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct memory_allocation *ranges;
static size_t range_count, range_room;
static uint64_t next_id = UINT64_C(1) << 48; /* apart from the heap's */

/* The first range that ends behind `address`. */
static size_t lower_bound(uint64_t address)
{
    size_t low = 0, high = range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].address + ranges[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void ranges_add(const struct memory_allocation *allocation)
{
    pthread_rwlock_wrlock(&ranges_lock);
    if (range_count == range_room) {
        size_t room = range_room ? range_room * 2 : 64;
        struct memory_allocation *more = realloc(ranges, room * sizeof(*more));
        if (!more)
            abort(); /* the machine has no 3 KiB left; a driver would not do better */
        ranges = more;
        range_room = room;
    }
    size_t at = lower_bound(allocation->address);
    memmove(&ranges[at + 1], &ranges[at], (range_count - at) * sizeof(*ranges));
    ranges[at] = *allocation;
    ranges[at].id = ++next_id;
    range_count++;
    pthread_rwlock_unlock(&ranges_lock);
}

bool ranges_remove(uint64_t address, struct memory_allocation *allocation)
{
    pthread_rwlock_wrlock(&ranges_lock);
    size_t at = lower_bound(address);
    bool found = at < range_count && ranges[at].address == address;
    if (found) {
        *allocation = ranges[at];
        range_count--;
        memmove(&ranges[at], &ranges[at + 1], (range_count - at) * sizeof(*ranges));
    }
    pthread_rwlock_unlock(&ranges_lock);
    return found;
}

bool ranges_find(uint64_t address, struct memory_allocation *allocation)
{
    pthread_rwlock_rdlock(&ranges_lock);
    size_t at = lower_bound(address);
    bool found = at < range_count && ranges[at].address <= address;
    if (found)
        *allocation = ranges[at];
    pthread_rwlock_unlock(&ranges_lock);
    return found;
}

bool ranges_find_context(CUcontext context, struct memory_allocation *allocation)
{
    pthread_rwlock_rdlock(&ranges_lock);
    size_t at = 0;
    while (at < range_count && ranges[at].context != context)
        at++;
    bool found = at < range_count;
    if (found)
        *allocation = ranges[at];
    pthread_rwlock_unlock(&ranges_lock);
    return found;
}

void ranges_set_access(uint64_t address, unsigned flags, uint64_t reached_by)
{
    pthread_rwlock_wrlock(&ranges_lock);
    size_t at = lower_bound(address);
    if (at < range_count && ranges[at].address == address) {
        ranges[at].flags = flags;
        ranges[at].reached_by = reached_by;
    }
    pthread_rwlock_unlock(&ranges_lock);
}

bool ranges_overlap(uint64_t address, uint64_t bytes)
{
    pthread_rwlock_rdlock(&ranges_lock);
    size_t at = lower_bound(address);
    bool overlap = at < range_count && ranges[at].address < address + bytes;
    pthread_rwlock_unlock(&ranges_lock);
    return overlap;
}
