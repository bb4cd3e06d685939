/* init.c - cuInit, and which of the GPUs this process sees. */
#include <ctype.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/uuid.h"
#include "simgpu/device/checkpoints.h"
#include "simgpu/device/constants.h"
#include "simgpu/device/faults.h"
#include "simgpu/driver/sim.h"
#include "simgpu/memory/heap.h"
#include "simgpu/time/execution.h"

struct simulator simulator;
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool is_forked_child;

/* A child of an initialised process cannot use the driver: cuInit too answers NOT_INITIALIZED there. */
static void mark_child(void)
{
    if (atomic_load(&simulator.initialised))
        atomic_store(&is_forked_child, true);
    atomic_store(&simulator.initialised, false);
    pthread_mutex_init(&init_lock, NULL);
}

/* What a program gets that names the card: of a partitioned card its first instance. */
static unsigned usable(unsigned card)
{
    const struct device_shape *shape = device_shape(card);
    return shape->instance_count ? shape->first_instance : card;
}

/* One element of CUDA_VISIBLE_DEVICES: an index, or the beginning of one UUID: "GPU-...", or "MIG-..." of an
 * instance. DEVICE_GPUS when it names none. */
static unsigned visible_parse(const char *text, size_t length, struct device_parameters parameters)
{
    char item[64];
    while (length > 0 && isspace((unsigned char)*text)) {
        text++;
        length--;
    }
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    if (length == 0 || length >= sizeof(item))
        return DEVICE_GPUS;
    memcpy(item, text, length);
    item[length] = '\0';

    if (isdigit((unsigned char)item[0])) {
        char *end;
        unsigned long index = strtoul(item, &end, 10);
        return *end == '\0' && index < parameters.card_count ? usable((unsigned)index) : DEVICE_GPUS;
    }
    if (strncasecmp(item, "GPU-", 4) != 0 && strncasecmp(item, "MIG-", 4) != 0)
        return DEVICE_GPUS;
    unsigned found = DEVICE_GPUS;
    for (unsigned gpu = 0; gpu < parameters.gpu_count; gpu++) {
        uint8_t uuid[GPU_UUID_BYTES];
        char uuid_text[GPU_UUID_TEXT];
        device_uuid(gpu, uuid);
        gpu_uuid_format(uuid, uuid_text);
        if (device_is_instance(gpu))
            gpu_uuid_set_mig(uuid_text);
        if (strncasecmp(uuid_text, item, length) != 0)
            continue;
        if (found != DEVICE_GPUS)
            return DEVICE_GPUS; /* names more than one */
        found = gpu;
    }
    return found < parameters.card_count ? usable(found) : found;
}

/* The list ends at the first element that names no GPU, or a GPU that the list already has (CUDA programming
 * guide). */
static unsigned visible_list(unsigned visible[DEVICE_GPUS], struct device_parameters parameters)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    unsigned count = 0;
    if (!list) {
        for (; count < parameters.card_count; count++)
            visible[count] = usable(count);
        return count;
    }
    for (;;) {
        size_t length = strcspn(list, ",");
        unsigned gpu = visible_parse(list, length, parameters);
        if (gpu == DEVICE_GPUS)
            return count;
        for (unsigned i = 0; i < count; i++)
            if (visible[i] == gpu)
                return count;
        visible[count++] = gpu;
        if (list[length] == '\0')
            return count;
        list += length + 1;
    }
}

/* A process sees one MIG instance, the first there is, and beside it no GPU that is not partitioned (MIG user
 * guide, "CUDA Device Enumeration"). */
static unsigned visible_read(unsigned visible[DEVICE_GPUS], struct device_parameters parameters)
{
    unsigned count = visible_list(visible, parameters);
    for (unsigned i = 0; i < count; i++)
        if (device_is_instance(visible[i])) {
            visible[0] = visible[i];
            return 1;
        }
    return count;
}

/* Set by the driver's own exit handler: what handles point to is gone then. */
static atomic_bool has_exited;

static void exit_handler(void)
{
    if (!atomic_load(&is_forked_child))
        atomic_store(&has_exited, true);
}

void sim_touch_handle(void)
{
    if (atomic_load_explicit(&has_exited, memory_order_relaxed))
        raise(SIGSEGV);
}

static CUresult initialise(void)
{
    static bool prepared;
    if (!prepared) {
        pthread_atfork(NULL, NULL, mark_child);
        prepared = true;
    }
    struct error error = {0};
    if (faults_init(&error) < 0 || device_attach(&error) < 0) {
        fprintf(stderr, "simulated GPU: %s\n", error.message);
        return CUDA_ERROR_NO_DEVICE;
    }
    struct device_parameters parameters = device_parameters();
    simulator.device_count = visible_read(simulator.visible, parameters);
    if (simulator.device_count == 0)
        return CUDA_ERROR_NO_DEVICE;
    uint64_t total_bytes = 0;
    for (unsigned gpu = 0; gpu < parameters.gpu_count; gpu++)
        total_bytes += device_shape(gpu)->total_bytes;
    if (!heap_init(total_bytes)) {
        fprintf(stderr, "simulated GPU: cannot reserve addresses for its memory; raise `ulimit -v`\n");
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (constant(SIM_EXIT_HANDLER) != 0)
        atexit(exit_handler);
    return execution_init() ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

/* A tool that looks at the program is loaded by the driver itself (CUPTI documentation, injection). One that cannot be loaded, or
 * says that it does not want to, changes nothing for the program. */
static void load_tool(void)
{
    static atomic_flag is_loaded = ATOMIC_FLAG_INIT;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (!path || path[0] == '\0' || atomic_flag_test_and_set(&is_loaded))
        return;
    void *tool = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*begin)(void) = tool ? (int (*)(void))dlsym(tool, "InitializeInjection") : NULL;
    if (begin)
        begin();
}

CUresult cuInit(unsigned int flags)
{
    SIM_REQUIRE(flags == 0);
    if (atomic_load_explicit(&simulator.initialised, memory_order_acquire))
        return CUDA_SUCCESS;
    if (atomic_load(&is_forked_child))
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&init_lock);
    CUresult result = CUDA_SUCCESS;
    if (!atomic_load(&simulator.initialised)) {
        result = initialise();
        if (result == CUDA_SUCCESS)
            atomic_store_explicit(&simulator.initialised, true, memory_order_release); /* with sim_ready */
    }
    pthread_mutex_unlock(&init_lock);
    if (result == CUDA_SUCCESS)
        load_tool(); /* without the lock: the tool calls the driver */
    return result;
}

CUresult sim_ready(void)
{
    if (atomic_load_explicit(&has_exited, memory_order_relaxed))
        return CUDA_ERROR_DEINITIALIZED;
    if (!atomic_load_explicit(&simulator.initialised, memory_order_acquire))
        return CUDA_ERROR_NOT_INITIALIZED;
    checkpoint_wait();
    cost_wait_for_registering();
    return CUDA_SUCCESS;
}

CUresult device_check(CUdevice device)
{
    return device >= 0 && (unsigned)device < simulator.device_count ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_INVALID_DEVICE;
}
