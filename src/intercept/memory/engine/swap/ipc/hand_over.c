#include "intercept/memory/engine/swap/ipc/hand_over.h"

#include <sys/mman.h>
#include <unistd.h>

#include "intercept/resolve/guard.h"
#include "intercept/resolve/real.h"

#define IMPORTS_MAX 16384u

/* --- Out ------------------------------------------------------------------------------------------- */

CUresult extent_hand_out(struct extent *extent)
{
    struct descriptor_place place;
    int fd = -1;
    if (extent->is_handed_out)
        return CUDA_SUCCESS;
    CUresult result =
        real(cuMemExportToShareableHandle)(&fd, extent->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS)
        return result;
    if (descriptors_add(fd, &place) < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    extent->is_handed_out = true;
    extent->handed_out_as = place.number;
    extent->handed_out_secret = place.secret;
    return CUDA_SUCCESS;
}

/* --- In -------------------------------------------------------------------------------------------- */

struct swap_import *import_find(CUdeviceptr address)
{
    struct swap_imports *imports = &swap_state()->imports;
    for (uint32_t i = 0; i < imports->end; i++) {
        struct swap_import *import = &imports->table[i];
        if (import->count && address >= import->base && address - import->base < import->bytes)
            return import;
    }
    return NULL;
}

static struct swap_import *new_import(void)
{
    struct swap_imports *imports = &swap_state()->imports;
    if (!imports->table && !(imports->table = extents_make_table(IMPORTS_MAX * sizeof(struct swap_import))))
        return NULL;
    for (uint32_t i = 0; i < imports->end; i++)
        if (!imports->table[i].count)
            return &imports->table[i];
    return imports->end < IMPORTS_MAX ? &imports->table[imports->end++] : NULL;
}

bool import_enter(const struct swap_import *made)
{
    guard_lock(&swap_state()->lock);
    struct swap_import *place = new_import();
    if (place) {
        *place = *made;
        place->allocation = ++swap_state()->imports.made;
    } else
        import_unmap(made, made->mapped_bytes);
    guard_unlock(&swap_state()->lock);
    return place != NULL;
}

/* The device that a handle's memory is on. */
static CUresult device_of(CUmemGenericAllocationHandle handle, CUdevice *device)
{
    CUmemAllocationProp properties;
    if (!real(cuMemGetAllocationPropertiesFromHandle))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = real(cuMemGetAllocationPropertiesFromHandle)(&properties, handle);
    if (result == CUDA_SUCCESS)
        *device = properties.location.id;
    return result;
}

/* The mapping keeps the memory, so the handle can be released at once. */
static CUresult map_handle(CUmemGenericAllocationHandle handle, CUdeviceptr address, uint64_t bytes,
                           CUdevice *device)
{
    CUresult result = *device < 0 ? device_of(handle, device) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = real(cuMemMap)(address, bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS)
        return result;
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, *device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    result = real(cuMemSetAccess)(address, bytes, &access, 1);
    if (result != CUDA_SUCCESS)
        real(cuMemUnmap)(address, bytes);
    return result;
}

CUresult import_map_piece(const struct descriptor_place *place, CUdeviceptr address, uint64_t bytes,
                          CUdevice *device)
{
    CUmemGenericAllocationHandle handle;
    int fd = descriptors_fetch(place);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = real(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fd,
                                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    if (result != CUDA_SUCCESS)
        return result;
    result = map_handle(handle, address, bytes, device);
    real(cuMemRelease)(handle);
    return result;
}

bool import_make_pieces(struct swap_import *import, uint64_t count)
{
    void *memory = mmap(NULL, count * sizeof(*import->pieces), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    import->pieces = memory;
    import->piece_count = count;
    return true;
}

void import_unmap(const struct swap_import *import, uint64_t bytes)
{
    for (uint64_t at = 0, piece, i = 0; at < bytes; at += piece, i++) {
        piece =
            import->pieces ? import->pieces[i] : extent_piece(import->mapped_bytes - at, import->piece_bytes);
        real(cuMemUnmap)(import->address + at, piece);
    }
    real(cuMemAddressFree)(import->address, import->mapped_bytes);
    if (import->pieces)
        munmap(import->pieces, import->piece_count * sizeof(*import->pieces));
}

void import_end(struct swap_import *import)
{
    import->count = 0;
    import_unmap(import, import->mapped_bytes);
}
