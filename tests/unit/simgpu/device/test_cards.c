/* Tests of the cards that there are: each in a process of its own, on a machine with one of them. */
#include "children.h"

#include "cuda/nvml.h"
#include "simgpu/nvml/nvml.h"

static const struct card {
    const char *key, *name;
    int major, minor, multiprocessors, blocks; /* blocks: resident ones of a multiprocessor */
    uint64_t total_mib, nvml_mib;              /* CUDA's and NVML's total */
} cards[] = {
    {"default", "GPU Slice Simulated GPU", 9, 0, 114, 32, 16384, 16384},
    {"h100", "NVIDIA H100 80GB HBM3", 9, 0, 132, 32, 81008, 81559},
    {"t4", "Tesla T4", 7, 5, 40, 16, 15109, 15360},
    {"a10", "NVIDIA A10", 8, 6, 72, 16, 22589, 23028},
    {"l4", "NVIDIA L4", 8, 9, 58, 24, 22559, 23034},
    {"b200", "NVIDIA B200", 10, 0, 148, 32, 182630, 183359},
    {"rtx5090", "NVIDIA GeForce RTX 5090", 12, 0, 170, 24, 32120, 32607},
};
#define CARDS (sizeof(cards) / sizeof(cards[0]))

static const struct card *chosen;

static void choose(const struct card *card)
{
    char name[64];
    chosen = card;
    snprintf(name, sizeof(name), "test-%d-%s", (int)getpid(), card->key);
    setenv("FAKECUDA_NAME", name, 1);
    setenv("FAKECUDA_DEVICE", card->key, 1);
}

static int value_of(CUdevice_attribute attribute)
{
    int value = -1;
    return cuDeviceGetAttribute(&value, attribute, 0) == CUDA_SUCCESS ? value : -1;
}

static void exit_unless(bool well, const char *what)
{
    if (well)
        return;
    fprintf(stderr, "%s: another %s\n", chosen->key, what);
    _exit(1);
}

static void see(int line)
{
    char name[96];
    size_t bytes = 0;
    nvmlDevice_t device;
    nvmlMemory_t memory;
    exit_unless(use_gpu() && cuDeviceGetName(name, sizeof(name), 0) == CUDA_SUCCESS &&
                    strcmp(name, chosen->name) == 0,
                "name");
    exit_unless(value_of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == chosen->major &&
                    value_of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) == chosen->minor,
                "compute capability");
    exit_unless(value_of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == chosen->multiprocessors &&
                    value_of(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR) == chosen->blocks,
                "number of multiprocessors or blocks");
    exit_unless(cuDeviceTotalMem_v2(&bytes, 0) == CUDA_SUCCESS && bytes / MIB == chosen->total_mib, "size");
    exit_unless(nvmlInit_v2() == NVML_SUCCESS && nvmlDeviceGetHandleByIndex_v2(0, &device) == NVML_SUCCESS &&
                    nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS &&
                    memory.total / MIB == chosen->nvml_mib,
                "size in NVML");
}

static void each_card_is_the_one_that_was_chosen(void **state)
{
    for (size_t i = 0; i < CARDS; i++) {
        choose(&cards[i]);
        run(see);
        simulated_remove();
    }
}

/* Code of each architecture, by the target of its PTX; the rule for cubins is that of image.h. */
static void load(int line)
{
    for (size_t i = 0; i < CARDS; i++) {
        char image[120];
        CUmodule module;
        int target = 10 * cards[i].major + cards[i].minor, own = 10 * chosen->major + chosen->minor;
        snprintf(image, sizeof(image), ".version 8.7\n.target sm_%d\n.visible .entry k(){ret;}\n", target);
        CUresult expected = target <= own ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
        exit_unless(use_gpu() && cuModuleLoadData(&module, image) == expected, "answer to PTX");
    }
}

static void each_card_takes_ptx_for_itself_and_older_ones(void **state)
{
    for (size_t i = 0; i < CARDS; i++) {
        choose(&cards[i]);
        run(load);
        simulated_remove();
    }
}

static void refuse(int line)
{
    exit_unless(cuInit(0) == CUDA_ERROR_NO_DEVICE, "answer to cuInit");
}

static void a_driver_of_before_a_card_does_not_find_it(void **state)
{
    setenv("FAKECUDA_CUDA_VERSION", "12.7", 1);
    for (size_t i = 0; i < CARDS; i++) {
        choose(&cards[i]);
        run(cards[i].major >= 10 ? refuse : see);
        simulated_remove();
    }
    setenv("FAKECUDA_CUDA_VERSION", "12.x", 1);
    run(refuse);
    simulated_remove();
    unsetenv("FAKECUDA_CUDA_VERSION");
}

int main(void)
{
    simulated_choose((char *[]){NULL});
    unsetenv("FAKECUDA_TOTAL_MEM");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_card_is_the_one_that_was_chosen),
        cmocka_unit_test(each_card_takes_ptx_for_itself_and_older_ones),
        cmocka_unit_test(a_driver_of_before_a_card_does_not_find_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
