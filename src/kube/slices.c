#include "kube/slices.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "client/session_fields.h"
#include "kube/messages.h"
#include "kube/node.h"
#include "kube/pci.h"
#include "kube/pods.h"
#include "kube/rivals.h"
#include "kube/tasks.h"
#include "kube/watchers.h"

#define REGISTER_TIMEOUT_USEC UINT64_C(5000000)
#define SLICE_ID_TEXT 96
#define CDI_KIND "gpuslice.io/slice"

struct slices {
    struct kubelet *kubelet;
    struct grpc_server *server;
    char socket[PATH_MAX], kubelet_socket[PATH_MAX], endpoint[128];
    struct watchers watchers; /* kubelets that follow the list */
    struct grpc_request *registering;
    ino_t registered_with; /* the kubelet's socket; 0: none yet */
    ino_t registering_with;
    char *shown; /* what watchers were told last, as JSON; NULL: nothing */
    bool is_failure_told;
};

/* --- IDs ------------------------------------------------------------------------------------------- */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void slices_session_name(const char *const *ids, size_t count, char name[static SLICES_NAME_TEXT])
{
    const char **sorted = calloc(count + 1, sizeof(*sorted));
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; sorted && i < count; i++)
        sorted[i] = ids[i];
    if (sorted)
        qsort(sorted, count, sizeof(*sorted), compare_texts);
    for (size_t i = 0; sorted && i < count; i++)
        for (const char *at = sorted[i];; at++) {
            hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211);
            if (!*at)
                break;
        }
    free(sorted);
    snprintf(name, SLICES_NAME_TEXT, SLICES_PREFIX "%016llx", (unsigned long long)hash);
}

void slices_file_name(const char *session, char file[static SLICES_FILE_TEXT])
{
    snprintf(file, SLICES_FILE_TEXT, "gpuslice-%.40s", session);
}

static void slice_id(const char *uuid, unsigned number, char id[static SLICE_ID_TEXT])
{
    snprintf(id, SLICE_ID_TEXT, "%.64s-slice-%u", uuid, number);
}

/* The GPU whose slice this is; NULL: of none here. */
static json_t *gpu_of(const struct kubelet *kubelet, const char *id)
{
    size_t i;
    json_t *gpu;
    json_array_foreach(kubelet->gpus, i, gpu)
    {
        const char *uuid = session_text(gpu, "uuid");
        unsigned number;
        int end = 0;
        if (strncmp(id, uuid, strlen(uuid)) == 0 &&
            sscanf(id + strlen(uuid), "-slice-%u%n", &number, &end) == 1 &&
            id[strlen(uuid) + (size_t)end] == '\0' && number < kubelet->options.slice_count)
            return gpu;
    }
    return NULL;
}

static uint64_t slice_bytes(const struct kubelet *kubelet, const json_t *gpu)
{
    return kubelet->options.slice_bytes ? kubelet->options.slice_bytes
                                        : session_number(gpu, "total_bytes") / kubelet->options.slice_count;
}

/* --- The list -------------------------------------------------------------------------------------- */

/* Every slice with its health, as an object; the watchers are told when it is another one. */
static json_t *list_slices(const struct kubelet *kubelet)
{
    json_t *list = json_object(), *gpu;
    size_t i;
    json_array_foreach(kubelet->gpus, i, gpu)
    {
        for (unsigned number = 0; number < kubelet->options.slice_count; number++) {
            char id[SLICE_ID_TEXT];
            slice_id(session_text(gpu, "uuid"), number, id);
            json_object_set(list, id, json_object_get(gpu, "healthy"));
        }
    }
    return list;
}

/* A device's part of the list. */
struct listed {
    Kubelet__PluginDevice device;
    Kubelet__Topology topology;
    Kubelet__NumaNode node, *nodes;
};

