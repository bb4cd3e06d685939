/* copies.c - rates of copies between host and device, the cost of pinning, and the cost of mapping memory during
 * copies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpucheck/checks.h"
#include "gpucheck/part.h"

struct buffers {
    size_t bytes;
    CUdeviceptr device, other;
    void *pinned, *pinned_other, *pageable;
    CUstream in, out;
};

static void open_buffers(struct buffers *buffers)
{
    open_context();
    buffers->bytes = scaled(256 * MIB, 32 * MIB);
    must(cuMemAlloc_v2(&buffers->device, buffers->bytes));
    must(cuMemAlloc_v2(&buffers->other, buffers->bytes));
    must(cuMemHostAlloc(&buffers->pinned, buffers->bytes, 0));
    must(cuMemHostAlloc(&buffers->pinned_other, buffers->bytes, 0));
    buffers->pageable = malloc(buffers->bytes);
    if (!buffers->pageable)
        not_run("no host memory");
    memset(buffers->pageable, 3, buffers->bytes);
    memset(buffers->pinned, 5, buffers->bytes);
    memset(buffers->pinned_other, 7, buffers->bytes);
    must(cuStreamCreate(&buffers->in, CU_STREAM_NON_BLOCKING));
    must(cuStreamCreate(&buffers->out, CU_STREAM_NON_BLOCKING));
}

static void copy_in(struct buffers *buffers)
{
    must(cuMemcpyHtoDAsync_v2(buffers->device, buffers->pinned, buffers->bytes, buffers->in));
}

static void copy_out(struct buffers *buffers)
{
    must(cuMemcpyDtoHAsync_v2(buffers->pinned_other, buffers->other, buffers->bytes, buffers->out));
}

static void copy_both(struct buffers *buffers)
{
    copy_in(buffers);
    copy_out(buffers);
}

static void copy_in_pageable(struct buffers *buffers)
{
    must(cuMemcpyHtoD_v2(buffers->device, buffers->pageable, buffers->bytes));
}

static void copy_out_pageable(struct buffers *buffers)
{
    must(cuMemcpyDtoH_v2(buffers->pageable, buffers->device, buffers->bytes));
}

static void copy_inside(struct buffers *buffers)
{
    must(cuMemcpyDtoDAsync_v2(buffers->other, buffers->device, buffers->bytes, buffers->in));
}

static double rate(struct buffers *buffers, void (*copy)(struct buffers *), double bytes)
{
    enum { ROUNDS = 7 };
    double rates[ROUNDS];
    for (unsigned i = 0; i < ROUNDS; i++) {
        must(cuCtxSynchronize());
        double start = now_s();
        copy(buffers);
        must(cuCtxSynchronize());
        rates[i] = bytes / (now_s() - start) * 1e-9;
    }
    return median(rates, ROUNDS);
}

void check_copies(const struct check *check)
{
    struct buffers buffers;
    open_buffers(&buffers);
    double bytes = (double)buffers.bytes;
    figure("size", bytes, "bytes");
    figure("host_to_device_pinned", rate(&buffers, copy_in, bytes), "GB/s");
    figure("device_to_host_pinned", rate(&buffers, copy_out, bytes), "GB/s");
    figure("both_ways_together", rate(&buffers, copy_both, 2 * bytes), "GB/s");
    figure("host_to_device_pageable", rate(&buffers, copy_in_pageable, bytes), "GB/s");
    figure("device_to_host_pageable", rate(&buffers, copy_out_pageable, bytes), "GB/s");
    copy_in(&buffers);
    must(cuCtxSynchronize());
    figure("inside_the_device", rate(&buffers, copy_inside, bytes), "GB/s");
    copy_out(&buffers);
    must(cuCtxSynchronize());
    if (memcmp(buffers.pinned, buffers.pinned_other, buffers.bytes) != 0)
        fail("what went to the device, across it and back is not what it was");
}

/* copy in|out: for each line, a number of seconds, copies for that long; answers GB/s. */
void part_copy(const char *argument)
{
    struct buffers buffers;
    void (*copy)(struct buffers *) = strcmp(argument, "in") == 0 ? copy_in : copy_out;
    open_buffers(&buffers);
    copy(&buffers);
    must(cuCtxSynchronize());
    part_tell("0");
    for (;;) {
        double seconds = strtod(part_listen(), NULL), start = now_s(), bytes = 0;
        while (now_s() < start + seconds) {
            copy(&buffers);
            must(cuCtxSynchronize());
            bytes += (double)buffers.bytes;
        }
        part_tell("%.9f", bytes / (now_s() - start) * 1e-9);
    }
}

