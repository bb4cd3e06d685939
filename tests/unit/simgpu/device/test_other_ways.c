/* Tests of ways of a card and its driver that are off by default. Each has a process, and a simulated machine, of its
 * own. */
#include "simulated.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "intercept/memory/engine/swap/move/digest_ptx.h"
#include "simgpu/driver/fakecuda.h"

#define PTX                                                                                                  \
    ".version 7.0\n.target sm_70\n.address_size 64\n"                                                        \
    ".visible .entry gs_spin_us(.param .u64 us){ret;}\n"                                                     \
    ".visible .entry gs_steps_u32(.param .u64 n, .param .u64 out){ret;}\n"                                   \
    ".visible .entry gs_checksum_u32(.param .u64 p, .param .u64 n, .param .u64 out){ret;}\n"

static unsigned machines;

/* Run `body` where the setting is in force; its exit status. */
static int in_child(const char *setting, const char *value, int (*body)(void))
{
    char name[64];
    snprintf(name, sizeof(name), "test-%d-%u", (int)getpid(), machines++);
    pid_t child = fork();
    if (child == 0) {
        setenv("FAKECUDA_NAME", name, 1);
        setenv(setting, value, 1);
        alarm(30);
        _exit(body());
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    setenv("FAKECUDA_NAME", name, 1);
    simulated_remove();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static CUfunction need(const char *name)
{
    CUcontext context;
    CUmodule module;
    CUfunction function = NULL;
    if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS ||
        cuModuleLoadData(&module, PTX) != CUDA_SUCCESS ||
        cuModuleGetFunction(&function, module, name) != CUDA_SUCCESS)
        _exit(100);
    return function;
}

static void launch(CUfunction function, void **arguments)
{
    if (cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL) != CUDA_SUCCESS)
        _exit(101);
}

/* Whether a free returns while a kernel runs. */
static bool frees_beside_a_kernel(uint64_t bytes)
{
    CUfunction spin = need("gs_spin_us");
    uint64_t us = 200000;
    CUdeviceptr memory;
    if (cuMemAlloc_v2(&memory, bytes) != CUDA_SUCCESS)
        _exit(102);
    launch(spin, (void *[]){&us});
    if (cuMemFree_v2(memory) != CUDA_SUCCESS)
        _exit(103);
    bool is_running = cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY;
    if (cuCtxSynchronize() != CUDA_SUCCESS)
        _exit(104);
    return is_running;
}

/* Of a piece of a block, and of a block: a bit for each. */
static int free_both(void)
{
    return frees_beside_a_kernel(1) | frees_beside_a_kernel(MIB) << 1;
}

static void a_free_may_wait_for_nothing(void **state)
{
    assert_int_equal(in_child("FAKECUDA_UNKIND", "0", free_both), 0);
    assert_int_equal(in_child("FAKECUDA_FREE_WAITS", "0", free_both), 1);
    assert_int_equal(in_child("FAKECUDA_FREE_BLOCK_WAITS", "0", free_both), 2);
    assert_int_equal(in_child("FAKECUDA_UNKIND", "1", free_both), 1);
}

struct mapped {
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
};

static struct mapped map_on(CUdevice device)
{
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemAccessDesc access = {how.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    struct mapped mapped;
    if (cuMemCreate(&mapped.handle, 2 * MIB, &how, 0) != CUDA_SUCCESS ||
        cuMemAddressReserve(&mapped.address, 2 * MIB, 0, 0, 0) != CUDA_SUCCESS ||
        cuMemMap(mapped.address, 2 * MIB, 0, mapped.handle, 0) != CUDA_SUCCESS ||
        cuMemSetAccess(mapped.address, 2 * MIB, &access, 1) != CUDA_SUCCESS)
        _exit(102);
    return mapped;
}

/* Whether the context is broken when memory is unmapped while `use` of it, or of other memory, waits for a kernel. */
static bool breaks(void (*use)(CUdeviceptr address), bool is_waited_for, bool of_other_memory)
{
    CUfunction spin = need("gs_spin_us");
    uint64_t us = 100000;
    struct mapped memory = map_on(0), other = map_on(0);
    launch(spin, (void *[]){&us});
    use(of_other_memory ? other.address : memory.address);
    if (is_waited_for && cuCtxSynchronize() != CUDA_SUCCESS)
        _exit(103);
    if (cuMemUnmap(memory.address, 2 * MIB) != CUDA_SUCCESS)
        _exit(104);
    CUresult result = cuCtxSynchronize();
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_ILLEGAL_ADDRESS)
        _exit(105);
    bool is_broken = result != CUDA_SUCCESS && cuCtxSynchronize() == result; /* for good */
    CUcontext context;
    cuCtxGetCurrent(&context);
    cuCtxDestroy_v2(context);
    return is_broken;
}

