/* device.c - what the simulated GPUs are, and which are lost or hung. */
#include "simgpu/device/device.h"

#include <string.h>
#include <unistd.h>

#include "simgpu/device/shared_file.h"

/* --- What the GPUs are ----------------------------------------------------------------------------- */

struct device_parameters device_parameters(void)
{
    return shared_file.view.header->parameters;
}

const struct device_shape *device_shape(unsigned gpu)
{
    return &shared_file.view.header->shapes[gpu];
}

bool device_is_instance(unsigned gpu)
{
    return device_shape(gpu)->instance != DEVICE_WHOLE;
}

bool device_reaches(unsigned gpu, unsigned other)
{
    return gpu != other && !device_is_instance(gpu) && !device_is_instance(other);
}

void device_uuid(unsigned gpu, uint8_t uuid[static 16])
{
    const struct device_shape *shape = device_shape(gpu);
    uint64_t number = device_is_instance(gpu) ? (shape->instance + 1) * DEVICE_CARDS + shape->card : gpu;
    /* FNV-1a, twice with different beginnings, over the file's name and the number. */
    for (unsigned half = 0; half < 2; half++) {
        uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ (half * UINT64_C(0x9e3779b97f4a7c15));
        for (const char *at = shared_file.key; *at; at++)
            hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
        hash = (hash ^ (number + 1)) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
        hash *= UINT64_C(0xbf58476d1ce4e5b9);
        hash ^= hash >> 32;
        memcpy(uuid + half * 8, &hash, sizeof(hash));
    }
    uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x50); /* RFC 4122: made from a name */
    uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

unsigned device_pci_bus(unsigned gpu)
{
    return device_shape(gpu)->card + 1;
}

/* --- Lost and hung GPUs ----------------------------------------------------------------------------- */

static _Atomic uint64_t *xids_of(unsigned gpu)
{
    return &shared_file.view.header->xids[device_shape(gpu)->card];
}

void device_note_xid(unsigned gpu, unsigned number)
{
    uint64_t seen = atomic_load(xids_of(gpu));
    while (!atomic_compare_exchange_weak(xids_of(gpu), &seen, ((seen >> 16) + 1) << 16 | number))
        continue;
}

uint64_t device_xid_count(unsigned gpu)
{
    return atomic_load(xids_of(gpu)) >> 16;
}

unsigned device_xid(unsigned gpu)
{
    return atomic_load(xids_of(gpu)) & 0xffff;
}

void device_lose(unsigned gpu)
{
    atomic_fetch_or(&shared_file.view.header->lost, 1u << device_shape(gpu)->card);
}

bool device_is_lost(unsigned gpu)
{
    return atomic_load_explicit(&shared_file.view.header->lost, memory_order_relaxed) >>
               device_shape(gpu)->card &
           1;
}

#define HUNG_GENERATION ((UINT64_C(1) << 48) - 1)

void device_hang(void)
{
    uint64_t generation = atomic_load(&shared_file.view.header->slots[shared_file.view.slot].generation);
    atomic_store(&shared_file.view.header->hung,
                 (uint64_t)(shared_file.view.slot + 1) << 48 | (generation & HUNG_GENERATION));
}

/* The hang ends with its process, and the slot may have its next owner. */
static bool is_hung(uint64_t hung)
{
    uint32_t slot = (uint32_t)(hung >> 48) - 1;
    return hung && shared_slot_is_alive(slot) &&
           (atomic_load(&shared_file.view.header->slots[slot].generation) & HUNG_GENERATION) ==
               (hung & HUNG_GENERATION);
}

void device_wait_while_hung(void)
{
    while (is_hung(atomic_load_explicit(&shared_file.view.header->hung, memory_order_relaxed)))
        usleep(1000);
}
