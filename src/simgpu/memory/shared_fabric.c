#include "simgpu/memory/shared_fabric.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simgpu/device/constants.h"
#include "simgpu/device/profile.h"

#define FABRIC_MAGIC 0x67706661u

/* A file of a process; `inode` since the process may have closed it and opened another one by then. */
struct file_of {
    int32_t pid, fd;
    uint64_t inode;
};

struct fabric_name {
    uint32_t magic; /* FABRIC_MAGIC */
    struct file_of description;
};
_Static_assert(sizeof(struct fabric_name) <= FABRIC_HANDLE_BYTES, "a handle's 64 bytes");

struct description {
    struct shared_descriptor what;
    struct file_of memory;
};

/* --- Types ----------------------------------------------------------------------------------------- */

CUresult shared_handle_types_check(unsigned long long types, bool is_device)
{
    const unsigned fabric = CU_MEM_HANDLE_TYPE_FABRIC;
    int has_fabric = 0;
    if (types & ~(unsigned long long)(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | fabric))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!(types & fabric))
        return CUDA_SUCCESS;
    profile_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, &has_fabric);
    if (!has_fabric || !is_device)
        return CUDA_ERROR_NOT_SUPPORTED;
    return constant_whole(SIM_IMEX) ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
}

CUresult shared_handle_type_check(CUmemAllocationHandleType type)
{
    switch (type) {
    case CU_MEM_HANDLE_TYPE_NONE:
        return CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
    case CU_MEM_HANDLE_TYPE_FABRIC:
        return shared_handle_types_check(type, true);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* --- Files of a process ---------------------------------------------------------------------------- */

static struct file_of own_file(int fd)
{
    struct stat file;
    if (fstat(fd, &file) < 0)
        file.st_ino = 0;
    return (struct file_of){.pid = (int32_t)getpid(), .fd = fd, .inode = (uint64_t)file.st_ino};
}

/* -1: it is not there any more. */
static int open_file(const struct file_of *file)
{
    char path[64];
    struct stat found;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)file->pid, (int)file->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || (fstat(fd, &found) == 0 && (uint64_t)found.st_ino == file->inode))
        return fd;
    close(fd);
    return -1;
}

/* --- Handles --------------------------------------------------------------------------------------- */

int shared_fabric_make(const struct shared_descriptor *what, int memory)
{
    const struct description description = {*what, own_file(memory)};
    int file = memfd_create("simulated-fabric-handle", MFD_CLOEXEC);
    if (file < 0 || pwrite(file, &description, sizeof(description), 0) == (ssize_t)sizeof(description))
        return file;
    close(file);
    return -1;
}

void shared_fabric_name(int file, unsigned char handle[static FABRIC_HANDLE_BYTES])
{
    const struct fabric_name name = {FABRIC_MAGIC, own_file(file)};
    memset(handle, 0, FABRIC_HANDLE_BYTES);
    memcpy(handle, &name, sizeof(name));
}

bool shared_fabric_read(const unsigned char handle[static FABRIC_HANDLE_BYTES],
                        struct shared_descriptor *what, int *memory)
{
    struct fabric_name name;
    struct description description;
    memcpy(&name, handle, sizeof(name));
    int file = name.magic == FABRIC_MAGIC ? open_file(&name.description) : -1;
    if (file < 0)
        return false;
    bool is_read = pread(file, &description, sizeof(description), 0) == (ssize_t)sizeof(description) &&
                   description.what.magic == SHARED_DESCRIPTOR_MAGIC;
    close(file);
    *memory = is_read ? open_file(&description.memory) : -1;
    if (*memory < 0)
        return false;
    *what = description.what;
    return true;
}