static void use_by_fill(CUdeviceptr address)
{
    cuMemsetD8Async(address + MIB, 1, 100, NULL);
}

static void use_by_copy(CUdeviceptr address)
{
    CUdeviceptr mine;
    if (cuMemAlloc_v2(&mine, 100) != CUDA_SUCCESS ||
        cuMemcpyDtoDAsync_v2(mine, address, 100, NULL) != CUDA_SUCCESS)
        _exit(106);
}

static void use_by_kernel(CUdeviceptr address)
{
    CUmodule module;
    CUfunction unknown;
    if (cuModuleLoadData(&module, SIMULATED_PTX) != CUDA_SUCCESS ||
        cuModuleGetFunction(&unknown, module, "unknown") != CUDA_SUCCESS)
        _exit(106);
    address += MIB;
    launch(unknown, (void *[]){&address});
}

/* Which ways of using it break the context: a bit for each. */
static int unmap_under_work(void)
{
    return breaks(use_by_fill, false, false) | breaks(use_by_copy, false, false) << 1 |
           breaks(use_by_kernel, false, false) << 2 | breaks(use_by_kernel, true, false) << 3 |
           breaks(use_by_kernel, false, true) << 4;
}

static void work_whose_memory_is_unmapped_breaks_its_context(void **state)
{
    assert_int_equal(in_child("FAKECUDA_UNKIND", "1", unmap_under_work), 7);
    assert_int_equal(in_child("FAKECUDA_UNMAP_WAITS", "1", unmap_under_work), 0);
}

static CUresult reach(bool for_rdma)
{
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                               .allocFlags.gpuDirectRDMACapable = for_rdma};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    if (cuMemCreate(&handle, 2 * MIB, &how, 0) != CUDA_SUCCESS ||
        cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0) != CUDA_SUCCESS ||
        cuMemMap(address, 2 * MIB, 0, handle, 0) != CUDA_SUCCESS)
        _exit(102);
    return cuMemSetAccess(address, 2 * MIB, &access, 1);
}

static int reach_both(void)
{
    need("gs_spin_us");
    return reach(false) == CUDA_SUCCESS && reach(true) == CUDA_ERROR_UNKNOWN;
}

static void memory_for_rdma_may_be_out_of_reach(void **state)
{
    assert_int_equal(in_child("FAKECUDA_RDMA_ACCESS", "0", reach_both), 1);
    assert_int_equal(in_child("FAKECUDA_RDMA_ACCESS", "1", reach_both), 0);
}

static int attribute(CUdevice_attribute which)
{
    int value = -2;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetAttribute(&value, which, 0) != CUDA_SUCCESS)
        _exit(100);
    return value;
}

/* 1 if no memory can be made apart from its addresses, and the device says so; 0 if it can. */
static int have_no_vmm(void)
{
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address, memory;
    int is_claimed = attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    need("gs_spin_us");
    CUresult reserved = cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0),
             created = cuMemCreate(&handle, 2 * MIB, &how, 0);
    if (reserved != created || (reserved == CUDA_SUCCESS) != is_claimed ||
        cuMemAlloc_v2(&memory, MIB) != CUDA_SUCCESS)
        return 102;
    return reserved == CUDA_ERROR_NOT_SUPPORTED;
}

static void a_driver_may_have_no_virtual_memory_management(void **state)
{
    assert_int_equal(in_child("FAKECUDA_VMM", "0", have_no_vmm), 1);
    assert_int_equal(in_child("FAKECUDA_VMM", "1", have_no_vmm), 0);
}

