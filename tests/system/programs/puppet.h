/* puppet.h - what the parts of puppet.c have in common. */
#pragma once

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

#include "cuda/prototypes.h"

#define THINGS 65536

extern void *driver;
/* dlsym's own type is no function's. */
#define call(symbol) ((__typeof__(&symbol))dlsym(driver, #symbol))

/* What was made, by the number that was answered. */
extern struct thing {
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    CUcontext context;
    CUexternalMemory external;
    CUgreenCtx green;
    CUmemoryPool pool;
    size_t bytes;
} things[THINGS];
extern unsigned count;

__attribute__((format(printf, 1, 2))) void answer(const char *format, ...);
/* The result, and on success the number of things[count % THINGS], which was filled in: after so many, in place of the first. */
void answer_thing(CUresult result);

/* puppet_share.c; false: it does not know the verb. */
bool obey_share(const char *verb, const char *line);
