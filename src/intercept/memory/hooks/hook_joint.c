/* hook_joint.c - memory that processes hand to each other: handles of cuMemCreate, legacy IPC, pointers into
 * pools.
 *
 * The session is charged for it once, as long as any process of it holds it: who exports memory makes its own
 * charge a share of the session (charge_make_joint()), and who imports it joins that (charge_take_import()). Both
 * know it by its name: the bytes of an IPC handle, of a fabric handle or of a pool's export data; of a file
 * descriptor the file that it stands for. What another session made is charged to the first that imports it;
 * the others join.
 *
 * Not all names are one allocation's. NVIDIA's driver may give each descriptor the same file, its device
 * node; and what is exported of a pool stays part of the pool's charge. Such an export is only noted, by its
 * name (ledger_export()): while the process that noted it lives, imports of that name are charged to nobody
 * else. What importers keep alive longer is seen in the driver line; and an import from outside the session
 * is not charged while anybody in the session exports under the same name (its maker is charged for it).
 * Without a note each import is charged for itself. */
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cuda/driver_more.h"
#include "intercept/memory/hooks/vmm.h"
#include "intercept/resolve/real.h"

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

/* The name of a shareable handle; 0: it has none. `*is_its_own`: no other allocation has it. */
static uint64_t name_of_shareable(const void *fabric, int fd, CUmemAllocationHandleType type,
                                  bool *is_its_own)
{
    struct stat status;
    *is_its_own = type == CU_MEM_HANDLE_TYPE_FABRIC;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
        return name_of(fabric, FABRIC_HANDLE_BYTES);
    /* Not glibc's fstat, which is a symbol of 2.33. */
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || syscall(SYS_fstat, fd, &status) < 0)
        return 0;
    *is_its_own = !S_ISCHR(status.st_mode);
    uint64_t file[3] = {status.st_dev, status.st_ino, status.st_rdev};
    return name_of(file, sizeof(file));
}

/* The process has handed out what has this record, under a name that is `is_its_own`. */
static void hand_out(enum record_kind kind, uint64_t key, uint64_t name, bool is_its_own)
{
    if (name && charge_holds() && !(is_its_own && charge_make_joint(kind, key, name)))
        ledger_export(session_slot(), name);
}

/* Whether an import with this name has a maker in the session, who noted it and is charged for it. */
static bool is_noted(uint64_t name)
{
    return ledger_is_exported(&session_slot()->ledger, name);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    if (!real_ready() || !real(cuIpcGetMemHandle))
        return real_absent();
    CUresult result = real(cuIpcGetMemHandle)(handle, address);
    CUdeviceptr base = address;
    size_t bytes;
    if (result != CUDA_SUCCESS || !handle)
        return result;
    if (real(cuMemGetAddressRange_v2))
        real(cuMemGetAddressRange_v2)(&base, &bytes, address);
    hand_out(RECORD_POINTER, base, name_of(handle, sizeof(*handle)), true);
    return result;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address)
{
    if (!real_ready() || !real(cuMemPoolExportPointer))
        return real_absent();
    CUresult result = real(cuMemPoolExportPointer)(data, address);
    if (result == CUDA_SUCCESS && data)
        hand_out(RECORD_POINTER, address, name_of(data, sizeof(*data)), false);
    return result;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    if (!real_ready() || !real(cuMemExportToShareableHandle))
        return real_absent();
    CUresult result = real(cuMemExportToShareableHandle)(shareable, handle, type, flags);
    bool is_its_own;
    if (result != CUDA_SUCCESS || !shareable)
        return result;
    uint64_t name = name_of_shareable(shareable, *(const int *)shareable, type, &is_its_own);
    uint64_t number = charge_holds() ? vmm_allocation_of(handle) : 0;
    hand_out(RECORD_ALLOCATION, number, name, is_its_own);
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
    return vmm_keep(&(struct charge){0}, handle, RECORD_MULTICAST, 0);
}

/* Enter what another process made. Where nobody in the session is charged for it, it is charged when it is
 * mapped, which tells its size. False without memory. */
static bool keep_import(CUmemGenericAllocationHandle handle, uint64_t name)
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
    bool is_new;
    charge_moving();
    int share = ledger_joint_join(session_slot(), name, false, &is_new);
    charge.share = (uint8_t)(share + 1);
    bool is_kept = vmm_keep(&charge, handle, RECORD_IMPORTED, name);
    if (!is_kept && share >= 0)
        ledger_joint_leave(session_slot(), (uint32_t)share);
    charge_settled();
    return is_kept;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type)
{
    if (!real_ready() || !real(cuMemImportFromShareableHandle) || !real(cuMemRelease))
        return real_absent();
    CUresult result = real(cuMemImportFromShareableHandle)(handle, shareable, type);
    if (result != CUDA_SUCCESS || charge_depth || session_mode() != SESSION_INSIDE)
        return result;
    bool is_its_own;
    uint64_t name = name_of_shareable(shareable, (int)(intptr_t)shareable, type, &is_its_own);
    if (is_multicast(*handle) ? keep_multicast(*handle)
                              : is_noted(name) || keep_import(*handle, is_its_own ? name : 0))
        return result;
    real(cuMemRelease)(*handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* --- Addresses ------------------------------------------------------------------------------------- */

/* Charge what another process made and the driver has just mapped at `address`. False if it does not fit. */
static bool charge_mapped(CUdeviceptr address, enum record_kind kind, uint64_t name)
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
    switch (charge_take_import(&charge, device, bytes, name)) {
    case CHARGE_PASS:
        return true;
    case CHARGE_REFUSED:
        return false;
    case CHARGE_TAKEN:
        break;
    }
    charge_place_current(&current);
    charge.context = current.context;
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
    uint64_t name = name_of(&handle, sizeof(handle));
    CUresult result = driver(address, handle, flags);
    if (result != CUDA_SUCCESS || charge_depth || session_mode() != SESSION_INSIDE || is_noted(name))
        return result;
    /* Opened again it has the same address, and must be closed as often. */
    if (records_count(&private_get()->records, RECORD_IPC, *address, 1, &record))
        return result;
    if (charge_mapped(*address, RECORD_IPC, name))
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
        records_restore(&private_get()->records, &record);
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
    if (result != CUDA_SUCCESS || charge_depth || session_mode() != SESSION_INSIDE)
        return result;
    uint64_t name = name_of(data, sizeof(*data));
    if (is_noted(name) || charge_mapped(*address, RECORD_POINTER, name))
        return result;
    real(cuMemFree_v2)(*address);
    return CUDA_ERROR_OUT_OF_MEMORY;
}
