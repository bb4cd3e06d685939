/* nic.c - a network card that reads the GPU's memory by itself, as with nvidia-peermem or gdrdrv (fakecuda.h).
 *
 * It keeps the pages that it was told of. On a card, the driver takes them from it when they are unmapped or freed, and what it
 * reads later is an error, also where other memory has come to the same address: it was told of the old one. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu/driver/fakecuda.h"
#include "simgpu/memory/memory.h"

#define REGISTRATIONS_MOST 4096u

static struct registration {
    uint64_t address, bytes;
    uint64_t *ids; /* of the allocations that lay there, one behind the other */
    size_t count;
} registrations[REGISTRATIONS_MOST];
static unsigned registration_count;
static pthread_mutex_t nic_lock = PTHREAD_MUTEX_INITIALIZER;

/* Call `see` for each allocation of a range until it answers false. False then, and where nothing is allocated. */
static bool each_in(uint64_t address, uint64_t bytes,
                    bool (*see)(struct registration *, const struct memory_allocation *, size_t),
                    struct registration *registration)
{
    uint64_t end = address + bytes;
    struct memory_allocation allocation;
    for (size_t number = 0; address < end; number++) {
        if (!memory_find(address, &allocation) || !see(registration, &allocation, number))
            return false;
        address = allocation.address + allocation.bytes;
    }
    return true;
}

static bool note_allocation(struct registration *registration, const struct memory_allocation *allocation,
                            size_t number)
{
    uint64_t *more = realloc(registration->ids, (number + 1) * sizeof(*more));
    if (!more)
        return false;
    registration->ids = more;
    registration->count = number + 1;
    more[number] = allocation->id;
    return memory_is_for_rdma(allocation);
}

static bool is_still(struct registration *registration, const struct memory_allocation *allocation,
                     size_t number)
{
    return number < registration->count && registration->ids[number] == allocation->id;
}

__attribute__((visibility("default"))) int fakecuda_nic_register(uint64_t address, uint64_t bytes)
{
    struct registration made = {.address = address, .bytes = bytes};
    bool is_good = bytes > 0 && each_in(address, bytes, note_allocation, &made);
    pthread_mutex_lock(&nic_lock);
    is_good = is_good && registration_count < REGISTRATIONS_MOST;
    int number = is_good ? (int)registration_count++ : -1;
    if (is_good)
        registrations[number] = made;
    pthread_mutex_unlock(&nic_lock);
    if (!is_good)
        free(made.ids);
    return number;
}

__attribute__((visibility("default"))) int fakecuda_nic_read(int number, uint64_t offset, void *to,
                                                             uint64_t bytes)
{
    pthread_mutex_lock(&nic_lock);
    struct registration *of =
        number >= 0 && (unsigned)number < registration_count ? &registrations[number] : NULL;
    bool is_good = of && offset <= of->bytes && bytes <= of->bytes - offset &&
                   each_in(of->address, of->bytes, is_still, of);
    if (is_good)
        memcpy(to, (const void *)(uintptr_t)(of->address + offset), bytes);
    pthread_mutex_unlock(&nic_lock);
    return is_good ? 0 : -1;
}
