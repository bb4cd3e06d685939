/* managed.c - what is known of the pages of managed memory (managed.h). */
#include "simgpu/memory/managed.h"

#include <stdlib.h>
#include <string.h>

#include "simgpu/device/paging.h"
#include "simgpu/memory/memory.h"
#include "simgpu/memory/pool.h"
#include "simgpu/time/execution.h"

#define PAGE_BYTES UINT64_C(4096)
#define TOUCH_BYTES (UINT64_C(64) << 10)
#define FAULT_BYTES (UINT64_C(2) << 20)
#define BUCKETS 256u

const struct managed_pages managed_untouched = {.resident = MANAGED_ON_HOST};

struct span {
    uint64_t begin; /* in the allocation; it ends where the next begins */
    struct managed_pages state;
};

struct record {
    uint64_t address, id; /* of the allocation */
    size_t count;
    struct span *spans;
    struct record *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
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

/* Drop the records of allocations that are gone. */
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
    spans[0] = (struct span){.state = managed_untouched};
    *record = (struct record){.address = allocation->address,
                              .id = allocation->id,
                              .count = 1,
                              .spans = spans,
                              .next = *bucket_of(allocation->id)};
    *bucket_of(allocation->id) = record;
    record_count++;
    return record;
}

/* The span that holds the allocation's byte `at`. */
static size_t span_find(const struct record *record, uint64_t at)
{
    size_t index = record->count - 1;
    while (record->spans[index].begin > at)
        index--;
    return index;
}

/* Let a span begin at byte `at`. */
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

bool managed_same_location(CUmemLocation one, CUmemLocation other)
{
    return one.type == other.type && one.id == other.id;
}

static bool same_state(const struct managed_pages *one, const struct managed_pages *other)
{
    return managed_same_location(one->preferred, other->preferred) &&
           managed_same_location(one->prefetched, other->prefetched) &&
           one->accessed_by == other->accessed_by && one->resident == other->resident &&
           one->used_at == other->used_at && one->is_read_mostly == other->is_read_mostly;
}

static void spans_join(struct record *record)
{
    size_t kept = 1;
    for (size_t i = 1; i < record->count; i++)
        if (!same_state(&record->spans[i].state, &record->spans[kept - 1].state))
            record->spans[kept++] = record->spans[i];
    record->count = kept;
}

static bool is_managed(const struct memory_allocation *allocation)
{
    return allocation->kind == MEMORY_MANAGED || (allocation->kind == MEMORY_MODULE && allocation->flags) ||
           (allocation->kind == MEMORY_POOL && allocation->flags == POOL_MANAGED);
}

/* --- On a GPU that pages ---------------------------------------------------------------------------- */

static bool is_thrown_out(const struct managed_pages *pages, uint64_t bytes, unsigned gpu)
{
    return paging_is_on() && !paging_holds(gpu, pages->used_at, bytes);
}

uint32_t managed_places(const struct managed_pages *pages, uint64_t bytes)
{
    uint32_t places = pages->resident;
    for (unsigned device = 0; paging_is_on() && device < simulator.device_count; device++) {
        uint32_t place = managed_place(managed_location((CUdevice)device));
        if ((places & place) && is_thrown_out(pages, bytes, simulator.visible[device]))
            places = places == place ? MANAGED_ON_HOST : places & ~place;
    }
    return places;
}

uint64_t managed_settle(struct managed_pages *pages, uint64_t bytes, uint32_t places)
{
    uint64_t left_bytes = 0;
    for (unsigned device = 0; paging_is_on() && device < simulator.device_count; device++) {
        uint32_t place = managed_place(managed_location((CUdevice)device));
        unsigned gpu = simulator.visible[device];
        bool was = pages->resident & place, will = places & place;
        if (was && !will)
            paging_leave(gpu, bytes);
        else if (will && (!was || is_thrown_out(pages, bytes, gpu)))
            left_bytes += paging_bring(gpu, bytes, was);
        else if (will && pages->used_at != paging_age(gpu))
            paging_use(gpu, bytes);
        if (will)
            pages->used_at = paging_age(gpu);
    }
    pages->resident = places;
    return left_bytes;
}

