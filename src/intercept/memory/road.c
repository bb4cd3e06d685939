#include "intercept/memory/road.h"

#include <string.h>

#include "intercept/agent/agent.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/charge_elsewhere.h"
#include "intercept/memory/contexts.h"
#include "intercept/memory/engine/engine.h"
#include "intercept/memory/full_card.h"
#include "intercept/memory/physical.h"
#include "intercept/memory/pool_charge.h"
#include "intercept/memory/pool_road.h"
#include "intercept/resolve/real.h"

static bool has_call(unsigned id)
{
    return atomic_load_explicit(&real_functions[id], memory_order_relaxed) != NULL;
}

/* What the program got: an address or a handle. */
static uint64_t key_of(const struct allocation *wanted)
{
    uint64_t key;
    memcpy(&key, wanted->got, sizeof(key));
    return key;
}

/* Undo an allocation that does not fit, or for which there is no record. */
static CUresult undo(const struct alloc_row *row, const struct allocation *wanted)
{
    GS_CHECK(has_call(release_rows[row->undo].call)); /* a driver that can do it can undo it */
    engine_release(row->undo, key_of(wanted), NULL);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* --- Memory of a size that the program names ------------------------------------------------------- */

/* The driver chooses the pitch, so rows may be longer than asked for. */
static bool charge_pitch(const struct allocation *wanted, struct charge *charge)
{
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)*wanted->pitched.pitch, wanted->pitched.height, &bytes))
        bytes = UINT64_MAX;
    if (charge->asked_bytes && bytes > charge->asked_bytes) {
        charge->asked_bytes = bytes;
        bytes = record_whole(bytes, engine_of_process()->uses_ranges);
    }
    return bytes <= charge->bytes || charge_more(charge, bytes - charge->bytes);
}

/* The driver rounds up linear memory, and the engine that moves it rounds up to its extents. What programs have as managed
 * memory is charged to the byte. */
static bool is_rounded(const struct alloc_row *row)
{
    return row->record == RECORD_POINTER && row->can_move && !engine_of_process()->is_hidden;
}

static bool is_hidden_by_engine(const struct alloc_row *row)
{
    return row->can_move && row->record == RECORD_POINTER && engine_of_process()->is_hidden;
}

/* Whether the engine can take what this row has made off the card. Of the program's own physical memory, it leaves
 * some to the driver. */
static bool moves_with_engine(const struct alloc_row *row, uint64_t key)
{
    const struct engine *engine = engine_of_process();
    return row->can_move && engine->uses_ranges && (row->record != RECORD_HANDLE || engine->vmm->moves(key));
}

/* Enter what the driver made. False without memory for that, or if the driver took more than fits. */
static bool enter(const struct alloc_row *row, const struct allocation *wanted, struct charge *charge)
{
    uint64_t key = key_of(wanted);
    bool moves = moves_with_engine(row, key);
    bool is_entered = false;
    if (row->record == RECORD_HANDLE)
        is_entered = physical_enter(charge, key, moves ? RECORD_MOVES : 0, 0);
    else if (wanted->way != WAY_cuMemAllocPitch_v2 || charge_pitch(wanted, charge))
        is_entered = charge_keep(charge, row->record, key, moves ? RECORD_IN_RANGES | RECORD_MOVES : 0);
    if (!moves)
        agent_memory_changed();
    return is_entered;
}

/* Ask the engine, again each time that others have made room on the card. */
static inline CUresult allocate_with_room(const struct allocation *wanted, const struct charge *charge)
{
    CUresult result = engine_allocate(wanted, charge->context);
    for (unsigned attempt = 0; __builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, false) &&
                               full_card_wait(charge->gpu, charge->bytes, wanted->bytes, true, attempt);
         attempt++)
        result = engine_allocate(wanted, charge->context);
    return result;
}

