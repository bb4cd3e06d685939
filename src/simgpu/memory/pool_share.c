/* pool_share.c - memory of pools that goes to other processes: a pool as a descriptor or a fabric handle, then
 * its pointers one by one.
 *
 * Either brings the exporter's heap, so that pointers can be imported as long as their memory is
 * there, and holds no memory itself. Each exported allocation is a share (device.h), of the bytes that it
 * uses in its pool: counted once, however many have imported it. As on a card, whole blocks are mapped, so
 * that neighbours of small allocations can be seen. Pools of host memory go the same way: their shares have
 * no bytes of a device. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simgpu/memory/heap.h"
#include "simgpu/memory/pool.h"
#include "simgpu/memory/shared_fabric.h"

#define POINTER_MAGIC 0x6770706fu

/* What cuMemPoolExportPointer says of an allocation. */
struct exported {
    uint32_t magic; /* POINTER_MAGIC */
    uint32_t share_index;
    uint64_t share_generation;
    uint64_t pool, inode; /* which pool of which heap */
    uint32_t first_block, block_count;
    uint64_t inside_bytes, bytes;
};
_Static_assert(sizeof(struct exported) <= sizeof(CUmemPoolPtrExportData), "64 bytes of export data");

/* A pointer of another process's pool, mapped here. */
struct imported {
    struct device_share *share;
    LIST_ENTRY(imported) entry;
    unsigned gpu;
    uint64_t pointer, address, mapped_bytes;
};

static pthread_mutex_t imports_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, imported) imports = LIST_HEAD_INITIALIZER(imports);

/* What tells one process's heap from another's; 0 if there is no heap. */
static uint64_t inode_of(int fd)
{
    struct stat file;
    return fstat(fd, &file) == 0 ? (uint64_t)file.st_ino : 0;
}

/* Whether a pool was made for going to other processes; by this type, if it is not NONE. */
static CUresult check_exportable(CUmemoryPool pool, CUmemAllocationHandleType type)
{
    unsigned types = (unsigned)pool->properties.handleTypes;
    SIM_REQUIRE(!pool->is_imported);
    SIM_REQUIRE(type == CU_MEM_HANDLE_TYPE_NONE ? types != 0 : (types & (unsigned)type) != 0);
    return CUDA_SUCCESS; /* and not of managed memory: those have no handle types (pool_calls.c) */
}

/* How many bytes of an allocation are a device's. */
static uint64_t share_bytes(CUmemoryPool pool, uint64_t bytes)
{
    return pool->place == POOL_ON_DEVICE ? pool_grains(bytes) : 0;
}

/* --- Pools ----------------------------------------------------------------------------------------- */

static struct shared_descriptor described(CUmemoryPool pool)
{
    return (struct shared_descriptor){.magic = SHARED_DESCRIPTOR_MAGIC,
                                      .kind = SHARED_DESCRIPTOR_POOL,
                                      .gpu = pool->gpu,
                                      .is_device = pool->place == POOL_ON_DEVICE,
                                      .pool = (uint64_t)(uintptr_t)pool,
                                      .pool_properties = pool->properties};
}

