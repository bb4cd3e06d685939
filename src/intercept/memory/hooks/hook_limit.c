/* hook_limit.c - limits of a context for which the driver sets memory aside: the heap of malloc() on the device, the
 * buffer of printf(), the stack of every thread that can be resident. What the driver's defaults take is part of what
 * a context costs. What a program adds is charged here, as long as the context lives. */
#include "intercept/memory/charge.h"
#include "intercept/memory/context_locks.h"
#include "intercept/memory/hooks/resident_threads.h"
#include "intercept/memory/refusal.h"
#include "intercept/resolve/real.h"

uint64_t resident_threads(CUdevice device)
{
    int processors = 0, threads = 0;
    if (!real(cuDeviceGetAttribute) ||
        real(cuDeviceGetAttribute)(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) !=
            CUDA_SUCCESS ||
        real(cuDeviceGetAttribute)(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device) !=
            CUDA_SUCCESS ||
        processors < 0 || threads < 0)
        return 0;
    return (uint64_t)processors * (uint64_t)threads;
}

/* Bytes that each unit of a limit takes; 0: none, or not known. */
static uint64_t unit_bytes(CUlimit limit, CUdevice device)
{
    switch (limit) {
    case CU_LIMIT_MALLOC_HEAP_SIZE:
    case CU_LIMIT_PRINTF_FIFO_SIZE:
        return 1;
    case CU_LIMIT_STACK_SIZE:
        return resident_threads(device);
    default:
        return 0;
    }
}

static uint64_t beyond(uint64_t value, uint64_t usual, uint64_t unit)
{
    uint64_t bytes;
    if (value <= usual)
        return 0;
    return __builtin_mul_overflow(value - usual, unit, &bytes) ? UINT64_MAX : bytes;
}

/* Under the GPU's context lock, and between charge_enter() and charge_leave(). */
static CUresult set_limit(const struct charge *charge, CUlimit limit, size_t value, uint64_t unit)
{
    struct records *records = memory_records();
    struct record record, displaced;
    size_t before, now;
    uint64_t key = (uint64_t)(uintptr_t)charge->context ^ ((uint64_t)limit + 1) << 56;
    if (real(cuCtxGetLimit)(&before, limit) != CUDA_SUCCESS)
        return real(cuCtxSetLimit)(limit, value);
    if (!records_find(records, RECORD_LIMIT, key, &record))
        record = (struct record){.key = key,
                                 .kind = RECORD_LIMIT,
                                 .gpu = (uint8_t)charge->gpu,
                                 .usual = before < UINT32_MAX ? (uint32_t)before : UINT32_MAX,
                                 .charged = {.context = (uint64_t)(uintptr_t)charge->context}};
    uint64_t before_bytes = record.charged.bytes, wanted = beyond(value, record.usual, unit);
    uint64_t growth = wanted > before_bytes ? wanted - before_bytes : 0;
    if (!charge_reserve(charge->gpu, growth)) {
        refusal_by_limit(charge->gpu, growth);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    record.charged.bytes = before_bytes + growth;
    if (!records_put(records, &record, &displaced)) {
        charge_release(charge->gpu, growth);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = real(cuCtxSetLimit)(limit, value);
    /* The driver may have rounded the limit, up or down. */
    uint64_t taken = before_bytes;
    if (result == CUDA_SUCCESS)
        taken = real(cuCtxGetLimit)(&now, limit) == CUDA_SUCCESS ? beyond(now, record.usual, unit) : wanted;
    if (taken < record.charged.bytes)
        charge_release(charge->gpu, record.charged.bytes - taken);
    else if (taken > record.charged.bytes)
        ledger_charge(session_slot(), charge->gpu, taken - record.charged.bytes);
    record.charged.bytes = taken;
    records_put(records, &record, &displaced);
    return result;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct charge charge;
    CUdevice device;
    real_needed(cuCtxSetLimit);
    if (charge_place_current(&charge) != PLACE_ON_GPU || !real(cuCtxGetLimit) ||
        real(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
        return real(cuCtxSetLimit)(limit, value);
    uint64_t unit = unit_bytes(limit, device);
    if (!unit)
        return real(cuCtxSetLimit)(limit, value);
    context_lock(charge.gpu);
    charge_enter();
    charge_begin_move();
    CUresult result = set_limit(&charge, limit, value, unit);
    charge_leave();
    context_unlock(charge.gpu);
    session_notice(WIRE_NOTICE_LIMIT);
    return result;
}