void check_copies_two_processes(const struct check *check)
{
    struct part in, out;
    const char *seconds = settings.simulated ? "0.2" : "1";
    part_start(&in, PART_OUTSIDE, "copy", "in");
    part_start(&out, PART_OUTSIDE, "copy", "out");
    part_hear(&in);
    part_hear(&out);
    part_say(&in, "%s", seconds);
    figure("host_to_device_alone", part_hear_number(&in), "GB/s");
    part_say(&out, "%s", seconds);
    figure("device_to_host_alone", part_hear_number(&out), "GB/s");
    part_say(&in, "%s", seconds);
    part_say(&out, "%s", seconds);
    figure("host_to_device_beside", part_hear_number(&in), "GB/s");
    figure("device_to_host_beside", part_hear_number(&out), "GB/s");
    part_end(&in);
    part_end(&out);
}

/* --- Mapping --------------------------------------------------------------------------------------- */

enum { MAP_CREATE, MAP_MAP, MAP_ACCESS, MAP_UNMAP, MAP_RELEASE, MAP_CALLS };
static const char *const map_calls[MAP_CALLS] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
                                                 "cuMemRelease"};

static void time_mapping(struct buffers *buffers, size_t bytes, bool beside_copies)
{
    enum { ROUNDS = 9 };
    double times[MAP_CALLS][ROUNDS];
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    unsigned running = 0;
    must(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (beside_copies)
            for (unsigned copy = 0; copy < 4; copy++)
                copy_out(buffers);
        double at[MAP_CALLS + 1] = {now_s()};
        must(cuMemCreate(&handle, bytes, &how, 0));
        at[1] = now_s();
        must(cuMemMap(address, bytes, 0, handle, 0));
        at[2] = now_s();
        must(cuMemSetAccess(address, bytes, &access, 1));
        at[3] = now_s();
        must(cuMemUnmap(address, bytes));
        at[4] = now_s();
        must(cuMemRelease(handle));
        at[5] = now_s();
        running += beside_copies && cuStreamQuery(buffers->out) == CUDA_ERROR_NOT_READY;
        must(cuCtxSynchronize());
        for (unsigned call = 0; call < MAP_CALLS; call++)
            times[call][i] = (at[call + 1] - at[call]) * 1e6;
    }
    must(cuMemAddressFree(address, bytes));
    char name[64];
    for (unsigned call = 0; call < MAP_CALLS; call++) {
        snprintf(name, sizeof(name), "%s_%lluMiB_%s", map_calls[call], (unsigned long long)(bytes / MIB),
                 beside_copies ? "beside_copy" : "alone");
        figure(name, median(times[call], ROUNDS), "us");
    }
    if (beside_copies) {
        snprintf(name, sizeof(name), "copy_still_ran_%lluMiB", (unsigned long long)(bytes / MIB));
        figure(name, (double)running / ROUNDS, "ratio");
    }
}

void check_mapping(const struct check *check)
{
    static const size_t sizes[] = {2 * MIB, 32 * MIB, 64 * MIB};
    struct buffers buffers;
    CUdeviceptr address;
    int has;
    open_buffers(&buffers);
    must(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    if (!has)
        not_run("the GPU has no virtual memory management");
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        time_mapping(&buffers, sizes[i], false);
        time_mapping(&buffers, sizes[i], true);
    }
    /* Whether memory that was just released takes longer to get, as it must be wiped. */
    size_t bytes = scaled(GIB, 64 * MIB);
    double start = now_s();
    must(cuMemAlloc_v2(&address, bytes));
    figure("cuMemAlloc_first", (now_s() - start) * 1e6, "us");
    must(cuMemsetD8_v2(address, 1, bytes));
    must(cuCtxSynchronize());
    start = now_s();
    must(cuMemFree_v2(address));
    figure("cuMemFree", (now_s() - start) * 1e6, "us");
    start = now_s();
    must(cuMemAlloc_v2(&address, bytes));
    figure("cuMemAlloc_after_release", (now_s() - start) * 1e6, "us");
    figure("cuMemAlloc_size", (double)bytes, "bytes");
    must(cuMemFree_v2(address));
}

void check_pinning(const struct check *check)
{
    size_t bytes = scaled(GIB, 64 * MIB);
    void *memory =
             mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0),
         *other;
    open_context();
    if (memory == MAP_FAILED)
        not_run("no host memory");
    double start = now_s();
    must(cuMemHostRegister_v2(memory, bytes, 0));
    figure("cuMemHostRegister", (double)bytes / (now_s() - start) * 1e-9, "GB/s");
    start = now_s();
    must(cuMemHostUnregister(memory));
    figure("cuMemHostUnregister", (double)bytes / (now_s() - start) * 1e-9, "GB/s");
    start = now_s();
    must(cuMemHostAlloc(&other, bytes, 0));
    figure("cuMemHostAlloc", (double)bytes / (now_s() - start) * 1e-9, "GB/s");
    must(cuMemFreeHost(other));
    figure("size", (double)bytes, "bytes");
}
