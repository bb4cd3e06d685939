/* old_glibc.h - bind to symbol versions that older glibcs have. It is included before every source file of the
 * libraries that programs of the host load.
 *
 * Since glibc 2.34 the functions below live in libc under a new version, which the linker prefers. libc still has
 * the old versions; an older glibc has only those, in libpthread.so.0 and libdl.so.2. */
#pragma once

#ifndef __ASSEMBLER__

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OLD_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OLD_GLIBC "GLIBC_2.17"
#endif

#define OLD_GLIBC_SYMBOL(symbol) __asm__(".symver " #symbol "," #symbol "@" OLD_GLIBC)

OLD_GLIBC_SYMBOL(dlclose);
OLD_GLIBC_SYMBOL(dlopen);
OLD_GLIBC_SYMBOL(dlsym);
OLD_GLIBC_SYMBOL(pthread_attr_setstacksize);
OLD_GLIBC_SYMBOL(pthread_create);
OLD_GLIBC_SYMBOL(pthread_detach);
OLD_GLIBC_SYMBOL(pthread_join);
OLD_GLIBC_SYMBOL(pthread_key_create);
OLD_GLIBC_SYMBOL(pthread_getspecific);
OLD_GLIBC_SYMBOL(pthread_setspecific);
OLD_GLIBC_SYMBOL(pthread_mutex_timedlock);
OLD_GLIBC_SYMBOL(pthread_mutex_trylock);
OLD_GLIBC_SYMBOL(pthread_once);
OLD_GLIBC_SYMBOL(pthread_rwlock_rdlock);
OLD_GLIBC_SYMBOL(pthread_rwlock_unlock);
OLD_GLIBC_SYMBOL(pthread_rwlock_wrlock);
OLD_GLIBC_SYMBOL(pthread_sigmask);
/* fcntl() with 64-bit file offsets is called this since 2.28. On 64-bit machines it is the same function. */
__asm__(".symver fcntl64,fcntl@" OLD_GLIBC);

/* libc has these functions only since 2.33. On 64-bit machines the kernel's structure is the same as glibc's. */
#define stat(path, status) ((int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0))
#define lstat(path, status) ((int)syscall(SYS_newfstatat, AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW))
#define fstat(fd, status) ((int)syscall(SYS_fstat, fd, status))

#endif
