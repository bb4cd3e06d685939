#include "intercept/memory/engine/swap/extents/resident.h"

#include "base/check.h"
#include "intercept/agent/agent.h"
#include "intercept/memory/engine/swap/extents/access.h"
#include "intercept/memory/engine/swap/ipc/descriptors.h"
#include "intercept/memory/engine/swap/program/mappings.h"
#include "intercept/resolve/real.h"

#define PIECE_PART 256 /* a piece is this part of the card */
#define PIECE_LEAST_BYTES (UINT64_C(4) << 20)
#define PIECE_MOST_BYTES (UINT64_C(1) << 30)

static CUresult map(const struct extent *extent)
{
    return real(cuMemMap)(extent->address, extent->bytes, 0, extent->handle, 0);
}

static CUresult open_by_itself(const struct extent *extent)
{
    struct opener opener;
    opener_begin(&opener);
    opener_add(&opener, extent);
    return opener_end(&opener);
}

/* Map what was unmapped a moment ago. */
static void map_again(const struct extent *extent)
{
    if (map(extent) == CUDA_SUCCESS)
        open_by_itself(extent);
}

bool extents_are_for_rdma(CUdevice device)
{
    enum extents_for_rdma *known =
        device >= 0 && device < (int)LEDGER_GPUS ? &swap_state()->for_rdma[device] : NULL;
    int is_supported = 0;
    if (known && *known == RDMA_UNKNOWN)
        *known = real(cuDeviceGetAttribute)(&is_supported,
                                            CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                                            device) == CUDA_SUCCESS &&
                         is_supported
                     ? RDMA_CAPABLE
                     : RDMA_INCAPABLE;
    return known && *known == RDMA_CAPABLE;
}

static bool is_refusal(CUresult result)
{
    return result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY;
}

/* Properties that memory for an extent of ours should have, but need not: the driver may refuse them. */
static void wish(const struct extent *extent, CUmemAllocationProp *properties)
{
    if (!extent->pool)
        properties->allocFlags.gpuDirectRDMACapable = extents_are_for_rdma(extent->device);
    else if (swap_state()->pools.table[extent->pool - 1].is_for_decompress)
        properties->allocFlags.usage = CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
}

static bool has_wish(const struct extent *extent)
{
    CUmemAllocationProp properties = {0};
    if (extent->address)
        wish(extent, &properties);
    return properties.allocFlags.gpuDirectRDMACapable || properties.allocFlags.usage;
}

/* From now on ask for that, or do not. */
static void set_wish(const struct extent *extent, bool is_wished)
{
    if (extent->pool)
        swap_state()->pools.table[extent->pool - 1].is_for_decompress = is_wished;
    else
        swap_state()->for_rdma[extent->device] = is_wished ? RDMA_CAPABLE : RDMA_INCAPABLE;
}

/* Whether cuMemSetAccess has worked on memory made with that wish. Until then each extent is opened by itself as it is made. */
static bool *wish_is_proven(const struct extent *extent)
{
    struct swap *swap = swap_state();
    return extent->pool ? &swap->pools.table[extent->pool - 1].is_wish_proven
                        : &swap->is_rdma_proven[extent->device];
}

/* Make physical memory for an extent of our own, as much like cuMemAlloc's as the driver can make it. It can be
 * handed out, and RDMA can reach it: cuMemCreate makes memory that RDMA reaches only if asked to (NVIDIA/gdrcopy,
 * issue 177). Memory of pools is not made for RDMA; of pools for decompression it is made for that. */
static CUresult create_ours(struct extent *extent)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, extent->device}};
    wish(extent, &properties);
    CUresult result = real(cuMemCreate)(&extent->handle, extent->bytes, &properties, 0);
    if (is_refusal(result) && has_wish(extent)) {
        CUmemAllocationProp plainer = properties;
        plainer.allocFlags.gpuDirectRDMACapable = 0;
        plainer.allocFlags.usage = 0;
        result = real(cuMemCreate)(&extent->handle, extent->bytes, &plainer, 0);
        if (result == CUDA_SUCCESS)
            set_wish(extent, false);
        properties = plainer;
    }
    if (is_refusal(result)) {
        properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE; /* the driver hands out no memory here */
        result = real(cuMemCreate)(&extent->handle, extent->bytes, &properties, 0);
    }
    return result;
}

