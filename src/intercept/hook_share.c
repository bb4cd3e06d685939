/* hook_share.c - memory that processes hand to each other: handles of cuMemCreate, legacy IPC, pointers into
 * pools.
 *
 * It is charged once: to the process that made it, while that is one of this session; else to the one that
 * imports it. Which it is the importer learns by name (ledger_is_exported()): the bytes of an IPC handle, of
 * a fabric handle or of a pool's export data; of a file descriptor the file that it stands for. A driver that
 * gives all its descriptors one file makes all exports of a session one name: then an import from outside is
 * not charged while anybody in the session exports too (its maker is charged for it). When the maker lets go
 * first, what its importers keep alive is seen in the driver line and among orphans, and charged to none.
 * Where the card then shows it for an importer of another session, it counts twice there until that one lets
 * go: as its charge, which was entered as one that the card does not show, and in its driver line. */
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cuda/driver_more.h"
#include "intercept/real.h"
#include "intercept/vmm.h"

/* --- Names ----------------------------------------------------------------------------------------- */

static uint64_t name_of(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    hash ^= hash >> 29;
    return hash ? hash : 1;
}

#define FABRIC_HANDLE_BYTES 64

/* The name of a shareable handle; 0: it has none. */
static uint64_t name_of_shareable(const void *fabric, int fd, CUmemAllocationHandleType type)
{
    struct stat status;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
        return name_of(fabric, FABRIC_HANDLE_BYTES);
    /* Not glibc's fstat, which is a symbol of 2.33. */
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || syscall(SYS_fstat, fd, &status) < 0)
        return 0;
    uint64_t file[3] = {status.st_dev, status.st_ino, status.st_rdev};
    return name_of(file, sizeof(file));
}

static void note(uint64_t name)
{
    if (name && charge_holds())
        ledger_export(session_slot(), name);
}

/* Whether an import with this name has a maker in the session, who is charged for it. */
static bool is_ours(uint64_t name)
{
    return ledger_is_exported(&session_slot()->ledger, name);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    if (!real_ready() || !real(cuIpcGetMemHandle))
        return real_absent();
    CUresult result = real(cuIpcGetMemHandle)(handle, address);
    if (result == CUDA_SUCCESS && handle)
        note(name_of(handle, sizeof(*handle)));
    return result;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address)
{
    if (!real_ready() || !real(cuMemPoolExportPointer))
        return real_absent();
    CUresult result = real(cuMemPoolExportPointer)(data, address);
    if (result == CUDA_SUCCESS && data)
        note(name_of(data, sizeof(*data)));
    return result;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    if (!real_ready() || !real(cuMemExportToShareableHandle))
        return real_absent();
    CUresult result = real(cuMemExportToShareableHandle)(shareable, handle, type, flags);
    if (result == CUDA_SUCCESS && shareable)
        note(name_of_shareable(shareable, *(const int *)shareable, type));
    return result;
}

/* --- Handles of cuMemCreate ------------------------------------------------------------------------ */

/* A multicast object has no allocation's properties (measure). */
static bool is_multicast(CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp properties;
    return real(cuMulticastBindMem) && real(cuMemGetAllocationPropertiesFromHandle) &&
           real(cuMemGetAllocationPropertiesFromHandle)(&properties, handle) != CUDA_SUCCESS;
}

/* It takes nothing, whoever made it; it holds what this process binds to it. False without memory. */
static bool keep_multicast(CUmemGenericAllocationHandle handle)
{
    return vmm_keep(&(struct charge){0}, handle, RECORD_MULTICAST);
}

/* Enter what another session made; it is charged when it is mapped, which tells its size. False without
 * memory. */
