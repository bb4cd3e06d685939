/* managed.c - managed memory on this card: whether NVML counts it, and what moving its pages costs. */
#include <string.h>

#include "gpucheck/checks.h"
#include "gpucheck/nvml.h"

static CUfunction sum_kernel;
static CUdeviceptr sum;

/* Read all words of the memory in a kernel; returns its time in milliseconds. */
static double read_on_device(CUdeviceptr memory, uint64_t bytes)
{
    uint64_t count = bytes / 4;
    void *parameters[] = {&memory, &count, &sum};
    double start = now_s();
    must(cuLaunchKernel(sum_kernel, 256, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
    must(cuCtxSynchronize());
    return (now_s() - start) * 1e3;
}

void check_managed(const struct check *check)
{
    uint64_t bytes = scaled(256 * MIB, 32 * MIB);
    CUdeviceptr memory;
    uint32_t total = 0;
    int has;
    open_context();
    must(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0));
    if (!has)
        not_run("the GPU has no managed memory");
    if (free_bytes() < 2 * bytes)
        not_run("%llu bytes of the GPU are free, and twice %llu are needed", (unsigned long long)free_bytes(),
                (unsigned long long)bytes);
    sum_kernel = load_kernel("gs_checksum_u32");
    must(cuMemAlloc_v2(&sum, 4));
    must(cuMemsetD32_v2(sum, 0, 1));
    must(cuCtxSynchronize());
    uint64_t nvml_before = nvml_used_bytes(0);
    must(cuMemAllocManaged(&memory, bytes, CU_MEM_ATTACH_GLOBAL));
    memset((void *)(uintptr_t)memory, 1, bytes);
    figure("size", (double)bytes, "bytes");
    figure("nvml_on_the_host", (double)(int64_t)(nvml_used_bytes(0) - nvml_before), "bytes");
    figure("read_by_faults", read_on_device(memory, bytes), "ms");
    figure("nvml_on_the_device", (double)(int64_t)(nvml_used_bytes(0) - nvml_before), "bytes");
    figure("read_again", read_on_device(memory, bytes), "ms");
    must(cuMemcpyDtoH_v2(&total, sum, 4));
    /* Each of bytes / 4 words, 0x01010101, was added twice, modulo 2^32. */
    uint32_t wanted = (uint32_t)(2 * (bytes / 4) * UINT64_C(0x01010101));
    if (total != wanted)
        fail("the sum of what the host wrote is %u on the device, twice; %u on the host", total, wanted);

    double start = now_s();
    memset((void *)(uintptr_t)memory, 2, bytes);
    figure("written_by_host_faults", (now_s() - start) * 1e3, "ms");
    must(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
    if (has && driver_has(CUDA_ID_cuMemPrefetchAsync_v2)) {
        CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, host = {CU_MEM_LOCATION_TYPE_HOST, 0};
        start = now_s();
        must(cuMemPrefetchAsync_v2(memory, bytes, device, 0, NULL));
        must(cuCtxSynchronize());
        figure("prefetch_to_the_device", (double)bytes / (now_s() - start) * 1e-9, "GB/s");
        start = now_s();
        must(cuMemPrefetchAsync_v2(memory, bytes, host, 0, NULL));
        must(cuCtxSynchronize());
        figure("prefetch_to_the_host", (double)bytes / (now_s() - start) * 1e-9, "GB/s");
    }
    must(cuMemFree_v2(memory));
}