/* Make physical memory for an extent, mapped nowhere yet. */
static CUresult create(struct extent *extent)
{
    return extent->address
               ? create_ours(extent)
               : real(cuMemCreate)(&extent->handle, extent->bytes, &extent->program.properties, 0);
}

static CUresult create_and_map(struct extent *extent)
{
    CUresult result = create(extent);
    if (result != CUDA_SUCCESS)
        return result;
    result = extent->address ? map(extent) : mapping_map_all(extent);
    if (result == CUDA_SUCCESS && has_wish(extent) && !*wish_is_proven(extent)) {
        result = open_by_itself(extent);
        if (result != CUDA_SUCCESS)
            real(cuMemUnmap)(extent->address, extent->bytes);
    }
    if (result != CUDA_SUCCESS)
        real(cuMemRelease)(extent->handle);
    return result;
}

/* A driver may refuse what we wish for only when the device is to reach the memory. WSL2's does before R615, for RDMA,
 * though its attribute claims it (PyTorch, issue 192330). So the first extent of a device tries all three calls. */
CUresult extent_make_resident(struct extent *extent)
{
    CUresult result = create_and_map(extent);
    if (is_refusal(result) && has_wish(extent)) {
        set_wish(extent, false);
        result = create_and_map(extent);
        if (result != CUDA_SUCCESS)
            set_wish(extent, true); /* that was not the reason */
    }
    if (result != CUDA_SUCCESS)
        return result;
    if (has_wish(extent))
        *wish_is_proven(extent) = true;
    extent->residence = EXTENT_HERE;
    return CUDA_SUCCESS;
}

CUresult extent_leave_card(struct extent *extent)
{
    CUresult result =
        extent->address ? real(cuMemUnmap)(extent->address, extent->bytes) : mapping_unmap_all(extent);
    if (result != CUDA_SUCCESS)
        return result;
    real(cuMemRelease)(extent->handle);
    extent->residence = EXTENT_AWAY;
    return CUDA_SUCCESS;
}

/* The first reason for which it is pinned; WIRE_STAYS_COUNT: it is not. */
static unsigned why_pinned(const struct extent *extent)
{
    unsigned why = 0;
    while (why < WIRE_STAYS_COUNT && !extent->pins[why])
        why++;
    return why;
}

static bool moves(const struct extent *extent)
{
    return !extent->is_pinned && extent->residence != EXTENT_STUCK;
}

/* The sum that the extent is counted in. */
static _Atomic uint64_t *sum_of(const struct extent *extent)
{
    struct swap *swap = swap_state();
    if (extent->is_pinned)
        return &swap->pinned_bytes[why_pinned(extent)];
    if (extent->residence == EXTENT_STUCK)
        return &swap->pinned_bytes[WIRE_STAYS_STUCK];
    return extent_is_on_card(extent) ? &swap->resident_bytes : &swap->evicted_bytes;
}

void extent_count(const struct extent *extent, bool is_there)
{
    _Atomic uint64_t *sum = sum_of(extent);
    uint64_t bytes = atomic_load_explicit(sum, memory_order_relaxed);
    GS_CHECK(is_there || bytes >= extent->bytes);
    atomic_store_explicit(sum, is_there ? bytes + extent->bytes : bytes - extent->bytes,
                          memory_order_relaxed);
    if (!moves(extent))
        agent_memory_changed();
}

void extent_set_residence(struct extent *extent, enum residence residence)
{
    extent_count(extent, false);
    extent->residence = residence;
    extent_count(extent, true);
}

bool extents_are_valid(void)
{
    struct swap *swap = swap_state();
    uint64_t moving_bytes = 0, pinned_bytes = 0;
    for (struct extent *extent = extents_next(&swap->extents, NULL); extent;
         extent = extents_next(&swap->extents, extent)) {
        if (!extent_is_valid(extent))
            return false;
        *(moves(extent) ? &moving_bytes : &pinned_bytes) += extent->bytes;
    }
    for (unsigned why = 0; why < WIRE_STAYS_COUNT; why++)
        pinned_bytes -= atomic_load_explicit(&swap->pinned_bytes[why], memory_order_relaxed);
    moving_bytes -= atomic_load_explicit(&swap->resident_bytes, memory_order_relaxed) +
                    atomic_load_explicit(&swap->evicted_bytes, memory_order_relaxed);
    return moving_bytes == 0 && pinned_bytes == 0;
}

void extent_give_up_place(struct extent *extent)
{
    if (extent->has_place)
        arena_give_back(&swap_state()->arena, extent->place, extent->bytes);
    extent->has_place = extent->has_copy = extent->has_digest = false;
}

