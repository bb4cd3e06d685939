/* low.c - addresses below 4 GiB, for contexts that know no others (narrow.c): mappings of their own, beside
 * the heap, found where a free place is. The C library and the kernel put little there unasked. */
#include <sys/mman.h>

#include "simgpu/memory/memory.h"

uint64_t low_allocate(const struct memory_allocation *like)
{
    const uint64_t first = UINT64_C(256) << 20, end = UINT64_C(1) << 32, step = UINT64_C(2) << 20;
    for (uint64_t address = first; like->bytes <= end - address; address += step) {
        void *wanted = (void *)(uintptr_t)address;
        void *memory = mmap(wanted, like->bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (memory == wanted) {
            struct memory_allocation range = *like;
            range.address = address;
            madvise(memory, like->bytes, MADV_DONTFORK);
            ranges_add(&range);
            return address;
        }
        if (memory != MAP_FAILED)
            munmap(memory, like->bytes); /* a kernel before 4.17 takes the address as a hint */
    }
    return 0;
}

void low_unmap(const struct memory_allocation *allocation)
{
    munmap((void *)(uintptr_t)allocation->address, allocation->bytes);
}

bool low_free(uint64_t address, struct memory_allocation *allocation)
{
    if (!ranges_find(address, allocation) || !memory_is_linear(allocation->kind) ||
        !ranges_remove(address, allocation))
        return false;
    low_unmap(allocation);
    return true;
}
