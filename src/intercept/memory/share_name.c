#include "intercept/memory/share_name.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t share_name_of_bytes(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    hash ^= hash >> 29;
    return hash ? hash : 1;
}

/* A device node is one file for all that is opened through it, and all anonymous inodes of the kernel (eventfd(2) and
 * its like) are one. A memfd and a dma-buf are files of their own. */
static bool is_for_many(int fd, const struct stat *status)
{
    struct statfs system;
    return S_ISCHR(status->st_mode) || fstatfs(fd, &system) < 0 || system.f_type == ANON_INODE_FS_MAGIC;
}

uint64_t share_name_of_file(int fd, bool *is_its_own)
{
    struct stat status;
    /* Not glibc's fstat, which is a symbol of 2.33. */
    if (syscall(SYS_fstat, fd, &status) < 0)
        return 0;
    *is_its_own = !is_for_many(fd, &status);
    uint64_t file[3] = {status.st_dev, status.st_ino, status.st_rdev};
    return share_name_of_bytes(file, sizeof(file));
}
