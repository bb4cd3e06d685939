/* saxpy.c - y = a * x + y on the GPU, checked against the CPU bit by bit. Prints the memory it sees, and PASS
 * or FAIL. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "kernels_ptx.h"

#define COUNT (1u << 20)
#define SPIN_US 2000

static CUmodule module;

static void launch(const char *name, void **arguments)
{
    CUfunction kernel;
    CHECK(cuModuleGetFunction(&kernel, module, name));
    CHECK(cuLaunchKernel(kernel, 128, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
}

static uint32_t bits_of(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return bits;
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    char name[100];
    size_t free_bytes, total_bytes;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDeviceGetName(name, sizeof(name), device));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    printf("%s: %zu MiB of memory, %zu MiB free\n", name, total_bytes >> 20, free_bytes >> 20);
    CHECK(cuModuleLoadData(&module, kernels_ptx));

    float *x = malloc(COUNT * sizeof(float)), *y = malloc(COUNT * sizeof(float));
    if (!x || !y) {
        fprintf(stderr, "saxpy: no host memory\n");
        return 1;
    }
    for (uint32_t i = 0; i < COUNT; i++)
        x[i] = (float)i / 3.0f;

    /* On the GPU: x from the host, y filled with 0.7, then saxpy, then the sum of y's words. */
    float a = 1.1f;
    uint32_t initial = bits_of(0.7f), checksum;
    uint64_t count = COUNT;
    CUdeviceptr x_gpu, y_gpu, checksum_gpu;
    CHECK(cuMemAlloc_v2(&x_gpu, COUNT * sizeof(float)));
    CHECK(cuMemAlloc_v2(&y_gpu, COUNT * sizeof(float)));
    CHECK(cuMemAlloc_v2(&checksum_gpu, sizeof(checksum)));
    CHECK(cuMemcpyHtoD_v2(x_gpu, x, COUNT * sizeof(float)));
    CHECK(cuMemsetD32_v2(checksum_gpu, 0, 1));
    launch("gs_fill_u32", (void *[]){&y_gpu, &initial, &count});
    launch("gs_saxpy_f32", (void *[]){&count, &a, &x_gpu, &y_gpu});
    launch("gs_checksum_u32", (void *[]){&y_gpu, &count, &checksum_gpu});
    CHECK(cuMemcpyDtoH_v2(y, y_gpu, COUNT * sizeof(float)));
    CHECK(cuMemcpyDtoH_v2(&checksum, checksum_gpu, sizeof(checksum)));

    /* The same on the CPU: fmaf rounds once, as the GPU's multiply-add does. */
    uint32_t wrong = 0, expected_checksum = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        float expected = fmaf(a, x[i], 0.7f);
        wrong += bits_of(y[i]) != bits_of(expected);
        expected_checksum += bits_of(expected);
    }
    printf("saxpy: %u of %u elements differ from the CPU's\n", wrong, COUNT);
    printf("checksum: 0x%08x, the CPU's is 0x%08x\n", checksum, expected_checksum);

    /* A kernel that takes a known time, timed by the GPU's own events. */
    CUevent begin, end;
    float milliseconds;
    uint64_t microseconds = SPIN_US;
    CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    CHECK(cuEventRecord(begin, NULL));
    launch("gs_spin_us", (void *[]){&microseconds});
    CHECK(cuEventRecord(end, NULL));
    CHECK(cuEventSynchronize(end));
    CHECK(cuEventElapsedTime(&milliseconds, begin, end));
    /* One percent less is accepted, because the kernel and the events use different clocks. */
    int spun = milliseconds * 1000.0f >= SPIN_US * 0.99f;
    printf("spin: asked for %d us, took %s\n", SPIN_US, spun ? "as long" : "less");

    CHECK(cuEventDestroy_v2(begin));
    CHECK(cuEventDestroy_v2(end));
    CHECK(cuMemFree_v2(checksum_gpu));
    CHECK(cuMemFree_v2(y_gpu));
    CHECK(cuMemFree_v2(x_gpu));
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease_v2(device));
    free(x);
    free(y);

    int passed = !wrong && checksum == expected_checksum && spun;
    printf("%s\n", passed ? "PASS" : "FAIL");
    return passed ? 0 : 1;
}