static void fill_listed(const struct kubelet *kubelet, const char *id, bool is_healthy, struct listed *listed)
{
    const json_t *gpu = gpu_of(kubelet, id);
    bool is_simulated = json_is_true(json_object_get(gpu, "simulated"));
    int node = is_simulated ? -1 : pci_numa_node("/sys", session_text(gpu, "pci_address"));
    kubelet__plugin_device__init(&listed->device);
    listed->device.id = (char *)id;
    listed->device.health = is_healthy ? "Healthy" : "Unhealthy";
    if (node < 0)
        return;
    kubelet__numa_node__init(&listed->node);
    kubelet__topology__init(&listed->topology);
    listed->node.id = node;
    listed->nodes = &listed->node;
    listed->topology.n_nodes = 1;
    listed->topology.nodes = &listed->nodes;
    listed->device.topology = &listed->topology;
}

static void tell_watcher(void *context, struct grpc_call *call)
{
    const struct slices *slices = context;
    json_t *list = list_slices(slices->kubelet), *healthy;
    size_t count = json_object_size(list), at = 0;
    struct listed *devices = calloc(count + 1, sizeof(*devices));
    Kubelet__PluginDevice **pointers = calloc(count + 1, sizeof(*pointers));
    Kubelet__DeviceList message = KUBELET__DEVICE_LIST__INIT;
    const char *id;
    if (devices && pointers)
        json_object_foreach(list, id, healthy)
        {
            fill_listed(slices->kubelet, id, json_is_true(healthy), &devices[at]);
            pointers[at] = &devices[at].device;
            at++;
        }
    message.n_devices = at;
    message.devices = pointers;
    message_send(call, &message.base);
    free(devices);
    free(pointers);
    json_decref(list);
}

static void tell_watchers_of_changes(struct slices *slices)
{
    json_t *list = list_slices(slices->kubelet);
    char *now = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    if (!now || (slices->shown && strcmp(now, slices->shown) == 0)) {
        free(now);
        return;
    }
    free(slices->shown);
    slices->shown = now;
    watchers_tell(&slices->watchers, tell_watcher, slices);
}

static void list_and_watch(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    struct slices *slices = context;
    watchers_add(&slices->watchers, call, tell_watcher, slices);
}

static void get_options(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    Kubelet__DevicePluginOptions options = KUBELET__DEVICE_PLUGIN_OPTIONS__INIT;
    options.get_preferred_allocation_available = 1;
    message_answer(call, &options.base);
}

static void prepare_start(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    Kubelet__Empty empty = KUBELET__EMPTY__INIT;
    message_answer(call, &empty.base);
}

/* --- Which ones together --------------------------------------------------------------------------- */

static size_t count_of_gpu(const struct kubelet *kubelet, const json_t *gpu, char *const *ids, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += gpu_of(kubelet, ids[i]) == gpu;
    return found;
}

static bool has_text(char *const *list, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], text) == 0)
            return true;
    return false;
}

/* The GPU that the next slices come from: one that has been begun, or the one that they fill up best; one that has them
 * all before one that has not. NULL: none has any left. */
static json_t *next_gpu(const struct kubelet *kubelet, char *const *available, size_t count,
                        char *const *chosen, size_t chosen_count, size_t wanted)
{
    json_t *best = NULL, *gpu;
    size_t best_score = 0, i;
    json_array_foreach(kubelet->gpus, i, gpu)
    {
        size_t taken = count_of_gpu(kubelet, gpu, chosen, chosen_count);
        size_t left = count_of_gpu(kubelet, gpu, available, count) - taken;
        size_t score = (taken > 0 ? 1000000 : 0) + (left >= wanted ? 500000 - left : left);
        if (left > 0 && left <= count && score > best_score) {
            best = gpu;
            best_score = score;
        }
    }
    return best;
}

static size_t prefer(const struct kubelet *kubelet, const Kubelet__ContainerPreferenceRequest *request,
                     char **chosen)
{
    size_t wanted = request->count > 0 ? (size_t)request->count : 0, count = 0;
    if (wanted > request->n_available)
        wanted = request->n_available;
    for (size_t i = 0; i < request->n_must_include && count < wanted; i++)
        if (has_text(request->available, request->n_available, request->must_include[i]) &&
            !has_text(chosen, count, request->must_include[i]))
            chosen[count++] = request->must_include[i];
    while (count < wanted) {
        const json_t *gpu =
            next_gpu(kubelet, request->available, request->n_available, chosen, count, wanted - count);
        size_t before = count;
        for (size_t i = 0; i < request->n_available && count < wanted && gpu; i++)
            if (gpu_of(kubelet, request->available[i]) == gpu &&
                !has_text(chosen, count, request->available[i]))
                chosen[count++] = request->available[i];
        if (count == before)
            break; /* what is left is of no GPU of ours */
    }
    return count;
}

