#include "kube/dra.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "client/session_fields.h"
#include "kube/claim.h"
#include "kube/messages.h"
#include "kube/node.h"
#include "kube/resource_slices.h"
#include "kube/watchers.h"

#define CDI_KIND "gpuslice.io/claim"
#define LOOK_NS (UINT64_C(30) * 1000000000) /* at what is published, without a reason */
#define RETRY_NS (UINT64_C(2) * 1000000000)
#define UID_MAX 50
#define HEALTH_NS (UINT64_C(10) * 1000000000) /* the kubelet takes what is older than 30 s for unknown */

struct dra {
    struct kubelet *kubelet;
    struct grpc_server *server, *registration;
    char socket[PATH_MAX], registration_socket[PATH_MAX];
    bool is_registered;
    uint64_t look_ns; /* when what is published is looked at next; 0: now */
    char *published;  /* the GPUs as they were then */
    bool is_failure_told;
    struct watchers watchers; /* kubelets that follow the devices' health */
    uint64_t health_ns;       /* when they are told again */
    char *told;               /* the GPUs as they were then */
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
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "this is no RegistrationStatus");
        return;
    }
    dra->is_registered = status->plugin_registered;
    dra->look_ns = 0; /* a kubelet that starts takes the node's slices away */
    fprintf(stderr, "gpuslice-kubelet: the kubelet %s " CLAIM_DRIVER "%s%s\n",
            status->plugin_registered ? "has" : "refused", status->plugin_registered ? "" : ": ",
            status->plugin_registered ? "" : status->error);
    kubelet__registration_status__free_unpacked(status, NULL);
    message_answer(call, &empty.base);
}

/* --- Preparing ------------------------------------------------------------------------------------- */

static int check_claim(const Kubelet__Claim *claim, struct error *error)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-";
    static const char names[] = "0123456789abcdefghijklmnopqrstuvwxyz-.";
    size_t length = strlen(claim->uid);
    if (length == 0 || length > UID_MAX || claim->uid[strspn(claim->uid, letters)] != '\0' ||
        claim->uid[0] == '-' || !*claim->name || claim->name[strspn(claim->name, names)] != '\0' ||
        strlen(claim->name) > 253 || !*claim->namespace_ ||
        claim->namespace_[strspn(claim->namespace_, names)] != '\0' || strlen(claim->namespace_) > 63)
        return error_set(error, EINVAL, NULL, "'%.60s/%.60s' with UID '%.60s' is not a claim that could be",
                         claim->namespace_, claim->name, claim->uid);
    return 0;
}

static void name_session(const char *uid, char session[static 64], char file[static 80])
{
    snprintf(session, 64, "claim-%.56s", uid);
    snprintf(file, 80, "gpuslice-claim-%.56s", uid);
}

static int prepare(struct kubelet *kubelet, const Kubelet__Claim *claim, json_t **devices,
                   struct error *error)
{
    char path[512], name[64], file[80];
    json_t *document = NULL, *body = NULL, *session = NULL, *parts = NULL;
    int result = check_claim(claim, error);
    if (result < 0)
        return result;
    snprintf(path, sizeof(path), "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s",
             claim->namespace_, claim->name);
    int status = api_request(&kubelet->options.api, "GET", path, NULL, &document, error);
    result = status < 0 ? status : status == 200 ? 0 : api_refused(status, path, document, error);
    if (result == 0)
        result = claim_read(document, claim->uid, kubelet->gpus, &body, devices, error);
    json_decref(document);
    if (result < 0)
        return result;
    name_session(claim->uid, name, file);
    const char *names[] = {claim->uid};
    const struct node_wish wish = {
        .body = body, .kind = CDI_KIND, .file = file, .names = names, .name_count = 1};
    result = node_make_session(kubelet, &wish, &session, &parts, error);
    json_decref(session);
    json_decref(parts);
    if (result < 0) {
        json_decref(*devices);
        *devices = NULL;
    }
    return result;
}