static CUresult allocate_sized(const struct alloc_row *row, const struct allocation *wanted)
{
    struct charge charge;
    if (atomic_load_explicit(&session_outside, memory_order_relaxed))
        return plain_allocate(wanted);
    bool is_whole = is_rounded(row);
    uint64_t bytes = is_whole ? record_whole(wanted->bytes, engine_of_process()->uses_ranges) : wanted->bytes;
    enum charge_answer answer = row->charged == ALLOC_SIZED_ON_DEVICE
                                    ? charge_take_device(&charge, wanted->device, bytes)
                                    : charge_take_current(&charge, bytes);
    if (answer == CHARGE_PASS)
        return plain_allocate(wanted);
    if (answer == CHARGE_REFUSED)
        return row->record == RECORD_POINTER ? charge_refused() : CUDA_ERROR_OUT_OF_MEMORY;
    charge.asked_bytes = is_whole ? wanted->bytes : 0;
    if (row->is_hidden || is_hidden_by_engine(row))
        charge_hide(&charge);
    charge_enter();
    CUresult result = allocate_with_room(wanted, &charge);
    if (result == CUDA_SUCCESS && !enter(row, wanted, &charge))
        result = undo(row, wanted);
    if (result != CUDA_SUCCESS)
        charge_return(&charge);
    charge_leave();
    return result;
}

/* In place of memory in a stream's order: no capture of this thread forbids that. */
static CUresult allocate_as_linear(const struct allocation *wanted, CUcontext context)
{
    struct own_calls calls;
    struct charge_aside aside;
    if (!own_calls_begin(&calls, context))
        return CUDA_ERROR_INVALID_CONTEXT;
    charge_set_aside(&aside);
    CUresult result = allocate_sized(
        &alloc_rows[WAY_cuMemAlloc_v2],
        &(struct allocation){.way = WAY_cuMemAlloc_v2, .bytes = wanted->bytes, .got = wanted->got});
    charge_take_up(&aside);
    own_calls_end(&calls);
    return result;
}

/* --- Memory of other APIs -------------------------------------------------------------------------- */

static CUresult allocate_named(const struct alloc_row *row, const struct allocation *wanted)
{
    struct charge charge;
    int joint;
    enum charge_answer answer = charge_ask_import(&charge, wanted->bytes, wanted->external.name, &joint);
    if (answer == CHARGE_PASS)
        return plain_allocate(wanted);
    if (answer == CHARGE_REFUSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    charge_enter();
    CUresult result = allocate_with_room(wanted, &charge);
    if (result == CUDA_SUCCESS) {
        charge_settle_import(&charge, wanted->bytes, joint);
        /* The program may have other descriptors of it. */
        if (!charge_keep(&charge, row->record, key_of(wanted), joint < 0 ? 0 : RECORD_SHARED))
            result = undo(row, wanted);
    }
    if (result == CUDA_SUCCESS)
        agent_memory_changed();
    else
        charge_return_import(&charge, joint);
    charge_leave();
    return result;
}

/* --- Memory of another process --------------------------------------------------------------------- */

/* Charge what the driver has just mapped at `address`. False if it does not fit. */
static bool charge_mapped(const struct alloc_row *row, CUdeviceptr address, uint64_t name)
{
    CUdeviceptr base;
    size_t bytes = 0;
    int device;
    struct charge charge, current;
    CUmemorytype type;
    if (engine_plain.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
        type == CU_MEMORYTYPE_HOST)
        return true; /* from a pool of host memory */
    if (engine_of_process()->address_range(&base, &bytes, address) != CUDA_SUCCESS ||
        engine_plain.pointer_attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) != CUDA_SUCCESS)
        return true;
    enum charge_answer answer = charge_take_import(&charge, device, bytes, name);
    if (answer != CHARGE_TAKEN)
        return answer == CHARGE_PASS;
    charge_place_current(&current);
    charge.context = current.context;
    bool is_kept = charge_keep(&charge, row->record, address, 0);
    if (is_kept)
        charge_end_move();
    else
        charge_return(&charge);
    return is_kept;
}

static bool enter_mapped(const struct alloc_row *row, const struct allocation *wanted)
{
    bool is_its_own = false;
    uint64_t key = key_of(wanted), name = wanted->import.name(wanted, &is_its_own);
    struct record record;
    if (row->record == RECORD_HANDLE)
        return physical_enter_import(key, name, is_its_own);
    /* Its maker in the session noted the export and is charged for it. */
    if (ledger_is_exported(&session_slot()->ledger, name))
        return true;
    /* Opened again, it has the same address and must be closed as often. */
    if (row->record == RECORD_IPC && records_count(memory_records(), RECORD_IPC, key, 1, &record))
        return true;
    return charge_mapped(row, key, name);
}

