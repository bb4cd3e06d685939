#include "kube/dra/dra.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "client/session_fields.h"
#include "kube/dra/claim.h"
#include "kube/dra/claim_names.h"
#include "kube/dra/claim_words.h"
#include "kube/dra/dra_claims.h"
#include "kube/dra/dra_forgotten.h"
#include "kube/dra/resource_slices.h"
#include "kube/grpc/messages.h"
#include "kube/grpc/watchers.h"
#include "kube/node/notes.h"

/* after 30 s without news the kubelet takes a device's health as unknown */
#define HEALTH_NS (UINT64_C(10) * 1000000000)

struct dra {
    struct kubelet *kubelet; /* must be first: dra_claims.h */
    struct grpc_server *server, *registration;
    char socket[PATH_MAX], registration_socket[PATH_MAX];
    bool is_registered;
    bool is_failure_told;
    struct watchers watchers; /* kubelets that follow the devices' health */
    uint64_t health_ns;       /* when to tell them again, at the latest */
    char *told;               /* the GPUs as they were told last */
};

/* --- Registration ---------------------------------------------------------------------------------- */

static void get_info(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    struct dra *dra = context;
    Kubelet__PluginInfo info = KUBELET__PLUGIN_INFO__INIT;
    char *versions[] = {"v1.DRAPlugin", "v1alpha1.DRAResourceHealth"};
    info.type = "DRAPlugin";
    info.name = CLAIM_DRIVER;
    info.endpoint = dra->socket;
    info.n_supported_versions = 2;
    info.supported_versions = versions;
    message_answer(call, &info.base);
}

static void notify_status(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    struct dra *dra = context;
    Kubelet__RegistrationStatus *status = kubelet__registration_status__unpack(NULL, bytes, message);
    Kubelet__Empty empty = KUBELET__EMPTY__INIT;
    if (!status) {
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "this is not a RegistrationStatus");
        return;
    }
    dra->is_registered = status->plugin_registered;
    kubelet_look_soon(dra->kubelet);
    fprintf(stderr, "gpuslice-kubelet: the kubelet %s " CLAIM_DRIVER "%s%s\n",
            status->plugin_registered ? "has" : "refused", status->plugin_registered ? "" : ": ",
            status->plugin_registered ? "" : status->error);
    kubelet__registration_status__free_unpacked(status, NULL);
    message_answer(call, &empty.base);
}

/* --- Health ---------------------------------------------------------------------------------------- */

/* One device's part of the list. */
struct health {
    Kubelet__DeviceHealth entry;
    Kubelet__DeviceName name;
};

static void tell_health(void *context, struct grpc_call *call)
{
    const struct kubelet *kubelet = ((const struct dra *)context)->kubelet;
    size_t count = json_array_size(kubelet->gpus), i;
    Kubelet__HealthList list = KUBELET__HEALTH_LIST__INIT;
    struct health *all = message_array(count, sizeof(*all));
    list.devices = message_array(count, sizeof(*list.devices));
    for (i = 0; i < count; i++) {
        const json_t *gpu = json_array_get(kubelet->gpus, i);
        kubelet__device_health__init(&all[i].entry);
        kubelet__device_name__init(&all[i].name);
        all[i].name.pool_name = (char *)kubelet->options.node;
        all[i].name.device_name = claim_device_name(session_text(gpu, "uuid"));
        all[i].entry.device = &all[i].name;
        all[i].entry.health = json_is_true(json_object_get(gpu, "healthy")) ? 1 : 2;
        all[i].entry.last_updated_time = time(NULL);
        list.devices[list.n_devices++] = &all[i].entry;
    }
    message_send(call, &list.base);
    for (i = 0; i < count; i++)
        free(all[i].name.device_name);
    free(all);
    free(list.devices);
}

static void watch_health(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    struct dra *dra = context;
    watchers_add(&dra->watchers, call, tell_health, dra);
}

