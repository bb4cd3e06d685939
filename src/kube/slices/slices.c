#include "kube/slices/slices.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "base/pci.h"
#include "client/session_fields.h"
#include "kube/grpc/messages.h"
#include "kube/grpc/watchers.h"
#include "kube/slices/offered.h"
#include "kube/slices/other_plugins.h"
#include "kube/slices/slice_ids.h"
#include "kube/slices/slices_allocate.h"

#define REGISTER_TIMEOUT_USEC UINT64_C(5000000)

/* The kubelet's socket can be seen before the kubelet listens on it. */
#define HASTE_USEC UINT64_C(20000)
#define HASTY_TRIES 25

struct slices {
    struct kubelet *kubelet; /* must be first: slices_allocate.h */
    struct grpc_server *server;
    char socket[PATH_MAX], kubelet_socket[PATH_MAX], endpoint[128];
    struct watchers watchers; /* kubelets that follow the list */
    struct grpc_request *registering;
    ino_t registered_with; /* inode of the kubelet's socket; 0: none yet */
    ino_t registering_with;
    unsigned hasty_tries; /* tries left since the kubelet made its socket */
    /* tells of sockets that come and go; NULL: the folder does not exist yet */
    sd_event_source *sockets;
    /* the list that the watchers got last, as JSON; NULL: none */
    char *shown;
    bool is_failure_told;
};

/* --- The list -------------------------------------------------------------------------------------- */

/* Every slice that is offered, with its health, as an object. When it changes, the watchers are told. */
static json_t *list_slices(const struct kubelet *kubelet)
{
    json_t *list = json_object(), *gpu;
    size_t i;
    json_array_foreach(kubelet->gpus, i, gpu)
    {
        for (unsigned number = 0; number < kubelet->options.slice_count; number++) {
            char id[SLICE_ID_TEXT];
            slice_ids_format(kubelet, session_text(gpu, "uuid"), number, id);
            if (offered_has(id))
                json_object_set(list, id, json_object_get(gpu, "healthy"));
        }
    }
    return list;
}

/* One device's part of the list. */
struct listed {
    Kubelet__PluginDevice device;
    Kubelet__Topology topology;
    Kubelet__NumaNode node, *nodes;
};

static void fill_listed(const struct kubelet *kubelet, const char *id, bool is_healthy, struct listed *listed)
{
    const json_t *gpu = slice_ids_gpu(kubelet, id);
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

/* --- Which slices go together ------------------------------------------------------------------------ */

/* The GPU for the next slices: first one that was begun; then one that has enough left, the one with the least
 * left; then the one with the most left. NULL: none has any left. */
static json_t *next_gpu(const struct kubelet *kubelet, char *const *available, size_t count,
                        char *const *chosen, size_t chosen_count, size_t wanted)
{
    json_t *best = NULL, *gpu;
    size_t best_score = 0, i;
    json_array_foreach(kubelet->gpus, i, gpu)
    {
        size_t taken = slice_ids_count(kubelet, gpu, chosen, chosen_count);
        size_t left = slice_ids_count(kubelet, gpu, available, count) - taken;
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
        if (slice_ids_have(request->available, request->n_available, request->must_include[i]) &&
            !slice_ids_have(chosen, count, request->must_include[i]))
            chosen[count++] = request->must_include[i];
    while (count < wanted) {
        const json_t *gpu =
            next_gpu(kubelet, request->available, request->n_available, chosen, count, wanted - count);
        size_t before = count;
        for (size_t i = 0; i < request->n_available && count < wanted && gpu; i++)
            if (slice_ids_gpu(kubelet, request->available[i]) == gpu &&
                !slice_ids_have(chosen, count, request->available[i]))
                chosen[count++] = request->available[i];
        if (count == before)
            break; /* the rest belongs to no GPU of ours */
    }
    return count;
}

/* Far more than a node has; a longer list gets no preference. */
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
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "this is not a PreferredAllocationRequest");
    for (size_t i = 0; parts && i < count; i++)
        free(parts[i].devices);
    free(parts);
    free(pointers);
    if (request)
        kubelet__preference_request__free_unpacked(request, NULL);
}

