/* launch.c - kernels: a launch computes a kernel that we know at once, and takes its time on the stream. */
#include <string.h>

#include "base/clock.h"
#include "simgpu/code/launch.h"
#include "simgpu/code/library.h"
#include "simgpu/graph/capture.h"
#include "simgpu/memory/in_use.h"
#include "simgpu/memory/managed.h"
#include "simgpu/memory/memory.h"
#include "simgpu/time/events.h"
#include "simgpu/time/execution.h"

struct launch {
    CUfunction function;
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    CUstream stream;
    bool per_thread;
    void **parameters;
    void **extra;
    const CUlaunchConfig *config; /* of launches that have attributes */
    bool is_cooperative;
};

/* The memory that a kernel touches, and the faults that it takes. */
struct touched {
    CUdevice device;
    struct managed_faults faults;
    unsigned range_count; /* of the first that it touches */
    struct {
        uint64_t address, bytes;
    } ranges[16];
};

static void touched_add(struct touched *touched, uint64_t address, uint64_t bytes)
{
    if (touched->range_count < sizeof(touched->ranges) / sizeof(touched->ranges[0])) {
        touched->ranges[touched->range_count].address = address;
        touched->ranges[touched->range_count++].bytes = bytes;
    }
}

static bool is_mapped(void *memory, uint64_t address, uint64_t bytes, bool writes)
{
    struct touched *touched = memory;
    if (!memory_is_reachable(touched->device, address, bytes))
        return false;
    managed_touch(address, bytes, touched->device, writes, &touched->faults);
    touched_add(touched, address, bytes);
    return true;
}

CUresult launch_extra_read(void **extra, const char **buffer, size_t *bytes)
{
    const char *found = NULL;
    size_t found_bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2)
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            found = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            found_bytes = *(const size_t *)extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    SIM_REQUIRE(found);
    *buffer = found;
    *bytes = found_bytes;
    return CUDA_SUCCESS;
}

/* Compute a built-in kernel, and set the time that it takes. */
static CUresult kernel_run(CUcontext context, const struct launch *launch, CUfunction function,
                           struct touched *touched, uint64_t *duration_ns)
{
    const struct sim_kernel_image *image = function->image;
    const struct sim_kernel *kernel = function->kernel;
    const struct sim_launch shape = {
        .grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
        .block = {launch->block[0], launch->block[1], launch->block[2]},
        .shared_bytes = launch->shared_bytes,
        .is_mapped = is_mapped,
        .memory = touched,
    };
    void *arguments[8];
    void **given = launch->parameters;
    if (launch->extra) {
        const char *buffer;
        size_t bytes;
        SIM_TRY(launch_extra_read(launch->extra, &buffer, &bytes));
        for (uint32_t i = 0; i < image->parameter_count; i++) {
            SIM_REQUIRE(image->parameters[i].offset_bytes + image->parameters[i].size_bytes <= bytes);
            arguments[i] = (void *)(uintptr_t)(buffer + image->parameters[i].offset_bytes);
        }
        given = arguments;
    }
    SIM_REQUIRE(given || image->parameter_count == 0);
    *duration_ns = kernel->duration_ns ? kernel->duration_ns(&shape, given) & ~TIMELINE_BY_CLOCK : 0;
    if (kernel->watches_clock && constant_whole(SIM_TIMER_RUNS_ON))
        *duration_ns |= TIMELINE_BY_CLOCK;
    CUresult result = kernel->run(&shape, given);
    if (result != CUDA_SUCCESS)
        atomic_store(&context->sticky, (int)result); /* the program's next call reports it */
    return CUDA_SUCCESS;
}

/* Touch what a kernel that we do not know may touch: what those of its parameters that look like pointers point to, and of managed
 * memory all that is behind it. Parameters that the image asks for and the program does not give are left alone. */