/* Far more than a node has; of a longer list nothing is preferred. */
#define PREFERENCE_MAX 4096

static void get_preference(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    const struct slices *slices = context;
    Kubelet__PreferenceRequest *request = kubelet__preference_request__unpack(NULL, bytes, message);
    Kubelet__PreferenceAnswer answer = KUBELET__PREFERENCE_ANSWER__INIT;
    size_t count = request ? request->n_containers : 0;
    Kubelet__ContainerPreferenceAnswer *parts = calloc(count + 1, sizeof(*parts));
    Kubelet__ContainerPreferenceAnswer **pointers = calloc(count + 1, sizeof(*pointers));
    for (size_t i = 0; parts && pointers && i < count; i++) {
        const Kubelet__ContainerPreferenceRequest *wanted = request->containers[i];
        kubelet__container_preference_answer__init(&parts[i]);
        pointers[i] = &parts[i];
        parts[i].devices = calloc(wanted->n_available + 1, sizeof(char *));
        if (parts[i].devices && wanted->n_available <= PREFERENCE_MAX)
            parts[i].n_devices = prefer(slices->kubelet, wanted, parts[i].devices);
    }
    answer.n_containers = parts && pointers ? count : 0;
    answer.containers = pointers;
    if (request && parts && pointers)
        message_answer(call, &answer.base);
    else
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "this is no PreferredAllocationRequest");
    for (size_t i = 0; parts && i < count; i++)
        free(parts[i].devices);
    free(parts);
    free(pointers);
    if (request)
        kubelet__preference_request__free_unpacked(request, NULL);
}

/* --- Allocating ------------------------------------------------------------------------------------ */

/* The kubelet gives these slices to a new container: sessions that still have some of them are of containers that have
 * gone. Their CDI specifications say which those are. */
static int end_stale(struct kubelet *kubelet, char *const *ids, size_t count, struct error *error)
{
    const char *folder_path = kubelet->options.cdi_dir;
    cleanup_dir DIR *folder = opendir(folder_path);
    int result = 0;
    for (struct dirent *entry; folder && result == 0 && (entry = readdir(folder));) {
        char path[PATH_MAX], session[SLICES_NAME_TEXT], file[SLICES_FILE_TEXT];
        size_t i;
        json_t *device;
        bool is_stale = false;
        if (sscanf(entry->d_name, "gpuslice-%31[^.].json", session) != 1 ||
            strncmp(session, SLICES_PREFIX, strlen(SLICES_PREFIX)) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder_path, entry->d_name);
        json_t *specification = json_load_file(path, 0, NULL);
        json_array_foreach(json_object_get(specification, "devices"), i, device) is_stale |=
            has_text(ids, count, session_text(device, "name"));
        json_decref(specification);
        slices_file_name(session, file);
        if (is_stale)
            result = node_end_session(kubelet, session, file, error);
    }
    return result;
}

static int fill_gpus(const struct kubelet *kubelet, char *const *ids, size_t count, json_t *body,
                     struct error *error)
{
    json_t *gpus = json_array(), *gpu;
    size_t i, most = 0, known = 0;
    char share[UNITS_SHARE_TEXT];
    json_array_foreach(kubelet->gpus, i, gpu)
    {
        size_t here = count_of_gpu(kubelet, gpu, ids, count);
        known += here;
        most = here > most ? here : most;
        if (here)
            json_array_append_new(gpus,
                                  json_pack("{s:s,s:I}", "gpu", session_text(gpu, "uuid"), "memory_bytes",
                                            (json_int_t)(here * slice_bytes(kubelet, gpu))));
    }
    json_object_set_new(body, "gpus", gpus);
    if (known != count || count == 0)
        return error_set(error, EINVAL, NULL, "%zu of the %zu slices that were asked for are of no GPU here",
                         count - known, count);
    struct share compute = kubelet->options.slice_compute;
    if (!compute.max)
        compute = (struct share){(uint32_t)(most * SHARE_WHOLE / kubelet->options.slice_count), SHARE_WHOLE};
    json_object_set_new(body, "compute", json_string(units_format_share(compute, share)));
    if (kubelet->options.slice_oversubscribe)
        json_object_set_new(body, "oversubscribe", json_string("swap"));
    return 0;
}

