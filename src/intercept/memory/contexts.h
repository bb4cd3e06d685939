/* contexts.h - what a context costs, and what is given back when it goes.
 *
 * The driver may reuse a handle's value as soon as its context is gone. So a thread holds the GPU's context lock from
 * before the driver destroys a context until the context's records are taken out, and enters a new context under the
 * same lock: memory of a new context is never taken for that of an old one. */
#pragma once

#include "intercept/memory/allocation.h"

/* For rows of ALLOC_CONTEXT: the call makes a context. */
CUresult context_create(const struct allocation *wanted);

/* For rows of ALLOC_PRIMARY_CONTEXT: the call makes the device's primary context active, if it is not active yet. */
CUresult context_retain(const struct allocation *wanted);

/* Destroy, release, reset or detach the context that `key` names: a context, a green one, or a device. */
CUresult context_release(enum release_way way, uint64_t key);

/* The program has attached to a context once more (cuCtxAttach). */
void context_attached(CUcontext context);
