#include "daemon/gpu/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/host_nodes.h"
#include "cuda/nvml_entries.h"
#include "daemon/gpu/pids.h"

#define LOAD_USEC UINT64_C(1000000)

typedef nvmlReturn_t (*nvml_processes_call)(nvmlDevice_t, unsigned *, void *);

/* How busy a GPU and its processes were when NVML was last asked. The daemon asks rarely, because NVML's figures are
 * for about a second, and each question costs the driver. */
struct nvml_load {
    uint64_t asked_usec; /* by the wall clock, which NVML stamps its figures with */
    int busy_percent;
    struct gpu_heat heat;
    nvmlProcessUtilizationSample_t *processes;
    unsigned process_count;
    bool is_known;
};

struct nvml {
    void *library;
    nvmlReturn_t (*initialise)(void);
    nvmlReturn_t (*count)(unsigned *);
    nvmlReturn_t (*handle)(unsigned, nvmlDevice_t *);
    nvmlReturn_t (*uuid)(nvmlDevice_t, char *, unsigned);
    nvmlReturn_t (*name)(nvmlDevice_t, char *, unsigned);
    nvmlReturn_t (*memory)(nvmlDevice_t, nvmlMemory_t *);
    nvmlReturn_t (*driver_version)(char *, unsigned);
    const char *(*error_string)(nvmlReturn_t);
    /* NULL in drivers without MIG. */
    nvmlReturn_t (*mig_mode)(nvmlDevice_t, unsigned *current, unsigned *pending);
    nvmlReturn_t (*mig_most)(nvmlDevice_t, unsigned *);
    nvmlReturn_t (*mig_handle)(nvmlDevice_t, unsigned, nvmlDevice_t *);
    nvmlReturn_t (*pci_info)(nvmlDevice_t, nvmlPciInfo_t *);
    nvmlReturn_t (*memory_v2)(nvmlDevice_t, nvmlMemory_v2_t *); /* NULL in drivers before 510 */
    nvmlReturn_t (*compute_capability)(nvmlDevice_t, int *major, int *minor);
    nvmlReturn_t (*utilisation)(nvmlDevice_t, nvmlUtilization_t *);
    nvmlReturn_t (*temperature)(nvmlDevice_t, unsigned sensor, unsigned *celsius);
    nvmlReturn_t (*power)(nvmlDevice_t, unsigned *milliwatts);
    nvmlReturn_t (*process_utilisation)(nvmlDevice_t, nvmlProcessUtilizationSample_t *, unsigned *,
                                        unsigned long long);
    nvml_processes_call processes;
    bool has_listed;
    unsigned device_count;
    nvmlDevice_t devices[LEDGER_GPUS];
    struct nvml_load loads[LEDGER_GPUS];
    uint64_t activity_told_usec[LEDGER_GPUS]; /* by the wall clock, when it was last asked for */
    struct known_pids known_pids[LEDGER_GPUS];
};

/* The CUDA toolkit's stand-in for the library answers every call with NVML_ERROR_LIBRARY_NOT_FOUND, also the one for texts. */
static const char *text_of(const struct nvml *nvml, nvmlReturn_t result)
{
    const char *text = nvml->error_string(result);
    return (uintptr_t)text > NVML_ERROR_UNKNOWN
               ? text
               : "this libnvidia-ml.so.1 is not the driver's but a stand-in for linking; see LD_LIBRARY_PATH";
}

