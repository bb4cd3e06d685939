/* swap.h - the engine whose memory can leave the card and come back at the same addresses.
 *
 * Linear and pitched memory lies in extents (extents.h): addresses that are reserved once, with physical memory of
 * cuMemCreate mapped there while the process is resident. Eviction copies all extents to the arena and gives their
 * physical memory back; restoring makes new physical memory behind the same addresses and copies back. Each goes on batch
 * by batch, so that memory is free on the card, or used again, while the rest still moves. When one fails, what had moved
 * is moved back, and nothing is lost.
 *
 * In an evicted process, memory is allocated and freed without the card: an extent is born without physical memory, and
 * one that is freed takes its copy with it. */
#pragma once

#include "intercept/memory/engine/engine.h"

extern const struct engine engine_swap;

/* Use it from now on (choose.h). */
void swap_begin(void);