static bool keep_import(CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp properties;
    struct charge charge = {0};
    if (!real(cuMemGetAllocationPropertiesFromHandle) ||
        real(cuMemGetAllocationPropertiesFromHandle)(&properties, handle) != CUDA_SUCCESS ||
        properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return true;
    switch (charge_place_device(&charge, properties.location.id)) {
    case CHARGE_NOWHERE:
        return true;
    case CHARGE_FORBIDDEN:
        charge_say_refused(false, 0, 0);
        return false;
    case CHARGE_ON_GPU:
        break;
    }
    charge.bytes = 0;
    return vmm_keep(&charge, handle, RECORD_IMPORTED | RECORD_HIDDEN);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type)
{
    if (!real_ready() || !real(cuMemImportFromShareableHandle) || !real(cuMemRelease))
        return real_absent();
    CUresult result = real(cuMemImportFromShareableHandle)(handle, shareable, type);
    if (result != CUDA_SUCCESS || charge_depth || session_mode() != SESSION_INSIDE)
        return result;
    if (is_multicast(*handle)
            ? keep_multicast(*handle)
            : is_ours(name_of_shareable(shareable, (int)(intptr_t)shareable, type)) || keep_import(*handle))
        return result;
    real(cuMemRelease)(*handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* --- Addresses ------------------------------------------------------------------------------------- */

/* Charge what another session made and the driver has just mapped at `address`. False if it does not fit. */
static bool charge_mapped(CUdeviceptr address, enum record_kind kind)
{
    CUdeviceptr base;
    size_t bytes = 0;
    int device;
    struct charge charge, current;
    CUmemorytype type;
    if (real(cuPointerGetAttribute) &&
        real(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
        type == CU_MEMORYTYPE_HOST)
        return true; /* of a pool of host memory */
    if (!real(cuMemGetAddressRange_v2) || !real(cuPointerGetAttribute) ||
        real(cuMemGetAddressRange_v2)(&base, &bytes, address) != CUDA_SUCCESS ||
        real(cuPointerGetAttribute)(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) != CUDA_SUCCESS)
        return true;
    switch (charge_take_device(&charge, device, bytes)) {
    case CHARGE_PASS:
        return true;
    case CHARGE_REFUSED:
        return false;
    case CHARGE_TAKEN:
        break;
    }
    charge_place_current(&current);
    charge.context = current.context;
    charge_hide(&charge);
    bool kept = charge_keep(&charge, kind, address);
    if (kept)
        charge_settled();
    else
        charge_return(&charge);
    return kept;
}

static CUresult open_handle(CUresult (*driver)(CUdeviceptr *, CUipcMemHandle, unsigned int),
                            CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    struct record record;
    CUresult result = driver(address, handle, flags);
    if (result != CUDA_SUCCESS || charge_depth || session_mode() != SESSION_INSIDE ||
        is_ours(name_of(&handle, sizeof(handle))))
        return result;
    /* Opened again it has the same address, and must be closed as often. */
    if (records_count(&private_get()->records, RECORD_IPC, *address, 1, &record))
        return result;
    if (charge_mapped(*address, RECORD_IPC))
        return result;
    real(cuIpcCloseMemHandle)(*address);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

#define OPENS(symbol)                                                                                        \
    CUresult symbol(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)                         \
    {                                                                                                        \
        if (!real_ready() || !real(symbol) || !real(cuIpcCloseMemHandle))                                    \
            return real_absent();                                                                            \
        return open_handle(real(symbol), address, handle, flags);                                            \
    }
OPENS(cuIpcOpenMemHandle)
OPENS(cuIpcOpenMemHandle_v2)

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    struct record record;
    if (!real_ready() || !real(cuIpcCloseMemHandle))
        return real_absent();
    if (!charge_holds() || !records_count(&private_get()->records, RECORD_IPC, address, -1, &record))
        return real(cuIpcCloseMemHandle)(address);
    charge_enter();
    CUresult result = real(cuIpcCloseMemHandle)(address);
    charge_leave();
    if (result == CUDA_SUCCESS && record.references == 0) {
        charge_release_record(&record);
    } else if (result != CUDA_SUCCESS && record.references == 0) {
        record.references = 1;
        records_restore(&private_get()->records, record);
    } else if (result != CUDA_SUCCESS) {
        records_count(&private_get()->records, RECORD_IPC, address, 1, &record);
    }
    return result;
}

/* The pointer is freed as any other: cuMemFree, cuMemFreeAsync. */
CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
    if (!real_ready() || !real(cuMemPoolImportPointer) || !real(cuMemFree_v2))
        return real_absent();
    CUresult result = real(cuMemPoolImportPointer)(address, pool, data);
    if (result != CUDA_SUCCESS || charge_depth || session_mode() != SESSION_INSIDE ||
        is_ours(name_of(data, sizeof(*data))) || charge_mapped(*address, RECORD_POINTER))
        return result;
    real(cuMemFree_v2)(*address);
    return CUDA_ERROR_OUT_OF_MEMORY;
}
