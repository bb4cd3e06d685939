/* hook_external.c - memory of other APIs (Vulkan, OpenGL by dma-buf, NvSciBuf), charged to the process that
 * imports it, by the size that it names: nobody else in the session was charged for it. Buffers and arrays
 * mapped onto it take nothing more. A descriptor of cuMemExportToShareableHandle is charged like any other,
 * so twice in its maker's session: its name may be that of all descriptors of the driver (hook_joint.c),
 * which must not make memory of other APIs free. */
#include "intercept/memory/charge.h"
#include "intercept/resolve/real.h"

CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    struct charge charge;
    if (!real_ready() || !real(cuImportExternalMemory) || !real(cuDestroyExternalMemory))
        return real_absent();
    if (!memory || !description || !description->size)
        return real(cuImportExternalMemory)(memory, description);
    switch (charge_take_current(&charge, description->size)) {
    case CHARGE_PASS:
        return real(cuImportExternalMemory)(memory, description);
    case CHARGE_REFUSED:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case CHARGE_TAKEN:
        break;
    }
    charge_enter();
    CUresult result = real(cuImportExternalMemory)(memory, description);
    if (result == CUDA_SUCCESS && !charge_keep(&charge, RECORD_EXTERNAL, (uint64_t)(uintptr_t)*memory)) {
        real(cuDestroyExternalMemory)(*memory);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    charge_leave();
    if (result != CUDA_SUCCESS)
        charge_return(&charge);
    return result;
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    struct record record;
    if (!real_ready() || !real(cuDestroyExternalMemory))
        return real_absent();
    if (!charge_drop(RECORD_EXTERNAL, (uint64_t)(uintptr_t)memory, &record))
        return real(cuDestroyExternalMemory)(memory);
    charge_enter();
    CUresult result = real(cuDestroyExternalMemory)(memory);
    charge_leave();
    charge_dropped(&record, result);
    return result;
}
