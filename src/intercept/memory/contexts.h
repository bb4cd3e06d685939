/* contexts.h - what a context costs, and what goes with it.
 *
 * A handle's value may be used again as soon as its context is gone. So the GPU's context lock is held from before
 * the driver destroys a context until its records are taken out, and a new context is entered under it: no
 * memory of a new context is taken for that of an old one. */
#pragma once

#include "intercept/memory/allocation.h"

/* The road of ALLOC_CONTEXT: the call makes a context. */
CUresult context_create(const struct allocation *wanted);

/* The road of ALLOC_PRIMARY_CONTEXT: the call makes the device's primary context active, if that is not active yet. */
CUresult context_retain(const struct allocation *wanted);

/* Destroy, release, reset or detach the context that `key` names: a context, a green one, or a device. */
CUresult context_release(enum release_way way, uint64_t key);

/* The program has attached to a context once more. */
void context_attached(CUcontext context);

/* The device of a context, or of the current one (NULL). False where it is none. */
bool context_device(CUcontext context, CUdevice *device);

void context_lock(uint32_t gpu);
void context_unlock(uint32_t gpu);

/* Those of all GPUs that the session has by now: returns of how many, which is what has to be unlocked. */
uint32_t context_lock_all(void);
void context_unlock_all(uint32_t count);