int nvml_load(struct nvml **nvml_out, const char *library, struct error *error)
{
    void *handle = dlopen(library ? library : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return error_set(error, ENODEV, NULL, "%s", dlerror());
    struct nvml *nvml = calloc(1, sizeof(*nvml));
    if (!nvml)
        return error_set_errno(error, ENOMEM, "cannot load NVML");
    nvml->library = handle;

    const struct {
        const char *name;
        void *slot;
    } symbols[] = {
        {"nvmlInit_v2", &nvml->initialise},
        {"nvmlDeviceGetCount_v2", &nvml->count},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml->handle},
        {"nvmlDeviceGetUUID", &nvml->uuid},
        {"nvmlDeviceGetName", &nvml->name},
        {"nvmlDeviceGetMemoryInfo", &nvml->memory},
        {"nvmlSystemGetDriverVersion", &nvml->driver_version},
        {"nvmlErrorString", &nvml->error_string},
    };
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(handle, symbols[i].name);
        if (!symbol) {
            free(nvml);
            return error_set(error, ENODEV, NULL,
                             "the NVIDIA driver's libnvidia-ml.so.1 lacks %s; update the driver",
                             symbols[i].name);
        }
        memcpy(symbols[i].slot, &symbol, sizeof(symbol));
    }
    const struct {
        const char *name;
        void *slot;
    } optional[] = {
        {"nvmlDeviceGetMigMode", &nvml->mig_mode},
        {"nvmlDeviceGetMaxMigDeviceCount", &nvml->mig_most},
        {"nvmlDeviceGetMigDeviceHandleByIndex", &nvml->mig_handle},
        {"nvmlDeviceGetPciInfo_v3", &nvml->pci_info},
        {"nvmlDeviceGetMemoryInfo_v2", &nvml->memory_v2},
        {"nvmlDeviceGetCudaComputeCapability", &nvml->compute_capability},
        {"nvmlDeviceGetUtilizationRates", &nvml->utilisation},
        {"nvmlDeviceGetProcessUtilization", &nvml->process_utilisation},
        {"nvmlDeviceGetTemperature", &nvml->temperature},
        {"nvmlDeviceGetPowerUsage", &nvml->power},
    };
    for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++) {
        void *symbol = dlsym(handle, optional[i].name);
        memcpy(optional[i].slot, &symbol, sizeof(symbol));
    }
    const char *const versions[] = {"nvmlDeviceGetComputeRunningProcesses_v3",
                                    "nvmlDeviceGetComputeRunningProcesses_v2",
                                    "nvmlDeviceGetComputeRunningProcesses"};
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]) && !nvml->processes; i++) {
        void *symbol = dlsym(handle, versions[i]);
        memcpy(&nvml->processes, &symbol, sizeof(symbol));
    }
    *nvml_out = nvml;
    return 0;
}

/* NVML has no figures where a GPU shares the host's memory: both calls answer NOT_SUPPORTED, or all is 0 (nvitop, pull request
 * 208; nvtop, pull request 411). Then what is used is added up from the processes. */
static nvmlReturn_t read_hosts(struct gpu_figures *figures)
{
    *figures = (struct gpu_figures){.is_hosts = true};
    return host_memory_read("/sys", &figures->total_bytes, &figures->free_bytes) ? NVML_SUCCESS
                                                                                 : NVML_ERROR_NOT_SUPPORTED;
}

/* Only the newer call tells what the driver keeps, and takes it off what is used. It is missing in older drivers, and
 * under WSL it fails. */
static nvmlReturn_t read_memory(const struct nvml *nvml, nvmlDevice_t device, struct gpu_figures *figures)
{
    nvmlMemory_v2_t now = {.version = NVML_MEMORY_V2};
    nvmlMemory_t older;
    if (nvml->memory_v2 && nvml->memory_v2(device, &now) == NVML_SUCCESS && now.total) {
        *figures = (struct gpu_figures){.total_bytes = now.total,
                                        .free_bytes = now.free,
                                        .used_bytes = now.used + now.reserved,
                                        .kept_bytes = now.reserved};
        return NVML_SUCCESS;
    }
    nvmlReturn_t result = nvml->memory(device, &older);
    if (result == NVML_ERROR_NOT_SUPPORTED || (result == NVML_SUCCESS && !older.total))
        return read_hosts(figures);
    if (result == NVML_SUCCESS)
        *figures = (struct gpu_figures){
            .total_bytes = older.total, .free_bytes = older.free, .used_bytes = older.used};
    return result;
}

/* Fill in what is the same for a card and its instances. */
static void describe_card(struct nvml *nvml, nvmlDevice_t device, struct nvml_card *card)
{
    nvmlPciInfo_t pci;
    int major, minor;
    if (nvml->pci_info && nvml->pci_info(device, &pci) == NVML_SUCCESS)
        snprintf(card->pci_address, sizeof(card->pci_address), "%04x:%02x:%02x.0", pci.domain, pci.bus,
                 pci.device);
    if (nvml->compute_capability && nvml->compute_capability(device, &major, &minor) == NVML_SUCCESS)
        snprintf(card->compute_capability, sizeof(card->compute_capability), "%d.%d", major, minor);
}

