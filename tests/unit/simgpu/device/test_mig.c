/* Tests of MIG: two H100s, the first partitioned, as NVML shows them and as children see them by CUDA. */
#include "simulated.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "cuda/uuid.h"
#include "simgpu/nvml/nvml.h"

#define INSTANCE_MIB 9984 /* of 1g.10gb */

static nvmlDevice_t card(unsigned index)
{
    nvmlDevice_t device;
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(index, &device), NVML_SUCCESS);
    return device;
}

static nvmlDevice_t instance(unsigned index)
{
    nvmlDevice_t device;
    assert_int_equal(nvmlDeviceGetMigDeviceHandleByIndex(card(0), index, &device), NVML_SUCCESS);
    return device;
}

static const char *uuid_of(nvmlDevice_t device)
{
    static char text[4][NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    static unsigned next;
    next = (next + 1) % 4;
    assert_int_equal(nvmlDeviceGetUUID(device, text[next], sizeof(text[next])), NVML_SUCCESS);
    return text[next];
}

static uint64_t used_bytes(nvmlDevice_t device)
{
    nvmlMemory_t memory;
    assert_int_equal(nvmlDeviceGetMemoryInfo(device, &memory), NVML_SUCCESS);
    return memory.used;
}

/* A child that sees `visible` (NULL: the variable is not set), does `act` and answers with a number; it lives
 * until child_end(). */
struct child {
    pid_t pid;
    int line;
};

static struct child child_start(const char *visible, int (*act)(void), int *answer)
{
    int line[2];
    assert_int_equal(pipe(line), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (visible)
            setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        int result = act();
        if (write(line[1], &result, sizeof(result)) != (ssize_t)sizeof(result))
            _exit(1);
        for (;;)
            pause();
    }
    close(line[1]);
    assert_int_equal(read(line[0], answer, sizeof(*answer)), sizeof(*answer));
    return (struct child){pid, line[0]};
}

static void child_end(struct child child)
{
    kill(child.pid, SIGKILL);
    assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
    close(child.line);
}

static int ask(const char *visible, int (*act)(void))
{
    int answer;
    child_end(child_start(visible, act, &answer));
    return answer;
}

/* --- What children do ------------------------------------------------------------------------------ */

static int count_devices(void)
{
    int count;
    CUresult result = cuInit(0);
    if (result != CUDA_SUCCESS)
        return -(int)result;
    return cuDeviceGetCount(&count) == CUDA_SUCCESS ? count : -999;
}

static int mebibytes(void)
{
    size_t bytes;
    return cuInit(0) == CUDA_SUCCESS && cuDeviceTotalMem_v2(&bytes, 0) == CUDA_SUCCESS ? (int)(bytes >> 20)
                                                                                       : -1;
}

static int multiprocessors(void)
{
    int count;
    return cuInit(0) == CUDA_SUCCESS &&
                   cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0) == CUDA_SUCCESS
               ? count
               : -1;
}

/* 1: the old call gives the card's UUID and the new one the instance's, as CUDA_VISIBLE_DEVICES has it. */
static int uuids_differ(void)
{
    uint8_t wanted[GPU_UUID_BYTES], of_card[GPU_UUID_BYTES];
    CUuuid old, new;
    gpu_uuid_parse(getenv("CUDA_VISIBLE_DEVICES"), wanted);
    gpu_uuid_parse(getenv("TEST_CARD"), of_card);
    return cuInit(0) == CUDA_SUCCESS && cuDeviceGetUuid_v2(&new, 0) == CUDA_SUCCESS &&
           cuDeviceGetUuid(&old, 0) == CUDA_SUCCESS && memcmp(new.bytes, wanted, 16) == 0 &&
           memcmp(old.bytes, of_card, 16) == 0;
}

static int name_is_right(void)
{
    char name[96];
    return cuInit(0) == CUDA_SUCCESS && cuDeviceGetName(name, sizeof(name), 0) == CUDA_SUCCESS &&
           strcmp(name, "NVIDIA H100 80GB HBM3 MIG 2g.20gb") == 0;
}

