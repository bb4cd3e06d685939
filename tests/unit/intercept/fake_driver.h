/* fake_driver.h - a driver of a few functions under real(), for tests of what is charged. It hands out freed
 * addresses and handles again at once, as a hard case. Two GPUs; GPU i has the UUID of 16 bytes i + 1. */
#pragma once

#include "cuda/driver.h"

#define FAKE_GPUS 2
#define FAKE_POOL_BLOCK (2u << 20)
#define FAKE_PITCH 512u

void fake_driver_install(void);

/* A context of `device`, made by the hook, and current in the calling thread. */
CUcontext fake_context(CUdevice device);

/* Make the next driver call of a kind fail. */
extern _Thread_local CUresult fake_next_result;

/* Bytes that the fake driver holds on a device: linear, VMM and what its pool reserves. */
unsigned long long fake_held(CUdevice device);
/* Called by the next allocation of this thread, inside the driver: as a handler of a signal would be. */
extern _Thread_local void (*fake_next_interruption)(void);

/* How often cuMemAlloc_v2 reached it. */
extern _Atomic unsigned fake_allocations;
/* The stream that is being captured. */
extern CUstream fake_capturing;
/* What cuMemGetInfo tells. */
extern size_t fake_card_total, fake_card_free;