static void kernel_touch(const struct launch *launch, CUfunction function, struct touched *touched)
{
    const struct sim_kernel_image *image = function->image;
    const char *buffer = NULL;
    size_t bytes = 0;
    if (launch->extra && launch_extra_read(launch->extra, &buffer, &bytes) != CUDA_SUCCESS)
        return;
    for (uint32_t i = 0; i < image->parameter_count && (buffer || launch->parameters); i++) {
        const struct sim_parameter *parameter = &image->parameters[i];
        uint64_t address;
        if (parameter->size_bytes != sizeof(address) ||
            (buffer && parameter->offset_bytes + sizeof(address) > bytes))
            continue;
        const void *from = buffer ? buffer + parameter->offset_bytes : launch->parameters[i];
        if (!from)
            return;
        memcpy(&address, from, sizeof(address));
        managed_touch_rest(address, touched->device, &touched->faults);
        touched_add(touched, address, 1);
    }
}

static bool is_launchable(const struct sim_kernel_image *image, const unsigned grid[3],
                          const unsigned block[3])
{
    uint64_t threads = 1;
    for (unsigned i = 0; i < 3; i++) {
        if (grid[i] == 0 || block[i] == 0)
            return false;
        threads *= block[i] <= 1024 ? block[i] : 2048;
    }
    return grid[0] <= INT32_MAX && grid[1] <= 65535 && grid[2] <= 65535 && block[2] <= 64 &&
           threads <= 1024 && (image->max_threads == 0 || threads <= image->max_threads);
}

CUresult launch_check(CUfunction function, const unsigned grid[3], const unsigned block[3],
                      unsigned shared_bytes)
{
    SIM_REQUIRE(is_launchable(function->image, grid, block));
    unsigned shared_most = (unsigned)function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
    SIM_REQUIRE(shared_bytes + function->image->shared_bytes <= 49152 || shared_bytes <= shared_most);
    return CUDA_SUCCESS;
}

/* A launch into a stream that is being captured becomes a node. */
static bool launch_capture(const struct launch *launch, CUresult *result)
{
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_KERNEL,
        .kernel = {.func = launch->function,
                   .gridDimX = launch->grid[0],
                   .gridDimY = launch->grid[1],
                   .gridDimZ = launch->grid[2],
                   .blockDimX = launch->block[0],
                   .blockDimY = launch->block[1],
                   .blockDimZ = launch->block[2],
                   .sharedMemBytes = launch->shared_bytes,
                   .kernelParams = launch->parameters,
                   .extra = launch->extra},
    };
    return capture_kernel(launch->stream, launch->per_thread, &params, launch->config, launch->is_cooperative,
                          result);
}

static bool asks_for_overlap(const CUlaunchConfig *config)
{
    for (unsigned i = 0; config && i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
            config->attrs[i].value.programmaticStreamSerializationAllowed)
            return true;
    return false;
}

/* What is left of a kernel's time when the kernel before it on the stream ends. A mark between them ends the overlap. */
static uint64_t after_overlap(const struct launch *launch, CUcontext context, CUstream stream,
                              uint64_t duration_ns)
{
    uint64_t overlap_ns = constant_whole(SIM_OVERLAP_NS);
    bool is_behind_kernel = stream_take_last_kernel(context, stream);
    if (!is_behind_kernel || !asks_for_overlap(launch->config) || (duration_ns & TIMELINE_BY_CLOCK))
        return duration_ns;
    return duration_ns > overlap_ns ? duration_ns - overlap_ns : 0;
}

