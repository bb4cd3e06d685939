/* nvml_events.c - sets of events, and waiting for them. What can happen to a simulated card is an Xid: a fault of some
 * process's work, or the card's loss (faults.h). */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "simgpu/device/shared.h"
#include "simgpu/nvml/nvml_find.h"

#define EVENT_XID 0x8ull        /* nvmlEventTypeXidCriticalError */
#define EVENTS_KNOWN 0x1ffffull /* all that nvml.h 13.3 names */
#define POLL_NS 5000000         /* how soon an event of another process is seen */

struct nvmlEventSet_st {
    pthread_mutex_t lock;
    uint64_t cards;              /* a bit for each registered card */
    uint64_t seen[DEVICE_CARDS]; /* Xids of the card that were told, or were there before */
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    nvmlReturn_t result = nvml_ready();
    if (result != NVML_SUCCESS)
        return result;
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct nvmlEventSet_st *made = calloc(1, sizeof(*made));
    if (!made)
        return NVML_ERROR_UNKNOWN;
    pthread_mutex_init(&made->lock, NULL);
    *set = made;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    nvmlReturn_t result = nvml_ready();
    if (result != NVML_SUCCESS)
        return result;
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!types)
        return NVML_ERROR_INVALID_ARGUMENT;
    *types = EVENT_XID;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!set || (types & ~EVENTS_KNOWN))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (types & ~EVENT_XID)
        return NVML_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&set->lock);
    if (types && !(set->cards >> gpu & 1)) {
        set->cards |= UINT64_C(1) << gpu;
        set->seen[gpu] = device_xid_count(gpu);
    }
    pthread_mutex_unlock(&set->lock);
    return NVML_SUCCESS;
}

/* The next event of the set that was not told yet. */
static bool take_event(nvmlEventSet_t set, nvmlEventData_t *data)
{
    for (unsigned gpu = 0; gpu < device_parameters().card_count; gpu++) {
        if (!(set->cards >> gpu & 1) || device_xid_count(gpu) == set->seen[gpu])
            continue;
        set->seen[gpu]++;
        *data = (nvmlEventData_t){.device = nvml_handle(gpu),
                                  .eventType = EVENT_XID,
                                  .eventData = device_xid(gpu),
                                  .gpuInstanceId = NVML_VALUE_NOT_AVAILABLE_U32,
                                  .computeInstanceId = NVML_VALUE_NOT_AVAILABLE_U32};
        return true;
    }
    return false;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    nvmlReturn_t result = nvml_ready();
    if (result != NVML_SUCCESS)
        return result;
    if (!set || !data)
        return NVML_ERROR_INVALID_ARGUMENT;
    uint64_t deadline_ns = monotonic_ns() + timeout_ms * UINT64_C(1000000);
    for (;;) {
        pthread_mutex_lock(&set->lock);
        bool is_taken = take_event(set, data);
        pthread_mutex_unlock(&set->lock);
        if (is_taken)
            return NVML_SUCCESS;
        if (monotonic_ns() >= deadline_ns)
            return NVML_ERROR_TIMEOUT;
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    return nvmlEventSetWait_v2(set, data, timeout_ms);
}
