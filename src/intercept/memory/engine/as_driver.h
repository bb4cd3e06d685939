/* as_driver.h - for engines that put other memory in place of device memory: what they do as the driver would have
 * done it. */
#pragma once

#include "intercept/memory/allocation.h"

/* Find the pitch that the driver would choose for a pitched allocation, and how many bytes that takes. Returns what
 * the driver answers; on a full card the pitch is computed without the driver. */
CUresult as_driver_pitch(const struct allocation *wanted, uint64_t *bytes);

/* For a free in stream order: whether the stream is being captured, in which the driver refuses to free what no graph
 * has allocated; and wait for the stream's work. */
bool as_driver_is_captured(enum release_way way, CUstream stream);
CUresult as_driver_wait_for_stream(enum release_way way, CUstream stream);

/* The context of a stream; NULL: the current one. False: the driver does not know the stream. */
bool as_driver_context_of(CUstream stream, CUcontext *context);