static CUresult allocate_mapped(const struct alloc_row *row, const struct allocation *wanted)
{
    CUresult result = own_calls_depth ? plain_allocate(wanted) : engine_allocate(wanted, NULL);
    if (result != CUDA_SUCCESS || own_calls_depth || session_mode() != SESSION_INSIDE)
        return result;
    if (!enter_mapped(row, wanted))
        return undo(row, wanted);
    agent_memory_changed();
    return result;
}

/* --- The road -------------------------------------------------------------------------------------- */

static CUresult take_the_road(const struct allocation *wanted)
{
    const struct alloc_row *row = &alloc_rows[wanted->way];
    CUcontext context;
    if (!real_ready() || !has_call(row->call))
        return real_absent();
    if (wanted->is_uncharged)
        return plain_allocate(wanted);
    switch ((enum alloc_charged)row->charged) {
    case ALLOC_MAPPED:
        return allocate_mapped(row, wanted);
    case ALLOC_POOLED:
        return pool_road_is_linear(wanted, &context) ? allocate_as_linear(wanted, context)
                                                     : pool_road_allocate(row, wanted);
    case ALLOC_CONTEXT:
        return context_create(wanted);
    case ALLOC_PRIMARY_CONTEXT:
        return context_retain(wanted);
    case ALLOC_NAMED:
        return allocate_named(row, wanted);
    case ALLOC_SIZED:
    case ALLOC_SIZED_ON_DEVICE:
        break;
    }
    return allocate_sized(row, wanted);
}

/* The driver has taken back what `record` stood for, or one reference to it. */
static void let_go(const struct record *record)
{
    if (record->kind == RECORD_HANDLE) {
        physical_let_go(record->hold.physical);
        return;
    }
    if (record->references == 0)
        charge_release_record(record);
    if (record->kind == RECORD_POINTER && record->flags & RECORD_HIDDEN)
        charge_elsewhere_freed(record->key);
    if (!(record->flags & RECORD_MOVES))
        agent_memory_changed();
}

static CUresult take_it_back(enum release_way way, uint64_t key, CUstream stream)
{
    const struct release_row *row = &release_rows[way];
    struct records *records;
    struct record record;
    if (!real_ready() || !has_call(row->call))
        return real_absent();
    if (row->record == RECORD_CONTEXT)
        return context_release(way, key);
    if (!charge_has_any() || !records_count(records = memory_records(), row->record, key, -1, &record)) {
        CUresult result = engine_release(way, key, stream);
        if (row->record == RECORD_POINTER && key && result == CUDA_SUCCESS)
            charge_elsewhere_freed(key);
        if (row->record == RECORD_POINTER && key)
            pool_charge_refresh(); /* it may have been a pool's memory */
        return result;
    }
    charge_begin_move();
    charge_enter();
    CUresult result = engine_release(way, key, stream);
    if (result == CUDA_SUCCESS)
        let_go(&record);
    else
        records_count_back(records, &record); /* or it stays charged: the program still has it */
    charge_leave();
    return result;
}

/* --- From hooks ------------------------------------------------------------------------------------ */

/* The program calls this hook from inside another one. What that one was doing is put aside meanwhile, so that the
 * depth is 0. */
__attribute__((noinline, cold)) static CUresult allocate_aside(const struct allocation *wanted,
                                                               const void *caller)
{
    struct charge_aside aside;
    charge_set_aside(&aside);
    CUresult result = road_allocate(wanted, caller);
    charge_take_up(&aside);
    return result;
}

CUresult road_allocate(const struct allocation *wanted, const void *caller)
{
    if (__builtin_expect(own_calls_depth != 0, false) && own_calls_is_program(caller))
        return allocate_aside(wanted, caller);
    return take_the_road(wanted);
}

__attribute__((noinline, cold)) static CUresult release_aside(enum release_way way, uint64_t key,
                                                              CUstream stream, const void *caller)
{
    struct charge_aside aside;
    charge_set_aside(&aside);
    CUresult result = road_release(way, key, stream, caller);
    charge_take_up(&aside);
    return result;
}

CUresult road_release(enum release_way way, uint64_t key, CUstream stream, const void *caller)
{
    if (__builtin_expect(own_calls_depth != 0, false) && own_calls_is_program(caller))
        return release_aside(way, key, stream, caller);
    return take_it_back(way, key, stream);
}