static int allocate_session(struct kubelet *kubelet, const Kubelet__ContainerAllocateRequest *request,
                            json_t **session, json_t **parts, struct error *error)
{
    char name[SLICES_NAME_TEXT], file[SLICES_FILE_TEXT];
    const char *const *ids = (const char *const *)request->devices;
    slices_session_name(ids, request->n_devices, name);
    slices_file_name(name, file);
    json_t *body = json_pack("{s:s}", "name", name);
    int result = fill_gpus(kubelet, request->devices, request->n_devices, body, error);
    if (result == 0)
        result = end_stale(kubelet, request->devices, request->n_devices, error);
    if (result < 0) {
        json_decref(body);
        return result;
    }
    pods_note_given(kubelet, name);
    const struct node_wish wish = {.body = body,
                                   .replace = true,
                                   .kind = CDI_KIND,
                                   .file = file,
                                   .names = ids,
                                   .name_count = (unsigned)request->n_devices};
    return node_make_session(kubelet, &wish, session, parts, error);
}

/* One container's part of the answer. What it points to is in `parts` and in itself. */
struct allocation {
    Kubelet__ContainerAllocateAnswer answer;
    json_t *session, *parts;
    Kubelet__TextEntry *envs;
    Kubelet__Mount *mounts;
    Kubelet__DeviceFile *devices;
    Kubelet__CdiName cdi, *cdi_pointer;
    char cdi_name[128];
};

static void *must_array(size_t count, size_t bytes)
{
    void *array = calloc(count + 1, bytes);
    if (!array)
        abort(); /* started again, with all state in the daemon */
    return array;
}

static void fill_envs(struct allocation *one, json_t *envs)
{
    size_t count = json_array_size(envs), i;
    Kubelet__TextEntry *entries = one->envs = must_array(count, sizeof(*entries));
    one->answer.envs = must_array(count, sizeof(*one->answer.envs));
    for (i = 0; i < count; i++) {
        char *text = strdup(json_string_value(json_array_get(envs, i)));
        kubelet__text_entry__init(&entries[i]);
        entries[i].key = text;
        entries[i].value = strchr(text, '=') + 1;
        entries[i].value[-1] = '\0';
        one->answer.envs[i] = &entries[i];
    }
    one->answer.n_envs = count;
}

static void fill_mounts(struct allocation *one, const json_t *mounts)
{
    size_t count = json_array_size(mounts);
    Kubelet__Mount *entries = one->mounts = must_array(count, sizeof(*entries));
    one->answer.mounts = must_array(count, sizeof(*one->answer.mounts));
    for (size_t i = 0; i < count; i++) {
        const json_t *mount = json_array_get(mounts, i);
        const char *mode = json_string_value(json_array_get(json_object_get(mount, "options"), 0));
        kubelet__mount__init(&entries[i]);
        entries[i].host_path = (char *)session_text(mount, "hostPath");
        entries[i].container_path = (char *)session_text(mount, "containerPath");
        entries[i].read_only = !mode || strcmp(mode, "rw") != 0;
        one->answer.mounts[i] = &entries[i];
    }
    one->answer.n_mounts = count;
}

static void fill_devices(struct allocation *one, const json_t *devices)
{
    size_t count = json_array_size(devices);
    Kubelet__DeviceFile *entries = one->devices = must_array(count, sizeof(*entries));
    one->answer.devices = must_array(count, sizeof(*one->answer.devices));
    for (size_t i = 0; i < count; i++) {
        const char *path = session_text(json_array_get(devices, i), "path");
        kubelet__device_file__init(&entries[i]);
        entries[i].host_path = entries[i].container_path = (char *)path;
        entries[i].permissions = "rw";
        one->answer.devices[i] = &entries[i];
    }
    one->answer.n_devices = count;
}

