/* context_locks.h - the locks that keep contexts alive, one for each GPU of the policy: area.h has their order, contexts.h
 * says what is done under them. */
#pragma once

#include <stdint.h>

void context_lock(uint32_t gpu);
void context_unlock(uint32_t gpu);

/* The locks of all GPUs that the session has by now. Returns how many GPUs these are, for context_unlock_all(). */
uint32_t context_lock_all(void);
void context_unlock_all(uint32_t count);