static const struct grpc_method methods[] = {
    {"/v1beta1.DevicePlugin/GetDevicePluginOptions", get_options},
    {"/v1beta1.DevicePlugin/ListAndWatch", list_and_watch},
    {"/v1beta1.DevicePlugin/GetPreferredAllocation", get_preference},
    {"/v1beta1.DevicePlugin/Allocate", slices_allocate},
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
    } else if (status == GRPC_UNAVAILABLE && slices->hasty_tries) {
        slices->hasty_tries--;
        kubelet_look_in(slices->kubelet, HASTE_USEC);
    } else if (!slices->is_failure_told) {
        slices->is_failure_told = true;
        fprintf(stderr, "gpuslice-kubelet: the kubelet at %s refuses %s: %s; asking again\n",
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

/* A kubelet that has removed our socket does not answer an open registration, or answers too late, so that is
 * dropped. */
static int open_server(struct slices *slices, struct error *error)
{
    grpc_give_up(slices->registering);
    slices->registering = NULL;
    slices->registered_with = 0;
    return grpc_server_open(slices->kubelet->loop, slices->socket, methods, slices, &slices->server, error);
}

static int on_socket(sd_event_source *source, const struct inotify_event *event, void *userdata)
{
    struct slices *slices = userdata;
    if (event->mask & IN_IGNORED) { /* the folder was removed */
        sd_event_source_disable_unref(slices->sockets);
        slices->sockets = NULL;
        return 0;
    }
    const char *name = event->len ? event->name : "";
    bool is_kubelets = strcmp(name, strrchr(slices->kubelet_socket, '/') + 1) == 0;
    if (is_kubelets && !(event->mask & IN_DELETE))
        slices->hasty_tries = HASTY_TRIES;
    if (is_kubelets || strcmp(name, slices->endpoint) == 0)
        kubelet_look_soon(slices->kubelet);
    return 0;
}

/* A kubelet that starts checks the node's pods a second later, and fails those whose slices it does not know by
 * then. */
static void watch_sockets(struct slices *slices)
{
    char folder[PATH_MAX];
    if (slices->sockets)
        return;
    snprintf(folder, sizeof(folder), "%.*s",
             (int)(strrchr(slices->kubelet_socket, '/') - slices->kubelet_socket), slices->kubelet_socket);
    if (sd_event_add_inotify(slices->kubelet->loop, &slices->sockets, folder,
                             IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_ONLYDIR, on_socket, slices) < 0)
        slices->sockets = NULL; /* look each second instead */
}

/* So many have a list that fits into a message: each takes less than 120 bytes of GRPC_MESSAGE_MAX. */
#define SLICES_MOST 8192u

static bool are_few_enough(struct kubelet *kubelet)
{
    size_t gpus = json_array_size(kubelet->gpus);
    if (gpus * kubelet->options.slice_count <= SLICES_MOST)
        return true;
    fprintf(stderr,
            "gpuslice-kubelet: %zu GPUs of %u slices each have %zu slices together; expected at most %u; use "
            "a smaller --slices\n",
            gpus, kubelet->options.slice_count, gpus * kubelet->options.slice_count, SLICES_MOST);
    sd_event_exit(kubelet->loop, -EBUSY);
    return false;
}

void slices_tick(struct kubelet *kubelet)
{
    struct slices *slices = kubelet->slices;
    struct stat status;
    struct error error;
    if (!slices || !json_array_size(kubelet->gpus) || !offered_is_known())
        return; /* there is nothing to offer */
    if (!are_few_enough(kubelet) || !other_plugins_are_absent(kubelet, slices->socket))
        return;
    watch_sockets(slices);
    /* A kubelet that starts removes all sockets in the folder. */
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
    struct slices *slices = message_array(1, sizeof(*slices));
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
    other_plugins_stop();
    offered_stop();
    sd_event_source_disable_unref(slices->sockets);
    grpc_give_up(slices->registering);
    grpc_server_close(slices->server);
    free(slices->shown);
    free(slices);
    kubelet->slices = NULL;
}
