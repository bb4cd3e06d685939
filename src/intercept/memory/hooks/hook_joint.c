/* hook_joint.c - memory that processes hand to each other: handles of cuMemCreate, legacy IPC, pointers into
 * pools.
 *
 * The session is charged for such memory once, as long as any of its processes holds it. A process that exports
 * memory makes its own charge joint memory of the session (charge_make_joint()). A process that imports it joins that
 * (charge_take_import()). Both know the memory by its name: a hash of the bytes of an IPC handle, of a fabric handle
 * or of a pool's export data; for a file descriptor, of the file that it stands for. Memory that another session made
 * is charged to the first process that imports it; the others join.
 *
 * Not every name belongs to one allocation. NVIDIA's driver may give each descriptor the same file, its device node;
 * and what is exported of a pool stays part of the pool's charge. Such an export is only noted, by its name
 * (ledger_export()). While the process that noted it lives, or for pools until it has none any more, imports of that
 * name are charged to nobody else. What importers keep alive after that shows in the driver line. An import from
 * outside the session is not charged while any process of the session exports under the same name, since that process
 * is charged for it. Without a note, each import is charged by itself. */
#include "cuda/driver_more.h"
#include "intercept/memory/engine/engine.h"
#include "intercept/memory/physical.h"
#include "intercept/memory/road.h"
#include "intercept/memory/share_name.h"
#include "intercept/resolve/real.h"

/* --- Names ----------------------------------------------------------------------------------------- */

#define FABRIC_HANDLE_BYTES 64

/* The name of a shareable handle; 0: it has none. `*is_its_own`: no other allocation has it. */
static uint64_t name_of_shareable(const void *fabric, int fd, CUmemAllocationHandleType type,
                                  bool *is_its_own)
{
    *is_its_own = type == CU_MEM_HANDLE_TYPE_FABRIC;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
        return share_name_of_bytes(fabric, FABRIC_HANDLE_BYTES);
    return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? share_name_of_file(fd, is_its_own) : 0;
}

/* The ledger has no joint place left for this memory. Then nothing is noted, and each import is charged in full: with a note it
 * would be charged to nobody once its maker has let go. */
static bool lacks_place(enum record_kind kind, uint64_t key)
{
    struct record record;
    return records_find(memory_records(), kind, key, &record) && !record.joint && record.charged.bytes &&
           !(record.flags & (RECORD_HIDDEN | RECORD_IMPORTED));
}

/* The process has exported what this record stands for, under this name. `is_its_own`: no other allocation has it. */
static void hand_out(enum record_kind kind, uint64_t key, uint64_t name, bool is_its_own)
{
    if (!name || !charge_has_any() || (is_its_own && charge_make_joint(kind, key, name)))
        return;
    if (is_its_own && lacks_place(kind, key))
        return;
    atomic_store_explicit(&memory_area()->notes_for_good, true, memory_order_relaxed);
    ledger_export(session_slot(), name);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    real_needed(cuIpcGetMemHandle);
    const struct engine *engine = engine_of_process();
    CUresult result = engine->ipc_handle && !own_calls_depth ? engine->ipc_handle(handle, address)
                                                             : real(cuIpcGetMemHandle)(handle, address);
    CUdeviceptr base = address;
    size_t bytes;
    if (result != CUDA_SUCCESS || !handle)
        return result;
    engine->address_range(&base, &bytes, address);
    hand_out(RECORD_POINTER, base, share_name_of_bytes(handle, sizeof(*handle)), true);
    return result;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address)
{
    real_needed(cuMemPoolExportPointer);
    CUresult result = engine_pools()->export_pointer(data, address);
    if (result == CUDA_SUCCESS && data && charge_has_any())
        ledger_export(session_slot(),
                      share_name_of_bytes(data, sizeof(*data))); /* until its pools are gone */
    return result;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    real_needed(cuMemExportToShareableHandle);
    CUresult result = engine_of_process()->vmm->export(shareable, handle, type, flags);
    bool is_its_own;
    if (result != CUDA_SUCCESS || !shareable)
        return result;
    uint64_t name = name_of_shareable(shareable, *(const int *)shareable, type, &is_its_own);
    uint64_t number = charge_has_any() ? physical_of_handle(handle) : 0;
    if (number)
        records_set_flags(memory_records(), RECORD_PHYSICAL, number, RECORD_SHARED, true);
    hand_out(RECORD_PHYSICAL, number, name, is_its_own);
    return result;
}

/* --- Imports --------------------------------------------------------------------------------------- */

static uint64_t name_of_import(const struct allocation *wanted, bool *is_its_own)
{
    int fd = (int)(intptr_t)wanted->import.handle;
    return name_of_shareable(wanted->import.handle, fd, wanted->import.type, is_its_own);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type)
{
    return allocate(&(struct allocation){
        .way = WAY_cuMemImportFromShareableHandle,
        .got = handle,
        .import = {.name = name_of_import, .handle = shareable, .type = type},
    });
}

static uint64_t name_of_ipc(const struct allocation *wanted, bool *is_its_own)
{
    *is_its_own = true;
    return share_name_of_bytes(wanted->import.handle, sizeof(CUipcMemHandle));
}

static CUresult open_handle(enum alloc_way way, CUdeviceptr *address, CUipcMemHandle *handle,
                            unsigned int flags)
{
    return allocate(&(struct allocation){
        .way = way, .got = address, .import = {.name = name_of_ipc, .handle = handle, .flags = flags}});
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    return open_handle(WAY_cuIpcOpenMemHandle, address, &handle, flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    return open_handle(WAY_cuIpcOpenMemHandle_v2, address, &handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    return release_allocation(RELEASE_cuIpcCloseMemHandle, address, NULL);
}

static uint64_t name_of_pool_pointer(const struct allocation *wanted, bool *is_its_own)
{
    *is_its_own = true;
    return share_name_of_bytes(wanted->import.handle, sizeof(CUmemPoolPtrExportData));
}

/* The pointer is freed like any other: by cuMemFree or cuMemFreeAsync. */
CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
    return allocate(&(struct allocation){
        .way = WAY_cuMemPoolImportPointer,
        .got = address,
        .import = {.name = name_of_pool_pointer, .handle = data, .pool = pool},
    });
}