/* Where the next failure is to be told; NULL: there are enough. */
static struct error *next_failure(struct nvml_list_job *list)
{
    return list->failure_count < LEDGER_GPUS ? &list->failures[list->failure_count++] : NULL;
}

/* GPU `index` is left out of the list: NVML cannot do `what` with it. */
static void note_failure(struct nvml *nvml, struct nvml_list_job *list, unsigned index, const char *what,
                         nvmlReturn_t result)
{
    error_set(next_failure(list), ENODEV, NULL, "NVML cannot %s GPU %u: %s; see nvidia-smi", what, index,
              text_of(nvml, result));
}

/* Add one GPU to the list; if it does not fit it is only counted. */
static void list_gpu(struct nvml *nvml, struct nvml_list_job *list, nvmlDevice_t whole, nvmlDevice_t device,
                     unsigned index, int mig_index)
{
    if (list->count == LEDGER_GPUS) {
        list->left_out++;
        return;
    }
    struct nvml_card *card = &list->cards[list->count];
    *card = (struct nvml_card){.index = index, .mig_index = mig_index};
    nvmlReturn_t result = nvml->uuid(device, card->uuid_text, sizeof(card->uuid_text));
    if (result == NVML_SUCCESS)
        result = nvml->name(device, card->name, sizeof(card->name));
    if (result != NVML_SUCCESS) {
        note_failure(nvml, list, index, "name", result);
        return;
    }
    result = read_memory(nvml, device, &card->memory);
    if (result != NVML_SUCCESS) {
        note_failure(nvml, list, index, "tell the memory of", result);
        return;
    }
    describe_card(nvml, whole, card);
    card->uuid_text[sizeof(card->uuid_text) - 1] = card->name[sizeof(card->name) - 1] = '\0';
    if (gpu_uuid_parse(card->uuid_text, card->uuid))
        nvml->devices[list->count++] = device;
    else
        error_set(next_failure(list), EPROTO, NULL, "NVML gives GPU %u the invalid UUID '%s'", index,
                  card->uuid_text);
}

static bool is_in_mig_mode(struct nvml *nvml, nvmlDevice_t device)
{
    unsigned current, pending;
    return nvml->mig_mode && nvml->mig_most && nvml->mig_handle &&
           nvml->mig_mode(device, &current, &pending) == NVML_SUCCESS && current != 0;
}

/* A card in MIG mode runs work only in its instances, so those are listed in its place. Their indices may have gaps. */
static void list_instances(struct nvml *nvml, struct nvml_list_job *list, nvmlDevice_t card, unsigned index)
{
    unsigned most = 0;
    nvmlReturn_t result = nvml->mig_most(card, &most);
    for (unsigned i = 0; result == NVML_SUCCESS && i < most; i++) {
        nvmlDevice_t instance;
        result = nvml->mig_handle(card, i, &instance);
        if (result == NVML_SUCCESS)
            list_gpu(nvml, list, card, instance, index, (int)i);
        else if (result == NVML_ERROR_NOT_FOUND)
            result = NVML_SUCCESS;
    }
    if (result != NVML_SUCCESS)
        note_failure(nvml, list, index, "list the MIG instances of", result);
}

static void list_cards(struct nvml *nvml, struct nvml_list_job *list)
{
    nvmlReturn_t result = nvml->initialise();
    unsigned count = 0;
    if (result == NVML_SUCCESS)
        result = nvml->count(&count);
    if (result != NVML_SUCCESS) {
        error_set(&list->error, ENODEV, NULL, "NVML does not start: %s", text_of(nvml, result));
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        nvmlDevice_t device;
        result = nvml->handle(i, &device);
        if (result != NVML_SUCCESS)
            note_failure(nvml, list, i, "find", result);
        else if (is_in_mig_mode(nvml, device))
            list_instances(nvml, list, device, i);
        else
            list_gpu(nvml, list, device, device, i, -1);
    }
    if (nvml->driver_version(list->driver_version, sizeof(list->driver_version)) != NVML_SUCCESS)
        list->driver_version[0] = '\0';
    nvml->device_count = list->count;
    nvml->has_listed = true;
}

