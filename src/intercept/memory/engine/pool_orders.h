/* pool_orders.h - whose work may still use what was freed in a stream's order (pool_blocks.h).
 *
 * An order is an event behind all that a stream was given until then. Events are kept for the next order in their context, and go
 * with it. Called without the engine's lock, but where it says so. */
#pragma once

#include "intercept/memory/engine/pool_blocks.h"

/* A stream as the program names it, in the current context. */
struct stream {
    CUstream handle;
    bool is_per_thread; /* 0 is the thread's own */
    CUcontext context;
    uint64_t number; /* 0: the driver does not tell */
};

CUresult orders_find_stream(struct stream *stream, CUstream handle, bool is_per_thread);

/* What the stream has been given up to now. As the driver's own calls in a stream's order, it refuses where a capture
 * forbids it. */
CUresult orders_begin(const struct stream *stream, struct order *order);
/* It stands for nothing. */
void orders_drop(const struct order *order);

/* What the stream is given from now on waits for it. */
CUresult orders_wait(const struct stream *stream, const struct order *order);

/* Under the lock: its event is kept for the next one of its context. */
void orders_keep_event(const struct order *order);
/* Under the lock: a context has gone, and its events. */
void orders_forget_context(CUcontext context);

/* Whether the stream has got there; and of a process in which nothing goes on. */
bool orders_is_over(const struct order *order);
bool orders_is_surely_over(const struct order *order);