/* Tell the watchers when something changed, and otherwise every HEALTH_NS. */
static void tell_watchers(struct dra *dra)
{
    json_t *devices = resource_slices_devices(dra->kubelet->gpus);
    char *now = json_dumps(devices, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(devices);
    if (now && dra->told && strcmp(now, dra->told) == 0 && monotonic_ns() < dra->health_ns) {
        free(now);
        return;
    }
    free(dra->told);
    dra->told = now;
    dra->health_ns = monotonic_ns() + HEALTH_NS;
    watchers_tell(&dra->watchers, tell_health, dra);
}

static const struct grpc_method methods[] = {
    {"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", dra_claims_prepare},
    {"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources", dra_claims_unprepare},
    {"/v1alpha1.DRAResourceHealth/NodeWatchResources", watch_health},
    {NULL, NULL},
};

static const struct grpc_method registration_methods[] = {
    {"/pluginregistration.Registration/GetInfo", get_info},
    {"/pluginregistration.Registration/NotifyRegistrationStatus", notify_status},
    {NULL, NULL},
};

/* --- Its life -------------------------------------------------------------------------------------- */

static int keep_server(struct dra *dra, const char *path, const struct grpc_method *served,
                       struct grpc_server **server, struct error *error)
{
    if (*server && grpc_server_is_found(*server))
        return 0;
    grpc_server_close(*server);
    *server = NULL;
    return grpc_server_open(dra->kubelet->loop, path, served, dra, server, error);
}

static void tell_failure(struct dra *dra, const struct error *error)
{
    if (!dra->is_failure_told)
        fprintf(stderr, "gpuslice-kubelet: %s; trying again\n", error->message);
    dra->is_failure_told = true;
}

static void close_servers(struct dra *dra)
{
    grpc_server_close(dra->registration);
    grpc_server_close(dra->server);
    dra->registration = dra->server = NULL;
}

/* In another mode the claims that are left are served until their pods end, or those would be Terminating for ever. No
 * GPU is published for further ones. */
static bool is_wanted(struct dra *dra)
{
    struct kubelet *kubelet = dra->kubelet;
    bool are_left = !kubelet->options.dra && claim_names_are_left(kubelet);
    notes_set(
        kubelet, "claims",
        are_left
            ? "pods still have claims of the mode dra, which this mode does not offer; they are served until "
              "these pods end"
            : NULL);
    if (!kubelet->options.dra && !are_left)
        close_servers(dra);
    return kubelet->options.dra || are_left;
}

void dra_tick(struct kubelet *kubelet)
{
    struct dra *dra = kubelet->dra;
    struct error error;
    if (!dra || !kubelet->is_daemon_known || !is_wanted(dra))
        return;
    tell_watchers(dra);
    dra_forgotten_tick(kubelet);
    /* The socket for claims comes first, as the kubelet calls it as soon as it sees the registration socket. */
    if (keep_server(dra, dra->socket, methods, &dra->server, &error) < 0 ||
        keep_server(dra, dra->registration_socket, registration_methods, &dra->registration, &error) < 0)
        tell_failure(dra, &error);
    else if (dra->is_registered)
        resource_slices_tick(kubelet);
}

static int make_folder(const struct kubelet *kubelet, const char *below, struct error *error)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof(folder), "%.3000s/%s", kubelet->options.kubelet_dir, below);
    return mkdir(folder, 0750) == 0 || errno == EEXIST
               ? 0
               : error_set_errno(error, errno, "cannot make the folder %s", folder);
}

int dra_start(struct kubelet *kubelet, struct error *error)
{
    bool may_serve = kubelet->options.node && kubelet->options.api.url;
    if (!kubelet->options.dra && !(may_serve && claim_names_are_left(kubelet)))
        return 0;
    struct dra *dra = message_array(1, sizeof(*dra));
    dra->kubelet = kubelet;
    kubelet->dra = dra;
    int result = make_folder(kubelet, "plugins/" CLAIM_DRIVER, error);
    if (result == 0)
        result = make_folder(kubelet, CLAIM_NAMES_FOLDER, error);
    if (result == 0)
        result = kubelet_path(kubelet, dra->socket, "plugins/" CLAIM_DRIVER "/dra.sock", error);
    if (result == 0)
        result = kubelet_path(kubelet, dra->registration_socket, "plugins_registry/" CLAIM_DRIVER "-reg.sock",
                              error);
    return result;
}

void dra_stop(struct kubelet *kubelet)
{
    struct dra *dra = kubelet->dra;
    if (!dra)
        return;
    close_servers(dra);
    free(dra->told);
    free(dra);
    kubelet->dra = NULL;
}
