#include "intercept/memory/physical.h"

#include "intercept/agent/agent.h"
#include "intercept/memory/refusal.h"
#include "intercept/resolve/real.h"

bool physical_point_at(struct record hold, uint64_t number, struct record *displaced)
{
    hold.hold.physical = number;
    hold.references = 1;
    return records_put(memory_records(), &hold, displaced);
}

void physical_keep(uint64_t number)
{
    struct record physical;
    records_count(memory_records(), RECORD_PHYSICAL, number, 1, &physical);
}

void physical_let_go(uint64_t number)
{
    struct record physical;
    if (!records_count(memory_records(), RECORD_PHYSICAL, number, -1, &physical) || physical.references)
        return;
    charge_release_record(&physical);
    if (!(physical.flags & RECORD_MOVES))
        agent_memory_changed();
    if (physical.flags & RECORD_MULTICAST)
        physical_let_go_bindings(physical_binding_key(number, 0, 0),
                                 physical_binding_key(number, 0xff, UINT64_MAX));
}

bool physical_enter(const struct charge *charge, CUmemGenericAllocationHandle handle, unsigned flags,
                    uint64_t name)
{
    struct memory_area *area = memory_area();
    uint64_t number = atomic_fetch_add_explicit(&area->physical_count, 1, memory_order_relaxed) + 1;
    struct record displaced;
    struct record record = {.key = number,
                            .kind = RECORD_PHYSICAL,
                            .gpu = (uint8_t)charge->gpu,
                            .flags = (uint8_t)flags,
                            .joint = charge->joint,
                            .references = 1,
                            .charged = {.bytes = charge->bytes, .name = name}};
    if (!records_put(&area->records, &record, &displaced))
        return false;
    GS_CHECK(displaced.kind == RECORD_FREE);
    if (physical_point_at((struct record){.key = handle, .kind = RECORD_HANDLE}, number, &displaced))
        return true;
    records_take(&area->records, RECORD_PHYSICAL, number, &displaced);
    return false;
}

/* --- Memory of another process --------------------------------------------------------------------- */

/* A multicast object does not have an allocation's properties (measure). */
static bool is_multicast(CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp properties;
    return real(cuMulticastBindMem) && real(cuMemGetAllocationPropertiesFromHandle) &&
           real(cuMemGetAllocationPropertiesFromHandle)(&properties, handle) != CUDA_SUCCESS;
}

/* The device that has the memory; false: no device does, or the driver cannot tell. */
static bool device_of(CUmemGenericAllocationHandle handle, CUdevice *device)
{
    CUmemAllocationProp properties;
    if (!real(cuMemGetAllocationPropertiesFromHandle) ||
        real(cuMemGetAllocationPropertiesFromHandle)(&properties, handle) != CUDA_SUCCESS)
        return false;
    *device = properties.location.id;
    return properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

/* On a GPU of the session: enter the memory with 0 bytes, joined to the joint place of its name if there is one. */
static bool enter_unmapped(struct charge *charge, CUmemGenericAllocationHandle handle, uint64_t name)
{
    bool is_new;
    charge_begin_move();
    int joint = ledger_joint_join(session_slot(), name, false, &is_new);
    charge->joint = (uint8_t)(joint + 1);
    bool is_entered = physical_enter(charge, handle, RECORD_IMPORTED | RECORD_SHARED, name);
    if (!is_entered && joint >= 0)
        ledger_joint_leave(session_slot(), (uint32_t)joint);
    charge_end_move();
    return is_entered;
}

bool physical_enter_import(CUmemGenericAllocationHandle handle, uint64_t name, bool is_its_own)
{
    struct charge charge = {0};
    CUdevice device;
    /* A multicast object takes no memory, whoever made it; it keeps what this process binds to it. */
    if (is_multicast(handle))
        return physical_enter(&charge, handle, RECORD_MULTICAST, 0);
    if (ledger_is_exported(&session_slot()->ledger, name) || !device_of(handle, &device))
        return true;
    enum gpu_place place = charge_place_device(&charge, device);
    if (place == PLACE_FORBIDDEN)
        refusal_of_gpu();
    return place == PLACE_NOWHERE ||
           (place == PLACE_ON_GPU && enter_unmapped(&charge, handle, is_its_own ? name : 0));
}

/* --- What keeps it --------------------------------------------------------------------------------- */

uint64_t physical_of_handle(CUmemGenericAllocationHandle handle)
{
    struct record record;
    return records_find(memory_records(), RECORD_HANDLE, handle, &record) ? record.hold.physical : 0;
}

uint64_t physical_at(CUdeviceptr address)
{
    struct record record;
    return records_find_around(memory_records(), address, &record) && record.kind == RECORD_MAPPING
               ? record.hold.physical
               : 0;
}

/* Imported memory with the joint place `joint`: let the record stand for `bytes`. */
static void use_joint(const struct record *physical, uint64_t bytes, uint8_t joint)
{
    struct records *records = memory_records();
    if (!physical->joint &&
        !records_make_joint(records, RECORD_PHYSICAL, physical->key, physical->charged.bytes, joint))
        ledger_joint_leave(session_slot(), joint - 1u); /* another thread's mapping was entered first */
    records_grow(records, RECORD_PHYSICAL, physical->key, bytes);
}

bool physical_charge_import(uint64_t number, uint64_t bytes)
{
    struct records *records = memory_records();
    struct record physical;
    if (!records_find(records, RECORD_PHYSICAL, number, &physical) || !(physical.flags & RECORD_IMPORTED) ||
        bytes <= physical.charged.bytes)
        return true;
    uint8_t joint = physical.joint;
    uint64_t growth = bytes - physical.charged.bytes;
    bool fits = charge_reserve_import(physical.gpu, bytes, physical.charged.name, &joint);
    if (fits && joint) {
        use_joint(&physical, bytes, joint);
        agent_memory_changed();
        return true;
    }
    if (!fits || !charge_reserve(physical.gpu, growth)) {
        refusal_by_limit(physical.gpu, growth);
        return false;
    }
    uint64_t grown = records_grow(records, RECORD_PHYSICAL, number, bytes);
    charge_release(physical.gpu, growth - grown); /* another thread's mapping was entered first */
    agent_memory_changed();
    return true;
}

struct search {
    enum record_kind kind;
    bool (*match)(const struct record *, const void *);
    const void *argument;
    struct record found;
};

static void see(const struct record *record, void *argument)
{
    struct search *search = argument;
    if (record->kind == search->kind && search->match(record, search->argument))
        search->found = *record;
}

void physical_let_go_all(enum record_kind kind, bool (*match)(const struct record *, const void *),
                         const void *argument)
{
    for (;;) {
        struct search search = {.kind = kind, .match = match, .argument = argument};
        records_each(memory_records(), see, &search);
        if (search.found.kind == RECORD_FREE)
            return;
        if (records_take(memory_records(), kind, search.found.key, &search.found))
            physical_let_go(search.found.hold.physical);
    }
}

struct part {
    uint64_t first, last; /* keys */
};

static bool is_inside(const struct record *binding, const void *argument)
{
    const struct part *part = argument;
    return binding->key >= part->first && binding->key <= part->last;
}

void physical_let_go_bindings(uint64_t first, uint64_t last)
{
    const struct part part = {first, last};
    physical_let_go_all(RECORD_BINDING, is_inside, &part);
}