void extent_pin(struct extent *extent, enum wire_stays why)
{
    extent_count(extent, false);
    extent->is_pinned = true;
    if (extent->pins[why] < UINT16_MAX)
        extent->pins[why]++;
    extent_count(extent, true);
    if (extent_is_whole(extent))
        extent_give_up_place(extent);
}

void extent_unpin(struct extent *extent, enum wire_stays why)
{
    if (!extent->pins[why] || extent->pins[why] == UINT16_MAX) /* so often that nobody knows how often */
        return;
    extent_count(extent, false);
    extent->pins[why]--;
    extent->is_pinned = why_pinned(extent) < WIRE_STAYS_COUNT;
    extent_count(extent, true);
}

uint32_t extent_number_small(struct extent *extent, uint64_t address)
{
    struct swap *swap = swap_state();
    struct range known;
    if (ranges_find(&swap->small, address, &known))
        return known.kind;
    if (!ranges_put(&swap->small, (struct range){address, EXTENT_BLOCK_BYTES, ++swap->small_count}))
        return 0; /* without memory for it: the driver has none either for what the program is about to do */
    extent->has_numbers = true;
    return swap->small_count;
}

void extent_forget_numbers(const struct extent *extent, uint64_t address, uint64_t bytes)
{
    struct range range;
    while (extent->has_numbers && ranges_next(&swap_state()->small, address, &range) &&
           range.begin - address < bytes)
        ranges_remove(&swap_state()->small, range.begin, range.kind);
}

/* --- Ending extents -------------------------------------------------------------------------------- */

/* Unmap the memory of all pieces. If the driver refuses for one of them, the memory of those before it is mapped
 * again. */
static CUresult unmap_pieces(struct extent *first)
{
    struct extents *extents = &swap_state()->extents;
    CUresult result = CUDA_SUCCESS;
    struct extent *piece = first;
    for (; piece; piece = extents_next_piece(extents, piece)) {
        if (extent_is_on_card(piece))
            result = real(cuMemUnmap)(piece->address, piece->bytes);
        if (result != CUDA_SUCCESS)
            break;
    }
    for (struct extent *other = first; piece && other != piece; other = extents_next_piece(extents, other))
        if (extent_is_on_card(other))
            map_again(other);
    return result;
}

/* End an extent whose memory is mapped nowhere. */
static void end_unmapped(struct extent *extent)
{
    extent_count(extent, false);
    if (extent_is_on_card(extent))
        real(cuMemRelease)(extent->handle);
    if (extent->is_handed_out)
        descriptors_remove(extent->handed_out_as);
    extent_forget_numbers(extent, extent->address, extent->bytes);
    extent_give_up_place(extent);
    swap_state()->empty_count -= extent->is_shared && extent_is_empty(extent);
    swap_state()->dying_count -= extent->died != 0;
    extents_remove(&swap_state()->extents, extent);
}

CUresult extent_end(struct extent *extent)
{
    struct extents *extents = &swap_state()->extents;
    struct extent *first = extents_first_piece(extents, extent), *next;
    uint64_t address = first->address, bytes = extent_all_bytes(first);
    bool is_pools = first->pool != 0;
    CUresult result = unmap_pieces(first);
    if (result != CUDA_SUCCESS)
        return result;
    for (struct extent *piece = first; piece; piece = next) {
        next = extents_next_piece(extents, piece);
        end_unmapped(piece);
    }
    if (!is_pools)
        real(cuMemAddressFree)(address, bytes);
    return CUDA_SUCCESS;
}

void extents_end_at(uint64_t address, uint64_t bytes)
{
    for (uint64_t at = address, next; at < address + bytes; at = next) {
        struct extent *extent = extents_find(&swap_state()->extents, at);
        next = extent->address + extent->bytes;
        if (extent_is_on_card(extent))
            real(cuMemUnmap)(extent->address, extent->bytes);
        end_unmapped(extent);
    }
}

/* --- Making extents -------------------------------------------------------------------------------- */