/* Under the lock. */
static void take_off_devices(struct record *record, uint64_t allocation_bytes)
{
    for (size_t i = 0; i < record->count; i++) {
        uint64_t end = i + 1 < record->count ? record->spans[i + 1].begin : allocation_bytes;
        managed_settle(&record->spans[i].state, end - record->spans[i].begin, 0);
    }
}

void managed_gone(const struct memory_allocation *allocation)
{
    if (!is_managed(allocation))
        return;
    pthread_mutex_lock(&lock);
    struct record *record = record_find(allocation->id);
    if (record)
        take_off_devices(record, allocation->bytes);
    pthread_mutex_unlock(&lock);
}

void managed_gone_context(CUcontext context)
{
    struct memory_allocation allocation;
    pthread_mutex_lock(&lock);
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
        for (struct record *record = buckets[bucket]; record; record = record->next)
            if (memory_find(record->address, &allocation) && allocation.id == record->id &&
                allocation.context == context && allocation.kind != MEMORY_POOL)
                take_off_devices(record, allocation.bytes);
    pthread_mutex_unlock(&lock);
}

/* --- Ranges ---------------------------------------------------------------------------------------- */

/* The part of a range that is in one allocation, in whole pages as far as that reaches. */
struct part {
    struct memory_allocation allocation;
    uint64_t from, until; /* in the allocation */
};

/* Cut the first part off a range. False if it is not managed memory. */
static bool part_next(uint64_t *address, uint64_t *bytes, struct part *part)
{
    if (!memory_find(*address, &part->allocation) || !is_managed(&part->allocation))
        return false;
    uint64_t base = part->allocation.address, end = base + part->allocation.bytes;
    uint64_t here = end - *address < *bytes ? end - *address : *bytes;
    uint64_t first = *address & ~(PAGE_BYTES - 1),
             last = (*address + here + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    part->from = first > base ? first - base : 0;
    part->until = (last < end ? last : end) - base;
    *address += here;
    *bytes -= here;
    return true;
}

CUresult managed_check(uint64_t address, uint64_t bytes)
{
    struct part part;
    SIM_REQUIRE(bytes > 0);
    while (bytes > 0)
        SIM_REQUIRE(part_next(&address, &bytes, &part));
    return CUDA_SUCCESS;
}

/* Under the lock. */
static CUresult change_range(uint64_t address, uint64_t bytes,
                             void (*change)(struct managed_pages *state, uint64_t bytes, void *what),
                             void *what)
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

CUresult managed_change(uint64_t address, uint64_t bytes,
                        void (*change)(struct managed_pages *pages, uint64_t bytes, void *what), void *what)
{
    pthread_mutex_lock(&lock);
    CUresult result = change_range(address, bytes, change, what);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Make `common` what it and `other` have in common. */
static void common_state(struct managed_pages *common, const struct managed_pages *other)
{
    common->is_read_mostly &= other->is_read_mostly;
    common->accessed_by &= other->accessed_by;
    if (!managed_same_location(common->preferred, other->preferred))
        common->preferred = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_NONE};
    if (!managed_same_location(common->prefetched, other->prefetched))
        common->prefetched = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_NONE};
}

