/* prefetch.c - managed memory: where a program wants its pages, and the time that moving them takes.
 *
 * Host and kernels see the same bytes at once, so nothing is copied. What is known of a page is what the program said
 * of it: pages begin on the host, where programs fill them, and move only by being prefetched. Faults are not seen,
 * so neither are the moves that they cause on a card. Managed memory stays charged to its GPU wherever its pages are.
 *
 * residence   a set of places: bit 0 the host, bit 1 + ordinal a device; none after a discard
 * span        pages of one allocation of which the same is known */
#include <stdlib.h>
#include <string.h>

#include "simgpu/execution.h"
#include "simgpu/memory.h"
#include "simgpu/pool.h"
#include "simgpu/sim.h"

#define PAGE_BYTES UINT64_C(4096)
#define DEVICE_CPU (-1)     /* CU_DEVICE_CPU */
#define DEVICE_INVALID (-2) /* CU_DEVICE_INVALID */
#define ON_HOST 1u
#define BUCKETS 256u

struct page_state {
    CUmemLocation preferred, prefetched; /* type NONE: none */
    uint32_t accessed_by, resident;      /* sets of places */
    bool is_read_mostly;
};
static const struct page_state untouched = {.resident = ON_HOST};

struct span {
    uint64_t begin; /* in the allocation; it ends where the next begins */
    struct page_state state;
};

struct record {
    uint64_t address, id; /* of the allocation */
    size_t count;
    struct span *spans;
    struct record *next;
};

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static struct record *buckets[BUCKETS];
static size_t record_count, sweep_at = 64;

/* --- Records, under the lock ----------------------------------------------------------------------- */

static struct record **bucket_of(uint64_t id)
{
    return &buckets[id % BUCKETS];
}

static struct record *record_find(uint64_t id)
{
    struct record *record = *bucket_of(id);
    while (record && record->id != id)
        record = record->next;
    return record;
}

/* Drop those of allocations that are gone. */
static void sweep(void)
{
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        for (struct record **link = &buckets[bucket]; *link;) {
            struct record *record = *link;
            struct memory_allocation allocation;
            if (memory_find(record->address, &allocation) && allocation.id == record->id) {
                link = &record->next;
                continue;
            }
            *link = record->next;
            free(record->spans);
            free(record);
            record_count--;
        }
    }
    sweep_at = record_count * 2 + 64;
}

static struct record *record_make(const struct memory_allocation *allocation)
{
    if (record_count >= sweep_at)
        sweep();
    struct record *record = calloc(1, sizeof(*record));
    struct span *spans = malloc(sizeof(*spans));
    if (!record || !spans) {
        free(record);
        free(spans);
        return NULL;
    }
    spans[0] = (struct span){.state = untouched};
    *record = (struct record){.address = allocation->address,
                              .id = allocation->id,
                              .count = 1,
                              .spans = spans,
                              .next = *bucket_of(allocation->id)};
    *bucket_of(allocation->id) = record;
    record_count++;
    return record;
}

/* The span that holds what is `at` bytes in. */
static size_t span_find(const struct record *record, uint64_t at)
{
    size_t index = record->count - 1;
    while (record->spans[index].begin > at)
        index--;
    return index;
}

/* Let a span begin there. */
static bool span_split(struct record *record, uint64_t at)
{
    size_t index = span_find(record, at);
    if (record->spans[index].begin == at)
        return true;
    struct span *spans = realloc(record->spans, (record->count + 1) * sizeof(*spans));
    if (!spans)
        return false;
    memmove(spans + index + 2, spans + index + 1, (record->count - index - 1) * sizeof(*spans));
    spans[index + 1] = (struct span){at, spans[index].state};
    record->spans = spans;
    record->count++;
    return true;
}

static bool same_location(CUmemLocation one, CUmemLocation other)
{
    return one.type == other.type && one.id == other.id;
}

static bool same_state(const struct page_state *one, const struct page_state *other)
{
    return same_location(one->preferred, other->preferred) &&
           same_location(one->prefetched, other->prefetched) && one->accessed_by == other->accessed_by &&
           one->resident == other->resident && one->is_read_mostly == other->is_read_mostly;
}

static void spans_join(struct record *record)
{
    size_t kept = 1;
    for (size_t i = 1; i < record->count; i++)
        if (!same_state(&record->spans[i].state, &record->spans[kept - 1].state))
            record->spans[kept++] = record->spans[i];
    record->count = kept;
}

/* --- Ranges ---------------------------------------------------------------------------------------- */

static bool is_managed(const struct memory_allocation *allocation)
{
    return allocation->kind == MEMORY_MANAGED ||
           (allocation->kind == MEMORY_MODULE && allocation->flags) ||
           (allocation->kind == MEMORY_POOL && allocation->flags == POOL_MANAGED);
}

