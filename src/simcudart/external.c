/* external.c - memory and semaphores of other APIs. The driver's descriptions end in reserved members, which
 * the runtime's have only since CUDA 13; so we copy them by member. */
#include "simcudart/simcudart.h"

#include <string.h>

static cudaError_t import_memory(cudaExternalMemory_t *memory,
                                 const struct cudaExternalMemoryHandleDesc *description)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC driver = {0};
    RUNTIME_REQUIRE(memory && description, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    driver.type = (CUexternalMemoryHandleType)description->type;
    memcpy(&driver.handle, &description->handle, sizeof driver.handle);
    driver.size = description->size;
    driver.flags = description->flags;
    return runtime_translate(DRIVER(cuImportExternalMemory)(memory, &driver));
}
EXPORT(cudaImportExternalMemory, import_memory,
       (cudaExternalMemory_t * memory, const struct cudaExternalMemoryHandleDesc *description),
       (memory, description))

static cudaError_t map_buffer(void **pointer, cudaExternalMemory_t memory,
                              const struct cudaExternalMemoryBufferDesc *description)
{
    CUdeviceptr address;
    RUNTIME_REQUIRE(pointer && description, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC driver = {
        .offset = description->offset, .size = description->size, .flags = description->flags};
    RUNTIME_TRY(runtime_translate(DRIVER(cuExternalMemoryGetMappedBuffer)(&address, memory, &driver)));
    *pointer = (void *)address;
    return cudaSuccess;
}
EXPORT(cudaExternalMemoryGetMappedBuffer, map_buffer,
       (void **pointer, cudaExternalMemory_t memory, const struct cudaExternalMemoryBufferDesc *description),
       (pointer, memory, description))

static cudaError_t map_array(cudaMipmappedArray_t *array, cudaExternalMemory_t memory,
                             const struct cudaExternalMemoryMipmappedArrayDesc *description)
{
    RUNTIME_REQUIRE(array && description, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC driver = {
        .offset = description->offset,
        .arrayDesc = {.Width = description->extent.width,
                      .Height = description->extent.height,
                      .Depth = description->extent.depth,
                      .Flags = description->flags},
        .numLevels = description->numLevels,
    };
    RUNTIME_TRY(array_describe_element(&description->formatDesc, &driver.arrayDesc.Format,
                                       &driver.arrayDesc.NumChannels));
    return runtime_translate(
        DRIVER(cuExternalMemoryGetMappedMipmappedArray)((CUmipmappedArray *)array, memory, &driver));
}
EXPORT(cudaExternalMemoryGetMappedMipmappedArray, map_array,
       (cudaMipmappedArray_t * array, cudaExternalMemory_t memory,
        const struct cudaExternalMemoryMipmappedArrayDesc *description),
       (array, memory, description))

static cudaError_t import_semaphore(cudaExternalSemaphore_t *semaphore,
                                    const struct cudaExternalSemaphoreHandleDesc *description)
{
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC driver = {0};
    RUNTIME_REQUIRE(semaphore && description, cudaErrorInvalidValue);
    RUNTIME_TRY(runtime_need_context());
    driver.type = (CUexternalSemaphoreHandleType)description->type;
    memcpy(&driver.handle, &description->handle, sizeof driver.handle);
    driver.flags = description->flags;
    return runtime_translate(DRIVER(cuImportExternalSemaphore)((CUexternalSemaphore *)semaphore, &driver));
}
EXPORT(cudaImportExternalSemaphore, import_semaphore,
       (cudaExternalSemaphore_t * semaphore, const struct cudaExternalSemaphoreHandleDesc *description),
       (semaphore, description))
