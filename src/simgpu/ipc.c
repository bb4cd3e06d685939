/* ipc.c - memory of cuMemAlloc that another process opens by a handle (cuIpc...). */
#include <sys/mman.h>

#include "simgpu/memory.h"

void ipc_close(const struct memory_allocation *opened)
{
    munmap((void *)(uintptr_t)opened->address, opened->bytes);
}
