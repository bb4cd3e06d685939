/* Tests of NVML as programs that watch cards use it (nvtop, nvitop, nvbandwidth): linked with libnvidia-ml.so. */
#include "simulated.h"

#include <dlfcn.h>
#include <sched.h>
#include <string.h>

#include "simgpu/nvml/nvml.h"

static nvmlDevice_t card, other;

static const char *const every_name[] = {
#define NVML_FUNCTION(symbol) #symbol,
#include "cuda/nvml_functions.def"
#undef NVML_FUNCTION
};

static void every_function_is_there_and_waits_for_init(void **state)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    unsigned waiting = 0;
    assert_non_null(library);
    for (size_t i = 0; i < sizeof(every_name) / sizeof(every_name[0]); i++) {
        void *address = dlsym(library, every_name[i]);
        if (!address)
            fail_msg("%s is not exported", every_name[i]);
        nvmlReturn_t (*call)(void *, void *, void *, void *);
        memcpy(&call, &address, sizeof(call));
        /* Those that set things up, or need nothing of the kind. */
        if (strncmp(every_name[i], "nvmlDeviceSet", 13) == 0)
            waiting += call(NULL, NULL, NULL, NULL) == NVML_ERROR_UNINITIALIZED;
    }
    assert_true(waiting > 20);
}

static void what_no_card_here_has_is_not_supported(void **state)
{
    nvmlReturn_t (*call)(nvmlDevice_t, void *);
    void *address = dlsym(RTLD_DEFAULT, "nvmlDeviceGetBridgeChipInfo");
    memcpy(&call, &address, sizeof(call));
    assert_int_equal(call(card, NULL), NVML_ERROR_NOT_SUPPORTED);
}

static void a_card_is_found_by_its_serial_number(void **state)
{
    char serial[30];
    nvmlDevice_t found = card;
    assert_int_equal(nvmlDeviceGetSerial(other, serial, sizeof(serial)), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetHandleBySerial(serial, &found), NVML_SUCCESS);
    assert_ptr_equal(found, other);
    assert_int_equal(nvmlDeviceGetHandleBySerial("1", &found), NVML_ERROR_NOT_FOUND);
    assert_int_equal(nvmlDeviceGetHandleBySerial(NULL, &found), NVML_ERROR_INVALID_ARGUMENT);
}

static void the_link_is_the_cards(void **state)
{
    unsigned value;
    assert_int_equal(nvmlDeviceGetMaxPcieLinkGeneration(card, &value), NVML_SUCCESS);
    assert_int_equal(value, 3);
    assert_int_equal(nvmlDeviceGetCurrPcieLinkWidth(card, &value), NVML_SUCCESS);
    assert_int_equal(value, 16);
    assert_int_equal(nvmlDeviceGetPcieThroughput(card, 0, &value), NVML_SUCCESS);
    assert_int_equal(value, 0);
    assert_int_equal(nvmlDeviceGetPcieThroughput(card, 2, &value), NVML_ERROR_INVALID_ARGUMENT);
}

/* 64 MiB at 0.1 GB/s are on their way for 0.7 s. */
#define COPIES_MOST 20u
static void throughput_is_that_of_copies(void **state)
{
    CUcontext context;
    CUdeviceptr address;
    void *memory;
    unsigned value = 0;
    assert_cuda(cuInit(0));
    assert_cuda(cuCtxCreate_v2(&context, 0, 0));
    assert_cuda(cuMemAlloc_v2(&address, 64 * MIB));
    assert_cuda(cuMemHostAlloc(&memory, 64 * MIB, 0));
    for (unsigned i = 0; i < COPIES_MOST && value == 0; i++) { /* who is not run meanwhile misses one */
        assert_cuda(cuMemcpyHtoDAsync_v2(address, memory, 64 * MIB, NULL));
        while (cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY && value == 0)
            assert_int_equal(nvmlDeviceGetPcieThroughput(card, 1, &value), NVML_SUCCESS);
    }
    assert_in_range(value, 1, 100000);
    assert_cuda(cuCtxDestroy_v2(context));
}