static int lock_nothing(void)
{
    static char page[4096];
    int is_claimed = attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
    need("gs_spin_us");
    CUresult result = cuMemHostRegister_v2(page, sizeof(page), 0);
    return (result == CUDA_SUCCESS) == is_claimed ? result == CUDA_ERROR_NOT_SUPPORTED : 102;
}

static void a_driver_may_register_no_memory_of_the_host(void **state)
{
    assert_int_equal(in_child("FAKECUDA_HOST_REGISTER", "0", lock_nothing), 1);
    assert_int_equal(in_child("FAKECUDA_HOST_REGISTER", "1", lock_nothing), 0);
}

static int is_integrated(void)
{
    return attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED);
}

static int memory_node(void)
{
    return attribute(CU_DEVICE_ATTRIBUTE_NUMA_CONFIG) == 1 ? attribute(CU_DEVICE_ATTRIBUTE_NUMA_ID) : 0;
}

static void a_gpus_memory_may_be_the_hosts_or_a_node_of_it(void **state)
{
    assert_int_equal(in_child("FAKECUDA_NVML_NO_MEMORY", "0", is_integrated), 0);
    assert_int_equal(in_child("FAKECUDA_NVML_NO_MEMORY", "1", is_integrated), 1);
    assert_int_equal(in_child("FAKECUDA_NVML_NO_MEMORY", "2", is_integrated), 0);
    assert_int_equal(in_child("FAKECUDA_GPU_NODE", "0", memory_node), 0);
    assert_int_equal(in_child("FAKECUDA_GPU_NODE", "2", memory_node), 2);
}

/* 1 if a second process gets no context beside ours, 0 if it gets one. */
static int two_contexts(void)
{
    int mode, status;
    need("gs_spin_us");
    if (cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0) != CUDA_SUCCESS ||
        mode != atoi(getenv("FAKECUDA_COMPUTE_MODE")))
        return 102;
    pid_t child = fork();
    if (child == 0)
        execl("/proc/self/exe", "test_other_ways", "context", NULL);
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return 103;
    return WEXITSTATUS(status) == CUDA_ERROR_DEVICE_UNAVAILABLE;
}

static int no_context(void)
{
    CUcontext context;
    return cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&context, 0, 0) == CUDA_ERROR_DEVICE_UNAVAILABLE;
}

static void a_compute_mode_keeps_others_from_the_gpu(void **state)
{
    assert_int_equal(in_child("FAKECUDA_COMPUTE_MODE", "0", two_contexts), 0);
    assert_int_equal(in_child("FAKECUDA_COMPUTE_MODE", "3", two_contexts), 1);
    assert_int_equal(in_child("FAKECUDA_COMPUTE_MODE", "2", no_context), 1);
}

/* Milliseconds of a kernel of 20 ms. */
static float time_steps(CUfunction function)
{
    uint64_t steps = 1000000, nowhere = 0;
    CUevent events[2];
    float ms;
    for (unsigned i = 0; i < 2; i++)
        if (cuEventCreate(&events[i], 0) != CUDA_SUCCESS)
            _exit(102);
    cuEventRecord(events[0], NULL);
    launch(function, (void *[]){&steps, &nowhere});
    cuEventRecord(events[1], NULL);
    if (cuCtxSynchronize() != CUDA_SUCCESS || cuEventElapsedTime(&ms, events[0], events[1]) != CUDA_SUCCESS)
        _exit(103);
    return ms;
}

static int work_from_idle(void)
{
    CUfunction steps = need("gs_steps_u32");
    if (time_steps(steps) < 38)
        return 1; /* the first takes twice as long */
    for (unsigned i = 0; i < 30; i++)
        time_steps(steps);
    float last_ms = time_steps(steps);
    return last_ms >= 20 && last_ms < 30 ? 0 : 2;
}

static void the_clock_of_an_idle_gpu_rises_with_work(void **state)
{
    assert_int_equal(in_child("FAKECUDA_RAMP_NS", "3e8", work_from_idle), 0);
}

