/* pool_orders.h - which work may still use what was freed in a stream's order (pool_blocks.h).
 *
 * An order is an event behind all the work that a stream was given until then. Events are kept for the next order in
 * their context, and go with the context. Called without the engine's lock, except where it says so. */
#pragma once

#include "intercept/memory/engine/swap/pools/pool_blocks.h"

/* A stream as the program names it, seen from the current context. */
struct stream {
    CUstream handle;
    bool is_per_thread; /* handle 0 means the thread's own stream */
    CUcontext context;
    uint64_t number; /* 0: the driver cannot tell it */
};

CUresult orders_find_stream(struct stream *stream, CUstream handle, bool is_per_thread);

/* Make an order of the work that the stream has been given up to now. Like the driver's own calls in a stream's
 * order, it fails where a capture forbids it. */
CUresult orders_begin(const struct stream *stream, struct order *order);
/* Make an order of all the work that the context has been given up to now, by a function that records the event behind
 * it. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, without an order: a capture is open, and was left alone. */
typedef CUresult orders_recorder(CUcontext context, CUevent event);
CUresult orders_begin_all(CUcontext context, orders_recorder *record, struct order *order);
/* Drop an order that no block has. */
void orders_drop(const struct order *order);

/* Work that the stream is given from now on waits for the order. */
CUresult orders_wait(const struct stream *stream, const struct order *order);

/* Under the lock: keep the order's event for the next order of its context. */
void orders_keep_event(const struct order *order);
/* Under the lock: a context is gone, and its events with it. */
void orders_forget_context(CUcontext context);

/* Whether the order's work is done; and the same for a process in which no work goes on. */
bool orders_is_over(const struct order *order);
bool orders_is_surely_over(const struct order *order);
