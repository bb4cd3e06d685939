#include "intercept/memory/engine/managed.h"

#include <errno.h>
#include <string.h>

#include "intercept/agent/agent.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/context_locks.h"
#include "intercept/memory/engine/as_driver.h"
#include "intercept/memory/engine/unmovable.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/report.h"

/* A prefetch tells how far it is each time that it has brought this much. */
#define PROGRESS_BYTES (UINT64_C(1) << 30)

/* From evict() to restore(). Only the agent's thread uses it. */
static bool is_away;

/* --- Allocating and freeing ------------------------------------------------------------------------ */

/* Whether the session is charged more on the current GPU, with this allocation, than the card has. A daemon gives
 * such a limit only to sessions that may pass the card; a process on its own may have no limit at all. */
static bool passes_card(void)
{
    const struct ledger *ledger = &session_slot()->ledger;
    struct charge charge;
    CUdevice device;
    size_t card_bytes;
    return !ledger->policy->may_pass_card && charge_place_inside(&charge) == PLACE_ON_GPU &&
           real(cuCtxGetDevice)(&device) == CUDA_SUCCESS &&
           real(cuDeviceTotalMem_v2)(&card_bytes, device) == CUDA_SUCCESS &&
           ledger_used(ledger, charge.gpu) > card_bytes;
}

static bool is_managed_here(const struct alloc_row *row)
{
    return row->can_move && row->record == RECORD_POINTER;
}

static CUresult managed_allocate(const struct allocation *wanted, CUcontext context)
{
    uint64_t bytes = wanted->bytes;
    (void)context;
    if (!is_managed_here(&alloc_rows[wanted->way]))
        return plain_allocate(wanted);
    if (wanted->way == WAY_cuMemAllocPitch_v2) {
        CUresult result = as_driver_pitch(wanted, &bytes);
        if (result != CUDA_SUCCESS)
            return result;
    }
    if (passes_card())
        return CUDA_ERROR_OUT_OF_MEMORY;
    return real(cuMemAllocManaged)(wanted->got, bytes, CU_MEM_ATTACH_GLOBAL);
}

static bool driver_says_managed(CUdeviceptr address)
{
    unsigned is_managed = 0;
    return engine_plain.pointer_attribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) ==
               CUDA_SUCCESS &&
           is_managed;
}

/* For a free in stream order, which no capture forbids and which needs no current context: so this is an own call in the
 * stream's. */
static CUresult free_at_once(CUdeviceptr address, CUstream stream)
{
    struct own_calls calls;
    CUcontext context;
    if (!as_driver_context_of(stream, &context) || !own_calls_begin(&calls, context))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = real(cuMemFree_v2)(address);
    own_calls_end(&calls);
    return result;
}

/* The driver does not free managed memory in a stream's order, so a free in stream order waits for the stream. */
static CUresult managed_release(enum release_way way, uint64_t key, CUstream stream)
{
    bool is_in_order = way == RELEASE_cuMemFreeAsync || way == RELEASE_cuMemFreeAsync_ptsz;
    if (!is_in_order || as_driver_is_captured(way, stream) || !driver_says_managed(key))
        return plain_release(way, key, stream);
    CUresult result = as_driver_wait_for_stream(way, stream);
    return result == CUDA_SUCCESS ? free_at_once(key, stream) : result;
}

/* --- What the program asks ------------------------------------------------------------------------- */

/* Whether the engine made this memory; if not, the program may have made managed memory itself. */
static bool is_of_engine(CUdeviceptr address)
{
    struct record record;
    return charge_has_any() && records_find_around(memory_records(), address, &record) &&
           record.kind == RECORD_POINTER && (record.flags & RECORD_MOVES);
}

static CUresult managed_address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    return engine_plain.address_range(base, bytes, address);
}