/* The part of a range that is in one allocation, in whole pages as far as that reaches. */
struct part {
    struct memory_allocation allocation;
    uint64_t from, until; /* in the allocation */
};

/* The range's first part; the range is then what is behind it. False if it is not managed memory. */
static bool part_next(uint64_t *address, uint64_t *bytes, struct part *part)
{
    if (!memory_find(*address, &part->allocation) || !is_managed(&part->allocation))
        return false;
    uint64_t base = part->allocation.address, end = base + part->allocation.bytes;
    uint64_t here = end - *address < *bytes ? end - *address : *bytes;
    uint64_t first = *address & ~(PAGE_BYTES - 1), last = (*address + here + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    part->from = first > base ? first - base : 0;
    part->until = (last < end ? last : end) - base;
    *address += here;
    *bytes -= here;
    return true;
}

static CUresult range_check(uint64_t address, uint64_t bytes)
{
    struct part part;
    SIM_REQUIRE(bytes > 0);
    while (bytes > 0)
        SIM_REQUIRE(part_next(&address, &bytes, &part));
    return CUDA_SUCCESS;
}

/* Call `change` for the range's spans. Under the lock. */
static CUresult range_change(uint64_t address, uint64_t bytes,
                             void (*change)(struct page_state *state, uint64_t bytes, void *what), void *what)
{
    struct part part;
    while (bytes > 0) {
        SIM_REQUIRE(part_next(&address, &bytes, &part));
        struct record *record = record_find(part.allocation.id);
        if (!record)
            record = record_make(&part.allocation);
        bool whole = part.until == part.allocation.bytes;
        if (!record || !span_split(record, part.from) || (!whole && !span_split(record, part.until)))
            return CUDA_ERROR_OUT_OF_MEMORY;
        for (size_t i = span_find(record, part.from);
             i < record->count && record->spans[i].begin < part.until; i++) {
            uint64_t end = i + 1 < record->count ? record->spans[i + 1].begin : part.allocation.bytes;
            change(&record->spans[i].state, end - record->spans[i].begin, what);
        }
        spans_join(record);
    }
    return CUDA_SUCCESS;
}

/* --- Locations ------------------------------------------------------------------------------------- */

/* Checked, and as it is told later: the machine shows one NUMA node. */
static CUresult location_read(CUmemLocation *location)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return device_check(location->id);
    case CU_MEM_LOCATION_TYPE_HOST:
        location->id = 0;
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        SIM_REQUIRE(location->id == 0);
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        *location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static uint32_t place_of(CUmemLocation location)
{
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? 2u << location.id : ON_HOST;
}

static CUmemLocation location_of(CUdevice device)
{
    return device == DEVICE_CPU ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}
                                : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

static CUdevice device_of(CUmemLocation location)
{
    if (location.type == CU_MEM_LOCATION_TYPE_NONE)
        return DEVICE_INVALID;
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : DEVICE_CPU;
}

/* --- Prefetching and discarding -------------------------------------------------------------------- */

struct move {
    CUmemLocation to;
    uint64_t in_bytes, out_bytes; /* over the link, to a device and from one */
};

static void move_pages(struct page_state *state, uint64_t bytes, void *what)
{
    struct move *move = what;
    uint32_t to = place_of(move->to);
    if (state->resident && !(state->resident & to)) {
        if (state->resident & ON_HOST)
            move->in_bytes += bytes;
        else
            move->out_bytes += bytes;
    }
    state->resident = state->is_read_mostly ? state->resident | to : to;
    state->prefetched = move->to;
}

static void discard_pages(struct page_state *state, uint64_t bytes, void *what)
{
    (void)bytes, (void)what;
    state->resident = 0;
}

/* What is done with each of `count` ranges. */
struct batch {
    CUdeviceptr *pointers;
    size_t *bytes;
    size_t count;
    bool discards;
    CUmemLocation *locations; /* NULL: no prefetch */
    size_t *first;            /* of the ranges that a location is for */
    size_t location_count;
};

static CUresult batch_check(const struct batch *batch)
{
    for (size_t i = 0; batch->locations && i < batch->location_count; i++) {
        CUmemLocation location = batch->locations[i];
        SIM_REQUIRE(batch->first[i] < batch->count);
        SIM_REQUIRE(i == 0 ? batch->first[i] == 0 : batch->first[i] > batch->first[i - 1]);
        SIM_TRY(location_read(&location));
    }
    for (size_t i = 0; i < batch->count; i++)
        SIM_TRY(range_check(batch->pointers[i], batch->bytes[i]));
    return CUDA_SUCCESS;
}

static CUresult batch_run(const struct batch *batch, CUcontext context, CUstream stream)
{
    struct move move = {.in_bytes = 0};
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&turn);
    for (size_t i = 0, next = 0; i < batch->count && result == CUDA_SUCCESS; i++) {
        if (batch->discards)
            result = range_change(batch->pointers[i], batch->bytes[i], discard_pages, NULL);
        if (batch->locations && next < batch->location_count && batch->first[next] == i) {
            move.to = batch->locations[next++];
            location_read(&move.to);
        }
        if (batch->locations && result == CUDA_SUCCESS)
            result = range_change(batch->pointers[i], batch->bytes[i], move_pages, &move);
    }
    pthread_mutex_unlock(&turn);
    if (move.in_bytes > 0)
        stream_submit(context, stream, TIMELINE_COPY_IN, execution_link_ns(move.in_bytes));
    if (move.out_bytes > 0)
        stream_submit(context, stream, TIMELINE_COPY_OUT, execution_link_ns(move.out_bytes));
    return result;
}

