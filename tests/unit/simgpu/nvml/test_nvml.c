/* Tests of NVML over the shared simulated device; other processes are real children. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/uuid.h"
#include "simgpu/device/device.h"
#include "simgpu/nvml/nvml.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

static nvmlDevice_t device_of(unsigned index)
{
    nvmlDevice_t device;
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(index, &device), NVML_SUCCESS);
    return device;
}

static int initialise(void **state)
{
    return nvmlInit_v2() == NVML_SUCCESS ? 0 : -1;
}

static int shut_down(void **state)
{
    return nvmlShutdown() == NVML_SUCCESS ? 0 : -1;
}

static void everything_waits_for_init_and_inits_are_counted(void **state)
{
    unsigned count;
    char text[100];
    nvmlDevice_t device;
    assert_int_equal(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
    assert_int_equal(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_ERROR_UNINITIALIZED);
    assert_int_equal(nvmlSystemGetDriverVersion(text, sizeof(text)), NVML_ERROR_UNINITIALIZED);
    assert_int_equal(nvmlSystemGetNVMLVersion(text, sizeof(text)), NVML_SUCCESS);

    assert_int_equal(nvmlInitWithFlags(0x80), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlInit_v2(), NVML_SUCCESS);
    assert_int_equal(nvmlInitWithFlags(1), NVML_SUCCESS);
    device = device_of(0);
    assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetIndex(device, &count), NVML_SUCCESS);
    assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetIndex(device, &count), NVML_ERROR_UNINITIALIZED);
    assert_int_equal(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
}

static void devices_are_found_by_index_uuid_and_bus(void **state)
{
    unsigned count, index;
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE], name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    nvmlDevice_t device;
    nvmlPciInfo_t pci;
    assert_int_equal(nvmlDeviceGetCount(&count), NVML_SUCCESS);
    assert_int_equal(count, 2);
    for (unsigned i = 0; i < 2; i++) {
        uint8_t bytes[16];
        char text[GPU_UUID_TEXT];
        device_uuid(i, bytes);
        assert_int_equal(nvmlDeviceGetUUID(device_of(i), uuid, sizeof(uuid)), NVML_SUCCESS);
        assert_string_equal(uuid, gpu_uuid_format(bytes, text));
        assert_int_equal(nvmlDeviceGetHandleByUUID(uuid, &device), NVML_SUCCESS);
        assert_ptr_equal(device, device_of(i));
        assert_int_equal(nvmlDeviceGetPciInfo_v3(device, &pci), NVML_SUCCESS);
        assert_int_equal(pci.bus, i + 1);
        assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2(pci.busId, &device), NVML_SUCCESS);
        assert_ptr_equal(device, device_of(i));
        assert_int_equal(nvmlDeviceGetHandleByPciBusId(pci.busIdLegacy, &device), NVML_SUCCESS);
        assert_int_equal(nvmlDeviceGetIndex(device, &index), NVML_SUCCESS);
        assert_int_equal(index, i);
    }
    assert_int_equal(nvmlDeviceGetName(device_of(0), name, sizeof(name)), NVML_SUCCESS);
    assert_string_equal(name, DEVICE_NAME);
}

static void an_older_pci_structure_is_not_overrun(void **state)
{
    unsigned char old[64];
    nvmlPciInfo_t pci;
    memset(old, 0xee, sizeof(old));
    assert_int_equal(nvmlDeviceGetPciInfo_v3(device_of(1), &pci), NVML_SUCCESS);
    assert_string_equal(pci.busId, "00000000:02:00.0");
    assert_int_equal(nvmlDeviceGetPciInfo(device_of(1), old), NVML_SUCCESS);
    assert_memory_equal(old, &pci, 32);
    assert_int_equal(old[32], 0xee);
    assert_int_equal(nvmlDeviceGetPciInfo_v2(device_of(1), old), NVML_SUCCESS);
    assert_memory_equal(old, &pci, 36);
    assert_int_equal(old[36], 0xee);
}

static void wrong_arguments_are_told_apart(void **state)
{
    unsigned count = 0;
    char text[8];
    nvmlDevice_t device, stranger = (nvmlDevice_t)(void *)&count;
    nvmlMemory_t memory;
    nvmlMemory_v2_t memory_v2 = {.version = 1};
    assert_int_equal(nvmlDeviceGetCount_v2(NULL), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(2, &device), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, NULL), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetHandleByUUID(NULL, &device), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetHandleByUUID("GPU-11111111-2222-3333-4444-555555555555", &device),
                     NVML_ERROR_NOT_FOUND);
    assert_int_equal(nvmlDeviceGetHandleByUUID("nonsense", &device), NVML_ERROR_NOT_FOUND);
    assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2("0000:7f:00.0", &device), NVML_ERROR_NOT_FOUND);
    assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2("0000:01:00.0x", &device), NVML_ERROR_NOT_FOUND);
    assert_int_equal(nvmlDeviceGetMemoryInfo(stranger, &memory), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetMemoryInfo(NULL, &memory), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetMemoryInfo(device_of(0), NULL), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(device_of(0), &memory_v2),
                     NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    assert_int_equal(nvmlDeviceGetUUID(device_of(0), text, sizeof(text)), NVML_ERROR_INSUFFICIENT_SIZE);
    assert_int_equal(nvmlDeviceGetName(device_of(0), NULL, 10), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetMigMode(device_of(0), &count, NULL), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetAccountingPids(device_of(0), &count, NULL), NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(nvmlSystemGetProcessName(1u << 30, text, sizeof(text)), NVML_ERROR_NOT_FOUND);
    assert_string_equal(nvmlErrorString(NVML_ERROR_NOT_FOUND), "Not Found");
    assert_string_equal(nvmlErrorString((nvmlReturn_t)12345), "Unknown Error");
}

static void memory_is_the_shared_devices(void **state)
{
    nvmlMemory_t memory;
    nvmlMemory_v2_t memory_v2 = {.version = NVML_MEMORY_V2};
    assert_true(device_charge(1, 100 * MIB));
    assert_int_equal(nvmlDeviceGetMemoryInfo(device_of(1), &memory), NVML_SUCCESS);
    assert_true(memory.total == GIB && memory.used == 100 * MIB && memory.free == GIB - 100 * MIB);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(device_of(1), &memory_v2), NVML_SUCCESS);
    assert_true(memory_v2.used == 100 * MIB && memory_v2.reserved == 0 && memory_v2.total == GIB);
    assert_int_equal(nvmlDeviceGetMemoryInfo(device_of(0), &memory), NVML_SUCCESS);
    assert_true(memory.used == 0);
    device_credit(1, 100 * MIB);
    assert_int_equal(nvmlDeviceGetMemoryInfo(device_of(1), &memory), NVML_SUCCESS);
    assert_true(memory.used == 0);
}

/* A process that did `begins`, and stays until it is killed. */
static pid_t start(bool (*begins)(uint64_t argument), uint64_t argument)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        if (!begins(argument) || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

/* Holds so much of GPU 0. */
static bool charge(uint64_t bytes)
{
    return device_attach(NULL) >= 0 && device_charge(0, bytes);
}

static void processes_are_listed_while_they_live(void **state)
{
    nvmlProcessInfo_v2_t infos[4];
    nvmlProcessInfo_v1_t old[4];
    nvmlMemory_t memory;
    unsigned count = 0;
    nvmlDevice_t device = device_of(0);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL), NVML_SUCCESS);
    assert_int_equal(count, 0);

    pid_t child = start(charge, 300 * MIB);
    assert_true(device_charge(0, 5 * MIB));
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL),
                     NVML_ERROR_INSUFFICIENT_SIZE);
    assert_int_equal(count, 2);
    count = 1;
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v2(device, &count, infos),
                     NVML_ERROR_INSUFFICIENT_SIZE);
    assert_int_equal(count, 2);
    count = 4;
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos), NVML_SUCCESS);
    assert_int_equal(count, 2);
    unsigned own = infos[0].pid == (unsigned)getpid() ? 0 : 1;
    assert_int_equal(infos[own].pid, getpid());
    assert_true(infos[own].usedGpuMemory == 5 * MIB);
    assert_int_equal(infos[!own].pid, child);
    assert_true(infos[!own].usedGpuMemory == 300 * MIB);
    assert_int_equal(infos[0].gpuInstanceId, NVML_VALUE_NOT_AVAILABLE_U32);
    count = 4;
    assert_int_equal(nvmlDeviceGetGraphicsRunningProcesses_v3(device, &count, infos), NVML_SUCCESS);
    assert_int_equal(count, 0);

    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(nvmlDeviceGetMemoryInfo(device, &memory), NVML_SUCCESS);
    assert_true(memory.used == 5 * MIB);
    count = 4;
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses(device, &count, old), NVML_SUCCESS);
    assert_int_equal(count, 1);
    assert_int_equal(old[0].pid, getpid());
    assert_true(old[0].usedGpuMemory == 5 * MIB);
    device_credit(0, 5 * MIB);
    count = 1;
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL),
                     NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, NULL, infos),
                     NVML_ERROR_INVALID_ARGUMENT);
}