/* Replace what managed memory answers by what device memory answers, where the two differ. */
static void answer_as_device_memory(CUpointer_attribute which, void *value)
{
    if (which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        *(CUmemorytype *)value = CU_MEMORYTYPE_DEVICE;
    else if (which == CU_POINTER_ATTRIBUTE_IS_MANAGED)
        *(unsigned *)value = 0;
    else if (which == CU_POINTER_ATTRIBUTE_HOST_POINTER)
        *(void **)value = NULL;
}

static CUresult managed_pointer_attribute(void *value, CUpointer_attribute which, CUdeviceptr address)
{
    CUresult result = engine_plain.pointer_attribute(value, which, address);
    if (result != CUDA_SUCCESS || !is_of_engine(address))
        return result;
    answer_as_device_memory(which, value);
    return which == CU_POINTER_ATTRIBUTE_HOST_POINTER ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult managed_pointer_attributes(unsigned count, CUpointer_attribute *which, void **values,
                                           CUdeviceptr address)
{
    CUresult result = engine_plain.pointer_attributes(count, which, values, address);
    if (result == CUDA_SUCCESS && is_of_engine(address))
        for (unsigned i = 0; i < count; i++)
            answer_as_device_memory(which[i], values[i]);
    return result;
}

const struct engine engine_managed = {
    .uses_ranges = true,
    .is_hidden = true,
    .has_no_pools = true,
    .allocate = managed_allocate,
    .release = managed_release,
    .address_range = managed_address_range,
    .pointer_attribute = managed_pointer_attribute,
    .pointer_attributes = managed_pointer_attributes,
    .vmm = &plain_vmm,
};

/* --- Turns ----------------------------------------------------------------------------------------- */

static int take_chunk(int fd, uint64_t bytes)
{
    (void)fd;
    (void)bytes;
    return -EOPNOTSUPP; /* the driver keeps evicted pages in host memory of its own */
}

static void add_movable(const struct record *record, void *argument)
{
    if (record_is_charged(record->kind) && (record->flags & RECORD_MOVES))
        *(uint64_t *)argument += record->charged.bytes;
}

static void count(struct agent_memory *memory)
{
    uint64_t bytes = 0;
    records_each(memory_records(), add_movable, &bytes);
    *memory = (struct agent_memory){
        .resident_bytes = is_away ? 0 : bytes,
        .evicted_bytes = is_away ? bytes : 0,
    };
    unmovable_add(memory->stays_bytes);
}

static int evict(void (*progress)(void))
{
    (void)progress;
    is_away = true;
    return 0;
}

/* A prefetch of one context's memory after another's. */
struct prefetch {
    void (*progress)(void);
    uint64_t context; /* 0: none yet */
    CUdevice device;
    CUstream stream;
    struct own_calls calls;
    uint64_t untold_bytes;
    /* For each GPU of the policy: how much of its card is left for what follows. */
    uint64_t room_bytes[LEDGER_GPUS];
    bool has_room[LEDGER_GPUS]; /* `room_bytes` is known */
};

static void end_context(struct prefetch *prefetch)
{
    if (!prefetch->context)
        return;
    real(cuStreamSynchronize)(prefetch->stream);
    real(cuStreamDestroy_v2)(prefetch->stream);
    own_calls_end(&prefetch->calls);
    prefetch->context = 0;
}

static bool begin_context(struct prefetch *prefetch, uint64_t context)
{
    if (prefetch->context == context)
        return true;
    end_context(prefetch);
    if (!own_calls_begin(&prefetch->calls, (CUcontext)(uintptr_t)context))
        return false;
    if (real(cuCtxGetDevice)(&prefetch->device) == CUDA_SUCCESS &&
        real(cuStreamCreate)(&prefetch->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
        prefetch->context = context;
        return true;
    }
    own_calls_end(&prefetch->calls);
    return false;
}

/* No more is brought to the card than it has room for: the rest would throw out what came before. */
static uint64_t take_room(struct prefetch *prefetch, unsigned gpu, uint64_t bytes)
{
    size_t card_bytes = 0;
    if (!prefetch->has_room[gpu]) {
        real(cuDeviceTotalMem_v2)(&card_bytes, prefetch->device);
        uint64_t context_bytes = session_context_cost(gpu);
        prefetch->room_bytes[gpu] = card_bytes > context_bytes ? card_bytes - context_bytes : 0;
        prefetch->has_room[gpu] = true;
    }
    if (bytes > prefetch->room_bytes[gpu])
        bytes = prefetch->room_bytes[gpu];
    prefetch->room_bytes[gpu] -= bytes;
    return bytes;
}

/* Memory that cannot be prefetched comes when the program touches it, so nothing here fails. */
static void bring(struct prefetch *prefetch, const struct record *record)
{
    if (!begin_context(prefetch, record->charged.context))
        return;
    uint64_t bytes = take_room(prefetch, record->gpu, record->charged.bytes);
    if (!bytes ||
        real(cuMemPrefetchAsync)(record->key, bytes, prefetch->device, prefetch->stream) != CUDA_SUCCESS)
        return;
    prefetch->untold_bytes += bytes;
    if (prefetch->untold_bytes < PROGRESS_BYTES)
        return;
    prefetch->untold_bytes = 0;
    real(cuStreamSynchronize)(prefetch->stream);
    prefetch->progress();
}

/* Prefetches in the order of addresses. Contexts live on meanwhile, since their locks are held. */
static int restore(void (*progress)(void))
{
    struct records *records = memory_records();
    struct prefetch prefetch = {.progress = progress};
    struct range range;
    struct record record;
    uint32_t locked = context_lock_all();
    for (uint64_t at = 0; ranges_next(&records->ranges, at, &range); at = range.begin + range.bytes)
        if (range.kind == RECORD_POINTER && records_find(records, RECORD_POINTER, range.begin, &record) &&
            (record.flags & RECORD_MOVES))
            bring(&prefetch, &record);
    end_context(&prefetch);
    context_unlock_all(locked);
    is_away = false;
    return 0;
}

static const struct agent_mover mover = {
    .take_chunk = take_chunk,
    .count = count,
    .evict = evict,
    .restore = restore,
};

static bool can_page(CUcontext context)
{
    CUdevice device;
    int pages = 0;
    return real(cuMemAllocManaged) && real(cuMemPrefetchAsync) && own_calls_device(context, &device) &&
           real(cuDeviceGetAttribute)(&pages, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device) ==
               CUDA_SUCCESS &&
           pages;
}

void managed_begin(CUcontext context)
{
    static atomic_bool said;
    if (!can_page(context)) {
        report_once(
            &said,
            "the driver cannot page GPU memory here, which --oversubscribe=managed needs: this program's "
            "memory stays on the card; --oversubscribe=swap needs no paging");
        return;
    }
    agent_set_mover(&mover);
    atomic_store_explicit(&engine_in_use, &engine_managed, memory_order_relaxed);
}
