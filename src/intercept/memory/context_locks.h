/* context_locks.h - the locks that keep contexts alive, one for each GPU of the policy: area.h has their order, contexts.h
 * says what is done under them. */
#pragma once

#include <stdint.h>

#include "cuda/driver.h"

void context_lock(uint32_t gpu);
void context_unlock(uint32_t gpu);

/* Keep a context alive without its GPU's lock, during a call of ours that takes long. Only the thread that moves memory
 * does so, with one context at a time. context_hold() is called under the lock; context_let_go() takes it. */
void context_hold(uint32_t gpu, CUcontext context);
void context_let_go(uint32_t gpu);

/* context_lock() for a thread that is about to end `context`, or any context of the GPU (NULL): nobody holds it. While it
 * waits for that, other threads may have the lock. */
void context_lock_to_end(uint32_t gpu, CUcontext context);

/* The locks of all GPUs that the session has by now. Returns how many GPUs these are, for context_unlock_all(). */
uint32_t context_lock_all(void);
void context_unlock_all(uint32_t count);
