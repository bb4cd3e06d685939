/* context.h - what a context costs, and what goes with it.
 *
 * A handle's value may be used again as soon as its context is gone. So the GPU's turn is held from before
 * the driver destroys a context until its records are taken out, and a new context is entered under it: no
 * memory of a new context is taken for that of an old one. */
#pragma once

#include "intercept/memory/charge.h"

static inline pthread_mutex_t *context_turn(uint32_t gpu)
{
    return &private_get()->contexts_turn[gpu];
}

/* Reserve what a context costs on the device's GPU. */
enum charge_answer context_take(struct charge *charge, CUdevice device);

/* Under the GPU's turn. Enter a context, unless it is known already: then it costs nothing more. */
void context_keep(struct charge *charge, CUcontext context);

/* Under the GPU's turn. Give back what a context held that is no more. */
void context_bury(uint64_t context, uint32_t gpu);

/* Whether a device's primary context is active; and which it is, if it is. Between charge_enter() and
 * charge_leave(). */
bool context_primary_is_active(CUdevice device);
bool context_primary(CUdevice device, CUcontext *context);
