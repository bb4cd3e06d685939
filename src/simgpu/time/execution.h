/* execution.h - this process's work on the timelines: streams and events as marks, waiting, host functions.
 */
#pragma once

#include "simgpu/driver/sim.h"

bool execution_init(void);

/* One lock a GPU for the marks of its streams and events; never held while waiting or while data moves. */
void execution_lock(unsigned gpu);
void execution_unlock(unsigned gpu);

/* The calling thread's number, which no other thread of this process has or had. */
unsigned long long stream_thread(void);

/* What a stream handle means in the current context: `per_thread_default` says which stream 0 is. Sets the
 * context too. `*stream` is NULL for the legacy stream. */
CUresult stream_find(CUstream handle, bool per_thread_default, CUcontext *context, CUstream *stream);
/* The same for a call that uses the stream: refused, and the capture invalid, while the stream is being
 * captured or would wait for one that is. A call that can be captured asks capture_node() first. */
CUresult stream_resolve(CUstream handle, bool per_thread_default, CUcontext *context, CUstream *stream);

/* Put work of `duration_ns` on a stream. Waits while the queue is full. */
void stream_submit(CUcontext context, CUstream stream, enum timeline_engine engine, uint64_t duration_ns);

/* The same, also for no time at all; returns what to wait for. */
struct timeline_marks stream_submit_marked(CUcontext context, CUstream stream, enum timeline_engine engine,
                                           uint64_t duration_ns);

/* Whether a kernel is the last thing on a stream: then it is not any more; and say that it is. */
bool stream_take_last_kernel(CUcontext context, CUstream stream);
void stream_note_kernel(CUcontext context, CUstream stream);

/* For what memops.c holds back. Put an operation of no time on a gate, behind a stream's work, and return its
 * mark; submit work that waits for nothing, false when the queue is full. */
uint64_t stream_submit_gate(CUcontext context, CUstream stream, unsigned gate);
bool execution_submit(unsigned gpu, enum timeline_engine engine, uint64_t duration_ns,
                      struct timeline_marks *marks);

/* What a stream's next work would wait for, and more that it shall wait for. Under execution_lock(). */
struct timeline_marks stream_marks(CUcontext context, CUstream stream);
void stream_join(CUcontext context, CUstream stream, const struct timeline_marks *marks);

/* Whether all that waits for the stream waits for its last work. Under execution_lock(). */
bool stream_is_valid(CUcontext context, CUstream stream);

/* Whether all of `marks` is reached; execution_wait() waits until. */
bool execution_query(unsigned gpu, const struct timeline_marks *marks);
void execution_wait(unsigned gpu, const struct timeline_marks *marks);

/* Whether the last look told so already; needs no lock. */
bool execution_is_known_reached(unsigned gpu, const struct timeline_marks *marks);

/* execution_query() under execution_lock(); and when the last of marks that are reached was. */
bool execution_is_reached(unsigned gpu, const struct timeline_marks *marks);
uint64_t execution_done_ns(unsigned gpu, const struct timeline_marks *marks);

/* Whether the host function whose work has `mark` on HOST may run; and say that it returned. */
bool execution_host_ready(unsigned gpu, uint64_t mark);
void execution_host_done(unsigned gpu);

/* The same for an operation of a gate. */
bool execution_gate_ready(unsigned gpu, unsigned gate, uint64_t mark);
void execution_gate_done(unsigned gpu, unsigned gate);

/* Bring what is known of the GPU up to now; also in processes that have no context. */
void execution_advance(unsigned gpu);

/* Wait for a stream, and for everything of a context. */
void stream_wait(CUcontext context, CUstream stream);
void context_wait(CUcontext context);

/* How long a copy of `bytes` takes on the link, and within the device. */
uint64_t execution_link_ns(uint64_t bytes);
uint64_t execution_device_ns(uint64_t bytes);

/* Drop the streams and events of a context that ends. */
void streams_drop(CUcontext context);