/* Takes every free place among those that use the GPU; its name stands at none yet. */
static bool lock_slots(uint64_t count)
{
    char path[256];
    snprintf(path, sizeof(path), "/dev/shm/fakecuda-%u-%s", (unsigned)geteuid(), getenv("FAKECUDA_NAME"));
    int fd = open(path, O_RDWR);
    for (off_t place = 1; fd >= 0 && place <= (off_t)count; place++)
        fcntl(fd, F_SETLK,
              &(struct flock){
                  .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = place, .l_len = 1}); /* or it is held */
    return fd >= 0;
}

static void what_the_dead_had_is_not_shown_where_another_takes_their_place(void **state)
{
    nvmlProcessInfo_v2_t infos[4];
    unsigned count = 4;
    pid_t child = start(charge, 300 * MIB);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    pid_t newcomer = start(lock_slots, 16);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device_of(0), &count, infos), NVML_SUCCESS);
    assert_int_equal(count, 0);
    kill(newcomer, SIGKILL);
    assert_int_equal(waitpid(newcomer, NULL, 0), newcomer);
}

/* How many bytes of an array of one entry a form of the list writes; 0 where this driver has no such form. */
static size_t entry_bytes(nvmlReturn_t (*list)(nvmlDevice_t, unsigned *, nvmlProcessInfo_v2_t *),
                          const char *driver)
{
    uint8_t room[64];
    unsigned count = 1;
    setenv("FAKECUDA_DRIVER_VERSION", driver, 1);
    memset(room, 0xa5, sizeof(room));
    nvmlReturn_t result = list(device_of(0), &count, (nvmlProcessInfo_v2_t *)(void *)room);
    unsetenv("FAKECUDA_DRIVER_VERSION");
    if (result == NVML_ERROR_FUNCTION_NOT_FOUND)
        return 0;
    assert_int_equal(result, NVML_SUCCESS);
    size_t written = sizeof(room);
    while (written > 0 && room[written - 1] == 0xa5)
        written--;
    return written;
}

