#include "intercept/memory/charge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "cuda/uuid.h"
#include "intercept/memory/pool_charge.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/report.h"

__thread unsigned charge_depth;
__thread struct ledger_slot *charge_moved;
static __thread bool dropping; /* between charge_drop() and charge_dropped() */

/* The last context of this thread and where its memory is charged, while session_memory has not changed. */
static __thread struct {
    CUcontext context, owner;
    uint64_t memory;
    enum charge_place place;
    uint32_t gpu;
} last;

/* The driver's name for a device. */
static bool device_uuid(CUdevice device, CUuuid *uuid)
{
    if (real(cuDeviceGetUuid_v2))
        return real(cuDeviceGetUuid_v2)(uuid, device) == CUDA_SUCCESS;
    return real(cuDeviceGetUuid) && real(cuDeviceGetUuid)(uuid, device) == CUDA_SUCCESS;
}

/* In a session: where the memory of `device` is charged. */
static enum charge_place place_of_device(struct charge *charge, CUdevice device)
{
    CUuuid uuid;
    if (!device_uuid(device, &uuid))
        return CHARGE_NOWHERE; /* before cuInit, or no such device */
    int gpu = session_gpu((const uint8_t *)uuid.bytes, device);
    if (gpu < 0)
        return CHARGE_FORBIDDEN;
    charge->gpu = (uint32_t)gpu;
    return CHARGE_ON_GPU;
}

enum charge_place charge_place_device(struct charge *charge, CUdevice device)
{
    CUuuid uuid;
    *charge = (struct charge){.gpu = UINT32_MAX};
    if (charge_depth)
        return CHARGE_NOWHERE;
    switch (session_mode()) {
    case SESSION_INSIDE:
        return place_of_device(charge, device);
    case SESSION_REFUSED:
        return device_uuid(device, &uuid) ? CHARGE_FORBIDDEN : CHARGE_NOWHERE;
    default:
        return CHARGE_NOWHERE;
    }
}

/* The context that memory goes with: of a green one, the primary one behind it. */
static CUcontext owner_of(CUcontext context)
{
    struct record record;
    return records_find(&private_get()->records, RECORD_CONTEXT, (uint64_t)(uintptr_t)context, &record)
               ? (CUcontext)(uintptr_t)record.owner
               : context;
}