/* Take the `count` processes of a list. */
static const char *read_processes(const char *entries, unsigned room, unsigned count,
                                  struct nvml_sample *sample)
{
    size_t bytes = nvml_entries_length(entries, room, count);
    if (count == 0)
        return NULL;
    if (!bytes)
        return "its list of processes has an unknown form";
    sample->processes = calloc(count, sizeof(*sample->processes));
    for (unsigned i = 0; sample->processes && i < count; i++) {
        nvmlProcessInfo_v1_t head; /* all versions begin with these fields */
        memcpy(&head, entries + i * bytes, sizeof(head));
        bool is_known = head.usedGpuMemory != NVML_VALUE_NOT_AVAILABLE_U64;
        sample->processes[sample->process_count++] = (struct nvml_process){
            .pid = (pid_t)head.pid, .is_known = is_known, .used_bytes = is_known ? head.usedGpuMemory : 0};
    }
    return sample->processes ? NULL : "there is not enough memory to list processes";
}

/* NVML first says how many processes there are; by the next call there may be more. */
static void sample_processes(struct nvml *nvml, nvmlDevice_t device, struct nvml_sample *sample)
{
    unsigned count = 0, room = 0;
    char *entries = NULL;
    nvmlReturn_t result = nvml->processes(device, &count, NULL);
    for (int tries = 0; result == NVML_ERROR_INSUFFICIENT_SIZE && tries < 5; tries++) {
        room = count += 16;
        free(entries);
        entries = calloc(room, NVML_ENTRY_BYTES_MOST);
        if (!entries)
            break;
        nvml_entries_prepare(entries, room);
        result = nvml->processes(device, &count, entries);
    }
    sample->no_processes = result == NVML_SUCCESS ? read_processes(entries, room, entries ? count : 0, sample)
                                                  : text_of(nvml, result);
    free(entries);
}