/* Of three sums of the same memory, which are wrong: a bit for each. */
static int sum_three_times(void)
{
    CUfunction sum = need("gs_checksum_u32");
    CUdeviceptr memory, out;
    uint64_t count = 256;
    uint32_t seen;
    int wrong = 0;
    if (cuMemAlloc_v2(&memory, 1024) != CUDA_SUCCESS || cuMemAlloc_v2(&out, 4) != CUDA_SUCCESS ||
        cuMemsetD32_v2(memory, 2, count) != CUDA_SUCCESS)
        return 102;
    for (unsigned i = 0; i < 3; i++) {
        cuMemsetD32_v2(out, 0, 1);
        launch(sum, (void *[]){&memory, &count, &out});
        if (cuMemcpyDtoH_v2(&seen, out, sizeof(seen)) != CUDA_SUCCESS)
            return 103;
        wrong |= (seen != 512) << i;
    }
    return wrong;
}

static void the_nth_sum_is_wrong(void **state)
{
    assert_int_equal(in_child("FAKECUDA_FAULT", "wrong@2", sum_three_times), 2);
    assert_int_equal(in_child("FAKECUDA_FAULT", "", sum_three_times), 0);
}

/* --- What the legacy stream's query sees --- */

static CUcontext context_of_all;
static CUfunction kernel_of_all;

static void *spin_in_own_stream(void *unused)
{
    uint64_t us = 500000;
    (void)unused;
    return (void *)(uintptr_t)(cuCtxSetCurrent(context_of_all) ||
                               cuLaunchKernel(kernel_of_all, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD,
                                              (void *[]){&us}, NULL));
}

/* 1: it sees another thread's own stream; 2: and this thread's. Work behind it waits for both in any case. */
static int query_beside_own_streams(void)
{
    pthread_t thread;
    void *failed;
    kernel_of_all = need("gs_spin_us");
    cuCtxGetCurrent(&context_of_all);
    if (pthread_create(&thread, NULL, spin_in_own_stream, NULL) != 0 || pthread_join(thread, &failed) != 0 ||
        failed)
        return 102;
    int seen = cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY;
    if (cuStreamSynchronize(NULL) != CUDA_SUCCESS || cuCtxSynchronize() != CUDA_SUCCESS ||
        spin_in_own_stream(NULL))
        return 103;
    return seen | (cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY) << 1;
}

static void the_legacy_streams_query_may_not_see_other_threads_streams(void **state)
{
    assert_int_equal(in_child("FAKECUDA_UNKIND", "0", query_beside_own_streams), 3);
    assert_int_equal(in_child("FAKECUDA_UNKIND", "1", query_beside_own_streams), 2);
}

/* --- Mapped memory of another card --- */