/* As environment, mounts and devices too: a runtime that leaves CDI names out must not start it without limits. */
static void fill_allocation(struct allocation *one, const char *first_id)
{
    kubelet__container_allocate_answer__init(&one->answer);
    fill_envs(one, json_object_get(one->parts, "env"));
    fill_mounts(one, json_object_get(one->parts, "mounts"));
    fill_devices(one, json_object_get(one->parts, "deviceNodes"));
    kubelet__cdi_name__init(&one->cdi);
    snprintf(one->cdi_name, sizeof(one->cdi_name), CDI_KIND "=%s", first_id);
    one->cdi.name = one->cdi_name;
    one->cdi_pointer = &one->cdi;
    one->answer.n_cdi_devices = 1;
    one->answer.cdi_devices = &one->cdi_pointer;
}

static void free_allocation(struct allocation *one)
{
    for (size_t i = 0; i < one->answer.n_envs; i++)
        free(one->answer.envs[i]->key);
    free(one->envs);
    free(one->mounts);
    free(one->devices);
    free(one->answer.envs);
    free(one->answer.mounts);
    free(one->answer.devices);
    json_decref(one->session);
    json_decref(one->parts);
}

/* A call, and the task that does it. */
struct allocate_job {
    struct kubelet *kubelet;
    struct grpc_call *call; /* NULL: the kubelet has gone, and asks again */
    Kubelet__AllocateRequest *request;
};

static void answer_allocate(const struct allocate_job *job, struct allocation *all, size_t done, int result,
                            const struct error *error)
{
    Kubelet__AllocateAnswer answer = KUBELET__ALLOCATE_ANSWER__INIT;
    if (!job->call)
        return;
    if (result < 0) {
        fprintf(stderr, "gpuslice-kubelet: slices cannot be given: %s\n", error->message);
        grpc_call_end(job->call, result == -EINVAL ? GRPC_INVALID_ARGUMENT : GRPC_INTERNAL, error->message);
        return;
    }
    answer.n_containers = done;
    answer.containers = must_array(done, sizeof(*answer.containers));
    for (size_t i = 0; i < done; i++)
        answer.containers[i] = &all[i].answer;
    message_answer(job->call, &answer.base);
    free(answer.containers);
}

static void run_allocate(void *context)
{
    struct allocate_job *job = context;
    size_t count = job->request->n_containers, done = 0;
    struct allocation *all = must_array(count, sizeof(*all));
    struct error error = {0};
    struct task_lock lock;
    int result = 0;
    task_lock(&lock, SLICES_LOCK);
    while (done < count && result == 0 && job->call) {
        const Kubelet__ContainerAllocateRequest *container = job->request->containers[done];
        result = allocate_session(job->kubelet, container, &all[done].session, &all[done].parts, &error);
        if (result == 0)
            fill_allocation(&all[done++], container->devices[0]);
    }
    task_unlock(&lock);
    answer_allocate(job, all, done, result, &error);
    for (size_t i = 0; i < done; i++)
        free_allocation(&all[i]);
    free(all);
    kubelet__allocate_request__free_unpacked(job->request, NULL);
    free(job);
}

static void forget_call(void *context, struct grpc_call *call)
{
    struct allocate_job *job = context;
    job->call = NULL;
}

static void allocate(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    const struct slices *slices = context;
    struct allocate_job *job = must_array(1, sizeof(*job));
    *job = (struct allocate_job){.kubelet = slices->kubelet,
                                 .call = call,
                                 .request = kubelet__allocate_request__unpack(NULL, bytes, message)};
    if (!job->request) {
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "this is no AllocateRequest");
        free(job);
        return;
    }
    grpc_call_watch(call, forget_call, job);
    if (task_start(run_allocate, job))
        return;
    grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "too many calls at once");
    kubelet__allocate_request__free_unpacked(job->request, NULL);
    free(job);
}

static const struct grpc_method methods[] = {
    {"/v1beta1.DevicePlugin/GetDevicePluginOptions", get_options},
    {"/v1beta1.DevicePlugin/ListAndWatch", list_and_watch},
    {"/v1beta1.DevicePlugin/GetPreferredAllocation", get_preference},
    {"/v1beta1.DevicePlugin/Allocate", allocate},
    {"/v1beta1.DevicePlugin/PreStartContainer", prepare_start},
    {NULL, NULL},
};

