/* memops.h - stream memory operations: a stream that waits for a value in memory, or writes one. */
#pragma once

#include "simgpu/driver/sim.h"
#include "simgpu/time/timeline.h"

/* An operation of our own, as CU_STREAM_MEM_OP_WRITE_VALUE_64 is: it never makes the value less. */
#define MEMOP_RAISE_64 ((CUstreamBatchMemOpType)0x1000)

/* Whether each of `count` operations is one that memop_submit() takes. */
CUresult memops_check(const CUstreamBatchMemOpParams *operations, unsigned count);

/* Hold back an engine's work that waits behind a gate, and set what to wait for. False without memory. */
bool memops_hold_work(CUcontext context, CUstream stream, enum timeline_engine engine, uint64_t duration_ns,
                      struct timeline_marks *marks);

/* Put checked operations on a stream, in their order. Never waits for a value. */
CUresult memops_submit(CUcontext context, CUstream stream, const CUstreamBatchMemOpParams *operations,
                       unsigned count);
