/* advice.c - where a program wants pages of managed memory, and what it is told of them. */
#include "simgpu/memory/managed.h"

struct advice {
    CUmem_advise advice;
    CUmemLocation location;
};

/* Copies become one copy: that at the preferred place, if there is one. */
static uint32_t collapsed(const struct managed_pages *state)
{
    if (state->preferred.type != CU_MEM_LOCATION_TYPE_NONE &&
        (state->resident & managed_place(state->preferred)))
        return managed_place(state->preferred);
    return state->resident & -state->resident;
}

static void advise_pages(struct managed_pages *state, uint64_t bytes, void *what)
{
    const struct advice *advice = what;
    switch (advice->advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
        state->is_read_mostly = true;
        break;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        state->is_read_mostly = false;
        managed_settle(state, bytes, collapsed(state));
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        state->preferred = advice->location;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        state->preferred = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_NONE};
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        state->accessed_by |= managed_place(advice->location);
        break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        state->accessed_by &= ~managed_place(advice->location);
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
        return managed_location_read(&advice->location);
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        return managed_location_read(&advice->location);
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
    SIM_TRY(managed_check(pointer, bytes));
    return managed_change(pointer, bytes, advise_pages, &advice);
}

CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, CUmem_advise what, CUdevice device)
{
    return cuMemAdvise_v2(pointer, bytes, what, managed_location(device));
}

/* --- Asking ---------------------------------------------------------------------------------------- */

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
            data[count++] = bit == 0 ? MANAGED_CPU : bit - 1;
    while (count < capacity)
        data[count++] = MANAGED_NOWHERE;
}

static void attribute_write(const struct managed_pages *state, void *data, size_t bytes,
                            CUmem_range_attribute attribute)
{
    int32_t *value = data;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *value = state->is_read_mostly;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *value = managed_device(state->preferred);
        break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        accessors_write(state->accessed_by, data, bytes / sizeof(CUdevice));
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *value = managed_device(state->prefetched);
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
    struct managed_pages state = managed_untouched;
    SIM_TRY(context_current(&context));
    SIM_REQUIRE(data && sizes && attributes && count > 0);
    for (size_t i = 0; i < count; i++)
        SIM_TRY(attribute_check(data[i], sizes[i], attributes[i]));
    SIM_TRY(managed_ask(pointer, bytes, &state));
    for (size_t i = 0; i < count; i++)
        attribute_write(&state, data[i], sizes[i], attributes[i]);
    return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr pointer,
                                size_t bytes)
{
    return cuMemRangeGetAttributes(&data, &size, &attribute, 1, pointer, bytes);
}
