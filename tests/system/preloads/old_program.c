/* old_program.c - a program that runs on any glibc from 2.17 on, though built with a newer one: it binds to
 * the old versions and brings its own entry, for crt1.o's is new. Prints where it found cuGetProcAddress_v2
 * and what that gave for cuMemAlloc. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "base/old_glibc.h"
#include "cuda/prototypes.h"

OLD_GLIBC_SYMBOL(dladdr);

static const char *object_of(void *function)
{
    Dl_info info;
    return function && dladdr(function, &info) ? info.dli_fname : "nowhere";
}

__attribute__((used, noreturn)) static void run(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found = NULL;
    __typeof__(&cuGetProcAddress_v2) ask =
        driver ? (__typeof__(&cuGetProcAddress_v2))dlsym(driver, "cuGetProcAddress_v2") : NULL;
    if (ask)
        ask("cuMemAlloc", &found, 12000, 0, NULL);
    puts(object_of((void *)ask));
    puts(object_of(found));
    fflush(stdout);
    _exit(0);
}

/* As crt1.o does: old loaders, started by name, leave the stack unaligned. */
#if defined(__x86_64__)
__asm__(".globl old_program_entry\nold_program_entry:\n\txor %ebp, %ebp\n\tand $-16, %rsp\n\tcall run\n");
#else
__asm__(".globl old_program_entry\nold_program_entry:\n\tmov x29, xzr\n\tbl run\n");
#endif