/* What works from device 0: 1: a plain copy; 2: a peer copy; 4: a plain copy once device 0 has access; 8: a kernel before. */
static int reach_a_peer(void)
{
    CUcontext contexts[2];
    CUdeviceptr mine;
    unsigned long long flags;
    setenv("FAKECUDA_GPUS", "2", 1);
    CUfunction fill = need("gs_checksum_u32");
    if (cuCtxGetCurrent(&contexts[0]) || cuMemAlloc_v2(&mine, 100) || cuCtxCreate_v2(&contexts[1], 0, 1))
        return 102;
    struct mapped theirs = map_on(1);
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    cuCtxSetCurrent(contexts[0]);
    int works = cuMemcpyDtoD_v2(mine, theirs.address, 100) == CUDA_SUCCESS;
    works |= (cuMemcpyPeer(mine, contexts[0], theirs.address, contexts[1], 100) == CUDA_SUCCESS) << 1;
    uint64_t count = 1;
    launch(fill, (void *[]){&theirs.address, &count, &mine});
    bool has_failed = cuCtxSynchronize() != CUDA_SUCCESS;
    works |= !has_failed << 3;
    if (has_failed &&
        (cuCtxDestroy_v2(contexts[0]) || cuCtxCreate_v2(&contexts[0], 0, 0) || cuMemAlloc_v2(&mine, 100)))
        return 103;
    if (cuMemSetAccess(theirs.address, 2 * MIB, &access, 1) ||
        cuMemGetAccess(&flags, &access.location, theirs.address) ||
        flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return 104;
    works |= (cuMemcpyDtoD_v2(mine, theirs.address, 100) == CUDA_SUCCESS) << 2;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (works == 6 && (cuMemSetAccess(theirs.address, 2 * MIB, &access, 1) ||
                       cuMemcpyDtoD_v2(mine, theirs.address, 100) != CUDA_ERROR_INVALID_VALUE))
        return 105;
    return works;
}

static void mapped_memory_is_reached_where_access_was_given(void **state)
{
    assert_int_equal(in_child("FAKECUDA_UNKIND", "1", reach_a_peer), 6);
    assert_int_equal(in_child("FAKECUDA_REACH_ALL", "1", reach_a_peer), 15);
}

/* --- Page-locking --- */

static atomic_bool is_registered;

static void *register_some(void *memory)
{
    CUresult result = cuCtxSetCurrent(context_of_all) || cuMemHostRegister_v2(memory, MIB, 0);
    is_registered = true;
    return (void *)(uintptr_t)result;
}

/* 1 if another thread's call waits while memory is page-locked. */
static int call_beside_registering(void)
{
    pthread_t thread;
    CUdevice device;
    void *failed, *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t longest_ns = 0;
    need("gs_spin_us");
    cuCtxGetCurrent(&context_of_all);
    if (memory == MAP_FAILED || pthread_create(&thread, NULL, register_some, memory) != 0)
        return 102;
    while (!is_registered) {
        uint64_t begin_ns = monotonic_ns();
        cuCtxGetDevice(&device);
        uint64_t took_ns = monotonic_ns() - begin_ns;
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
    }
    if (pthread_join(thread, &failed) != 0 || failed)
        return 103;
    return longest_ns > 200000000;
}

static void page_locking_holds_up_the_process(void **state)
{
    assert_int_equal(in_child("FAKECUDA_REGISTER_GIB_NS", "6e11", call_beside_registering), 1);
}

/* 1 if page-locking 4 MiB of huge pages took 100 ms. */
static int register_huge_pages(void)
{
    char *mapped = mmap(NULL, 6 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need("gs_spin_us");
    char *memory = (char *)(((uintptr_t)mapped + 2 * MIB - 1) & ~(uintptr_t)(2 * MIB - 1));
    if (mapped == MAP_FAILED || madvise(memory, 4 * MIB, MADV_HUGEPAGE) < 0)
        return 102;
    memset(memory, 1, 4 * MIB);
    uint64_t begin_ns = monotonic_ns();
    if (cuMemHostRegister_v2(memory, 4 * MIB, 0) != CUDA_SUCCESS)
        return 103;
    return monotonic_ns() - begin_ns > 100000000;
}

/* At 50 s for a GiB, where the kernel gives huge pages. */
static void huge_pages_are_page_locked_at_a_rate_of_their_own(void **state)
{
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    char line[100] = "";
    bool are_given = file && fgets(line, sizeof(line), file) && !strstr(line, "[never]");
    if (file)
        fclose(file);
    if (!are_given)
        skip();
    assert_int_equal(in_child("FAKECUDA_REGISTER_HUGE_GIB_NS", "5e10", register_huge_pages), 1);
}

/* --- Events, and what they end --- */

static int record_three_times(void)
{
    CUevent event;
    int failed = 0;
    need("gs_spin_us");
    if (cuEventCreate(&event, 0) != CUDA_SUCCESS)
        return 102;
    for (unsigned i = 0; i < 3; i++)
        failed |= (cuEventRecord(event, NULL) != CUDA_SUCCESS) << i;
    return failed;
}

static void recording_an_event_may_fail_once(void **state)
{
    assert_int_equal(in_child("FAKECUDA_FAULT", "record@2", record_three_times), 2);
    assert_int_equal(in_child("FAKECUDA_FAULT", "record@2+", record_three_times), 6);
}

static void wait_for_gate(void *gate)
{
    while (!*(atomic_bool *)gate)
        usleep(1000);
}

static void launch_allowing_overlap(CUfunction function, CUstream stream)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = 1};
    CUdeviceptr nothing = 0;
    if (cuLaunchKernelEx(&config, function, (void *[]){&nothing}, NULL) != CUDA_SUCCESS)
        _exit(104);
}

