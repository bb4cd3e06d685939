/* as_driver.h - what engines that put other memory in the place of device memory do as the driver would have done. */
#pragma once

#include "intercept/memory/allocation.h"

/* The pitch that the driver would choose for a pitched allocation, and the bytes that it then has. What the driver
 * answers to it; on a card that is full it is not asked. */
CUresult as_driver_pitch(const struct allocation *wanted, uint64_t *bytes);

/* A free in stream order: whether the stream is being captured, in which the driver refuses what no graph has allocated;
 * and wait for what the stream was given. */
bool as_driver_is_captured(enum release_way way, CUstream stream);
CUresult as_driver_wait_for_stream(enum release_way way, CUstream stream);