static CUresult launch_run(const struct launch *launch)
{
    CUcontext context;
    CUstream stream;
    CUfunction function;
    CUresult result;
    if (capture_is_possible() && launch_capture(launch, &result))
        return result;
    SIM_TRY(stream_resolve(launch->stream, launch->per_thread, &context, &stream));
    SIM_TRY(function_resolve(launch->function, context, &function));
    if (function->module->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    SIM_REQUIRE(!(launch->parameters && launch->extra));
    SIM_TRY(launch_check(function, launch->grid, launch->block, launch->shared_bytes));
    SIM_TRY(module_load_code(function->module));
    SIM_TRY(context_need_local(context, function->image->local_bytes));
    uint64_t duration_ns = constant_whole(SIM_KERNEL_NS);
    struct touched touched = {.device = context->device};
    uint64_t began_ns = monotonic_ns();
    if (function->kernel)
        SIM_TRY(kernel_run(context, launch, function, &touched, &duration_ns));
    else
        kernel_touch(launch, function, &touched);
    managed_submit(context, stream, &touched.faults);
    if (touched.faults.remote_bytes > 0)
        duration_ns += execution_link_ns(touched.faults.remote_bytes);
    duration_ns = after_overlap(launch, context, stream, duration_ns);
    event_spare(context, stream, monotonic_ns() - began_ns);
    stream_submit(context, stream, TIMELINE_COMPUTE, duration_ns);
    stream_note_kernel(context, stream);
    for (unsigned i = 0; i < touched.range_count; i++)
        in_use_add(context, stream, touched.ranges[i].address, touched.ranges[i].bytes);
    return CUDA_SUCCESS;
}

#define LAUNCH_SHAPE                                                                                         \
    .grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z}, .shared_bytes = shared_bytes

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z,
                        unsigned int shared_bytes, CUstream stream, void **parameters, void **extra)
{
    return launch_run(&(struct launch){
        .function = function, LAUNCH_SHAPE, .stream = stream, .parameters = parameters, .extra = extra});
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                             unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                             unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                             void **parameters, void **extra)
{
    return launch_run(&(struct launch){.function = function,
                                       LAUNCH_SHAPE,
                                       .stream = stream,
                                       .per_thread = true,
                                       .parameters = parameters,
                                       .extra = extra});
}

/* All blocks of a cooperative launch run at once: a launch of more than fit is refused. */
static CUresult launch_cooperative(const struct launch *launch)
{
    CUcontext context;
    CUstream stream;
    CUfunction function;
    SIM_TRY(stream_find(launch->stream, launch->per_thread, &context, &stream));
    SIM_TRY(function_resolve(launch->function, context, &function));
    SIM_REQUIRE(is_launchable(function->image, launch->grid, launch->block));
    int blocks;
    SIM_TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, function, (int)(launch->block[0] * launch->block[1] * launch->block[2]),
        launch->shared_bytes));
    int multiprocessors;
    SIM_TRY(
        cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, context->device));
    if ((double)launch->grid[0] * launch->grid[1] * launch->grid[2] > (double)blocks * multiprocessors)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return launch_run(launch);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **parameters)
{
    return launch_cooperative(&(struct launch){.function = function,
                                               LAUNCH_SHAPE,
                                               .stream = stream,
                                               .parameters = parameters,
                                               .is_cooperative = true});
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                        void **parameters)
{
    return launch_cooperative(&(struct launch){.function = function,
                                               LAUNCH_SHAPE,
                                               .stream = stream,
                                               .per_thread = true,
                                               .parameters = parameters,
                                               .is_cooperative = true});
}

static CUresult launch_configured(const CUlaunchConfig *config, CUfunction function, void **parameters,
                                  void **extra, bool per_thread)
{
    SIM_TRY(sim_ready());
    SIM_REQUIRE(config && (config->numAttrs == 0 || config->attrs));
    bool is_cooperative = false;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            is_cooperative = config->attrs[i].value.cooperative != 0;
    const struct launch launch = {
        .function = function,
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .shared_bytes = config->sharedMemBytes,
        .stream = config->hStream,
        .per_thread = per_thread,
        .parameters = parameters,
        .extra = extra,
        .config = config,
        .is_cooperative = is_cooperative,
    };
    return is_cooperative ? launch_cooperative(&launch) : launch_run(&launch);
}

SIM_FORMS(cuLaunchKernelEx, _ptsz,
          (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra),
          launch_configured(config, function, parameters, extra, per_thread))
