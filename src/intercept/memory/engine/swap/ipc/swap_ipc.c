#include "intercept/memory/engine/swap/ipc/swap_ipc.h"

#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/engine/swap/extents/quiet.h"
#include "intercept/memory/engine/swap/extents/resident.h"
#include "intercept/memory/engine/swap/ipc/hand_over.h"
#include "intercept/memory/engine/swap/program/swap_program.h"
#include "intercept/resolve/guard.h"
#include "intercept/resolve/real.h"

#define MAGIC UINT64_C(0x7370696563696c73)
#define IPC_LAZY_PEER_ACCESS 1u /* cuda.h 13.0: there is no other flag */

/* What a handle of ours holds. */
struct handle {
    uint64_t magic;
    struct descriptor_place place; /* of the first piece; the numbers of the other pieces follow */
    uint64_t extent_bytes;         /* of all pieces together */
    uint64_t offset, bytes;        /* of the allocation in them */
    uint64_t piece_bytes;          /* of each piece but the last (extent_piece()); 0: there is only one */
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "it has room in the driver's");

/* --- The process that has the memory ---------------------------------------------------------------- */

/* Under the lock: hand out the descriptors of all pieces, under numbers that follow each other; or of none. */
static CUresult hand_out_all(struct extent *first)
{
    struct extents *extents = &swap_state()->extents;
    CUresult result = CUDA_SUCCESS;
    if (first->is_handed_out)
        return CUDA_SUCCESS;
    for (struct extent *piece = first; piece && result == CUDA_SUCCESS;
         piece = extents_next_piece(extents, piece))
        result = extent_hand_out(piece);
    for (struct extent *piece = first; piece && result != CUDA_SUCCESS;
         piece = extents_next_piece(extents, piece)) {
        if (piece->is_handed_out)
            descriptors_remove(piece->handed_out_as);
        piece->is_handed_out = false;
    }
    return result;
}

/* Under the lock, while the memory is on the card. */
static CUresult make_handle(CUipcMemHandle *made, CUdeviceptr address)
{
    struct record record;
    struct extents *extents = &swap_state()->extents;
    struct extent *found = extents_find(extents, address);
    if (!found || found->pool || !records_find_around(memory_records(), address, &record) ||
        record.kind != RECORD_POINTER)
        return CUDA_ERROR_INVALID_VALUE;
    struct extent *first = extents_first_piece(extents, found);
    CUresult result = hand_out_all(first);
    if (result != CUDA_SUCCESS)
        return result;
    for (struct extent *piece = first; piece; piece = extents_next_piece(extents, piece))
        extent_pin(piece, WIRE_STAYS_EXPORTED);
    const struct handle handle = {.magic = MAGIC,
                                  .place = {.secret = first->handed_out_secret,
                                            .number = first->handed_out_as,
                                            .pid = (int32_t)getpid()},
                                  .extent_bytes = extent_all_bytes(first),
                                  .offset = record.key - first->address,
                                  .bytes = record.charged.bytes,
                                  .piece_bytes = first->bytes_behind ? first->bytes : 0};
    memset(made, 0, sizeof(*made));
    memcpy(made, &handle, sizeof(handle));
    return CUDA_SUCCESS;
}

CUresult swap_ipc_handle(CUipcMemHandle *handle, CUdeviceptr address)
{
    CUdevice device;
    guard_lock(&swap_state()->lock);
    const struct extent *extent = extents_find(&swap_state()->extents, address);
    bool is_ours = extent && !extent->pool;
    guard_unlock(&swap_state()->lock);
    if (!handle || !is_ours || !real(cuMemExportToShareableHandle))
        return real(cuIpcGetMemHandle)(handle, address);
    CUresult result = real(cuCtxGetDevice)(&device);
    if (result != CUDA_SUCCESS)
        return result;
    program_lock_when_back();
    result = make_handle(handle, address);
    guard_unlock(&swap_state()->lock);
    return result;
}

/* --- The process that opens it ----------------------------------------------------------------------- */

/* Under the lock: the import that this handle has opened in this context; NULL: none. */
static struct swap_import *find_opened(const struct handle *handle, CUcontext context)
{
    struct swap_imports *imports = &swap_state()->imports;
    for (uint32_t i = 0; i < imports->end; i++) {
        struct swap_import *import = &imports->table[i];
        if (import->count && import->context == context && import->pid == handle->place.pid &&
            import->secret == handle->place.secret && import->number == handle->place.number &&
            import->base - import->address == handle->offset)
            return import;
    }
    return NULL;
}