/* Enter an extent; on the card, unless such memory is made away, and to be opened. */
static struct extent *enter(struct extent *made, struct opener *opener, CUresult *result)
{
    *result = swap_makes_away() ? CUDA_SUCCESS : extent_make_resident(made);
    if (*result != CUDA_SUCCESS)
        return NULL;
    struct extent *extent = extents_add(&swap_state()->extents, made);
    if (extent) {
        extent_count(extent, true);
        if (swap_is_pinned())
            extent_pin(extent, WIRE_STAYS_UNKNOWN);
        swap_state()->empty_count += made->is_shared;
        if (extent_is_on_card(extent))
            opener_add(opener, extent);
        return extent;
    }
    *result = CUDA_ERROR_OUT_OF_MEMORY; /* no host memory, or more extents than the table has */
    if (extent_is_on_card(made))
        extent_leave_card(made);
    return NULL;
}

/* How large pieces are: a small part of the card, so that what moves at once is small beside the card, and so is the
 * first piece, which is made before anything can come back. Not smaller, since making and mapping each piece takes
 * time. */
static uint64_t piece_bytes(CUdevice device)
{
    uint64_t *known = device >= 0 && device < (int)LEDGER_GPUS ? &swap_state()->piece_bytes[device] : NULL;
    size_t card_bytes;
    uint64_t bytes = PIECE_MOST_BYTES;
    if (known && *known)
        return *known;
    if (!known || real(cuDeviceTotalMem_v2)(&card_bytes, device) != CUDA_SUCCESS)
        return bytes;
    while (bytes > PIECE_LEAST_BYTES && bytes > card_bytes / PIECE_PART)
        bytes /= 2;
    return *known = bytes;
}

static bool has_room(const struct extent *all)
{
    size_t free_bytes, card_bytes;
    CUdevice current;
    return real(cuCtxGetDevice)(&current) == CUDA_SUCCESS && current == all->device &&
           real(cuMemGetInfo_v2)(&free_bytes, &card_bytes) == CUDA_SUCCESS && free_bytes >= all->bytes;
}

/* If there is no room for all pieces, no piece is made: for a while they would take room that belongs to other processes.
 * Only the driver knows whether memory that it keeps for later is room, so we ask the driver. */
static CUresult check_room(const struct extent *all)
{
    struct extent whole = *all;
    if (swap_makes_away() || has_room(all))
        return CUDA_SUCCESS;
    CUresult result = create(&whole);
    if (result == CUDA_SUCCESS)
        real(cuMemRelease)(whole.handle);
    return result;
}

/* Enter the pieces of what is to be made; returns the first. In a pool each piece is an allocation by itself, since
 * blocks say what lies where. */
static struct extent *enter_pieces(const struct extent *all, CUresult *result)
{
    struct extent *first = NULL;
    struct opener opener;
    uint64_t most_bytes = piece_bytes(all->device);
    opener_begin(&opener);
    *result = extent_piece(all->bytes, most_bytes) < all->bytes ? check_room(all) : CUDA_SUCCESS;
    if (*result != CUDA_SUCCESS)
        return NULL;
    for (uint64_t at = 0; at < all->bytes;) {
        struct extent made = *all;
        made.address += at;
        made.bytes = extent_piece(all->bytes - at, most_bytes);
        made.bytes_before = all->pool ? 0 : at;
        made.bytes_behind = all->pool ? 0 : all->bytes - at - made.bytes;
        struct extent *entered = enter(&made, &opener, result);
        if (!entered) {
            extents_end_at(all->address, at);
            return NULL;
        }
        first = first ? first : entered;
        at += made.bytes;
    }
    *result = opener_end(&opener);
    if (*result == CUDA_SUCCESS)
        return first;
    extents_end_at(all->address, all->bytes);
    return NULL;
}

struct extent *extent_make(CUcontext context, CUdevice device, uint64_t bytes, bool is_shared,
                           CUresult *result)
{
    struct extent all = {.context = context, .device = device, .is_shared = is_shared};
    CUdeviceptr address;
    all.bytes = (bytes + SWAP_GRANULARITY_BYTES - 1) & ~(SWAP_GRANULARITY_BYTES - 1);
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (all.bytes < bytes)
        return NULL;
    *result = real(cuMemAddressReserve)(&address, all.bytes, 0, 0, 0);
    if (*result != CUDA_SUCCESS)
        return NULL;
    all.address = address;
    struct extent *first = enter_pieces(&all, result);
    if (!first)
        real(cuMemAddressFree)(address, all.bytes);
    return first;
}

CUresult extents_make_at(CUdevice device, uint64_t address, uint64_t bytes, uint32_t pool)
{
    CUresult result = CUDA_SUCCESS;
    enter_pieces(&(struct extent){.address = address, .bytes = bytes, .device = device, .pool = pool},
                 &result);
    return result;
}
