/* nvml.c - NVML over the simulated GPUs. */
#include "simgpu/nvml/nvml.h"
#include "simgpu/nvml/nvml_find.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cuda/uuid.h"
#include "simgpu/device/costs.h"
#include "simgpu/device/cuda_release.h"
#include "simgpu/device/device.h"
#include "simgpu/device/profile.h"

#define INIT_FLAGS_KNOWN 3u /* NO_GPUS, NO_ATTACH */

/* A handle is the address of its element, so that it holds over shutdown and is told from others. */
struct nvmlDevice_st {
    char unused;
};
static struct nvmlDevice_st devices[DEVICE_GPUS];

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned init_count; /* under init_lock */

/* --- Library --------------------------------------------------------------------------------------- */

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    struct error error = {0};
    if (flags & ~INIT_FLAGS_KNOWN)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (device_attach(&error) < 0) {
        fprintf(stderr, "simulated GPU: %s\n", error.message);
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    pthread_mutex_lock(&init_lock);
    init_count++;
    pthread_mutex_unlock(&init_lock);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;
    pthread_mutex_lock(&init_lock);
    if (init_count) {
        init_count--;
        result = NVML_SUCCESS;
    }
    pthread_mutex_unlock(&init_lock);
    return result;
}

/* NVML_SUCCESS between init and shutdown; a forked child attaches to the device here. */
nvmlReturn_t nvml_ready(void)
{
    pthread_mutex_lock(&init_lock);
    bool is_ready = init_count;
    pthread_mutex_unlock(&init_lock);
    if (!is_ready)
        return NVML_ERROR_UNINITIALIZED;
    return device_attach(NULL) < 0 ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

#define TRY_READY()                                                                                          \
    do {                                                                                                     \
        nvmlReturn_t ready_ = nvml_ready();                                                                  \
        if (ready_ != NVML_SUCCESS)                                                                          \
            return ready_;                                                                                   \
    } while (0)

const char *nvmlErrorString(nvmlReturn_t result)
{
    static const struct {
        nvmlReturn_t result;
        const char *text;
    } rows[] = {
        {NVML_SUCCESS, "Success"},
        {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
        {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
        {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
        {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
        {NVML_ERROR_ALREADY_INITIALIZED, "Already Initialized"},
        {NVML_ERROR_NOT_FOUND, "Not Found"},
        {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
        {NVML_ERROR_INSUFFICIENT_POWER, "Insufficient External Power"},
        {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
        {NVML_ERROR_TIMEOUT, "Timeout"},
        {NVML_ERROR_IRQ_ISSUE, "Interrupt Request Issue"},
        {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
        {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
        {NVML_ERROR_CORRUPTED_INFOROM, "Corrupted infoROM"},
        {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
        {NVML_ERROR_RESET_REQUIRED, "GPU requires reset"},
        {NVML_ERROR_OPERATING_SYSTEM, "Operating System Call Failed"},
        {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].result == result)
            return rows[i].text;
    return "Unknown Error";
}

/* --- System ---------------------------------------------------------------------------------------- */

/* Answer with a text that has to fit whole. */
unsigned long long nvml_wall_clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

nvmlReturn_t nvml_answer_text(const char *text, char *buffer, unsigned int length)
{
    if (!buffer)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (length < strlen(text) + 1)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return NVML_SUCCESS;
}

const char *nvml_driver_version(char text[static NVML_VERSION_TEXT])
{
    const char *given = secure_getenv("FAKECUDA_DRIVER_VERSION");
    if (given && *given)
        return given;
    snprintf(text, NVML_VERSION_TEXT, "%u.0-simulated", cuda_release()->branch);
    return text;
}

bool nvml_driver_is_before(unsigned major, unsigned minor)
{
    char text[NVML_VERSION_TEXT];
    unsigned own_major = UINT_MAX, own_minor = 0;
    sscanf(nvml_driver_version(text), "%u.%u", &own_major, &own_minor);
    return own_major < major || (own_major == major && own_minor < minor);
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    char text[NVML_VERSION_TEXT];
    TRY_READY();
    return nvml_answer_text(nvml_driver_version(text), version, length);
}

/* The versions of the library and of CUDA can be asked for without nvmlInit. */
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    char text[NVML_VERSION_TEXT];
    const struct cuda_release *release = cuda_release();
    snprintf(text, sizeof(text), "%d.%u.0-simulated", release->number / 1000, release->branch);
    return nvml_answer_text(text, version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = cuda_release()->number;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    char path[40];
    TRY_READY();
    if (!name || !length)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    cleanup_close int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno == EACCES || errno == EPERM ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_NOT_FOUND;
    /* Its first word is the program; a longer one is cut, as NVML does. */
    ssize_t got = read(file, name, length - 1);
    if (got < 0)
        return errno == ESRCH ? NVML_ERROR_NOT_FOUND : NVML_ERROR_UNKNOWN;
    name[got] = '\0';
    return NVML_SUCCESS;
}

/* --- Devices --------------------------------------------------------------------------------------- */

/* For good, whatever becomes of others: as where the kernel's lock of the GPU was never given back. */
static void hang_when_due(void)
{
    static atomic_ullong asked;
    uint64_t most = constant_whole(SIM_NVML_HANGS);
    while (most && atomic_fetch_add(&asked, 1) >= most)
        pause();
}

nvmlReturn_t nvml_find(nvmlDevice_t device, unsigned *gpu)
{
    TRY_READY();
    for (unsigned i = 0; i < device_parameters().gpu_count; i++)
        if (device == &devices[i]) {
            *gpu = i;
            device_wait_while_hung();
            hang_when_due();
            cost_hold_kernel_lock(constant_whole(SIM_NVML_NS));
            return device_is_lost(i) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
        }
    return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvml_find_card(nvmlDevice_t device, unsigned *gpu)
{
    TRY_FIND(device, gpu);
    return device_is_instance(*gpu) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlDevice_t nvml_handle(unsigned gpu)
{
    return &devices[gpu];
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    TRY_READY();
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = device_parameters().card_count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    TRY_READY();
    if (!device || index >= device_parameters().card_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    uint8_t wanted[GPU_UUID_BYTES], have[GPU_UUID_BYTES];
    TRY_READY();
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    bool is_mig = strncmp(uuid, "MIG-", 4) == 0;
    if ((!is_mig && strncmp(uuid, "GPU-", 4) != 0) || !gpu_uuid_parse(uuid, wanted))
        return NVML_ERROR_NOT_FOUND;
    for (unsigned gpu = 0; gpu < device_parameters().gpu_count; gpu++) {
        device_uuid(gpu, have);
        if (device_is_instance(gpu) == is_mig && memcmp(have, wanted, sizeof(have)) == 0) {
            *device = &devices[gpu];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

/* "0000:01:00.0", with a domain of four or eight digits, or none. */
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    unsigned domain = 0, bus = 0, slot = 0;
    int used = 0;
    TRY_READY();
    if (!bus_id || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    bool is_whole =
        sscanf(bus_id, "%8x:%2x:%2x.0%n", &domain, &bus, &slot, &used) == 3 && used && !bus_id[used];
    if (!is_whole) {
        domain = 0;
        used = 0;
        is_whole = sscanf(bus_id, "%2x:%2x.0%n", &bus, &slot, &used) == 2 && used && !bus_id[used];
    }
    for (unsigned gpu = 0; is_whole && gpu < device_parameters().card_count; gpu++)
        if (domain == 0 && slot == 0 && bus == device_pci_bus(gpu)) {
            *device = &devices[gpu];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

/* A MIG instance's index is that on its card, for nvmlDeviceGetMigDeviceHandleByIndex. */
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    unsigned gpu;
    TRY_FIND(device, &gpu);
    if (!index)
        return NVML_ERROR_INVALID_ARGUMENT;
    *index = device_is_instance(gpu) ? device_shape(gpu)->instance : gpu;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    return nvmlDeviceGetIndex(device, minor);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    unsigned gpu;
    TRY_FIND(device, &gpu);
    char text[PROFILE_NAME_BYTES];
    return nvml_answer_text(profile_gpu_name(gpu, text), name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    unsigned gpu;
    uint8_t bytes[GPU_UUID_BYTES];
    char text[GPU_UUID_TEXT];
    TRY_FIND(device, &gpu);
    device_uuid(gpu, bytes);
    gpu_uuid_format(bytes, text);
    return nvml_answer_text(device_is_instance(gpu) ? gpu_uuid_set_mig(text) : text, uuid, length);
}

static void pci_info(unsigned gpu, nvmlPciInfo_t *pci)
{
    *pci = (nvmlPciInfo_t){.bus = device_pci_bus(gpu),
                           .pciDeviceId = profile_current()->pci_device,
                           .pciSubSystemId = profile_current()->pci_subsystem};
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0", pci->bus & 0xff);
    snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", pci->bus & 0xff);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!pci)
        return NVML_ERROR_INVALID_ARGUMENT;
    pci_info(gpu, pci);
    return NVML_SUCCESS;
}

/* The older structures begin as today's does: up to pciDeviceId, and with _v2 up to pciSubSystemId. What they
 * have behind that is reserved. */
static nvmlReturn_t pci_info_older(nvmlDevice_t device, void *answer, size_t bytes)
{
    nvmlPciInfo_t pci;
    unsigned gpu;
    TRY_FIND_CARD(device, &gpu);
    if (!answer)
        return NVML_ERROR_INVALID_ARGUMENT;
    pci_info(gpu, &pci);
    memcpy(answer, &pci, bytes);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, void *pci_v2)
{
    return pci_info_older(device, pci_v2, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, void *pci_v1)
{
    return pci_info_older(device, pci_v1, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

/* What the driver keeps for itself beside the programs' memory. A MIG instance has no such part. (measure) */
static uint64_t reserved_bytes(unsigned gpu)
{
    return device_is_instance(gpu) ? 0 : profile_current()->reserved_bytes;
}

/* A partitioned card shows what its instances hold together. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    unsigned gpu;
    TRY_FIND(device, &gpu);
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (constant_whole(SIM_NVML_NO_MEMORY))
        return NVML_ERROR_NOT_SUPPORTED;
    /* Here what the driver keeps for itself counts as used (nvml API reference). */
    const struct device_shape *shape = device_shape(gpu);
    uint64_t reserved = reserved_bytes(gpu), total = shape->total_bytes + reserved;
    uint64_t used = device_used_bytes(gpu) + reserved;
    for (unsigned i = 0; i < shape->instance_count; i++)
        used += device_used_bytes(shape->first_instance + i);
    *memory = (nvmlMemory_t){.total = total, .free = total > used ? total - used : 0, .used = used};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t plain;
    unsigned gpu;
    if (nvml_driver_is_before(510, 0)) /* nvitop pull request 30: the first driver that has it */
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    TRY_FIND(device, &gpu);
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != NVML_MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    uint64_t says = constant_whole(SIM_NVML_NO_RESERVED);
    nvmlReturn_t result = says == 2 ? NVML_ERROR_UNKNOWN : nvmlDeviceGetMemoryInfo(device, &plain);
    if (result != NVML_SUCCESS)
        return result;
    memory->total = plain.total;
    memory->reserved = says == 1 ? 0 : reserved_bytes(gpu);
    memory->free = plain.free;
    memory->used = plain.used - memory->reserved;
    return NVML_SUCCESS;
}
