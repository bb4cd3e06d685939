#include "intercept/memory/engine/swap/pools/swap_pool_share.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "intercept/memory/engine/as_driver.h"
#include "intercept/memory/engine/swap/extents/quiet.h"
#include "intercept/memory/engine/swap/extents/resident.h"
#include "intercept/memory/engine/swap/ipc/hand_over.h"
#include "intercept/memory/engine/swap/pools/swap_pool_find.h"
#include "intercept/memory/engine/swap/program/swap_program.h"
#include "intercept/resolve/guard.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"

#define MAGIC UINT64_C(0x7370696c6f6f7067)
#define CLOSE_ON_EXEC 1u /* MFD_CLOEXEC, which old headers lack */

/* What is in CUmemPoolPtrExportData. */
struct pointer {
    uint64_t magic;
    struct descriptor_place description;
};
_Static_assert(sizeof(struct pointer) <= sizeof(CUmemPoolPtrExportData), "it has room in the driver's");

/* A file: this, then one `struct piece` for each extent, in the order of their addresses. */
struct description {
    uint64_t mapped_bytes;  /* of all pieces together */
    uint64_t offset, bytes; /* of the allocation in them */
    uint64_t piece_count;
};

struct piece {
    uint64_t secret, number; /* under which it was handed out */
    uint64_t bytes;
};

/* --- The process that has the memory: under the lock ------------------------------------------------ */

static struct extent *extent_at(uint64_t address)
{
    return extents_find(&swap_state()->extents, address);
}

static bool append(int fd, const void *what, size_t bytes)
{
    return write(fd, what, bytes) == (ssize_t)bytes;
}

