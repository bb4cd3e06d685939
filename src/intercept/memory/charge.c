#include "intercept/memory/charge.h"
#include "intercept/memory/refusal.h"
#include "intercept/resolve/guard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

#define LOOKS_NS UINT64_C(6000000000) /* driver_left.c: three samples, where NVML is slow */

__thread struct ledger_slot *charge_moved;

/* The last context of this thread and where its memory is charged; valid while session_memory has not changed. */
static __thread struct {
    CUcontext context, owner;
    uint64_t memory;
    enum gpu_place place;
    uint32_t gpu;
} last;

bool charge_device_uuid(CUdevice device, CUuuid *uuid)
{
    if (real(cuDeviceGetUuid_v2))
        return real(cuDeviceGetUuid_v2)(uuid, device) == CUDA_SUCCESS;
    return real(cuDeviceGetUuid) && real(cuDeviceGetUuid)(uuid, device) == CUDA_SUCCESS;
}

/* What this process has charged, by GPU. */
struct charged {
    uint64_t bytes[LEDGER_GPUS], hidden_bytes[LEDGER_GPUS];
};

static void add_charged(const struct record *record, void *argument)
{
    struct charged *charged = argument;
    if (!record_is_charged(record->kind))
        return;
    charged->bytes[record->gpu] += record_charge(record);
    if (record->flags & RECORD_HIDDEN)
        charged->hidden_bytes[record->gpu] += record_charge(record);
}

static void add_pool(struct pool *pool, struct charged *charged)
{
    guard_lock(&pool->lock); /* no thread that holds it waits for `deciding` */
    charged->bytes[pool->gpu] += pool->charged_bytes;
    if (pool->is_managed)
        charged->hidden_bytes[pool->gpu] += pool->charged_bytes;
    guard_unlock(&pool->lock);
}

/* Charge `slot` for what this process holds: session_when_slot_changes(). */
static void move_to_slot(struct ledger_slot *slot)
{
    struct memory_area *area = memory_area();
    struct charged charged = {0};
    /* Joint places belong to the old ledger. What stood in them is now charged to each of their holders, until they
     * let go. What a process hands out after this becomes joint memory again. */
    records_leave_joint(&area->records);
    records_each(&area->records, add_charged, &charged);
    for (unsigned i = 0; i < POOLS_MAX; i++)
        add_pool(&area->pools[i], &charged);
    for (unsigned gpu = 0; gpu < LEDGER_GPUS; gpu++) {
        if (charged.bytes[gpu])
            ledger_charge(slot, gpu, charged.bytes[gpu]);
        if (charged.hidden_bytes[gpu])
            ledger_hide(slot, gpu, charged.hidden_bytes[gpu]);
    }
}

/* Where the memory of `device` is charged. Inside a session. */
static enum gpu_place place_of_device(struct charge *charge, CUdevice device)
{
    CUuuid uuid;
    if (!charge_device_uuid(device, &uuid))
        return PLACE_NOWHERE;                /* before cuInit, or there is no such device */
    session_when_slot_changes(move_to_slot); /* before there is anything to charge to another slot */
    int gpu = session_gpu((const uint8_t *)uuid.bytes, device);
    if (gpu < 0)
        return PLACE_FORBIDDEN;
    charge->gpu = (uint32_t)gpu;
    return PLACE_ON_GPU;
}

enum gpu_place charge_place_device(struct charge *charge, CUdevice device)
{
    CUuuid uuid;
    *charge = (struct charge){.gpu = UINT32_MAX};
    if (own_calls_depth)
        return PLACE_NOWHERE;
    switch (session_mode()) {
    case SESSION_INSIDE:
        return place_of_device(charge, device);
    case SESSION_REFUSED:
        return charge_device_uuid(device, &uuid) ? PLACE_FORBIDDEN : PLACE_NOWHERE;
    default:
        return PLACE_NOWHERE;
    }
}

/* The context that memory goes with: for a green context, the primary one behind it. */
static CUcontext owner_of(CUcontext context)
{
    struct record record;
    return records_find(memory_records(), RECORD_CONTEXT, (uint64_t)(uintptr_t)context, &record)
               ? (CUcontext)(uintptr_t)record.charged.context
               : context;
}