static int unprepare(struct kubelet *kubelet, const Kubelet__Claim *claim, struct error *error)
{
    char name[64], file[80];
    int result = check_claim(claim, error);
    name_session(claim->uid, name, file);
    return result < 0 ? result : node_end_session(kubelet, name, file, error);
}

/* --- The methods ----------------------------------------------------------------------------------- */

/* One claim's part of the answer; strings are in `devices`, in itself, or the request's. */
struct prepared {
    Kubelet__PrepareEntry entry;
    Kubelet__PreparedClaim claim;
    Kubelet__PreparedDevice *list, **pointers;
    char **requests; /* one a device */
    json_t *devices;
    char cdi[128], *cdi_pointer;
    struct error error;
};

static void *must_array(size_t count, size_t bytes)
{
    void *array = calloc(count + 1, bytes);
    if (!array)
        abort(); /* started again, with all state in the daemon */
    return array;
}

/* "request/subrequest": the container names the first. */
static char *base_request(const char *request)
{
    char *base = strdup(request);
    if (!base)
        abort();
    base[strcspn(base, "/")] = '\0';
    return base;
}

static void fill_prepared(struct prepared *one, const char *uid)
{
    size_t count = json_array_size(one->devices);
    one->list = must_array(count, sizeof(*one->list));
    one->pointers = must_array(count, sizeof(*one->pointers));
    one->requests = must_array(count, sizeof(*one->requests));
    snprintf(one->cdi, sizeof(one->cdi), CDI_KIND "=%.60s", uid);
    one->cdi_pointer = one->cdi;
    for (size_t i = 0; i < count; i++) {
        const json_t *device = json_array_get(one->devices, i);
        Kubelet__PreparedDevice *to = &one->list[i];
        kubelet__prepared_device__init(to);
        one->requests[i] = base_request(session_text(device, "request"));
        to->n_request_names = 1;
        to->request_names = &one->requests[i];
        to->pool_name = (char *)session_text(device, "pool");
        to->device_name = (char *)session_text(device, "device");
        to->share_id = (char *)session_text(device, "share_id");
        to->n_cdi_device_ids = 1;
        to->cdi_device_ids = &one->cdi_pointer;
        one->pointers[i] = to;
    }
    one->claim.n_devices = count;
    one->claim.devices = one->pointers;
}

static void free_prepared(struct prepared *one)
{
    for (size_t i = 0; i < one->claim.n_devices; i++)
        free(one->requests[i]);
    free(one->list);
    free(one->pointers);
    free(one->requests);
    json_decref(one->devices);
}

/* Every claim has an answer: one that fails fails alone. */
static void prepare_resources(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    struct dra *dra = context;
    Kubelet__ClaimsRequest *request = kubelet__claims_request__unpack(NULL, bytes, message);
    Kubelet__PrepareAnswer answer = KUBELET__PREPARE_ANSWER__INIT;
    if (!request) {
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "this is no NodePrepareResourcesRequest");
        return;
    }
    struct prepared *all = must_array(request->n_claims, sizeof(*all));
    answer.claims = must_array(request->n_claims, sizeof(*answer.claims));
    for (size_t i = 0; i < request->n_claims; i++) {
        struct prepared *one = &all[i];
        kubelet__prepare_entry__init(&one->entry);
        kubelet__prepared_claim__init(&one->claim);
        one->entry.key = request->claims[i]->uid;
        one->entry.value = &one->claim;
        answer.claims[answer.n_claims++] = &one->entry;
        if (prepare(dra->kubelet, request->claims[i], &one->devices, &one->error) == 0) {
            fill_prepared(one, request->claims[i]->uid);
        } else {
            one->claim.error = one->error.message;
            fprintf(stderr, "gpuslice-kubelet: claim %.63s/%.253s: %s\n", request->claims[i]->namespace_,
                    request->claims[i]->name, one->error.message);
        }
    }
    message_answer(call, &answer.base);
    for (size_t i = 0; i < request->n_claims; i++)
        free_prepared(&all[i]);
    free(all);
    free(answer.claims);
    kubelet__claims_request__free_unpacked(request, NULL);
}

