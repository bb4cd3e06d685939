/* prefetch.c - managed memory moved because the program says so, and discarded. */
#include "simgpu/memory/managed.h"
#include "simgpu/time/execution.h"

struct move {
    CUmemLocation to;
    uint64_t in_bytes, out_bytes; /* over the link, to a device and from one */
};

static void move_pages(struct managed_pages *state, uint64_t bytes, void *what)
{
    struct move *move = what;
    uint32_t to = managed_place(move->to);
    uint32_t places = managed_places(state, bytes);
    if (places && !(places & to)) {
        if (places & MANAGED_ON_HOST)
            move->in_bytes += bytes;
        else
            move->out_bytes += bytes;
    }
    move->out_bytes += managed_settle(state, bytes, state->is_read_mostly ? places | to : to);
    state->prefetched = move->to;
}

static void discard_pages(struct managed_pages *state, uint64_t bytes, void *what)
{
    (void)what;
    managed_settle(state, bytes, 0);
}

/* What is done with each of `count` ranges. */
struct batch {
    CUdeviceptr *pointers;
    size_t *bytes;
    size_t count;
    bool discards;
    CUmemLocation *locations; /* NULL: no prefetch */
    size_t *first;            /* of the ranges that a location is for */
    size_t location_count;
};

static CUresult batch_check(const struct batch *batch)
{
    for (size_t i = 0; batch->locations && i < batch->location_count; i++) {
        CUmemLocation location = batch->locations[i];
        SIM_REQUIRE(batch->first[i] < batch->count);
        SIM_REQUIRE(i == 0 ? batch->first[i] == 0 : batch->first[i] > batch->first[i - 1]);
        SIM_TRY(managed_location_read(&location));
    }
    for (size_t i = 0; i < batch->count; i++)
        SIM_TRY(managed_check(batch->pointers[i], batch->bytes[i]));
    return CUDA_SUCCESS;
}

static CUresult batch_run(const struct batch *batch, CUcontext context, CUstream stream)
{
    struct move move = {.in_bytes = 0};
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0, next = 0; i < batch->count && result == CUDA_SUCCESS; i++) {
        if (batch->discards)
            result = managed_change(batch->pointers[i], batch->bytes[i], discard_pages, NULL);
        if (batch->locations && next < batch->location_count && batch->first[next] == i) {
            move.to = batch->locations[next++];
            managed_location_read(&move.to);
        }
        if (batch->locations && result == CUDA_SUCCESS)
            result = managed_change(batch->pointers[i], batch->bytes[i], move_pages, &move);
    }
    if (move.in_bytes > 0)
        stream_submit(context, stream, TIMELINE_COPY_IN, execution_link_ns(move.in_bytes));
    if (move.out_bytes > 0)
        stream_submit(context, stream, TIMELINE_COPY_OUT, execution_link_ns(move.out_bytes));
    return result;
}

/* None of these can be captured. */
static CUresult prefetch(CUstream handle, bool per_thread, CUdeviceptr pointer, size_t bytes,
                         CUmemLocation location, unsigned flags)
{
    CUcontext context;
    CUstream stream;
    size_t first = 0;
    struct batch batch = {&pointer, &bytes, 1, false, &location, &first, 1};
    SIM_TRY(sim_ready());
    SIM_REQUIRE(flags == 0);
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    SIM_TRY(batch_check(&batch));
    return batch_run(&batch, context, stream);
}

SIM_FORMS(cuMemPrefetchAsync, _ptsz, (CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream),
          prefetch(stream, per_thread, pointer, bytes, managed_location(device), 0))
SIM_FORMS(cuMemPrefetchAsync_v2, _ptsz,
          (CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream),
          prefetch(stream, per_thread, pointer, bytes, location, flags))

/* Batches never go to the legacy stream. */
static CUresult batch_submit(CUstream handle, bool per_thread, struct batch batch, bool prefetches,
                             unsigned long long flags)
{
    CUcontext context;
    CUstream stream;
    SIM_TRY(sim_ready());
    SIM_REQUIRE(batch.pointers && batch.bytes && batch.count > 0 && flags == 0);
    SIM_REQUIRE(!prefetches || (batch.locations && batch.first && batch.location_count > 0 &&
                                batch.location_count <= batch.count));
    SIM_TRY(stream_resolve(handle, per_thread, &context, &stream));
    SIM_REQUIRE(stream);
    SIM_TRY(batch_check(&batch));
    return batch_run(&batch, context, stream);
}

SIM_FORMS(cuMemPrefetchBatchAsync, _ptsz,
          (CUdeviceptr * pointers, size_t *bytes, size_t count, CUmemLocation *locations, size_t *first,
           size_t location_count, unsigned long long flags, CUstream stream),
          batch_submit(stream, per_thread,
                       (struct batch){pointers, bytes, count, false, locations, first, location_count}, true,
                       flags))
SIM_FORMS(cuMemDiscardBatchAsync, _ptsz,
          (CUdeviceptr * pointers, size_t *bytes, size_t count, unsigned long long flags, CUstream stream),
          batch_submit(stream, per_thread, (struct batch){pointers, bytes, count, true, NULL, NULL, 0}, false,
                       flags))
SIM_FORMS(cuMemDiscardAndPrefetchBatchAsync, _ptsz,
          (CUdeviceptr * pointers, size_t *bytes, size_t count, CUmemLocation *locations, size_t *first,
           size_t location_count, unsigned long long flags, CUstream stream),
          batch_submit(stream, per_thread,
                       (struct batch){pointers, bytes, count, true, locations, first, location_count}, true,
                       flags))