/* Milliseconds of two kernels, all of them behind a gate so that what calls take does not count. */
static float time_two(CUfunction kernel, CUstream stream, CUevent mark)
{
    static atomic_bool gate;
    CUevent events[2];
    float ms;
    gate = false;
    if (cuEventCreate(&events[0], 0) || cuEventCreate(&events[1], 0) ||
        cuLaunchHostFunc(stream, wait_for_gate, &gate) || cuEventRecord(events[0], stream))
        _exit(102);
    launch_allowing_overlap(kernel, stream);
    if (mark && cuEventRecord(mark, stream) != CUDA_SUCCESS)
        _exit(103);
    launch_allowing_overlap(kernel, stream);
    cuEventRecord(events[1], stream);
    gate = true;
    if (cuStreamSynchronize(stream) != CUDA_SUCCESS ||
        cuEventElapsedTime(&ms, events[0], events[1]) != CUDA_SUCCESS)
        _exit(105);
    return ms;
}

static int overlap_two_kernels(void)
{
    CUmodule module;
    CUfunction unknown;
    CUstream stream;
    CUevent mark;
    setenv("FAKECUDA_KERNEL_NS", "20e6", 1);
    need("gs_spin_us");
    if (cuModuleLoadData(&module, SIMULATED_PTX) || cuModuleGetFunction(&unknown, module, "unknown") ||
        cuStreamCreate(&stream, 0) || cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING))
        return 106;
    float without_ms = time_two(unknown, stream, NULL), with_ms = time_two(unknown, stream, mark);
    return (without_ms > 24 && without_ms < 26) | (with_ms > 39 && with_ms < 41) << 1;
}

static void a_mark_ends_the_overlap_of_two_kernels(void **state)
{
    assert_int_equal(in_child("FAKECUDA_OVERLAP_NS", "15e6", overlap_two_kernels), 3);
}

static int time_in_steps(void)
{
    CUfunction steps = need("gs_steps_u32");
    float ms = time_steps(steps); /* 20 ms and what the calls take */
    return ms > 0 && (int)(ms * 1000 + 0.5F) % 3000 == 0;
}

static void the_clock_of_events_goes_in_steps(void **state)
{
    assert_int_equal(in_child("FAKECUDA_EVENT_STEP_NS", "3e6", time_in_steps), 1);
}

/* Milliseconds of a launch on the GPU; -1: something failed. */
static float time_launch(CUfunction function, unsigned blocks, unsigned threads, void **arguments)
{
    CUevent events[2];
    float ms;
    if (cuEventCreate(&events[0], 0) || cuEventCreate(&events[1], 0) || cuEventRecord(events[0], NULL) ||
        cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, NULL, arguments, NULL) ||
        cuEventRecord(events[1], NULL) || cuCtxSynchronize() || cuEventElapsedTime(&ms, events[0], events[1]))
        return -1;
    return ms;
}

static int time_checksum(void)
{
    CUfunction checksum = need("gs_checksum_u32");
    CUdeviceptr memory;
    uint64_t count = 1;
    if (cuMemAlloc_v2(&memory, 16))
        return 102;
    CUdeviceptr out = memory + 8;
    return (int)time_launch(checksum, 2, 32, (void *[]){&memory, &count, &out});
}

static void a_checksum_pays_for_its_atomics(void **state)
{
    int ms = in_child("FAKECUDA_ATOMIC_NS", "1e6", time_checksum); /* 64 of them */
    assert_true(ms >= 64 && ms < 100);
    assert_int_equal(in_child("FAKECUDA_ATOMIC_NS", "0", time_checksum), 0);
}

struct digest_of_launch {
    CUfunction function;
    CUdeviceptr memory;
    uint64_t (*parts)[4], (*sums)[2];
};

static bool make_digest(struct digest_of_launch *digest)
{
    CUmodule module;
    need("gs_spin_us");
    return cuModuleLoadData(&module, digest_ptx) == CUDA_SUCCESS &&
           cuModuleGetFunction(&digest->function, module, DIGEST_KERNEL) == CUDA_SUCCESS &&
           cuMemAlloc_v2(&digest->memory, MIB) == CUDA_SUCCESS &&
           cuMemHostAlloc((void **)&digest->parts, 16 * sizeof(*digest->parts), 0) == CUDA_SUCCESS &&
           cuMemHostAlloc((void **)&digest->sums, 16 * sizeof(*digest->sums), 0) == CUDA_SUCCESS &&
           cuMemsetD8_v2(digest->memory, 0x5A, MIB) == CUDA_SUCCESS;
}