/* What is true of all pages of a range. */
CUresult managed_ask(uint64_t address, uint64_t bytes, struct managed_pages *common)
{
    struct part part;
    bool is_first = true;
    SIM_TRY(managed_check(address, bytes));
    pthread_mutex_lock(&lock);
    while (bytes > 0 && part_next(&address, &bytes, &part)) {
        struct record *record = record_find(part.allocation.id);
        struct span plain = {.state = managed_untouched}, *spans = record ? record->spans : &plain;
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
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* --- Locations ------------------------------------------------------------------------------------- */

/* Check a location and make it what is told of it later: the machine shows one NUMA node. */
CUresult managed_location_read(CUmemLocation *location)
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

uint32_t managed_place(CUmemLocation location)
{
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? 2u << location.id : MANAGED_ON_HOST;
}

CUmemLocation managed_location(CUdevice device)
{
    return device == MANAGED_CPU ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}
                                 : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

CUdevice managed_device(CUmemLocation location)
{
    if (location.type == CU_MEM_LOCATION_TYPE_NONE)
        return MANAGED_NOWHERE;
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : MANAGED_CPU;
}

/* --- Touching -------------------------------------------------------------------------------------- */

struct touch {
    uint32_t place;
    bool writes;
    struct managed_faults *faults;
};

static void touch_pages(struct managed_pages *pages, uint64_t bytes, void *what)
{
    const struct touch *touch = what;
    struct managed_faults *faults = touch->faults;
    uint32_t places = managed_places(pages, bytes);
    bool is_kept = pages->is_read_mostly && !touch->writes;
    bool from_afar =
        places && touch->place != MANAGED_ON_HOST && /* the host cannot map a device's memory */
        ((pages->accessed_by & touch->place) ||
         (pages->preferred.type != CU_MEM_LOCATION_TYPE_NONE && (places & managed_place(pages->preferred))));
    if (places & touch->place) {
        managed_settle(pages, bytes, is_kept ? places : touch->place); /* other copies are no longer true */
        return;
    }
    if (from_afar) {
        faults->remote_bytes += bytes;
        return;
    }
    uint64_t count = (bytes + FAULT_BYTES - 1) / FAULT_BYTES, moved = places ? bytes : 0;
    if (touch->place == MANAGED_ON_HOST || (places && !(places & MANAGED_ON_HOST))) {
        faults->out_count += count;
        faults->out_bytes += moved;
    } else {
        faults->in_count += count;
        faults->in_bytes += moved;
    }
    uint64_t left_bytes = managed_settle(pages, bytes, is_kept ? places | touch->place : touch->place);
    faults->out_bytes += left_bytes;
    faults->out_count += (left_bytes + FAULT_BYTES - 1) / FAULT_BYTES;
}

void managed_touch(uint64_t address, uint64_t bytes, CUdevice toucher, bool writes,
                   struct managed_faults *faults)
{
    struct touch touch = {managed_place(managed_location(toucher)), writes, faults};
    while (bytes > 0) {
        struct memory_allocation allocation;
        if (!memory_find(address, &allocation) || !is_managed(&allocation))
            return;
        uint64_t base = allocation.address, end = base + allocation.bytes;
        uint64_t here = end - address < bytes ? end - address : bytes;
        uint64_t first = address & ~(TOUCH_BYTES - 1),
                 last = (address + here + TOUCH_BYTES - 1) & ~(TOUCH_BYTES - 1);
        first = first > base ? first : base;
        managed_change(first, (last < end ? last : end) - first, touch_pages, &touch);
        address += here;
        bytes -= here;
    }
}

void managed_touch_rest(uint64_t address, CUdevice toucher, struct managed_faults *faults)
{
    struct memory_allocation allocation;
    if (memory_find(address, &allocation))
        managed_touch(address, allocation.address + allocation.bytes - address, toucher, true, faults);
}

void managed_submit(CUcontext context, CUstream stream, const struct managed_faults *faults)
{
    uint64_t in_ns =
        execution_link_ns(faults->in_bytes) + faults->in_count * constant_whole(SIM_PAGE_FAULT_NS);
    uint64_t out_ns =
        execution_link_ns(faults->out_bytes) + faults->out_count * constant_whole(SIM_PAGE_FAULT_NS);
    if (in_ns > 0)
        stream_submit_marked(context, stream, TIMELINE_COPY_IN, in_ns);
    if (out_ns > 0)
        stream_submit_marked(context, stream, TIMELINE_COPY_OUT, out_ns);
}

bool managed_is_on_host(uint64_t address)
{
    struct memory_allocation allocation;
    if (!memory_find(address, &allocation) || !is_managed(&allocation))
        return false;
    pthread_mutex_lock(&lock);
    const struct record *record = record_find(allocation.id);
    uint32_t resident = record ? record->spans[span_find(record, address - allocation.address)].state.resident
                               : managed_untouched.resident;
    pthread_mutex_unlock(&lock);
    return resident & MANAGED_ON_HOST;
}