/* Fetch and map all pieces, side by side. */
static CUresult map(const struct handle *handle, struct swap_import *import)
{
    struct descriptor_place place = handle->place;
    CUresult result = real(cuMemAddressReserve)(&import->address, handle->extent_bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    import->mapped_bytes = handle->extent_bytes;
    import->piece_bytes = handle->piece_bytes ? handle->piece_bytes : handle->extent_bytes;
    import->base = import->address + handle->offset;
    import->bytes = handle->bytes;
    for (uint64_t at = 0, bytes; at < import->mapped_bytes; at += bytes, place.number++) {
        bytes = extent_piece(import->mapped_bytes - at, import->piece_bytes);
        result = import_map_piece(&place, import->address + at, bytes, &import->device);
        if (result != CUDA_SUCCESS) {
            import_unmap(import, at);
            return result;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult open_anew(const struct handle *handle, CUcontext context, CUdevice device,
                          CUdeviceptr *address)
{
    struct swap_import made = {.pid = handle->place.pid,
                               .secret = handle->place.secret,
                               .number = handle->place.number,
                               .context = context,
                               .device = device,
                               .count = 1};
    CUresult result = map(handle, &made);
    if (result != CUDA_SUCCESS)
        return result;
    *address = made.base;
    return import_enter(&made) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool is_sound(const struct handle *handle)
{
    return handle->extent_bytes && handle->extent_bytes % SWAP_GRANULARITY_BYTES == 0 && handle->bytes &&
           handle->piece_bytes % SWAP_GRANULARITY_BYTES == 0 && handle->offset <= handle->extent_bytes &&
           handle->bytes <= handle->extent_bytes - handle->offset;
}

CUresult swap_ipc_open(const struct allocation *wanted)
{
    struct handle handle = {0};
    CUcontext context = NULL;
    CUdevice device;
    memcpy(&handle, wanted->import.handle, sizeof(handle));
    if (!wanted->got || handle.magic != MAGIC || wanted->import.flags != IPC_LAZY_PEER_ACCESS)
        return plain_allocate(wanted);
    CUresult result = real(cuCtxGetDevice)(&device);
    if (result == CUDA_SUCCESS)
        result = real(cuCtxGetCurrent)(&context);
    if (result == CUDA_SUCCESS && !is_sound(&handle))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && descriptors_is_own(&handle.place))
        result = CUDA_ERROR_INVALID_CONTEXT; /* a process may not open its own memory */
    if (result != CUDA_SUCCESS)
        return result;
    guard_lock(&swap_state()->lock);
    struct swap_import *opened = find_opened(&handle, context);
    if (opened) {
        opened->count++;
        *(CUdeviceptr *)wanted->got = opened->base;
    }
    guard_unlock(&swap_state()->lock);
    return opened ? CUDA_SUCCESS : open_anew(&handle, context, device, wanted->got);
}

/* Memory that work may still use after all patience stays mapped, as long as the process. */
CUresult swap_ipc_close(CUdeviceptr address)
{
    guard_lock(&swap_state()->lock);
    const struct swap_import *found = import_find(address);
    CUcontext context = found && found->base == address ? found->context : NULL;
    uint64_t devices = context ? import_devices(found) : 0;
    guard_unlock(&swap_state()->lock);
    if (!context)
        return plain_release(RELEASE_cuIpcCloseMemHandle, address, NULL);
    bool is_quiet = quiet_wait(devices, NULL, QUIET_PATIENCE_NS) == CUDA_SUCCESS;
    guard_lock(&swap_state()->lock);
    struct swap_import *import = import_find(address);
    bool is_open = import && import->base == address;
    if (is_open && --import->count == 0 && is_quiet)
        import_end(import);
    guard_unlock(&swap_state()->lock);
    return is_open ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool swap_ipc_find(CUdeviceptr address, struct ipc_place *place)
{
    const struct swap_import *import = import_find(address);
    if (import)
        *place = (struct ipc_place){import->base, import->bytes, import->allocation, import->context,
                                    import->device};
    return import != NULL;
}

void swap_ipc_forget_context(CUcontext context)
{
    struct swap_imports *imports = &swap_state()->imports;
    for (uint32_t i = 0; i < imports->end; i++)
        if (imports->table[i].count && imports->table[i].context == context)
            import_end(&imports->table[i]);
}