/* --- Registration ---------------------------------------------------------------------------------- */

static void on_message(void *context, const uint8_t *message, size_t bytes)
{
}

static void on_registered(void *context, enum grpc_status status, const char *text)
{
    struct slices *slices = context;
    slices->registering = NULL;
    if (status == GRPC_OK) {
        slices->registered_with = slices->registering_with;
        slices->is_failure_told = false;
        fprintf(stderr, "gpuslice-kubelet: the kubelet has %s\n", slices->kubelet->options.resource);
    } else if (!slices->is_failure_told) {
        slices->is_failure_told = true;
        fprintf(stderr, "gpuslice-kubelet: the kubelet at %s does not take %s: %s; it is asked again\n",
                slices->kubelet_socket, slices->kubelet->options.resource, text);
    }
}

static const struct grpc_answer on_registration = {on_message, on_registered};

static void register_slices(struct slices *slices, ino_t with)
{
    Kubelet__RegisterRequest request = KUBELET__REGISTER_REQUEST__INIT;
    Kubelet__DevicePluginOptions options = KUBELET__DEVICE_PLUGIN_OPTIONS__INIT;
    size_t bytes;
    options.get_preferred_allocation_available = 1;
    request.version = "v1beta1";
    request.endpoint = slices->endpoint;
    request.resource_name = (char *)slices->kubelet->options.resource;
    request.options = &options;
    uint8_t *packed = message_pack(&request.base, &bytes);
    if (!packed)
        return;
    slices->registering_with = with;
    /* The kubelet calls us back before it answers. */
    slices->registering =
        grpc_ask(slices->kubelet->loop, slices->kubelet_socket, "/v1beta1.Registration/Register", packed,
                 bytes, REGISTER_TIMEOUT_USEC, &on_registration, slices);
    free(packed);
}

static int open_server(struct slices *slices, struct error *error)
{
    slices->registered_with = 0;
    return grpc_server_open(slices->kubelet->loop, slices->socket, methods, slices, &slices->server, error);
}

void slices_tick(struct kubelet *kubelet)
{
    struct slices *slices = kubelet->slices;
    struct stat status;
    struct error error;
    if (!slices || !json_array_size(kubelet->gpus))
        return; /* without a GPU nothing is offered */
    if (!rivals_are_absent(kubelet, slices->socket))
        return;
    /* A kubelet that starts removes all sockets there. */
    if (slices->server && !grpc_server_is_found(slices->server)) {
        grpc_server_close(slices->server);
        slices->server = NULL;
    }
    if (!slices->server && open_server(slices, &error) < 0) {
        if (!slices->is_failure_told)
            fprintf(stderr, "gpuslice-kubelet: %s\n", error.message);
        slices->is_failure_told = true;
        return;
    }
    tell_watchers_of_changes(slices);
    if (stat(slices->kubelet_socket, &status) == 0 && status.st_ino != slices->registered_with &&
        !slices->registering)
        register_slices(slices, status.st_ino);
}

int slices_start(struct kubelet *kubelet, struct error *error)
{
    struct slices *slices = must_array(1, sizeof(*slices));
    char below[256];
    slices->kubelet = kubelet;
    snprintf(slices->endpoint, sizeof(slices->endpoint), "%.100s.sock", kubelet->options.resource);
    for (char *at = slices->endpoint; *at; at++)
        if (*at == '/')
            *at = '-';
    snprintf(below, sizeof(below), "device-plugins/%s", slices->endpoint);
    int result = kubelet_path(kubelet, slices->socket, below, error);
    if (result == 0)
        result = kubelet_path(kubelet, slices->kubelet_socket, "device-plugins/kubelet.sock", error);
    if (result < 0) {
        free(slices);
        return result;
    }
    kubelet->slices = slices;
    return 0;
}

void slices_stop(struct kubelet *kubelet)
{
    struct slices *slices = kubelet->slices;
    if (!slices)
        return;
    rivals_stop();
    grpc_give_up(slices->registering);
    grpc_server_close(slices->server);
    free(slices->shown);
    free(slices);
    kubelet->slices = NULL;
}