/* Hand out the extents that a block lies in, and write them down. */
static CUresult describe_pieces(int fd, const struct block *block)
{
    struct extent *extent;
    for (uint64_t at = block->address; at < block->address + block->bytes;
         at = extent->address + extent->bytes) {
        extent = extent_at(at);
        CUresult result = extent_hand_out(extent);
        if (result != CUDA_SUCCESS)
            return result;
        extent_pin(extent, WIRE_STAYS_EXPORTED);
        const struct piece piece = {extent->handed_out_secret, extent->handed_out_as, extent->bytes};
        if (!append(fd, &piece, sizeof(piece)))
            return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return CUDA_SUCCESS;
}

static struct description description_of(const struct block *block)
{
    const struct extent *first = extent_at(block->address);
    struct description description = {.offset = block->address - first->address, .bytes = block->asked_bytes};
    for (uint64_t at = first->address, next; at < block->address + block->bytes; at = next) {
        const struct extent *extent = extent_at(at);
        next = extent->address + extent->bytes;
        description.mapped_bytes += extent->bytes;
        description.piece_count++;
    }
    return description;
}

static CUresult hand_out_block(struct block *block)
{
    const struct description description = description_of(block);
    struct descriptor_place place;
    int fd = (int)syscall(SYS_memfd_create, "gpuslice-pool-pointer", CLOSE_ON_EXEC);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    CUresult result = append(fd, &description, sizeof(description)) ? describe_pieces(fd, block)
                                                                    : CUDA_ERROR_OPERATING_SYSTEM;
    if (result != CUDA_SUCCESS) {
        close(fd);
        return result;
    }
    if (descriptors_add(fd, &place) < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    block->handed_out_as = place.number;
    block->handed_out_secret = place.secret;
    return CUDA_SUCCESS;
}

CUresult swap_pool_export_pointer(CUmemPoolPtrExportData *data, CUdeviceptr address)
{
    if (!data || !swap_pool_has(address) || !real(cuMemExportToShareableHandle))
        return real(cuMemPoolExportPointer)(data, address);
    program_lock_when_back();
    struct block *block = swap_pool_exportable(address);
    CUresult result = block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (block && !block->handed_out_as)
        result = hand_out_block(block);
    if (result == CUDA_SUCCESS) {
        const struct pointer pointer = {.magic = MAGIC,
                                        .description = {.secret = block->handed_out_secret,
                                                        .number = block->handed_out_as,
                                                        .pid = (int32_t)getpid()}};
        memset(data, 0, sizeof(*data));
        memcpy(data, &pointer, sizeof(pointer));
    }
    guard_unlock(&swap_state()->lock);
    return result;
}

/* --- The process that imports it --------------------------------------------------------------------- */

static bool is_sound(const struct description *description)
{
    return description->mapped_bytes && description->mapped_bytes % SWAP_GRANULARITY_BYTES == 0 &&
           description->bytes && description->offset <= description->mapped_bytes &&
           description->bytes <= description->mapped_bytes - description->offset &&
           description->piece_count &&
           description->piece_count <= description->mapped_bytes / SWAP_GRANULARITY_BYTES;
}

static bool read_at(int fd, uint64_t offset, void *what, size_t bytes)
{
    return pread(fd, what, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* The next piece, to be mapped where `left_bytes` are left; false if it is not sound. */
static bool read_piece(int fd, uint64_t index, uint64_t left_bytes, struct piece *piece)
{
    return read_at(fd, sizeof(struct description) + index * sizeof(*piece), piece, sizeof(*piece)) &&
           piece->bytes && piece->bytes % SWAP_GRANULARITY_BYTES == 0 && piece->bytes <= left_bytes;
}

/* Fetch and map all pieces, side by side. */
static CUresult map(int fd, int32_t pid, const struct description *description, struct swap_import *import)
{
    uint64_t at = 0;
    if (!import_make_pieces(import, description->piece_count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    import->mapped_bytes = description->mapped_bytes;
    import->bytes = description->bytes;
    CUresult result = real(cuMemAddressReserve)(&import->address, import->mapped_bytes, 0, 0, 0);
    import->base = import->address + description->offset;
    for (uint64_t i = 0; i < description->piece_count && result == CUDA_SUCCESS; i++) {
        struct piece piece;
        if (!read_piece(fd, i, import->mapped_bytes - at, &piece)) {
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        const struct descriptor_place place = {.secret = piece.secret, .number = piece.number, .pid = pid};
        result = import_map_piece(&place, import->address + at, piece.bytes, &import->device);
        import->pieces[i] = piece.bytes;
        at += result == CUDA_SUCCESS ? piece.bytes : 0;
    }
    if (result == CUDA_SUCCESS && at != import->mapped_bytes)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        import_unmap(import, at);
    return result;
}

static CUresult import_described(int fd, const struct descriptor_place *from, CUdeviceptr *address)
{
    struct description description;
    struct swap_import made = {
        .pid = from->pid, .secret = from->secret, .number = from->number, .device = -1, .count = 1};
    if (!read_at(fd, 0, &description, sizeof(description)) || !is_sound(&description))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = map(fd, from->pid, &description, &made);
    if (result != CUDA_SUCCESS)
        return result;
    *address = made.base;
    return import_enter(&made) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult swap_pool_import_pointer(const struct allocation *wanted)
{
    struct pointer pointer = {0};
    if (wanted->import.handle)
        memcpy(&pointer, wanted->import.handle, sizeof(pointer));
    if (!wanted->got || pointer.magic != MAGIC)
        return plain_allocate(wanted);
    if (!wanted->import.pool || descriptors_is_own(&pointer.description))
        return CUDA_ERROR_INVALID_VALUE;
    int fd = descriptors_fetch(&pointer.description);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE; /* it is freed, or its maker has gone */
    CUresult result = import_described(fd, &pointer.description, wanted->got);
    close(fd);
    return result;
}

/* Under the lock. */
static struct swap_import *find_begin(CUdeviceptr address)
{
    struct swap_import *import = import_find(address);
    return import && !import->context && import->base == address ? import : NULL;
}

bool swap_pool_is_imported(CUdeviceptr address)
{
    guard_lock(&swap_state()->lock);
    bool is_imported = find_begin(address) != NULL;
    guard_unlock(&swap_state()->lock);
    return is_imported;
}

/* Freeing in the order of a stream waits for the stream, as nothing else here unmaps memory later. */
CUresult swap_pool_free_imported(enum release_way way, CUdeviceptr address, CUstream stream)
{
    guard_lock(&swap_state()->lock);
    struct swap_import *import = find_begin(address);
    uint64_t devices = import ? import_devices(import) : 0;
    guard_unlock(&swap_state()->lock);
    CUresult result = way == RELEASE_cuMemFree_v2 ? quiet_wait(devices, NULL, QUIET_PATIENCE_NS)
                                                  : as_driver_wait_for_stream(way, stream);
    bool is_quiet = result != CUDA_ERROR_NOT_READY;
    if (result != CUDA_SUCCESS && is_quiet)
        return result;
    guard_lock(&swap_state()->lock);
    import = find_begin(address);
    if (import && is_quiet)
        import_end(import);
    else if (import)
        import->count = 0; /* work may still use it: it stays mapped, as long as the process */
    guard_unlock(&swap_state()->lock);
    return import ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
