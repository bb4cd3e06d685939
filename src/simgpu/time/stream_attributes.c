/* stream_attributes.c - what can be set on a stream (kept and told, as nothing here depends on it), and
 * managed memory attached to one. */
#include <stdlib.h>
#include <string.h>

#include "simgpu/memory/memory.h"
#include "simgpu/time/execution.h"

#define SYNC_POLICY_AUTO 1 /* CU_SYNC_POLICY_AUTO .. BLOCKING_SYNC */
#define SYNC_POLICY_LAST 4

/* The attributes of a stream that had one set; by its id, which is never used twice. */
struct settings {
    struct settings *next;
    unsigned long long id;
    CUlaunchAttributeValue window, policy, domain_map, domain;
};

static pthread_mutex_t settings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct settings *all_settings;

/* Under settings_lock; NULL if there is no memory. */
static struct settings *settings_of(unsigned long long id)
{
    struct settings *found = all_settings;
    while (found && found->id != id)
        found = found->next;
    if (found || !(found = calloc(1, sizeof(*found))))
        return found;
    const int automatic = SYNC_POLICY_AUTO;
    memcpy(&found->policy, &automatic, sizeof(automatic));
    found->domain_map.pad[1] = 1; /* default: domain 0, remote: domain 1 (programming guide) */
    found->id = id;
    found->next = all_settings;
    all_settings = found;
    return found;
}

static CUlaunchAttributeValue *value_of(struct settings *settings, CUstreamAttrID attribute)
{
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return &settings->window;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        return &settings->policy;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        return &settings->domain_map;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return &settings->domain;
    default:
        return NULL;
    }
}

/* The legacy stream has an id too; ids of streams are small numbers, contexts' are above. */
static CUresult identify(CUstream handle, bool per_thread, CUstream *stream, unsigned long long *id)
{
    CUcontext context;
    SIM_TRY(stream_resolve(handle, per_thread, &context, stream));
    *id = *stream ? (*stream)->id : context->id << 32 | 1;
    return CUDA_SUCCESS;
}

static CUresult attribute_get(CUstream handle, bool per_thread, CUstreamAttrID attribute,
                              CUstreamAttrValue *value)
{
    CUstream stream;
    unsigned long long id;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(value);
    SIM_TRY(identify(handle, per_thread, &stream, &id));
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        value->priority = stream ? stream->priority : 0;
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&settings_lock);
    struct settings *settings = settings_of(id);
    const CUlaunchAttributeValue *kept = settings ? value_of(settings, attribute) : NULL;
    if (kept)
        *value = *kept;
    pthread_mutex_unlock(&settings_lock);
    if (!settings)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return kept ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult attribute_set(CUstream handle, bool per_thread, CUstreamAttrID attribute,
                              const CUstreamAttrValue *value)
{
    CUstream stream;
    unsigned long long id;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(value);
    SIM_TRY(identify(handle, per_thread, &stream, &id));
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        SIM_REQUIRE(stream);
        stream->priority = value->priority > 0 ? 0 : value->priority < -5 ? -5 : value->priority;
        return CUDA_SUCCESS;
    }
    if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) {
        int policy;
        memcpy(&policy, value, sizeof(policy));
        SIM_REQUIRE(policy >= SYNC_POLICY_AUTO && policy <= SYNC_POLICY_LAST);
    }
    pthread_mutex_lock(&settings_lock);
    struct settings *settings = settings_of(id);
    CUlaunchAttributeValue *kept = settings ? value_of(settings, attribute) : NULL;
    if (kept)
        *kept = *value;
    pthread_mutex_unlock(&settings_lock);
    if (!settings)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return kept ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Both of one context (driver API reference). */
static CUresult attributes_copy(CUstream to_handle, CUstream from_handle, bool per_thread)
{
    CUcontext to_context, from_context;
    CUstream to, from;
    SIM_TRY(stream_resolve(to_handle, per_thread, &to_context, &to));
    SIM_TRY(stream_resolve(from_handle, per_thread, &from_context, &from));
    SIM_REQUIRE(to_context == from_context);
    unsigned long long to_id = to ? to->id : to_context->id << 32 | 1;
    unsigned long long from_id = from ? from->id : from_context->id << 32 | 1;
    pthread_mutex_lock(&settings_lock);
    struct settings *target = settings_of(to_id), *source = settings_of(from_id);
    if (target && source) {
        target->window = source->window;
        target->policy = source->policy;
        target->domain_map = source->domain_map;
        target->domain = source->domain;
    }
    pthread_mutex_unlock(&settings_lock);
    return target && source ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_FORMS(cuStreamGetAttribute, _ptsz, (CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *value),
          attribute_get(stream, per_thread, attribute, value))

SIM_FORMS(cuStreamSetAttribute, _ptsz,
          (CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue *value),
          attribute_set(stream, per_thread, attribute, value))

SIM_FORMS(cuStreamCopyAttributes, _ptsz, (CUstream to, CUstream from), attributes_copy(to, from, per_thread))

/* Managed memory's bytes are where host and device both see them, so attaching changes nothing; what it may
 * be asked for is checked. `bytes` is 0 for the whole allocation, or all of its bytes. */
static CUresult attach(CUstream handle, bool per_thread, CUdeviceptr pointer, size_t bytes, unsigned flags)
{
    CUcontext context;
    CUstream stream;
    struct memory_allocation allocation;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
                flags == CU_MEM_ATTACH_SINGLE);
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    SIM_REQUIRE(flags != CU_MEM_ATTACH_SINGLE ||
                stream); /* not to the default stream (driver API reference) */
    SIM_REQUIRE(pointer && memory_find(pointer, &allocation) && allocation.kind == MEMORY_MANAGED);
    SIM_REQUIRE(allocation.address == pointer && (bytes == 0 || bytes == allocation.bytes));
    return CUDA_SUCCESS;
}

SIM_FORMS(cuStreamAttachMemAsync, _ptsz,
          (CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned int flags),
          attach(stream, per_thread, pointer, bytes, flags))