/* None of these can be captured. */
static CUresult prefetch(CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags,
                         CUstream handle, bool per_thread)
{
    CUcontext context;
    CUstream stream;
    size_t first = 0;
    struct batch batch = {&pointer, &bytes, 1, false, &location, &first, 1};
    SIM_TRY(sim_ready());
    SIM_REQUIRE(flags == 0);
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    SIM_TRY(batch_check(&batch));
    return batch_run(&batch, context, stream);
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream)
{
    return prefetch(pointer, bytes, location_of(device), 0, stream, false);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream)
{
    return prefetch(pointer, bytes, location_of(device), 0, stream, true);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned int flags,
                               CUstream stream)
{
    return prefetch(pointer, bytes, location, flags, stream, false);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr pointer, size_t bytes, CUmemLocation location,
                                    unsigned int flags, CUstream stream)
{
    return prefetch(pointer, bytes, location, flags, stream, true);
}

/* Batches never go to the legacy stream. */
static CUresult batch_submit(const struct batch *batch, bool prefetches, unsigned long long flags,
                             CUstream handle, bool per_thread)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(batch->pointers && batch->bytes && batch->count > 0 && flags == 0);
    SIM_REQUIRE(!prefetches || (batch->locations && batch->first && batch->location_count > 0 &&
                                batch->location_count <= batch->count));
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    SIM_REQUIRE(stream);
    SIM_TRY(batch_check(batch));
    return batch_run(batch, context, stream);
}

#define BATCHES(suffix, per_thread)                                                                          \
    CUresult cuMemPrefetchBatchAsync##suffix(CUdeviceptr *pointers, size_t *bytes, size_t count,             \
                                             CUmemLocation *locations, size_t *first, size_t location_count, \
                                             unsigned long long flags, CUstream stream)                      \
    {                                                                                                        \
        struct batch batch = {pointers, bytes, count, false, locations, first, location_count};              \
        return batch_submit(&batch, true, flags, stream, per_thread);                                        \
    }                                                                                                        \
    CUresult cuMemDiscardBatchAsync##suffix(CUdeviceptr *pointers, size_t *bytes, size_t count,              \
                                            unsigned long long flags, CUstream stream)                       \
    {                                                                                                        \
        struct batch batch = {pointers, bytes, count, true, NULL, NULL, 0};                                  \
        return batch_submit(&batch, false, flags, stream, per_thread);                                       \
    }                                                                                                        \
    CUresult cuMemDiscardAndPrefetchBatchAsync##suffix(                                                      \
        CUdeviceptr *pointers, size_t *bytes, size_t count, CUmemLocation *locations, size_t *first,         \
        size_t location_count, unsigned long long flags, CUstream stream)                                    \
    {                                                                                                        \
        struct batch batch = {pointers, bytes, count, true, locations, first, location_count};               \
        return batch_submit(&batch, true, flags, stream, per_thread);                                        \
    }
BATCHES(, false)
BATCHES(_ptsz, true)
#undef BATCHES

/* --- Advice ---------------------------------------------------------------------------------------- */

struct advice {
    CUmem_advise advice;
    CUmemLocation location;
};

/* Copies become one: at the preferred place if one is there. */
static uint32_t collapsed(const struct page_state *state)
{
    if (state->preferred.type != CU_MEM_LOCATION_TYPE_NONE &&
        (state->resident & place_of(state->preferred)))
        return place_of(state->preferred);
    return state->resident & -state->resident;
}

static void advise_pages(struct page_state *state, uint64_t bytes, void *what)
{
    const struct advice *advice = what;
    (void)bytes;
    switch (advice->advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
        state->is_read_mostly = true;
        break;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        state->is_read_mostly = false;
        state->resident = collapsed(state);
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        state->preferred = advice->location;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        state->preferred = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_NONE};
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        state->accessed_by |= place_of(advice->location);
        break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        state->accessed_by &= ~place_of(advice->location);
        break;
    }
}