/* The first parts of its 1 MiB are those of the next launch. */
static void fill_parts(struct digest_of_launch *digest, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct digest_part part = digest_part(digest->memory, MIB, i);
        memcpy(digest->parts[i], &part, sizeof(part));
    }
}

/* 1: a digest of 1 MiB, in 16 parts, takes as long as the memory needs; 2: so does that of one part. */
static int time_digests(void)
{
    struct digest_of_launch digest;
    if (!make_digest(&digest))
        return 102;
    fill_parts(&digest, 16);
    void *arguments[] = {&digest.parts, &digest.sums};
    float all_ms = time_launch(digest.function, 16, DIGEST_THREADS, arguments);
    float part_ms = time_launch(digest.function, 1, DIGEST_THREADS, arguments);
    return (all_ms > 9 && all_ms < 12) | (part_ms > 9 && part_ms < 12) << 1;
}

static void a_digest_by_too_few_blocks_takes_longer(void **state)
{
    setenv("FAKECUDA_DEVICE_GBPS", "0.1", 1); /* 1 MiB in 10.5 ms */
    assert_int_equal(in_child("FAKECUDA_BUSY_BLOCKS", "16", time_digests), 3);
    assert_int_equal(in_child("FAKECUDA_BUSY_BLOCKS", "1", time_digests), 1);
    unsetenv("FAKECUDA_DEVICE_GBPS");
}

/* 1: the kernel answers; 2: not in blocks of another size, which breaks the context, as sums would be wrong on a card. */
static int launch_in_other_shapes(void)
{
    struct digest_of_launch digest;
    if (!make_digest(&digest))
        return 102;
    fill_parts(&digest, 1);
    void *arguments[] = {&digest.parts, &digest.sums};
    bool is_right = time_launch(digest.function, 1, DIGEST_THREADS, arguments) >= 0 && digest.sums[0][0];
    return is_right | (time_launch(digest.function, 1, DIGEST_THREADS / 2, arguments) < 0) << 1;
}

/* Whether events around a digest, which takes the GPU no time here, tell less than half of what the simulation needs to
 * compute it. The best of many, as others have the CPU too. */
static int time_computing(void)
{
    struct digest_of_launch digest;
    if (!make_digest(&digest))
        return 102;
    fill_parts(&digest, 16);
    double least_told_ms = 1e9, least_spent_ms = 1e9;
    for (unsigned round = 0; round < 50; round++) {
        uint64_t began_ns = monotonic_ns();
        double told_ms =
            time_launch(digest.function, 16, DIGEST_THREADS, (void *[]){&digest.parts, &digest.sums});
        double spent_ms = (double)(monotonic_ns() - began_ns) / 1e6;
        least_told_ms = told_ms < least_told_ms ? told_ms : least_told_ms;
        least_spent_ms = spent_ms < least_spent_ms ? spent_ms : least_spent_ms;
    }
    return least_told_ms >= 0 && least_told_ms < least_spent_ms / 2;
}

static void computing_in_the_gpu_s_place_takes_no_time_of_the_gpu(void **state)
{
    assert_int_equal(in_child("FAKECUDA_DEVICE_GBPS", "1e6", time_computing), 1);
}

static void a_digest_has_its_own_shape_of_launch(void **state)
{
    assert_int_equal(in_child("FAKECUDA_KERNEL_NS", "0", launch_in_other_shapes), 3);
}

/* --- A network card that was told of memory --- */

static CUmemGenericAllocationHandle map_for_rdma(CUdeviceptr address, bool is_for_rdma)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp how = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                               .allocFlags.gpuDirectRDMACapable = is_for_rdma};
    const CUmemAccessDesc access = {how.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT(cuMemCreate(&handle, 2 * MIB, &how, 0) == CUDA_SUCCESS);
    EXPECT(cuMemMap(address, 2 * MIB, 0, handle, 0) == CUDA_SUCCESS);
    EXPECT(cuMemSetAccess(address, 2 * MIB, &access, 1) == CUDA_SUCCESS);
    return handle;
}

