/* device.c - identifies the driver and the card, and tests the driver's own checkpoints. */
#include <stdio.h>
#include <string.h>

#include "gpucheck/checks.h"
#include "gpucheck/nvml.h"
#include "gpucheck/part.h"

/* gpu: reports the UUID of the GPU that programs see first. */
void part_gpu(const char *argument)
{
    figure_text("uuid", "%s", nvml_uuid());
}

/* All that the driver tells of the GPU, for the profile of this card in the simulation. */
static void tell_attributes(void)
{
    static const struct {
        const char *name;
        CUdevice_attribute attribute;
    } all[] = {
#define CUDA_DEVICE_ATTRIBUTE(name, value) {#name, (CUdevice_attribute)(value)},
#include "cuda/device_attributes.def"
#undef CUDA_DEVICE_ATTRIBUTE
    };
    int value;
    for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (cuDeviceGetAttribute(&value, all[i].attribute, 0) == CUDA_SUCCESS)
            detail(all[i].name, "%d", value);
}

void check_driver(const struct check *check)
{
    static const struct {
        const char *name;
        CUdevice_attribute attribute;
    } attributes[] = {
        {"multiprocessors", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
        {"compute_capability_major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
        {"compute_capability_minor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
        {"copy_engines", CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
        {"managed_memory", CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY},
        {"concurrent_managed_access", CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS},
        {"memory_pools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
        {"virtual_memory_management", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
        {"compute_preemption", CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED},
        {"compute_mode", CU_DEVICE_ATTRIBUTE_COMPUTE_MODE},
    };
    int version, count, value;
    size_t total;
    uint64_t nvml_total;
    char name[128];
    const char *reason = driver_open(DRIVER_BY_DLSYM);
    if (reason)
        fail_and_end("no driver: %s", reason);
    must(cuInit(0));
    must(cuDriverGetVersion(&version));
    figure_text("cuda_version", "%d.%d", version / 1000, version % 1000 / 10);
    figure_text("driver_version", "%s", nvml_driver_version());
    must(cuDeviceGetCount(&count));
    if (count < 1)
        fail_and_end("the driver finds no GPU");
    must(cuDeviceGetName(name, sizeof(name), 0));
    figure_text("name", "%s", name);
    figure_text("uuid", "%s", nvml_uuid());
    must(cuDeviceTotalMem_v2(&total, 0));
    figure("total_memory", (double)total, "bytes");
    if (nvml_tells_memory(&nvml_total))
        figure("nvml_total_memory", (double)nvml_total, "bytes");
    else
        could_not_try("nvml_total_memory", "NVML does not tell what this GPU has");
    for (unsigned i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
        must(cuDeviceGetAttribute(&value, attributes[i].attribute, 0));
        figure(attributes[i].name, value, "count");
    }
    tell_attributes();
    unsigned known = 0;
    for (int id = 0; id < CUDA_ENTRY_COUNT; id++)
        known += driver_has((enum cuda_entry_id)id);
    figure("entry_points_of_our_table", known, "count");
    /* The other checks need this much; without it they would only fail. */
    CUcontext context;
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
    uint64_t free_now = free_bytes();
    figure("free_memory", (double)free_now, "bytes");
    if (free_now < CHECK_FREE_BYTES)
        fail("the checks need %llu bytes of the GPU, %llu are free: end what uses it",
             (unsigned long long)CHECK_FREE_BYTES, (unsigned long long)free_now);
}

/* Runs outside: the driver checkpoints another process. */
void check_checkpoint(const struct check *check)
{
    struct part part;
    char argument[32];
    uint64_t bytes = scaled(GIB, 64 * MIB);
    const char *reason = driver_open(DRIVER_BY_DLSYM);
    if (reason)
        fail_and_end("no driver: %s", reason);
    must(cuInit(0));
    bool has = driver_has(CUDA_ID_cuCheckpointProcessCheckpoint);
    figure("exported", has, "bool");
    if (!has)
        not_run("the driver has no cuCheckpointProcess*: it is older than CUDA 12.8");
    snprintf(argument, sizeof(argument), "%llu", (unsigned long long)bytes);
    part_start(&part, PART_OUTSIDE, "hold", argument);
    part_hear(&part);
    CUcheckpointLockArgs lock = {.timeoutMs = 5000};
    CUresult result = cuCheckpointProcessLock(part.pid, &lock);
    if (result != CUDA_SUCCESS) {
        part_kill(&part);
        not_run("the driver does not lock a process for a checkpoint: %s", result_name(result));
    }
    uint64_t used = nvml_used_bytes(part.pid);
    double start = now_s();
    CUcheckpointCheckpointArgs checkpoint = {0};
    must(cuCheckpointProcessCheckpoint(part.pid, &checkpoint));
    figure("checkpoint", (double)bytes / (now_s() - start) * 1e-9, "GB/s");
    figure("nvml_given_back", (double)(int64_t)(used - nvml_used_bytes(part.pid)), "bytes");
    CUcheckpointRestoreArgs restore = {0};
    CUcheckpointUnlockArgs unlock = {0};
    start = now_s();
    must(cuCheckpointProcessRestore(part.pid, &restore));
    figure("restore", (double)bytes / (now_s() - start) * 1e-9, "GB/s");
    must(cuCheckpointProcessUnlock(part.pid, &unlock));
    figure("held", (double)bytes, "bytes");
    part_end(&part);
}