static void limits_are_the_cards(void **state)
{
    unsigned value, least, most;
    assert_int_equal(nvmlDeviceGetTemperatureThreshold(card, 0, &value), NVML_SUCCESS);
    assert_int_equal(value, 96);
    assert_int_equal(nvmlDeviceGetTemperatureThreshold(card, 4, &value), NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(nvmlDeviceGetTemperatureThreshold(card, 8, &value), NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetPowerManagementLimitConstraints(card, &least, &most), NVML_SUCCESS);
    assert_int_equal(least, 60000);
    assert_int_equal(most, 70000);
    assert_int_equal(nvmlDeviceGetEnforcedPowerLimit(card, &value), NVML_SUCCESS);
    assert_int_equal(value, most);
    nvmlTemperature_v1_t temperature = {.version = NVML_TEMPERATURE_V1};
    assert_int_equal(nvmlDeviceGetTemperatureV(card, &temperature), NVML_SUCCESS);
    assert_in_range(temperature.temperature, 1, 95);
}

static void encoders_are_idle(void **state)
{
    unsigned value = 7, period_us = 0;
    assert_int_equal(nvmlDeviceGetEncoderUtilization(card, &value, &period_us), NVML_SUCCESS);
    assert_int_equal(value, 0);
    assert_true(period_us > 0);
    assert_int_equal(nvmlDeviceGetDecoderUtilization(card, &value, NULL), NVML_ERROR_INVALID_ARGUMENT);
}

static void a_card_is_near_all_cpus(void **state)
{
    unsigned long cpus[16];
    assert_int_equal(nvmlDeviceGetCpuAffinity(card, 16, cpus), NVML_SUCCESS);
    assert_int_equal(cpus[0] & 1, 1);
    assert_int_equal(nvmlDeviceSetCpuAffinity(card), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceClearCpuAffinity(card), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetCpuAffinity(card, 0, cpus), NVML_ERROR_INVALID_ARGUMENT);
}

static void cards_reach_each_other(void **state)
{
    unsigned level, status, count = 4;
    nvmlDevice_t near[4];
    assert_int_equal(nvmlDeviceGetTopologyCommonAncestor(card, other, &level), NVML_SUCCESS);
    assert_int_equal(level, 30);
    assert_int_equal(nvmlDeviceGetTopologyNearestGpus(card, level, &count, near), NVML_SUCCESS);
    assert_int_equal(count, 1);
    assert_ptr_equal(near[0], other);
    assert_int_equal(nvmlDeviceGetP2PStatus(card, other, 0, &status), NVML_SUCCESS);
    assert_int_equal(status, 0);
    assert_int_equal(nvmlUnitGetCount(&count), NVML_SUCCESS);
    assert_int_equal(count, 0);
}

static void values_say_for_themselves_whether_there_are_any(void **state)
{
    nvmlFieldValue_t values[2] = {{.fieldId = 83}, {.fieldId = 138}};
    unsigned long long millijoules;
    assert_int_equal(nvmlDeviceGetFieldValues(card, 2, values), NVML_SUCCESS);
    assert_int_equal(values[0].nvmlReturn, NVML_SUCCESS);
    assert_int_equal(values[1].nvmlReturn, NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(nvmlDeviceGetTotalEnergyConsumption(card, &millijoules), NVML_SUCCESS);
    assert_true(millijoules >= values[0].value.ullVal);
}

/* The fault of the program's own third kernel (FAKECUDA_FAULT). */
static void an_xid_is_an_event(void **state)
{
    nvmlEventSet_t set;
    nvmlEventData_t data;
    unsigned long long types;
    CUcontext context;
    CUdeviceptr address;
    assert_int_equal(nvmlDeviceGetSupportedEventTypes(card, &types), NVML_SUCCESS);
    assert_int_equal(types, 8);
    assert_int_equal(nvmlEventSetCreate(&set), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceRegisterEvents(card, types, set), NVML_SUCCESS);
    assert_int_equal(nvmlEventSetWait_v2(set, &data, 1), NVML_ERROR_TIMEOUT);
    assert_cuda(cuInit(0));
    assert_cuda(cuCtxCreate_v2(&context, 0, 0));
    assert_cuda(cuMemAlloc_v2(&address, MIB));
    for (unsigned i = 0; i < 3; i++)
        cuMemsetD8_v2(address, 0, MIB);
    assert_int_equal(nvmlEventSetWait_v2(set, &data, 10000), NVML_SUCCESS);
    assert_ptr_equal(data.device, card);
    assert_int_equal(data.eventType, 8);
    assert_int_equal(data.eventData, 13);
    assert_int_equal(nvmlEventSetWait_v2(set, &data, 1), NVML_ERROR_TIMEOUT);
    assert_int_equal(nvmlEventSetFree(set), NVML_SUCCESS);
}

static int initialise(void **state)
{
    return nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &card) ||
           nvmlDeviceGetHandleByIndex_v2(1, &other);
}

static int shut_down(void **state)
{
    return nvmlShutdown() != NVML_SUCCESS;
}

#define CARD_TEST(name) cmocka_unit_test_setup_teardown(name, initialise, shut_down)

int main(void)
{
    simulated_choose((char *[]){"FAKECUDA_DEVICE=t4", "FAKECUDA_CONSTANTS=default", "FAKECUDA_GPUS=2",
                                "FAKECUDA_LINK_GBPS=0.1", "FAKECUDA_FAULT=xid@3", NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_is_there_and_waits_for_init),
        CARD_TEST(what_no_card_here_has_is_not_supported),
        CARD_TEST(a_card_is_found_by_its_serial_number),
        CARD_TEST(the_link_is_the_cards),
        CARD_TEST(throughput_is_that_of_copies),
        CARD_TEST(limits_are_the_cards),
        CARD_TEST(encoders_are_idle),
        CARD_TEST(a_card_is_near_all_cpus),
        CARD_TEST(cards_reach_each_other),
        CARD_TEST(values_say_for_themselves_whether_there_are_any),
        CARD_TEST(an_xid_is_an_event),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    simulated_remove();
    return failed;
}