struct unprepared {
    Kubelet__UnprepareEntry entry;
    Kubelet__UnpreparedClaim claim;
    struct error error;
};

static void unprepare_resources(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    struct dra *dra = context;
    Kubelet__ClaimsRequest *request = kubelet__claims_request__unpack(NULL, bytes, message);
    Kubelet__UnprepareAnswer answer = KUBELET__UNPREPARE_ANSWER__INIT;
    if (!request) {
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "this is no NodeUnprepareResourcesRequest");
        return;
    }
    struct unprepared *all = must_array(request->n_claims, sizeof(*all));
    answer.claims = must_array(request->n_claims, sizeof(*answer.claims));
    for (size_t i = 0; i < request->n_claims; i++) {
        kubelet__unprepare_entry__init(&all[i].entry);
        kubelet__unprepared_claim__init(&all[i].claim);
        all[i].entry.key = request->claims[i]->uid;
        all[i].entry.value = &all[i].claim;
        answer.claims[answer.n_claims++] = &all[i].entry;
        if (unprepare(dra->kubelet, request->claims[i], &all[i].error) < 0)
            all[i].claim.error = all[i].error.message;
    }
    message_answer(call, &answer.base);
    free(all);
    free(answer.claims);
    kubelet__claims_request__free_unpacked(request, NULL);
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
    struct health *all = must_array(count, sizeof(*all));
    list.devices = must_array(count, sizeof(*list.devices));
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

/* When something is other than before, and from time to time. */
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
    {"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", prepare_resources},
    {"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources", unprepare_resources},
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
        fprintf(stderr, "gpuslice-kubelet: %s; it is tried again\n", error->message);
    dra->is_failure_told = true;
}

static void publish(struct dra *dra)
{
    struct error error;
    json_t *devices = resource_slices_devices(dra->kubelet->gpus);
    char *now = json_dumps(devices, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(devices);
    bool is_changed = !now || !dra->published || strcmp(now, dra->published) != 0;
    if (!is_changed && dra->look_ns && monotonic_ns() < dra->look_ns) {
        free(now);
        return;
    }
    if (is_changed && dra->look_ns && monotonic_ns() < dra->look_ns && dra->is_failure_told) {
        free(now); /* a server that does not answer is not asked every second */
        return;
    }
    if (resource_slices_publish(dra->kubelet, &error) < 0) {
        tell_failure(dra, &error);
        dra->look_ns = monotonic_ns() + RETRY_NS;
        free(now);
        return;
    }
    dra->is_failure_told = false;
    dra->look_ns = monotonic_ns() + LOOK_NS;
    free(dra->published);
    dra->published = now;
}

void dra_tick(struct kubelet *kubelet)
{
    struct dra *dra = kubelet->dra;
    struct error error;
    if (!dra || !kubelet->is_daemon_known)
        return;
    tell_watchers(dra);
    /* Claims first: the kubelet calls as soon as it has seen the other. */
    if (keep_server(dra, dra->socket, methods, &dra->server, &error) < 0 ||
        keep_server(dra, dra->registration_socket, registration_methods, &dra->registration, &error) < 0)
        tell_failure(dra, &error);
    else if (dra->is_registered)
        publish(dra);
}

int dra_start(struct kubelet *kubelet, struct error *error)
{
    struct dra *dra = must_array(1, sizeof(*dra));
    char folder[PATH_MAX];
    dra->kubelet = kubelet;
    kubelet->dra = dra;
    int result = kubelet_path(kubelet, folder, "plugins/" CLAIM_DRIVER, error);
    if (result == 0 && mkdir(folder, 0750) < 0 && errno != EEXIST)
        result = error_set_errno(error, errno, "cannot make the folder %s", folder);
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
    grpc_server_close(dra->registration);
    grpc_server_close(dra->server);
    free(dra->published);
    free(dra->told);
    free(dra);
    kubelet->dra = NULL;
}