/* The same handle each time. */
static CUresult export_fabric(unsigned char *fabric, CUmemoryPool pool)
{
    const struct shared_descriptor what = described(pool);
    pthread_mutex_lock(&pool->lock);
    if (pool->fabric < 0)
        pool->fabric = shared_fabric_make(&what, heap_descriptor());
    int file = pool->fabric;
    if (file >= 0)
        shared_fabric_name(file, fabric);
    pthread_mutex_unlock(&pool->lock);
    return file >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

static CUresult export_descriptor(int *shareable, CUmemoryPool pool)
{
    const struct shared_descriptor what = described(pool);
    int fd = shared_descriptor_make(&what, heap_descriptor(), -1);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *shareable = fd;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type,
                                          unsigned long long flags)
{
    SIM_TRY(pool_check(pool));
    SIM_REQUIRE(shareable && flags == 0);
    SIM_TRY(shared_handle_type_check(type));
    SIM_TRY(check_exportable(pool, type));
    return type == CU_MEM_HANDLE_TYPE_FABRIC ? export_fabric(shareable, pool)
                                             : export_descriptor(shareable, pool);
}

/* Keeps `heap` when it succeeds. */
static CUresult import_pool(CUmemoryPool *pool_out, const struct shared_descriptor *what, int heap)
{
    SIM_REQUIRE(what->kind == SHARED_DESCRIPTOR_POOL && inode_of(heap) != 0);
    CUdevice ordinal = 0;
    while ((unsigned)ordinal < simulator.device_count && simulator.visible[ordinal] != what->gpu)
        ordinal++;
    if (what->is_device && (unsigned)ordinal == simulator.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    CUmemPoolProps properties = what->pool_properties;
    if (what->is_device)
        properties.location.id = ordinal;
    CUmemoryPool pool = pool_make(&properties, what->is_device ? POOL_ON_DEVICE : POOL_ON_HOST, what->gpu);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&pool->lock);
    pool->is_imported = true;
    pool->exporter_heap = heap;
    pool->exporter_pool = what->pool;
    pthread_mutex_unlock(&pool->lock);
    *pool_out = pool;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *shareable,
                                            CUmemAllocationHandleType type, unsigned long long flags)
{
    struct shared_descriptor what;
    int heap = -1, token = -1;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(pool && flags == 0);
    SIM_TRY(shared_handle_type_check(type));
    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
        SIM_REQUIRE(shareable && shared_fabric_read(shareable, &what, &heap));
    else /* the pointer is the descriptor (cuda.h) */
        SIM_REQUIRE(shared_descriptor_read((int)(intptr_t)shareable, &what, &heap, &token));
    if (token >= 0)
        close(token);
    CUresult result = import_pool(pool, &what, heap);
    if (result != CUDA_SUCCESS)
        close(heap);
    return result;
}

void pool_share_end(CUmemoryPool pool)
{
    if (pool->fabric >= 0)
        close(pool->fabric);
    pool->fabric = -1;
    if (!pool->is_imported)
        return;
    close(pool->exporter_heap);
    pool->exporter_heap = -1;
}

/* --- Pointers, at the exporter --------------------------------------------------------------------- */

/* Under the pool's lock. */
static CUresult export_pointer(struct exported *data, CUmemoryPool pool, CUdeviceptr pointer)
{
    struct memory_allocation allocation;
    struct heap_place place;
    SIM_REQUIRE(heap_find(pointer, &allocation) && allocation.owner == pool);
    SIM_REQUIRE(allocation.kind == MEMORY_POOL && allocation.address == pointer);
    SIM_REQUIRE(heap_place_of(pointer, &place));
    if (!allocation.share) {
        allocation.share = device_share_begin(pool->gpu, share_bytes(pool, allocation.bytes));
        if (!allocation.share)
            return CUDA_ERROR_OUT_OF_MEMORY;
        heap_set_share(pointer, allocation.share);
    }
    *data = (struct exported){.magic = POINTER_MAGIC,
                              .share_index = allocation.share->index,
                              .share_generation = allocation.share->generation,
                              .pool = (uint64_t)(uintptr_t)pool,
                              .inode = inode_of(place.fd),
                              .first_block = place.first_block,
                              .block_count = place.block_count,
                              .inside_bytes = place.inside_bytes,
                              .bytes = allocation.bytes};
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data_out, CUdeviceptr pointer)
{
    struct memory_allocation allocation;
    struct exported data;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(data_out && memory_find(pointer, &allocation) && allocation.kind == MEMORY_POOL);
    CUmemoryPool pool = allocation.owner;
    SIM_TRY(check_exportable(pool, CU_MEM_HANDLE_TYPE_NONE));
    pthread_mutex_lock(&pool->lock);
    CUresult result = export_pointer(&data, pool, pointer);
    pthread_mutex_unlock(&pool->lock);
    if (result != CUDA_SUCCESS)
        return result;
    memset(data_out, 0, sizeof(*data_out));
    memcpy(data_out, &data, sizeof(data));
    return CUDA_SUCCESS;
}

bool pool_share_leave(CUmemoryPool pool, const struct memory_allocation *allocation)
{
    if (!allocation->share || device_share_leave(allocation->share, true))
        return false;
    pool->reserved_bytes -= share_bytes(pool, allocation->bytes);
    return true;
}

/* --- Pointers, at the importer --------------------------------------------------------------------- */

/* Under the pool's lock. */
static CUresult import_pointer(CUdeviceptr *pointer, CUmemoryPool pool, const struct exported *data)
{
    SIM_REQUIRE(pool->exporter_heap >= 0 && data->pool == pool->exporter_pool &&
                data->inode == inode_of(pool->exporter_heap));
    struct imported *imported = calloc(1, sizeof(*imported));
    if (!imported)
        return CUDA_ERROR_OUT_OF_MEMORY;
    imported->share = device_share_join(pool->gpu, data->share_index, data->share_generation);
    if (!imported->share || imported->share->bytes != share_bytes(pool, data->bytes)) {
        if (imported->share)
            device_share_leave(imported->share, false);
        free(imported);
        return CUDA_ERROR_INVALID_VALUE; /* it is freed by now, or the data are not what was told */
    }
    imported->mapped_bytes = (uint64_t)data->block_count << HEAP_BLOCK_BITS;
    void *memory = mmap(NULL, imported->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                        pool->exporter_heap, (off_t)((uint64_t)data->first_block << HEAP_BLOCK_BITS));
    if (memory == MAP_FAILED) {
        device_share_leave(imported->share, false);
        free(imported);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    madvise(memory, imported->mapped_bytes, MADV_DONTFORK);
    imported->gpu = pool->gpu;
    imported->address = (uint64_t)(uintptr_t)memory;
    imported->pointer = imported->address + data->inside_bytes;
    pthread_mutex_lock(&imports_lock);
    LIST_INSERT_HEAD(&imports, imported, entry);
    /* Of no context, as all memory of pools. */
    ranges_add(&(struct memory_allocation){.address = imported->pointer,
                                           .bytes = data->bytes,
                                           .kind = MEMORY_POOL,
                                           .gpu = pool->gpu,
                                           .flags = pool->place,
                                           .owner = pool});
    pthread_mutex_unlock(&imports_lock);
    *pointer = imported->pointer;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool pool, CUmemPoolPtrExportData *given)
{
    CUcontext context;
    struct exported data;
    SIM_TRY(pool_check(pool));
    SIM_REQUIRE(pointer && given && pool->is_imported);
    SIM_TRY(context_current(&context));
    memcpy(&data, given, sizeof(data));
    SIM_REQUIRE(data.magic == POINTER_MAGIC && data.block_count > 0 && data.bytes > 0);
    uint64_t span = (uint64_t)data.block_count << HEAP_BLOCK_BITS;
    SIM_REQUIRE(data.bytes <= span && data.inside_bytes <= span - data.bytes);
    pthread_mutex_lock(&pool->lock);
    CUresult result = import_pointer(pointer, pool, &data);
    pthread_mutex_unlock(&pool->lock);
    return result;
}

/* Under imports_lock. */
static void imported_drop(struct imported *imported)
{
    struct memory_allocation range;
    LIST_REMOVE(imported, entry);
    ranges_remove(imported->pointer, &range);
    munmap((void *)(uintptr_t)imported->address, imported->mapped_bytes);
    device_share_leave(imported->share, false);
    free(imported);
}

bool pool_import_free(uint64_t pointer)
{
    pthread_mutex_lock(&imports_lock);
    struct imported *imported;
    LIST_FOREACH (imported, &imports, entry)
        if (imported->pointer == pointer)
            break;
    if (imported)
        imported_drop(imported);
    pthread_mutex_unlock(&imports_lock);
    return imported != NULL;
}

void pool_imports_drop(unsigned gpu)
{
    pthread_mutex_lock(&imports_lock);
    for (struct imported *imported = LIST_FIRST(&imports), *next; imported; imported = next) {
        next = LIST_NEXT(imported, entry);
        if (imported->gpu == gpu)
            imported_drop(imported);
    }
    pthread_mutex_unlock(&imports_lock);
}
