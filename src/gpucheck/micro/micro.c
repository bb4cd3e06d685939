#include "gpucheck/micro/micro.h"

CUmemAllocationProp micro_plain(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
}

static void map_new(struct micro_memory *memory)
{
    CUmemAllocationProp how = micro_plain();
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    must(cuMemCreate(&memory->handle, memory->bytes, &how, 0));
    must(cuMemMap(memory->address, memory->bytes, 0, memory->handle, 0));
    must(cuMemSetAccess(memory->address, memory->bytes, &access, 1));
}

void micro_map(struct micro_memory *memory, size_t bytes)
{
    int has;
    must(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    if (!has)
        not_run("the GPU has no virtual memory management");
    memory->bytes = bytes;
    must(cuMemAddressReserve(&memory->address, bytes, 0, 0, 0));
    map_new(memory);
}

void micro_remap(struct micro_memory *memory)
{
    must(cuMemUnmap(memory->address, memory->bytes));
    must(cuMemRelease(memory->handle));
    map_new(memory);
}

void micro_start_spin(unsigned milliseconds, CUstream stream)
{
    static CUfunction spin;
    uint64_t microseconds = milliseconds * UINT64_C(1000);
    void *parameters[] = {&microseconds};
    if (!spin)
        spin = load_kernel("gs_spin_us");
    must(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

void micro_start_busy(CUstream stream)
{
    micro_start_spin(MICRO_BUSY_MS, stream);
}

bool micro_is_busy(CUstream stream)
{
    CUresult result = cuStreamQuery(stream);
    if (result != CUDA_ERROR_NOT_READY)
        must_succeed("cuStreamQuery", result);
    return result == CUDA_ERROR_NOT_READY;
}

struct micro_race micro_race_begin(CUstream stream)
{
    struct micro_race race = {.stream = stream, .begin_s = now_s()};
    race.was_busy = micro_is_busy(stream);
    return race;
}

/* Work that has ended when the call returns proves a wait only if the call took long. Work that the call broke was not waited
 * for: a query then answers that error. */
const char *micro_race_end(const struct micro_race *race)
{
    bool took_long = now_s() - race->begin_s > MICRO_BUSY_MS * 0.25e-3;
    CUresult result = cuStreamQuery(race->stream);
    if (result == CUDA_ERROR_NOT_READY || (result != CUDA_SUCCESS && race->was_busy))
        return "no";
    return race->was_busy && took_long ? "yes" : NULL;
}