static CUresult advice_check(struct advice *advice)
{
    switch (advice->advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        return CUDA_SUCCESS; /* the location does not count */
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        SIM_REQUIRE(advice->location.type == CU_MEM_LOCATION_TYPE_DEVICE ||
                    advice->location.type == CU_MEM_LOCATION_TYPE_HOST);
        return location_read(&advice->location);
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        return location_read(&advice->location);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Pageable memory is refused, as the device attribute PAGEABLE_MEMORY_ACCESS is 0. */
CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, CUmem_advise what, CUmemLocation location)
{
    CUcontext context;
    struct advice advice = {what, location};
    SIM_TRY(context_current(&context));
    SIM_TRY(advice_check(&advice));
    SIM_TRY(range_check(pointer, bytes));
    pthread_mutex_lock(&turn);
    CUresult result = range_change(pointer, bytes, advise_pages, &advice);
    pthread_mutex_unlock(&turn);
    return result;
}

CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, CUmem_advise what, CUdevice device)
{
    return cuMemAdvise_v2(pointer, bytes, what, location_of(device));
}

/* --- Asking ---------------------------------------------------------------------------------------- */

/* Make `common` what it and `other` have in common. */
static void common_state(struct page_state *common, const struct page_state *other)
{
    common->is_read_mostly &= other->is_read_mostly;
    common->accessed_by &= other->accessed_by;
    if (!same_location(common->preferred, other->preferred))
        common->preferred = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_NONE};
    if (!same_location(common->prefetched, other->prefetched))
        common->prefetched = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_NONE};
}

/* What is so of all pages of a range. */
static CUresult range_ask(uint64_t address, uint64_t bytes, struct page_state *common)
{
    struct part part;
    bool is_first = true;
    SIM_TRY(range_check(address, bytes));
    pthread_mutex_lock(&turn);
    while (bytes > 0 && part_next(&address, &bytes, &part)) {
        struct record *record = record_find(part.allocation.id);
        struct span plain = {.state = untouched}, *spans = record ? record->spans : &plain;
        size_t count = record ? record->count : 1;
        for (size_t i = record ? span_find(record, part.from) : 0; i < count && spans[i].begin < part.until;
             i++) {
            if (is_first)
                *common = spans[i].state;
            else
                common_state(common, &spans[i].state);
            is_first = false;
        }
    }
    pthread_mutex_unlock(&turn);
    return CUDA_SUCCESS;
}

static CUresult attribute_check(const void *data, size_t bytes, CUmem_range_attribute attribute)
{
    SIM_REQUIRE(data && attribute >= CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY &&
                attribute <= CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID);
    if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY)
        SIM_REQUIRE(bytes > 0 && bytes % sizeof(CUdevice) == 0);
    else
        SIM_REQUIRE(bytes == sizeof(int32_t));
    return CUDA_SUCCESS;
}

static void accessors_write(uint32_t accessors, CUdevice *data, size_t capacity)
{
    size_t count = 0;
    for (int bit = 0; bit < 32 && count < capacity; bit++)
        if (accessors >> bit & 1)
            data[count++] = bit == 0 ? DEVICE_CPU : bit - 1;
    while (count < capacity)
        data[count++] = DEVICE_INVALID;
}

static void attribute_write(const struct page_state *state, void *data, size_t bytes,
                            CUmem_range_attribute attribute)
{
    int32_t *value = data;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *value = state->is_read_mostly;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *value = device_of(state->preferred);
        break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        accessors_write(state->accessed_by, data, bytes / sizeof(CUdevice));
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *value = device_of(state->prefetched);
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *value = (int32_t)state->preferred.type;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *value = state->preferred.id;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *value = (int32_t)state->prefetched.type;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *value = state->prefetched.id;
        break;
    }
}

CUresult cuMemRangeGetAttributes(void **data, size_t *sizes, CUmem_range_attribute *attributes, size_t count,
                                 CUdeviceptr pointer, size_t bytes)
{
    CUcontext context;
    struct page_state state = untouched;
    SIM_TRY(context_current(&context));
    SIM_REQUIRE(data && sizes && attributes && count > 0);
    for (size_t i = 0; i < count; i++)
        SIM_TRY(attribute_check(data[i], sizes[i], attributes[i]));
    SIM_TRY(range_ask(pointer, bytes, &state));
    for (size_t i = 0; i < count; i++)
        attribute_write(&state, data[i], sizes[i], attributes[i]);
    return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr pointer,
                                size_t bytes)
{
    return cuMemRangeGetAttributes(&data, &size, &attribute, 1, pointer, bytes);
}