static enum gpu_place place_of_context(struct charge *charge, enum session_mode mode)
{
    CUdevice device;
    /* Read before the driver is asked, so that the next call notices what changes meanwhile. */
    uint64_t memory = atomic_load_explicit(&session_memory, memory_order_acquire); /* session_forget() */
    if (!real(cuCtxGetDevice) || real(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
        return PLACE_NOWHERE; /* the context was destroyed */
    if (mode == SESSION_REFUSED)
        return PLACE_FORBIDDEN;
    enum gpu_place place = place_of_device(charge, device);
    last.context = charge->context;
    charge->context = owner_of(charge->context);
    last.owner = charge->context;
    last.memory = memory;
    last.place = place;
    last.gpu = charge->gpu;
    return place;
}

/* Inlined, since each call costs nanoseconds and programs allocate in loops. */
__attribute__((always_inline)) static inline enum gpu_place place_inside(struct charge *charge)
{
    *charge = (struct charge){.gpu = UINT32_MAX};
    enum session_mode mode = session_mode();
    if (mode == SESSION_OUTSIDE)
        return PLACE_NOWHERE;
    if (!real(cuCtxGetCurrent) || real(cuCtxGetCurrent)(&charge->context) != CUDA_SUCCESS || !charge->context)
        return PLACE_NOWHERE; /* before cuInit, or no context: the driver refuses */
    if (mode == SESSION_INSIDE && charge->context == last.context &&
        last.memory == atomic_load_explicit(&session_memory, memory_order_acquire)) {
        charge->context = last.owner;
        charge->gpu = last.gpu;
        return last.place;
    }
    return place_of_context(charge, mode);
}

enum gpu_place charge_place_inside(struct charge *charge)
{
    return place_inside(charge);
}

enum gpu_place charge_place_current(struct charge *charge)
{
    if (__builtin_expect(own_calls_depth == 0, true))
        return place_inside(charge);
    *charge = (struct charge){.gpu = UINT32_MAX};
    return PLACE_NOWHERE;
}

/* This thread's number in the ledger. In a forked child, numbers go on from where the parent was. */
static unsigned mover(void)
{
    static _Atomic unsigned threads;
    static __thread unsigned number_from_1;
    if (__builtin_expect(number_from_1 == 0, false)) {
        number_from_1 = LEDGER_MOVERS + 1;
        if (atomic_load_explicit(&threads, memory_order_relaxed) < LEDGER_MOVERS)
            number_from_1 = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
    }
    return number_from_1 - 1;
}

void charge_begin_move(void)
{
    if (charge_moved)
        return;
    charge_moved = session_slot();
    ledger_move_begin(charge_moved, mover());
}

void charge_end_move_slow(void)
{
    ledger_move_end(charge_moved, mover());
    charge_moved = NULL;
}

void charge_set_aside(struct charge_aside *aside)
{
    if (own_calls_depth == 0) /* the program jumped out of the hook */
        charge_end_move();
    *aside = (struct charge_aside){own_calls_depth, charge_moved};
    own_calls_depth = 0;
    charge_moved = NULL;
}

void charge_take_up(const struct charge_aside *aside)
{
    own_calls_depth = aside->depth;
    charge_moved = aside->moved;
}

static _Atomic(charge_relief *) relief;

void charge_on_shortage(charge_relief *relieve)
{
    atomic_store_explicit(&relief, relieve, memory_order_relaxed);
}

bool charge_relieve(uint32_t gpu, uint64_t bytes)
{
    charge_relief *relieve = atomic_load_explicit(&relief, memory_order_relaxed);
    return relieve && relieve(gpu, bytes);
}

/* What this process has just let go of counts until the daemon has looked at the card a few times, though it is gone as a rule.
 * So wait for that, some seconds at most. */
bool charge_reserve_once_seen_gone(uint32_t gpu, uint64_t bytes)
{
    const struct ledger *ledger = &session_slot()->ledger;
    uint64_t let_go_ns = atomic_load_explicit(&memory_area()->let_go_ns, memory_order_relaxed);
    uint64_t limit_bytes = atomic_load_explicit(&ledger->policy->gpus[gpu].limit_bytes, memory_order_relaxed);
    uint64_t left = ledger_left(ledger->usage, gpu), now = left;
    bool fits = false, is_moving = charge_moved;
    if (!let_go_ns || bytes > limit_bytes)
        return false;
    /* The slot rests meanwhile, so that samples can tell. */
    charge_end_move();
    while (!fits && left && monotonic_ns() - let_go_ns < LOOKS_NS) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        now = ledger_left(ledger->usage, gpu);
        if (now < left) {
            charge_begin_move();
            fits = ledger_reserve(session_slot(), gpu, bytes);
            if (!fits)
                charge_end_move();
        }
        left = now;
    }
    if (is_moving)
        charge_begin_move();
    else
        charge_end_move();
    return fits;
}

bool charge_reserve(uint32_t gpu, uint64_t bytes)
{
    if (__builtin_expect(ledger_reserve(session_slot(), gpu, bytes), true))
        return true;
    return (charge_relieve(gpu, bytes) && ledger_reserve(session_slot(), gpu, bytes)) ||
           charge_reserve_once_seen_gone(gpu, bytes);
}

void charge_release(uint32_t gpu, uint64_t bytes)
{
    if (bytes)
        ledger_release(session_slot(), gpu, bytes);
}

static void note_let_go(void)
{
    atomic_store_explicit(&memory_area()->let_go_ns, monotonic_ns(), memory_order_relaxed);
    session_notice(WIRE_NOTICE_MODULE);
}

void charge_let_go(uint32_t gpu, uint64_t bytes)
{
    if (!bytes || session_is_standalone())
        return;
    ledger_let_go(session_slot()->ledger.usage, gpu, bytes);
    note_let_go();
}

void charge_release_record(const struct record *record)
{
    GS_CHECK(record_is_charged(record->kind));
    bool is_kept = record->flags & RECORD_SHARED && !session_is_standalone();
    if (record->joint && is_kept)
        ledger_joint_let_go(session_slot(), record->joint - 1u);
    else if (record->joint)
        ledger_joint_leave(session_slot(), record->joint - 1u);
    else if (is_kept)
        ledger_let_go(session_slot()->ledger.usage, record->gpu, record_charge(record));
    if (is_kept)
        note_let_go();
    if (record->joint)
        return;
    if (record->flags & RECORD_HIDDEN)
        ledger_unhide(session_slot(), record->gpu, record_charge(record));
    charge_release(record->gpu, record_charge(record));
}

/* Take `bytes` on the GPU of `charge`; or answer for a place where nothing can be charged. */
static enum charge_answer take(struct charge *charge, enum gpu_place place, uint64_t bytes)
{
    charge->bytes = bytes;
    if (place == PLACE_NOWHERE)
        return CHARGE_PASS;
    if (place == PLACE_ON_GPU) {
        charge_begin_move();
        if (charge_reserve(charge->gpu, bytes))
            return CHARGE_TAKEN;
        charge_end_move();
    }
    refusal_at(place == PLACE_ON_GPU, charge->gpu, bytes);
    return CHARGE_REFUSED;
}

enum charge_answer charge_take_current(struct charge *charge, uint64_t bytes)
{
    return take(charge, charge_place_current(charge), bytes);
}

enum charge_answer charge_take_device(struct charge *charge, CUdevice device, uint64_t bytes)
{
    return take(charge, charge_place_device(charge, device), bytes);
}

enum charge_answer charge_take_context(struct charge *charge, CUdevice device)
{
    enum gpu_place place = charge_place_device(charge, device);
    const struct ledger_policy *policy = place == PLACE_ON_GPU ? session_slot()->ledger.policy : NULL;
    return take(charge, place,
                policy ? atomic_load_explicit(&policy->gpus[charge->gpu].context_bytes, memory_order_relaxed)
                       : 0);
}

/* The driver is asked only where it refuses, or where nobody knows: so large a request may make it trim its pools. */
CUresult charge_capture_forbids(void)
{
    CUdeviceptr address;
    struct gate *gate = gate_of();
    if (!own_calls_has_captured() || !real(cuMemAlloc_v2) || !real(cuMemFree_v2))
        return CUDA_SUCCESS;
    if (gate && (!in_flight_has_captures() || !gate_capture_forbids(gate, own_calls_capture_mode())))
        return CUDA_SUCCESS;
    charge_enter();
    CUresult result = real(cuMemAlloc_v2)(&address, SIZE_MAX / 2);
    if (result == CUDA_SUCCESS)
        real(cuMemFree_v2)(address);
    charge_leave();
    return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? result : CUDA_SUCCESS;
}

CUresult charge_refused(void)
{
    return charge_capture_forbids() == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY
                                                    : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void charge_hide(struct charge *charge)
{
    GS_CHECK(!charge->is_hidden && !charge->joint);
    charge->is_hidden = true;
    ledger_hide(session_slot(), charge->gpu, charge->bytes);
}

bool charge_more(struct charge *charge, uint64_t bytes)
{
    GS_CHECK(!charge->joint);
    if (!charge_reserve(charge->gpu, bytes)) {
        refusal_by_limit(charge->gpu, bytes);
        return false;
    }
    if (charge->is_hidden)
        ledger_hide(session_slot(), charge->gpu, bytes);
    charge->bytes += bytes;
    return true;
}

void charge_return(struct charge *charge)
{
    if (charge->is_hidden)
        ledger_unhide(session_slot(), charge->gpu, charge->bytes);
    if (charge->joint)
        ledger_joint_leave(session_slot(), charge->joint - 1u);
    else
        charge_release(charge->gpu, charge->bytes);
    *charge = (struct charge){.gpu = charge->gpu};
    if (own_calls_depth == 0)
        charge_end_move();
}

bool charge_keep(const struct charge *charge, enum record_kind kind, uint64_t key, unsigned flags)
{
    struct record displaced;
    struct record record = {
        .key = key,
        .kind = (uint8_t)kind,
        .gpu = (uint8_t)charge->gpu,
        .flags = (uint8_t)(flags | (charge->is_hidden ? RECORD_HIDDEN : 0) |
                           (charge->asked_bytes ? RECORD_WHOLE : 0)),
        .joint = charge->joint,
        .references = 1,
        .charged = {.bytes = charge->asked_bytes ? charge->asked_bytes : charge->bytes,
                    .context = (uint64_t)(uintptr_t)charge->context},
    };
    GS_CHECK(record_is_charged(kind) && charge->gpu < LEDGER_GPUS);
    if (!records_put(memory_records(), &record, &displaced))
        return false;
    if (__builtin_expect(displaced.kind != RECORD_FREE, false))
        charge_release_record(&displaced);
    return true;
}