/* How many blocks of 1 GiB fit. */
static int fill(void)
{
    CUcontext context;
    CUdeviceptr block;
    int count = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
        return -1;
    while (count < 100 && cuMemAlloc_v2(&block, GIB) == CUDA_SUCCESS)
        count++;
    return count;
}

/* --- Tests ----------------------------------------------------------------------------------------- */

static void a_card_shows_its_mode_and_instances(void **state)
{
    unsigned current, pending, count, is_mig, index;
    nvmlDevice_t device;
    assert_int_equal(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
    assert_int_equal(count, 2);
    assert_int_equal(nvmlDeviceGetMigMode(card(0), &current, &pending), NVML_SUCCESS);
    assert_true(current == 1 && pending == 1);
    assert_int_equal(nvmlDeviceGetMigMode(card(1), &current, &pending), NVML_SUCCESS);
    assert_true(current == 0 && pending == 0);
    assert_int_equal(nvmlDeviceGetMaxMigDeviceCount(card(0), &count), NVML_SUCCESS);
    assert_int_equal(count, 7);
    assert_int_equal(nvmlDeviceGetMaxMigDeviceCount(card(1), &count), NVML_SUCCESS);
    assert_int_equal(count, 0);
    assert_int_equal(nvmlDeviceGetMigDeviceHandleByIndex(card(0), 3, &device), NVML_ERROR_NOT_FOUND);
    assert_int_equal(nvmlDeviceGetMigDeviceHandleByIndex(card(0), 7, &device), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetMigDeviceHandleByIndex(card(1), 0, &device), NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(nvmlDeviceIsMigDeviceHandle(card(0), &is_mig), NVML_SUCCESS);
    assert_int_equal(is_mig, 0);
    assert_int_equal(nvmlDeviceIsMigDeviceHandle(instance(2), &is_mig), NVML_SUCCESS);
    assert_int_equal(is_mig, 1);
    assert_int_equal(nvmlDeviceGetIndex(instance(2), &index), NVML_SUCCESS);
    assert_int_equal(index, 2);
    assert_int_equal(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance(1), &device), NVML_SUCCESS);
    assert_ptr_equal(device, card(0));
    assert_int_equal(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(card(0), &device),
                     NVML_ERROR_INVALID_ARGUMENT);
}

static void an_instance_has_a_uuid_a_name_ids_and_attributes(void **state)
{
    char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    unsigned id, other, temperature;
    nvmlDevice_t device;
    nvmlDeviceAttributes_t attributes;
    assert_int_equal(strncmp(uuid_of(instance(1)), "MIG-", 4), 0);
    assert_string_not_equal(uuid_of(instance(0)), uuid_of(instance(1)));
    assert_int_equal(nvmlDeviceGetHandleByUUID(uuid_of(instance(1)), &device), NVML_SUCCESS);
    assert_ptr_equal(device, instance(1));
    assert_int_equal(nvmlDeviceGetName(instance(1), name, sizeof(name)), NVML_SUCCESS);
    assert_string_equal(name, "NVIDIA H100 80GB HBM3 MIG 2g.20gb");
    assert_int_equal(nvmlDeviceGetGpuInstanceId(instance(0), &id), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetGpuInstanceId(instance(1), &other), NVML_SUCCESS);
    assert_int_not_equal(id, other);
    assert_int_equal(nvmlDeviceGetComputeInstanceId(instance(1), &id), NVML_SUCCESS);
    assert_int_equal(id, 0);
    assert_int_equal(nvmlDeviceGetGpuInstanceId(card(0), &id), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetAttributes_v2(instance(1), &attributes), NVML_SUCCESS);
    assert_int_equal(attributes.multiprocessorCount, 32);
    assert_int_equal(attributes.gpuInstanceSliceCount, 2);
    assert_int_equal(attributes.memorySizeMB, 20096);
    assert_int_equal(nvmlDeviceGetAttributes_v2(card(1), &attributes), NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(nvmlDeviceGetTemperature(instance(0), 0, &temperature), NVML_ERROR_NOT_SUPPORTED);
}

static void a_process_sees_the_first_instance_and_nothing_else(void **state)
{
    char list[300];
    setenv("TEST_CARD", uuid_of(card(0)), 1);
    assert_int_equal(ask(NULL, count_devices), 1);
    assert_int_equal(ask(NULL, mebibytes), INSTANCE_MIB);
    assert_int_equal(ask("0", multiprocessors), 16);
    assert_int_equal(ask("1", multiprocessors), 132);
    assert_int_equal(ask("1,0", mebibytes), INSTANCE_MIB);
    assert_int_equal(ask(uuid_of(card(0)), mebibytes), INSTANCE_MIB);
    assert_int_equal(ask(uuid_of(card(1)), multiprocessors), 132);
    assert_int_equal(ask(uuid_of(instance(1)), mebibytes), 20096);
    assert_int_equal(ask(uuid_of(instance(1)), multiprocessors), 32);
    assert_int_equal(ask(uuid_of(instance(1)), name_is_right), 1);
    assert_int_equal(ask(uuid_of(instance(1)), uuids_differ), 1);
    snprintf(list, sizeof(list), "%s,%s", uuid_of(instance(2)), uuid_of(instance(1)));
    assert_int_equal(ask(list, count_devices), 1);
    assert_int_equal(ask(list, multiprocessors), 60);
    assert_int_equal(ask("MIG-00000000-0000-0000-0000-000000000000", count_devices), -CUDA_ERROR_NO_DEVICE);
    /* An instance's UUID with a card's prefix names nothing. */
    snprintf(list, sizeof(list), "GPU-%s", uuid_of(instance(1)) + 4);
    assert_int_equal(ask(list, count_devices), -CUDA_ERROR_NO_DEVICE);
}

static void instances_have_memory_of_their_own(void **state)
{
    int first_count, second_count;
    nvmlMemory_t memory;
    uint64_t kept = used_bytes(card(0)); /* the driver's part */
    struct child first = child_start(uuid_of(instance(0)), fill, &first_count);
    assert_int_equal(first_count, 9);
    assert_int_equal(ask(uuid_of(instance(0)), fill), 0); /* nothing is left there */
    struct child second = child_start(uuid_of(instance(1)), fill, &second_count);
    assert_int_equal(second_count, 19);
    assert_int_equal(used_bytes(instance(0)), 9 * GIB);
    assert_int_equal(nvmlDeviceGetMemoryInfo(instance(0), &memory), NVML_SUCCESS);
    assert_int_equal(memory.total, INSTANCE_MIB * MIB);
    assert_int_equal(memory.free, INSTANCE_MIB * MIB - 9 * GIB);
    assert_int_equal(used_bytes(instance(1)), 19 * GIB);
    assert_int_equal(used_bytes(instance(2)), 0);
    assert_int_equal(used_bytes(card(0)), kept + 28 * GIB);
    child_end(first);
    assert_int_equal(used_bytes(instance(0)), 0);
    assert_int_equal(used_bytes(card(0)), kept + 19 * GIB);
    child_end(second);
}

static void processes_are_listed_by_instance_and_by_card(void **state)
{
    int count;
    struct child child = child_start(uuid_of(instance(1)), fill, &count);
    nvmlProcessInfo_v2_t infos[4];
    nvmlProcessDetail_v1_t details[4];
    nvmlProcessDetailList_v1_t list = {NVML_PROCESS_DETAIL_LIST_V1, NVML_PROCESS_MODE_COMPUTE, 4, details};
    unsigned found = 4, id;
    assert_int_equal(nvmlDeviceGetGpuInstanceId(instance(1), &id), NVML_SUCCESS);
    const nvmlDevice_t shows[] = {instance(1), card(0)};
    for (unsigned i = 0; i < 2; i++) {
        found = 4;
        assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(shows[i], &found, infos), NVML_SUCCESS);
        assert_int_equal(found, 1);
        assert_int_equal(infos[0].pid, child.pid);
        assert_int_equal(infos[0].usedGpuMemory, 19 * GIB);
        assert_int_equal(infos[0].gpuInstanceId, id);
        assert_int_equal(infos[0].computeInstanceId, 0);
    }
    found = 4;
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(instance(0), &found, infos), NVML_SUCCESS);
    assert_int_equal(found, 0);
    assert_int_equal(nvmlDeviceGetRunningProcessDetailList(instance(1), &list), NVML_SUCCESS);
    assert_int_equal(list.numProcArrayEntries, 1);
    assert_int_equal(details[0].pid, child.pid);
    assert_int_equal(details[0].gpuInstanceId, id);
    assert_int_equal(details[0].usedGpuMemory, 19 * GIB);
    list.numProcArrayEntries = 0;
    assert_int_equal(nvmlDeviceGetRunningProcessDetailList(card(0), &list), NVML_ERROR_INSUFFICIENT_SIZE);
    assert_int_equal(list.numProcArrayEntries, 1);
    list.mode = NVML_PROCESS_MODE_MPS;
    assert_int_equal(nvmlDeviceGetRunningProcessDetailList(card(0), &list), NVML_SUCCESS);
    assert_int_equal(list.numProcArrayEntries, 0);
    list.version = 7;
    assert_int_equal(nvmlDeviceGetRunningProcessDetailList(card(0), &list),
                     NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    child_end(child);
}

static void how_busy_a_partitioned_card_is_nobody_tells(void **state)
{
    nvmlUtilization_t utilization;
    unsigned count = 0;
    assert_int_equal(nvmlDeviceGetUtilizationRates(card(1), &utilization), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetUtilizationRates(card(0), &utilization), NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(nvmlDeviceGetUtilizationRates(instance(0), &utilization), NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(nvmlDeviceGetProcessUtilization(card(1), NULL, &count, 0), NVML_ERROR_NOT_FOUND);
    assert_int_equal(nvmlDeviceGetProcessUtilization(card(0), NULL, &count, 0), NVML_ERROR_NOT_SUPPORTED);
}

/* Whether NVML starts on a machine of its own with this FAKECUDA_MIG. */
static const char *wanted_mig;
static int try_partition(void)
{
    char name[64];
    snprintf(name, sizeof(name), "test-mig-try-%d", (int)getpid());
    setenv("FAKECUDA_NAME", name, 1);
    setenv("FAKECUDA_MIG", wanted_mig, 1);
    execl("/proc/self/exe", "test_simgpu_mig", "try", (char *)NULL);
    return 99;
}

static int partition(const char *mig)
{
    int status;
    wanted_mig = mig;
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(98);
        _exit(try_partition());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void what_does_not_fit_on_a_card_is_refused(void **state)
{
    assert_int_equal(partition("1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb"), 0);
    assert_int_equal(partition("4g.40gb,3g.40gb"), 0);
    assert_int_equal(partition(";7g.80gb"), 0);
    assert_int_equal(partition("3g.40gb,3g.40gb,1g.10gb"), 1); /* nine memory slices */
    assert_int_equal(partition("4g.40gb,4g.40gb"), 1);
    assert_int_equal(partition("2g.20gb,2g.20gb,2g.20gb,2g.20gb"), 1);
    assert_int_equal(partition("1g.5gb"), 1);           /* another card's */
    assert_int_equal(partition("1g.10gb;;1g.10gb"), 1); /* there are two */
}

static int start_nvml(void **state)
{
    return nvmlInit_v2() == NVML_SUCCESS ? 0 : -1;
}

static int stop_nvml(void **state)
{
    nvmlShutdown();
    simulated_remove();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "try") == 0) {
        int failed = nvmlInit_v2() != NVML_SUCCESS;
        simulated_remove();
        return failed;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_shows_its_mode_and_instances),
        cmocka_unit_test(an_instance_has_a_uuid_a_name_ids_and_attributes),
        cmocka_unit_test(a_process_sees_the_first_instance_and_nothing_else),
        cmocka_unit_test(instances_have_memory_of_their_own),
        cmocka_unit_test(processes_are_listed_by_instance_and_by_card),
        cmocka_unit_test(how_busy_a_partitioned_card_is_nobody_tells),
        cmocka_unit_test(what_does_not_fit_on_a_card_is_refused),
    };
    simulated_choose((char *[]){"FAKECUDA_GPUS=2", "FAKECUDA_DEVICE=h100", "FAKECUDA_CONTEXT_BYTES=0",
                                "FAKECUDA_MIG=1g.10gb,2g.20gb,3g.40gb", NULL});
    return cmocka_run_group_tests(tests, start_nvml, stop_nvml);
}