static int tell_a_network_card(void)
{
    CUdeviceptr linear, mapped;
    unsigned char seen = 0;
    need("gs_spin_us");
    EXPECT(cuMemAlloc_v2(&linear, 1000) == CUDA_SUCCESS && cuMemsetD8_v2(linear, 5, 1000) == CUDA_SUCCESS);
    int number = fakecuda_nic_register(linear + 10, 100);
    EXPECT(number >= 0 && fakecuda_nic_read(number, 99, &seen, 1) == 0 && seen == 5);
    EXPECT(fakecuda_nic_read(number, 100, &seen, 1) == -1);
    EXPECT(cuMemFree_v2(linear) == CUDA_SUCCESS && fakecuda_nic_read(number, 0, &seen, 1) == -1);
    EXPECT(cuMemAlloc_v2(&mapped, 1000) == CUDA_SUCCESS && mapped == linear);
    EXPECT(fakecuda_nic_read(number, 0, &seen, 1) == -1); /* other memory at the same address */
    EXPECT(cuMemAddressReserve(&mapped, 4 * MIB, 0, 0, 0) == CUDA_SUCCESS);
    map_for_rdma(mapped, true);
    map_for_rdma(mapped + 2 * MIB, true);
    number = fakecuda_nic_register(mapped, 4 * MIB);
    EXPECT(fakecuda_nic_read(number, 2 * MIB, &seen, 1) == 0);
    EXPECT(cuMemUnmap(mapped + 2 * MIB, 2 * MIB) == CUDA_SUCCESS);
    EXPECT(fakecuda_nic_read(number, 0, &seen, 1) == -1);
    map_for_rdma(mapped + 2 * MIB, false);
    EXPECT(fakecuda_nic_read(number, 0, &seen, 1) == -1);
    EXPECT(fakecuda_nic_register(mapped, 4 * MIB) == -1); /* half of it is not for RDMA */
    return 0;
}

static void a_network_card_notices_that_a_page_has_moved(void **state)
{
    assert_int_equal(in_child("FAKECUDA_DEVICE", "h100", tell_a_network_card), 0);
}

static int make_context(void)
{
    CUcontext context;
    CUresult result = cuInit(0);
    return (int)(result ? result : cuCtxCreate_v2(&context, 0, 0));
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "context") == 0)
        return make_context();
    simulated_choose((char *[]){"FAKECUDA_TOTAL_MEM=1GiB", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_free_may_wait_for_nothing),
        cmocka_unit_test(work_whose_memory_is_unmapped_breaks_its_context),
        cmocka_unit_test(memory_for_rdma_may_be_out_of_reach),
        cmocka_unit_test(a_driver_may_have_no_virtual_memory_management),
        cmocka_unit_test(a_driver_may_register_no_memory_of_the_host),
        cmocka_unit_test(a_gpus_memory_may_be_the_hosts_or_a_node_of_it),
        cmocka_unit_test(a_compute_mode_keeps_others_from_the_gpu),
        cmocka_unit_test(the_clock_of_an_idle_gpu_rises_with_work),
        cmocka_unit_test(the_nth_sum_is_wrong),
        cmocka_unit_test(the_legacy_streams_query_may_not_see_other_threads_streams),
        cmocka_unit_test(mapped_memory_is_reached_where_access_was_given),
        cmocka_unit_test(page_locking_holds_up_the_process),
        cmocka_unit_test(huge_pages_are_page_locked_at_a_rate_of_their_own),
        cmocka_unit_test(recording_an_event_may_fail_once),
        cmocka_unit_test(a_mark_ends_the_overlap_of_two_kernels),
        cmocka_unit_test(the_clock_of_events_goes_in_steps),
        cmocka_unit_test(a_checksum_pays_for_its_atomics),
        cmocka_unit_test(a_digest_by_too_few_blocks_takes_longer),
        cmocka_unit_test(computing_in_the_gpu_s_place_takes_no_time_of_the_gpu),
        cmocka_unit_test(a_digest_has_its_own_shape_of_launch),
        cmocka_unit_test(a_network_card_notices_that_a_page_has_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
