/* hook_limit.c - limits of a context that the driver sets memory aside for: the heap of malloc() on the
 * device, the buffer of printf(), the stack of every thread that can be resident. What they take as the
 * driver sets them out is part of what a context costs; what a program adds is charged here, as long as the
 * context lives. */
#include "intercept/memory/hooks/context.h"
#include "intercept/resolve/real.h"

/* Bytes that each unit of a limit takes; 0: none, or not known. */
static uint64_t unit_bytes(CUlimit limit, CUdevice device)
{
    int processors = 0, threads = 0;
    switch (limit) {
    case CU_LIMIT_MALLOC_HEAP_SIZE:
    case CU_LIMIT_PRINTF_FIFO_SIZE:
        return 1;
    case CU_LIMIT_STACK_SIZE:
        if (!real(cuDeviceGetAttribute) ||
            real(cuDeviceGetAttribute)(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) !=
                CUDA_SUCCESS ||
            real(cuDeviceGetAttribute)(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                       device) != CUDA_SUCCESS ||
            processors < 0 || threads < 0)
            return 0;
        return (uint64_t)processors * (uint64_t)threads;
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

/* Under the GPU's turn, and between charge_enter() and charge_leave(). */
static CUresult set_limit(const struct charge *charge, CUlimit limit, size_t value, uint64_t unit)
{
    struct records *records = &private_get()->records;
    struct record record, displaced;
    size_t before, now;
    uint64_t key = (uint64_t)(uintptr_t)charge->context ^ ((uint64_t)limit + 1) << 56;
    if (real(cuCtxGetLimit)(&before, limit) != CUDA_SUCCESS)
        return real(cuCtxSetLimit)(limit, value);
    if (!records_find(records, RECORD_LIMIT, key, &record))
        record = (struct record){.key = key,
                                 .owner = (uint64_t)(uintptr_t)charge->context,
                                 .references = before < UINT32_MAX ? (uint32_t)before : UINT32_MAX,
                                 .gpu = (uint8_t)charge->gpu,
                                 .kind = RECORD_LIMIT};
    uint64_t usual = record.references; /* the limit as the driver set it out */
    uint64_t held = record.bytes, wanted = beyond(value, usual, unit);
    uint64_t growth = wanted > held ? wanted - held : 0;
    if (!charge_reserve(charge->gpu, growth)) {
        charge_say_refused(true, charge->gpu, growth);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    record.bytes = held + growth;
    if (!records_put(records, &record, &displaced)) {
        charge_release(charge->gpu, growth);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = real(cuCtxSetLimit)(limit, value);
    /* The driver may have rounded it, up or down. */
    uint64_t taken = held;
    if (result == CUDA_SUCCESS)
        taken = real(cuCtxGetLimit)(&now, limit) == CUDA_SUCCESS ? beyond(now, usual, unit) : wanted;
    if (taken < record.bytes)
        charge_release(charge->gpu, record.bytes - taken);
    else if (taken > record.bytes)
        ledger_charge(session_slot(), charge->gpu, taken - record.bytes);
    record.bytes = taken;
    records_put(records, &record, &displaced);
    return result;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct charge charge;
    CUdevice device;
    if (!real_ready() || !real(cuCtxSetLimit))
        return real_absent();
    if (charge_place_current(&charge) != CHARGE_ON_GPU || !real(cuCtxGetLimit) ||
        real(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
        return real(cuCtxSetLimit)(limit, value);
    uint64_t unit = unit_bytes(limit, device);
    if (!unit)
        return real(cuCtxSetLimit)(limit, value);
    pthread_mutex_lock(context_turn(charge.gpu));
    charge_enter();
    charge_moving();
    CUresult result = set_limit(&charge, limit, value, unit);
    charge_leave();
    pthread_mutex_unlock(context_turn(charge.gpu));
    session_notice(WIRE_NOTICE_LIMIT);
    return result;
}
