/* runtime_api.cu - a tour of the CUDA runtime that checks itself; prints PASS, or the line that failed.
 *
 *   nvcc -cudart shared runtime_api.cu -o runtime_api
 *
 * Runs on a card and, without a change, on the simulated GPU: there the kernels that it knows by name compute real
 * results (gs_fill_u32), and any other, like `scale` below, takes its time and leaves memory as it is. So nothing here
 * depends on what `scale` does. */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>

#define COUNT 1024u

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define EXPECT_SUCCESS(call)                                                                                 \
    do {                                                                                                     \
        cudaError_t error_ = (call);                                                                         \
        if (error_ != cudaSuccess) {                                                                         \
            fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #call, cudaGetErrorName(error_),     \
                    cudaGetErrorString(error_));                                                             \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

__constant__ unsigned table[4] = {10, 20, 30, 40};
__device__ float factor = 2.5f;
__managed__ int tally[3] = {7, 8, 9};

__global__ void scale(float *values, unsigned count)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] *= factor * table[i % 4];
}

extern "C" __global__ void gs_fill_u32(unsigned *values, unsigned value, unsigned long long count)
{
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        values[i] = value;
}

static void devices()
{
    int count = 0, device = -1, runtime = 0, driver = 0;
    cudaDeviceProp prop;
    char bus[32];
    EXPECT_SUCCESS(cudaGetDeviceCount(&count));
    EXPECT(count >= 1);
    EXPECT_SUCCESS(cudaRuntimeGetVersion(&runtime));
    EXPECT(runtime == CUDART_VERSION);
    EXPECT_SUCCESS(cudaDriverGetVersion(&driver));
    EXPECT(driver >= 12000);
    EXPECT_SUCCESS(cudaGetDeviceProperties(&prop, 0));
    EXPECT(prop.name[0] != 0 && prop.major >= 5 && prop.warpSize == 32 && prop.totalGlobalMem > 0);
    EXPECT_SUCCESS(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
    EXPECT_SUCCESS(cudaDeviceGetByPCIBusId(&device, bus));
    EXPECT(device == 0);
    EXPECT_SUCCESS(cudaChooseDevice(&device, &prop));
    EXPECT_SUCCESS(cudaSetDevice(0));
    EXPECT(cudaSetDevice(count) == cudaErrorInvalidDevice);
    EXPECT(cudaPeekAtLastError() == cudaErrorInvalidDevice);
    EXPECT(cudaGetLastError() == cudaErrorInvalidDevice);
    EXPECT(cudaGetLastError() == cudaSuccess);
    EXPECT_SUCCESS(cudaGetDevice(&device));
    EXPECT(device == 0);
    for (int peer = 0; peer < count; peer++) {
        int can = -1;
        EXPECT_SUCCESS(cudaDeviceCanAccessPeer(&can, 0, peer));
        EXPECT(can == 0 || (can == 1 && peer != 0));
    }
}

static void memory()
{
    size_t free_bytes, total_bytes, pitch;
    void *linear, *rows, *managed, *pinned, *pooled, *nothing = &pitch;
    cudaPitchedPtr box;
    cudaPointerAttributes attributes;
    EXPECT_SUCCESS(cudaMalloc(&linear, 1 << 20));
    EXPECT_SUCCESS(cudaMallocPitch(&rows, &pitch, 1000, 10));
    EXPECT(pitch >= 1000);
    EXPECT_SUCCESS(cudaMalloc3D(&box, make_cudaExtent(100, 10, 5)));
    EXPECT_SUCCESS(cudaMallocManaged(&managed, 1 << 16));
    EXPECT_SUCCESS(cudaHostAlloc(&pinned, 1 << 16, cudaHostAllocPortable));
    EXPECT_SUCCESS(cudaMallocAsync(&pooled, 1 << 16, 0));
    EXPECT_SUCCESS(cudaMalloc(&nothing, 0));
    EXPECT(nothing == NULL);
    EXPECT_SUCCESS(cudaMemGetInfo(&free_bytes, &total_bytes));
    EXPECT(free_bytes < total_bytes);

    EXPECT_SUCCESS(cudaPointerGetAttributes(&attributes, linear));
    EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
    EXPECT_SUCCESS(cudaPointerGetAttributes(&attributes, managed));
    EXPECT(attributes.type == cudaMemoryTypeManaged);
    EXPECT_SUCCESS(cudaPointerGetAttributes(&attributes, pinned));
    EXPECT(attributes.type == cudaMemoryTypeHost);
    EXPECT_SUCCESS(cudaPointerGetAttributes(&attributes, &attributes));
    EXPECT(attributes.type == cudaMemoryTypeUnregistered);

    unsigned char row[100];
    EXPECT_SUCCESS(cudaMemset3D(box, 3, make_cudaExtent(100, 10, 5)));
    EXPECT_SUCCESS(cudaMemcpy2D(row, 100, (char *)box.ptr + 49 * box.pitch, box.pitch, 100, 1, cudaMemcpyDefault));
    EXPECT(row[0] == 3 && row[99] == 3);
    EXPECT_SUCCESS(cudaMemset(linear, 1, 256));
    EXPECT_SUCCESS(cudaMemcpy(managed, linear, 256, cudaMemcpyDeviceToDevice));
    EXPECT_SUCCESS(cudaDeviceSynchronize());
    EXPECT(((unsigned char *)managed)[255] == 1);
    EXPECT(cudaMemcpy(managed, linear, 4, (cudaMemcpyKind)9) == cudaErrorInvalidMemcpyDirection);

    EXPECT(cudaMalloc(&nothing, total_bytes * 2) == cudaErrorMemoryAllocation);
    EXPECT(strcmp(cudaGetErrorString(cudaGetLastError()), "out of memory") == 0);
    EXPECT_SUCCESS(cudaFreeAsync(pooled, 0));
    EXPECT_SUCCESS(cudaFree(linear));
    EXPECT_SUCCESS(cudaFree(rows));
    EXPECT_SUCCESS(cudaFree(box.ptr));
    EXPECT_SUCCESS(cudaFree(managed));
    EXPECT_SUCCESS(cudaFreeHost(pinned));
    EXPECT_SUCCESS(cudaFree(0));
}

static void symbols()
{
    unsigned values[4] = {0}, two[2] = {50, 60};
    float number = 0;
    size_t bytes = 0;
    void *address;
    EXPECT_SUCCESS(cudaMemcpyFromSymbol(values, table, sizeof values));
    EXPECT(values[0] == 10 && values[3] == 40);
    EXPECT_SUCCESS(cudaMemcpyToSymbol(table, two, sizeof two, 4));
    EXPECT_SUCCESS(cudaMemcpyFromSymbol(values, table, sizeof values));
    EXPECT(values[0] == 10 && values[1] == 50 && values[2] == 60 && values[3] == 40);
    EXPECT_SUCCESS(cudaMemcpyFromSymbol(&number, factor, sizeof number));
    EXPECT(number == 2.5f);
    EXPECT_SUCCESS(cudaGetSymbolSize(&bytes, table));
    EXPECT(bytes == sizeof table);
    EXPECT_SUCCESS(cudaGetSymbolAddress(&address, factor));
    EXPECT_SUCCESS(cudaMemcpy(&number, address, sizeof number, cudaMemcpyDeviceToHost));
    EXPECT(number == 2.5f);
    EXPECT(cudaMemcpyToSymbol(table, two, 4, 16) == cudaErrorInvalidValue);
    EXPECT(cudaGetSymbolAddress(&address, values) == cudaErrorInvalidSymbol);
    cudaGetLastError();
    EXPECT(tally[0] == 7 && tally[2] == 9);
    tally[1] = 80;
    EXPECT(tally[1] == 80);
}

static void CUDART_CB count_up(void *counter)
{
    ++*(int *)counter;
}

static void streams()
{
    cudaStream_t stream;
    cudaEvent_t begin, end;
    float milliseconds = -1;
    unsigned *device, *host;
    int calls = 0;
    EXPECT_SUCCESS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    EXPECT_SUCCESS(cudaEventCreate(&begin));
    EXPECT_SUCCESS(cudaEventCreate(&end));
    EXPECT_SUCCESS(cudaMalloc(&device, COUNT * sizeof *device));
    EXPECT_SUCCESS(cudaMallocHost(&host, COUNT * sizeof *host));
    EXPECT_SUCCESS(cudaEventRecord(begin, stream));
    gs_fill_u32<<<4, 128, 0, stream>>>(device, 0xabcd, COUNT);
    EXPECT_SUCCESS(cudaGetLastError());
    EXPECT_SUCCESS(cudaMemcpyAsync(host, device, COUNT * sizeof *host, cudaMemcpyDeviceToHost, stream));
    EXPECT_SUCCESS(cudaLaunchHostFunc(stream, count_up, &calls));
    EXPECT_SUCCESS(cudaEventRecord(end, stream));
    EXPECT_SUCCESS(cudaStreamWaitEvent(0, end, 0));
    EXPECT_SUCCESS(cudaEventSynchronize(end));
    EXPECT_SUCCESS(cudaStreamQuery(stream));
    EXPECT_SUCCESS(cudaEventElapsedTime(&milliseconds, begin, end));
    EXPECT(milliseconds >= 0);
    EXPECT(calls == 1);
    EXPECT(host[0] == 0xabcd && host[COUNT - 1] == 0xabcd);
    EXPECT_SUCCESS(cudaEventDestroy(begin));
    EXPECT_SUCCESS(cudaEventDestroy(end));
    EXPECT_SUCCESS(cudaStreamDestroy(stream));
    EXPECT_SUCCESS(cudaFree(device));
    EXPECT_SUCCESS(cudaFreeHost(host));
}

static void kernels()
{
    cudaFuncAttributes attributes;
    int blocks = 0, grid = 0, block = 0;
    float *values;
    unsigned count = COUNT;
    EXPECT_SUCCESS(cudaMalloc(&values, COUNT * sizeof *values));
    EXPECT_SUCCESS(cudaFuncGetAttributes(&attributes, scale));
    EXPECT(attributes.maxThreadsPerBlock >= 128);
    EXPECT_SUCCESS(cudaFuncSetAttribute(scale, cudaFuncAttributeMaxDynamicSharedMemorySize, 32768));
    EXPECT_SUCCESS(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, 128, 0));
    EXPECT(blocks > 0);
    EXPECT_SUCCESS(cudaOccupancyMaxPotentialBlockSize(&grid, &block, scale));
    EXPECT(grid > 0 && block > 0);
    scale<<<COUNT / 128, 128>>>(values, COUNT);
    EXPECT_SUCCESS(cudaGetLastError());
    void *arguments[] = {&values, &count};
    EXPECT_SUCCESS(cudaLaunchKernel(scale, dim3(8), dim3(128), arguments, 0, 0));
    EXPECT_SUCCESS(cudaLaunchCooperativeKernel(scale, dim3(8), dim3(128), arguments));
    scale<<<1, 4096>>>(values, COUNT);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    scale<<<0, 1>>>(values, COUNT);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    EXPECT_SUCCESS(cudaDeviceSynchronize());
    EXPECT_SUCCESS(cudaFree(values));
}

static void after_a_reset()
{
    float number = 0, *values;
    EXPECT_SUCCESS(cudaDeviceReset());
    EXPECT_SUCCESS(cudaMalloc(&values, COUNT * sizeof *values));
    scale<<<1, 1>>>(values, 0);
    EXPECT_SUCCESS(cudaGetLastError());
    EXPECT_SUCCESS(cudaMemcpyFromSymbol(&number, factor, sizeof number));
    EXPECT(number == 2.5f);
    EXPECT(tally[0] == 7 && tally[1] == 8);
    EXPECT_SUCCESS(cudaFree(values));
}

int main()
{
    devices();
    memory();
    symbols();
    streams();
    kernels();
    after_a_reset();
    puts("PASS");
    return 0;
}