static enum charge_place place_of_context(struct charge *charge, enum session_mode mode)
{
    CUdevice device;
    /* Read before the driver is asked: what changes meanwhile is noticed at the next call. */
    uint64_t memory = atomic_load_explicit(&session_memory, memory_order_acquire); /* session_forget() */
    if (!real(cuCtxGetDevice) || real(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
        return CHARGE_NOWHERE; /* the context was destroyed */
    if (mode == SESSION_REFUSED)
        return CHARGE_FORBIDDEN;
    enum charge_place place = place_of_device(charge, device);
    last.context = charge->context;
    charge->context = owner_of(charge->context);
    last.owner = charge->context;
    last.memory = memory;
    last.place = place;
    last.gpu = charge->gpu;
    return place;
}

enum charge_place charge_place_current(struct charge *charge)
{
    *charge = (struct charge){.gpu = UINT32_MAX};
    if (charge_depth)
        return CHARGE_NOWHERE;
    enum session_mode mode = session_mode();
    if (mode == SESSION_OUTSIDE)
        return CHARGE_NOWHERE;
    if (!real(cuCtxGetCurrent) || real(cuCtxGetCurrent)(&charge->context) != CUDA_SUCCESS || !charge->context)
        return CHARGE_NOWHERE; /* before cuInit, or no context: the driver refuses */
    if (mode == SESSION_INSIDE && charge->context == last.context &&
        last.memory == atomic_load_explicit(&session_memory, memory_order_acquire)) {
        charge->context = last.owner;
        charge->gpu = last.gpu;
        return last.place;
    }
    return place_of_context(charge, mode);
}

/* This thread's number in the ledger. A forked child's threads go on counting where its parent was. */
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

void charge_moving(void)
{
    if (charge_moved)
        return;
    charge_moved = session_slot();
    ledger_move_begin(charge_moved, mover());
}

void charge_settled_slow(void)
{
    if (dropping)
        return;
    ledger_move_end(charge_moved, mover());
    charge_moved = NULL;
}

bool charge_reserve(uint32_t gpu, uint64_t bytes)
{
    if (ledger_reserve(session_slot(), gpu, bytes))
        return true;
    return pool_charge_trim(gpu, bytes) && ledger_reserve(session_slot(), gpu, bytes);
}

void charge_release(uint32_t gpu, uint64_t bytes)
{
    if (bytes)
        ledger_release(session_slot(), gpu, bytes);
}

void charge_release_record(const struct record *record)
{
    if (record->share) {
        ledger_joint_leave(session_slot(), record->share - 1u);
        return;
    }
    if (record->flags & RECORD_HIDDEN)
        ledger_unhide(session_slot(), record->gpu, record->bytes);
    charge_release(record->gpu, record->bytes);
}

/* Whether the session is one of simulated GPUs, as `gpuslice run` says in the environment. */
static bool is_simulated(void)
{
    const char *simulated = getenv("GPUSLICE_SIMULATED");
    return simulated && *simulated && strcmp(simulated, "0") != 0;
}

static void say_refused_on(const struct ledger *ledger, uint32_t gpu, uint64_t bytes)
{
    struct private_area *area = private_get();
    const struct ledger_policy *policy = ledger->policy;
    char uuid[GPU_UUID_TEXT], asked[UNITS_BYTES_TEXT], used[UNITS_BYTES_TEXT], limit[UNITS_BYTES_TEXT];
    uint64_t used_bytes = ledger_used(ledger, gpu) + ledger_unseen(policy, gpu);
    uint64_t limit_bytes = atomic_load_explicit(&policy->gpus[gpu].limit_bytes, memory_order_relaxed);
    unsigned __int128 enough_bytes = (unsigned __int128)used_bytes + bytes;
    unsigned long long enough_mib = (unsigned long long)((enough_bytes + (1 << 20) - 1) >> 20);

    gpu_uuid_format(policy->gpus[gpu].uuid, uuid);
    if (policy->gpus[gpu].is_mig)
        gpu_uuid_set_mig(uuid);
    units_format_bytes(bytes, asked);
    units_format_bytes(used_bytes, used);
    units_format_bytes(limit_bytes, limit);
    if (session_is_standalone())
        report_once(&area->said_denied,
                    "out of memory: asked for %s (%llu bytes) on %s; used %s of the limit %s. To allow it: "
                    "GPUSLICE_MEMORY_LIMIT=%lluMiB",
                    asked, (unsigned long long)bytes, uuid, used, limit, enough_mib);
    else if (atomic_load_explicit(&policy->closed, memory_order_relaxed))
        report_once(&area->said_denied, "out of memory: session %.*s was released or has expired",
                    LEDGER_SESSION_ID_BYTES, policy->session_id);
    else
        report_once(
            &area->said_denied,
            "out of memory in session %.*s: asked for %s (%llu bytes) on %s; used %s of the limit %s. To "
            "allow it: gpuslice set%s %.*s --memory %lluMiB",
            LEDGER_SESSION_ID_BYTES, policy->session_id, asked, (unsigned long long)bytes, uuid, used, limit,
            is_simulated() ? " --simulated" : "", LEDGER_SESSION_ID_BYTES, policy->session_id, enough_mib);
}

void charge_say_refused(bool named, uint32_t gpu, uint64_t bytes)
{
    struct private_area *area = private_get();
    if (session_mode() == SESSION_INSIDE)
        session_notice(WIRE_NOTICE_DENIED);
    if (session_mode() != SESSION_INSIDE || atomic_load_explicit(&area->said_denied, memory_order_relaxed))
        return; /* a process that could not attach has said why */
    int saved_errno = errno;
    const struct ledger *ledger = &session_slot()->ledger;
    if (named)
        say_refused_on(ledger, gpu, bytes);
    else if (session_is_standalone())
        report_once(&area->said_denied, "out of memory: GPUSLICE_MEMORY_LIMIT does not name this GPU");
    else
        report_once(&area->said_denied,
                    "out of memory: session %.*s does not have this GPU; use one of CUDA_VISIBLE_DEVICES as "
                    "`gpuslice run` sets it",
                    LEDGER_SESSION_ID_BYTES, ledger->policy->session_id);
    errno = saved_errno;
}

static enum charge_answer take(struct charge *charge, enum charge_place place, uint64_t bytes)
{
    charge->bytes = bytes;
    if (place == CHARGE_NOWHERE)
        return CHARGE_PASS;
    if (place == CHARGE_ON_GPU) {
        charge_moving();
        if (charge_reserve(charge->gpu, bytes)) {
            charge_moving(); /* trimming pools may have settled it */
            return CHARGE_TAKEN;
        }
        charge_settled();
    }
    charge_say_refused(place == CHARGE_ON_GPU, charge->gpu, bytes);
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

static atomic_bool has_captured;

void charge_capturing(void)
{
    if (!atomic_load_explicit(&has_captured, memory_order_relaxed))
        atomic_store_explicit(&has_captured, true, memory_order_relaxed);
}

CUresult charge_refused(void)
{
    CUdeviceptr address;
    if (!atomic_load_explicit(&has_captured, memory_order_relaxed) || !real(cuMemAlloc_v2) ||
        !real(cuMemFree_v2))
        return CUDA_ERROR_OUT_OF_MEMORY;
    charge_enter();
    CUresult result = real(cuMemAlloc_v2)(&address, SIZE_MAX / 2);
    if (result == CUDA_SUCCESS)
        real(cuMemFree_v2)(address);
    charge_leave();
    return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

void charge_hide(struct charge *charge)
{
    charge->hidden = true;
    ledger_hide(session_slot(), charge->gpu, charge->bytes);
}

bool charge_more(struct charge *charge, uint64_t bytes)
{
    if (!charge_reserve(charge->gpu, bytes)) {
        charge_say_refused(true, charge->gpu, bytes);
        return false;
    }
    charge->bytes += bytes;
    return true;
}

void charge_less(struct charge *charge, uint64_t bytes)
{
    charge_release(charge->gpu, bytes);
    charge->bytes -= bytes;
}

void charge_return(struct charge *charge)
{
    if (charge->hidden)
        ledger_unhide(session_slot(), charge->gpu, charge->bytes);
    charge->hidden = false;
    if (charge->share)
        ledger_joint_leave(session_slot(), charge->share - 1u);
    else
        charge_less(charge, charge->bytes);
    if (charge_depth == 0)
        charge_settled();
}

bool charge_keep(const struct charge *charge, enum record_kind kind, uint64_t key)
{
    struct record displaced;
    struct record record = {
        .key = key,
        .bytes = charge->bytes,
        .owner = (uint64_t)(uintptr_t)charge->context,
        .references = 1,
        .gpu = (uint8_t)charge->gpu,
        .kind = (uint8_t)kind,
        .flags = charge->hidden ? RECORD_HIDDEN : 0,
        .share = charge->share,
    };
    if (!records_put(&private_get()->records, &record, &displaced))
        return false;
    if (displaced.kind != RECORD_FREE)
        charge_release_record(&displaced);
    return true;
}

bool charge_holds(void)
{
    struct private_area *area =
        atomic_load_explicit(&private_area, memory_order_acquire); /* private_make() */
    return charge_depth == 0 && area &&
           atomic_load_explicit(&area->attachment, memory_order_acquire); /* attach() in session.c */
}

bool charge_drop(enum record_kind kind, uint64_t key, struct record *taken)
{
    if (!charge_holds() || !records_take(&private_get()->records, kind, key, taken))
        return false;
    charge_moving();
    dropping = true;
    return true;
}

void charge_dropped(const struct record *taken, CUresult result)
{
    dropping = false;
    /* What cannot be put back stays charged until the process ends: it is still held. */
    if (result == CUDA_SUCCESS)
        charge_release_record(taken);
    else
        records_restore(&private_get()->records, taken);
    if (charge_depth == 0)
        charge_settled();
}
