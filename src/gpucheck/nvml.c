#include "gpucheck/nvml.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/nvml.h"
#include "cuda/nvml_entries.h"
#include "cuda/uuid.h"
#include "gpucheck/check.h"

typedef nvmlReturn_t (*processes_call)(nvmlDevice_t, unsigned *, void *);

static struct {
    nvmlDevice_t device;
    nvmlReturn_t (*memory)(nvmlDevice_t, nvmlMemory_t *);
    nvmlReturn_t (*persistence)(nvmlDevice_t, unsigned *); /* NULL: not in this NVML */
    processes_call processes;                              /* NULL: NVML is older than R470's forms */
    char version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE], uuid[GPU_UUID_TEXT];
    enum { UNDECIDED, OF_PROCESS, OF_DEVICE } source;
} nvml;

static void *look_up(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (!symbol)
        fail_and_end("libnvidia-ml.so.1 has no %s", name);
    return symbol;
}

/* Open NVML for the card that is device 0 of this process. */
static void open_nvml(void)
{
    if (nvml.device)
        return;
    CUuuid uuid;
    const char *reason = driver_open(DRIVER_BY_DLSYM);
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (reason || !library)
        fail_and_end("%s", reason ? reason : dlerror());
    nvmlReturn_t (*initialise)(void), (*by_uuid)(const char *, nvmlDevice_t *), (*version)(char *, unsigned);
    const struct {
        const char *name;
        void *place;
    } symbols[] = {{"nvmlInit_v2", &initialise},
                   {"nvmlDeviceGetHandleByUUID", &by_uuid},
                   {"nvmlSystemGetDriverVersion", &version},
                   {"nvmlDeviceGetMemoryInfo", &nvml.memory}};
    for (unsigned i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = look_up(library, symbols[i].name);
        memcpy(symbols[i].place, &symbol, sizeof(symbol));
    }
    void *symbol = dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (!symbol)
        symbol = dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v2");
    memcpy(&nvml.processes, &symbol, sizeof(symbol));
    symbol = dlsym(library, "nvmlDeviceGetPersistenceMode");
    memcpy(&nvml.persistence, &symbol, sizeof(symbol));

    must(cuInit(0));
    must(cuDeviceGetUuid_v2(&uuid, 0));
    gpu_uuid_format((const uint8_t *)uuid.bytes, nvml.uuid);
    nvmlReturn_t result = initialise();
    if (result == NVML_SUCCESS && (result = by_uuid(nvml.uuid, &nvml.device)) != NVML_SUCCESS)
        result = by_uuid(gpu_uuid_set_mig(nvml.uuid), &nvml.device);
    if (result == NVML_SUCCESS)
        result = version(nvml.version, sizeof(nvml.version));
    if (result != NVML_SUCCESS)
        fail_and_end("NVML does not start for %s: its result %d", nvml.uuid, (int)result);
}

static nvmlMemory_t memory_now(void)
{
    nvmlMemory_t memory = {0};
    open_nvml();
    nvmlReturn_t result = nvml.memory(nvml.device, &memory);
    if (result == NVML_ERROR_NOT_SUPPORTED)
        not_run("NVML does not tell what this GPU has, as where it shares the host's memory");
    if (result != NVML_SUCCESS)
        fail_and_end("nvmlDeviceGetMemoryInfo answered %d", (int)result);
    return memory;
}

/* False if NVML does not list the process with a figure. A process that is listed has a context, so 0 is none: it is
 * what NVML says inside of some containers. */
static bool process_bytes(pid_t pid, uint64_t *bytes)
{
    enum { MOST = 256 };
    static char list[MOST * NVML_ENTRY_BYTES_MOST];
    unsigned count = MOST;
    nvml_entries_prepare(list, MOST);
    if (!nvml.processes || nvml.processes(nvml.device, &count, list) != NVML_SUCCESS)
        return false;
    size_t length = nvml_entries_length(list, MOST, count);
    for (unsigned i = 0; length && i < count; i++) {
        nvmlProcessInfo_v1_t head; /* the beginning of every form */
        memcpy(&head, list + i * length, sizeof(head));
        if (head.pid == (unsigned)pid && head.usedGpuMemory != NVML_VALUE_NOT_AVAILABLE_U64 &&
            head.usedGpuMemory) {
            *bytes = head.usedGpuMemory;
            return true;
        }
    }
    return false;
}

bool nvml_own_bytes(uint64_t *bytes)
{
    open_nvml();
    return process_bytes(getpid(), bytes);
}

const char *nvml_persistence(void)
{
    unsigned mode;
    open_nvml();
    if (!nvml.persistence || nvml.persistence(nvml.device, &mode) != NVML_SUCCESS)
        return "not told";
    return mode ? "on" : "off";
}

void nvml_list(void)
{
    uint64_t bytes;
    open_nvml();
    process_bytes(0, &bytes);
}

uint64_t nvml_used_bytes(pid_t pid)
{
    uint64_t bytes = 0;
    open_nvml();
    bool is_listed = nvml.source != OF_DEVICE && process_bytes(pid, &bytes);
    if (nvml.source == UNDECIDED)
        nvml.source = is_listed ? OF_PROCESS : OF_DEVICE;
    return nvml.source == OF_PROCESS ? bytes : memory_now().used;
}

const char *nvml_used_source(void)
{
    return nvml.source == OF_PROCESS ? "process" : "device";
}

const char *nvml_driver_version(void)
{
    open_nvml();
    return nvml.version;
}

const char *nvml_uuid(void)
{
    open_nvml();
    return nvml.uuid;
}

bool nvml_is_instance(void)
{
    return strncmp(nvml_uuid(), "MIG-", 4) == 0;
}

bool nvml_tells_memory(uint64_t *total_bytes)
{
    nvmlMemory_t memory = {0};
    open_nvml();
    bool is_told = nvml.memory(nvml.device, &memory) == NVML_SUCCESS;
    *total_bytes = memory.total;
    return is_told;
}

uint64_t nvml_total_bytes(void)
{
    return memory_now().total;
}

uint64_t nvml_free_bytes(void)
{
    return memory_now().free;
}