/* What versions of the driver did; see nvml_processes.c for where that was seen. */
static void entries_of_the_lists_are_as_long_as_the_driver_s_version_has_them(void **state)
{
    static const struct {
        const char *driver;
        size_t v2, v3;
    } rows[] = {
        {"440.33.01", 0, 0},   {"470.57.02", 24, 0},  {"510.39.01", 24, 24}, {"530.41.03", 24, 24},
        {"535.43.02", 24, 32}, {"535.86.05", 24, 32}, {"535.98", 24, 0},     {"535.104.05", 24, 24},
        {"550.54.14", 24, 24}, {"580.65.06", 24, 24},
    };
    assert_true(device_charge(0, 5 * MIB));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(entry_bytes(nvmlDeviceGetComputeRunningProcesses_v2, rows[i].driver), rows[i].v2);
        assert_int_equal(entry_bytes(nvmlDeviceGetComputeRunningProcesses_v3, rows[i].driver), rows[i].v3);
    }
    device_credit(0, 5 * MIB);
}

static void a_process_has_its_programs_name(void **state)
{
    char name[200];
    assert_int_equal(nvmlSystemGetProcessName((unsigned)getpid(), name, sizeof(name)), NVML_SUCCESS);
    assert_non_null(strstr(name, "test_simgpu_nvml"));
    assert_int_equal(nvmlSystemGetProcessName((unsigned)getpid(), name, 3), NVML_SUCCESS);
    assert_int_equal(strlen(name), 2);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_waits_for_init_and_inits_are_counted),
        cmocka_unit_test_setup_teardown(devices_are_found_by_index_uuid_and_bus, initialise, shut_down),
        cmocka_unit_test_setup_teardown(an_older_pci_structure_is_not_overrun, initialise, shut_down),
        cmocka_unit_test_setup_teardown(wrong_arguments_are_told_apart, initialise, shut_down),
        cmocka_unit_test_setup_teardown(memory_is_the_shared_devices, initialise, shut_down),
        cmocka_unit_test_setup_teardown(processes_are_listed_while_they_live, initialise, shut_down),
        cmocka_unit_test_setup_teardown(what_the_dead_had_is_not_shown_where_another_takes_their_place,
                                        initialise, shut_down),
        cmocka_unit_test_setup_teardown(entries_of_the_lists_are_as_long_as_the_driver_s_version_has_them,
                                        initialise, shut_down),
        cmocka_unit_test_setup_teardown(a_process_has_its_programs_name, initialise, shut_down),
    };
    char name[64];
    snprintf(name, sizeof(name), "test-nvml-%d", (int)getpid());
    setenv("FAKECUDA_NAME", name, 1);
    setenv("FAKECUDA_GPUS", "2", 1);
    setenv("FAKECUDA_TOTAL_MEM", "1073741824", 1);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1); /* means nothing to NVML */
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(name, sizeof(name), "/dev/shm/fakecuda-%u-test-nvml-%d", (unsigned)getuid(), (int)getpid());
    if (unlink(name) != 0)
        perror(name);
    return failed;
}