static uint64_t wall_clock_usec(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Both figures are of the whole card, so a MIG instance has none. */
static struct gpu_heat read_heat(const struct nvml *nvml, nvmlDevice_t device)
{
    enum { SENSOR_OF_GPU = 0 }; /* NVML_TEMPERATURE_GPU; NVML has no other */
    struct gpu_heat heat = {.celsius = GPU_HEAT_UNKNOWN, .milliwatts = GPU_HEAT_UNKNOWN};
    unsigned value;
    if (nvml->temperature && nvml->temperature(device, SENSOR_OF_GPU, &value) == NVML_SUCCESS)
        heat.celsius = (int)value;
    if (nvml->power && nvml->power(device, &value) == NVML_SUCCESS)
        heat.milliwatts = (int)value;
    return heat;
}

/* Ask again how busy the GPU and its processes are, unless that was done a moment ago. */
static void refresh_load(struct nvml *nvml, nvmlDevice_t device, struct nvml_load *load)
{
    uint64_t now = wall_clock_usec();
    if (load->asked_usec <= now && now - load->asked_usec < LOAD_USEC)
        return;
    nvmlUtilization_t rates;
    load->asked_usec = now;
    load->busy_percent =
        nvml->utilisation && nvml->utilisation(device, &rates) == NVML_SUCCESS ? (int)rates.gpu : -1;
    load->heat = read_heat(nvml, device);
    free(load->processes);
    load->processes = NULL;
    load->process_count = 0;
    load->is_known = false;
    if (!nvml->process_utilisation)
        return;
    unsigned count = 0;
    nvmlReturn_t result = nvml->process_utilisation(device, NULL, &count, now - 2 * LOAD_USEC);
    if (result == NVML_ERROR_INSUFFICIENT_SIZE && count > 0) {
        load->processes = calloc(count, sizeof(*load->processes));
        if (load->processes)
            result = nvml->process_utilisation(device, load->processes, &count, now - 2 * LOAD_USEC);
        if (result == NVML_SUCCESS)
            load->process_count = count;
    }
    /* NOT_FOUND: no process used it. */
    load->is_known = result == NVML_SUCCESS || result == NVML_ERROR_NOT_FOUND;
}

static int busy_percent_of(const struct nvml_load *load, pid_t pid)
{
    int percent = load->is_known ? 0 : -1;
    for (unsigned i = 0; i < load->process_count; i++)
        if ((pid_t)load->processes[i].pid == pid)
            percent = load->processes[i].smUtil <= 100 ? (int)load->processes[i].smUtil : percent;
    return percent;
}

/* What was taken while NVML listed the processes is in their figures, and not in the GPU's. */
static void take_larger(struct nvml *nvml, nvmlDevice_t device, struct gpu_figures *memory)
{
    struct gpu_figures now;
    if (read_memory(nvml, device, &now) == NVML_SUCCESS && now.used_bytes > memory->used_bytes)
        *memory = now;
}

/* NVML's figures are for the time since the last question, but for no more than about a second; where that was a little longer
 * ago, they count for all of it. */
static void read_activity(struct nvml *nvml, unsigned gpu, struct nvml_sample *sample)
{
    uint64_t now = wall_clock_usec(), since = nvml->activity_told_usec[gpu];
    nvmlProcessUtilizationSample_t *told = NULL;
    unsigned count = 0;
    if (!nvml->process_utilisation)
        return;
    if (since >= now || now - since > 2 * LOAD_USEC)
        since = now - LOAD_USEC;
    nvml->activity_told_usec[gpu] = now;
    nvmlReturn_t result = nvml->process_utilisation(nvml->devices[gpu], NULL, &count, since);
    if (result == NVML_ERROR_INSUFFICIENT_SIZE && count > 0 && (told = calloc(count, sizeof(*told))))
        result = nvml->process_utilisation(nvml->devices[gpu], told, &count, since);
    sample->knows_activity = result == NVML_SUCCESS || result == NVML_ERROR_NOT_FOUND;
    sample->activity_usec = now - since;
    if (result == NVML_SUCCESS && told && (sample->activity = calloc(count, sizeof(*sample->activity))))
        for (unsigned i = 0; i < count; i++)
            if (told[i].smUtil <= 100)
                sample->activity[sample->activity_count++] =
                    (struct nvml_activity){.pid = (pid_t)told[i].pid, .percent = told[i].smUtil};
    free(told);
}

static void sample_cards(struct nvml *nvml, struct nvml_job *job)
{
    uint64_t from_ns = monotonic_ns();
    for (unsigned i = job->first_gpu; i <= job->last_gpu && i < nvml->device_count; i++) {
        struct nvml_sample *sample = &job->samples[i];
        if (job->activity_of) {
            if (job->activity_of >> i & 1)
                read_activity(nvml, i, sample);
            continue;
        }
        if (read_memory(nvml, nvml->devices[i], &sample->memory) != NVML_SUCCESS)
            continue;
        sample->ok = true;
        if (job->is_glance)
            continue;
        refresh_load(nvml, nvml->devices[i], &nvml->loads[i]);
        sample->busy_percent = nvml->loads[i].busy_percent;
        sample->heat = nvml->loads[i].heat;
        sample->no_processes = "it has no list of processes";
        if (nvml->processes)
            sample_processes(nvml, nvml->devices[i], sample);
        take_larger(nvml, nvml->devices[i], &sample->memory);
        pids_tell_apart(&nvml->known_pids[i], sample->processes, sample->process_count);
        for (unsigned j = 0; j < sample->process_count; j++) {
            sample->processes[j].busy_percent = busy_percent_of(&nvml->loads[i], sample->processes[j].pid);
            sample->memory.used_bytes += sample->memory.is_hosts ? sample->processes[j].used_bytes : 0;
        }
    }
    job->took_usec = (monotonic_ns() - from_ns) / 1000;
}

void nvml_run(struct worker_job *first, void *context)
{
    struct nvml *nvml = context;
    for (struct worker_job *job = first; job; job = job->next) {
        if (!nvml->has_listed)
            list_cards(nvml, (struct nvml_list_job *)job);
        else
            sample_cards(nvml, (struct nvml_job *)job);
    }
}

void nvml_sample_free(struct nvml_job *job)
{
    for (unsigned i = 0; i < LEDGER_GPUS; i++) {
        free(job->samples[i].processes);
        free(job->samples[i].activity);
    }
    free(job);
}

void nvml_free(struct nvml *nvml)
{
    for (unsigned i = 0; nvml && i < LEDGER_GPUS; i++) {
        free(nvml->loads[i].processes);
        free(nvml->known_pids[i].pids);
    }
    free(nvml);
}
