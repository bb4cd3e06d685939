#include "kube/dra.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "client/session_fields.h"
#include "kube/claim.h"
#include "kube/messages.h"
#include "kube/node.h"
#include "kube/resource_slices.h"
#include "kube/tasks.h"
#include "kube/watchers.h"

#define CDI_KIND "gpuslice.io/claim"
#define UID_MAX 50
#define HEALTH_NS (UINT64_C(10) * 1000000000) /* the kubelet takes what is older than 30 s for unknown */

struct dra {
    struct kubelet *kubelet;
    struct grpc_server *server, *registration;
    char socket[PATH_MAX], registration_socket[PATH_MAX];
    bool is_registered;
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
    kubelet_look_soon(dra->kubelet);
    fprintf(stderr, "gpuslice-kubelet: the kubelet %s " CLAIM_DRIVER "%s%s\n",
            status->plugin_registered ? "has" : "refused", status->plugin_registered ? "" : ": ",
            status->plugin_registered ? "" : status->error);
    kubelet__registration_status__free_unpacked(status, NULL);
    message_answer(call, &empty.base);
}

static void *must_array(size_t count, size_t bytes)
{
    void *array = calloc(count + 1, bytes);
    if (!array)
        abort(); /* started again, with all state in the daemon */
    return array;
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

/* What one claim came to. */
struct outcome {
    json_t *devices;    /* of one that was prepared */
    struct error error; /* status 0: it went well */
};

/* Each device of a claim has a CDI name of its own, UID-N, that leads to all of it. The kubelet takes names for the IDs of devices,
 * and cannot write a pod's status where one comes twice; and one that was restarted asks again, and adds the answer to what
 * it has. So whoever asks again is given new names, and the old ones stay good. */
#define NAMES_MOST 128u

static unsigned count_names(const struct kubelet *kubelet, const char *file)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s.json", kubelet->options.cdi_dir, file);
    json_t *specification = json_load_file(path, 0, NULL);
    size_t count = json_array_size(json_object_get(specification, "devices"));
    json_decref(specification);
    return count < NAMES_MOST ? (unsigned)count : NAMES_MOST;
}

/* Those before `first` were given earlier. Returns all of them, and sets each device's. */
static json_t *name_devices(json_t *devices, const char *uid, unsigned first)
{
    json_t *names = json_array(), *device;
    size_t i;
    for (unsigned old = 0; old < first; old++)
        json_array_append_new(names, json_sprintf("%.60s-%u", uid, old));
    json_array_foreach(devices, i, device)
    {
        json_t *name = json_sprintf("%.60s-%zu", uid, first + i);
        json_object_set(device, "cdi", name);
        json_array_append_new(names, name);
    }
    return names;
}

/* `body` is consumed. */
static int make_devices(struct kubelet *kubelet, const char *uid, json_t *body, json_t *devices,
                        struct error *error)
{
    char name[64], file[80];
    json_t *session = NULL, *parts = NULL;
    name_session(uid, name, file);
    json_t *all = name_devices(devices, uid, count_names(kubelet, file));
    unsigned count = (unsigned)json_array_size(all);
    cleanup_free const char **names = must_array(count, sizeof(*names));
    for (unsigned i = 0; i < count; i++)
        names[i] = json_string_value(json_array_get(all, i));
    const struct node_wish wish = {
        .body = body, .kind = CDI_KIND, .file = file, .names = names, .name_count = count};
    int result = body ? node_make_session(kubelet, &wish, &session, &parts, error)
                      : node_show_gpus(kubelet, &wish, devices, error);
    json_decref(session);
    json_decref(parts);
    json_decref(all);
    return result;
}

static int prepare(struct kubelet *kubelet, const Kubelet__Claim *claim, struct outcome *outcome)
{
    struct error *error = &outcome->error;
    char path[512];
    json_t *document = NULL, *body = NULL;
    snprintf(path, sizeof(path), "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s",
             claim->namespace_, claim->name);
    int status = api_request(kubelet, "GET", path, NULL, &document, error);
    int result = status < 0 ? status : status == 200 ? 0 : api_refused(status, path, document, error);
    if (result == 0)
        result = claim_read(document, claim->uid, kubelet->gpus, &body, &outcome->devices, error);
    json_decref(document);
    return result < 0 ? result : make_devices(kubelet, claim->uid, body, outcome->devices, error);
}

static int unprepare(struct kubelet *kubelet, const Kubelet__Claim *claim, struct outcome *outcome)
{
    char name[64], file[80];
    name_session(claim->uid, name, file);
    return node_end_session(kubelet, name, file, &outcome->error);
}

/* --- The methods ----------------------------------------------------------------------------------- */

/* A call about claims, and the task that does it. */
struct claims_job {
    struct kubelet *kubelet;
    struct grpc_call *call; /* NULL: the kubelet has gone, and asks again */
    Kubelet__ClaimsRequest *request;
    int (*act)(struct kubelet *kubelet, const Kubelet__Claim *claim, struct outcome *outcome);
    void (*answer)(const struct claims_job *job);
    struct outcome *outcomes; /* one a claim */
};

/* A claim that is being prepared is not unprepared meanwhile. What nobody waits for any more is not begun. */
static void do_claim(const struct claims_job *job, size_t i)
{
    const Kubelet__Claim *claim = job->request->claims[i];
    struct outcome *outcome = &job->outcomes[i];
    struct task_lock lock;
    if (check_claim(claim, &outcome->error) == 0) {
        task_lock(&lock, claim->uid);
        if (job->call && job->act(job->kubelet, claim, outcome) < 0) {
            json_decref(outcome->devices);
            outcome->devices = NULL;
        }
        task_unlock(&lock);
    }
    if (outcome->error.status)
        fprintf(stderr, "gpuslice-kubelet: claim %.63s/%.253s: %s\n", claim->namespace_, claim->name,
                outcome->error.message);
}

static void run_job(void *context)
{
    struct claims_job *job = context;
    size_t count = job->request->n_claims;
    for (size_t i = 0; i < count; i++)
        do_claim(job, i);
    if (job->call)
        job->answer(job);
    for (size_t i = 0; i < count; i++)
        json_decref(job->outcomes[i].devices);
    kubelet__claims_request__free_unpacked(job->request, NULL);
    free(job->outcomes);
    free(job);
}

static void forget_call(void *context, struct grpc_call *call)
{
    struct claims_job *job = context;
    job->call = NULL;
}

/* `job` is copied. */
static void start_job(const struct claims_job *wanted, const uint8_t *message, size_t bytes)
{
    struct claims_job *job = must_array(1, sizeof(*job));
    *job = *wanted;
    job->request = kubelet__claims_request__unpack(NULL, bytes, message);
    if (!job->request) {
        grpc_call_end(job->call, GRPC_INVALID_ARGUMENT, "this is not a list of claims");
        free(job);
        return;
    }
    job->outcomes = must_array(job->request->n_claims, sizeof(*job->outcomes));
    grpc_call_watch(job->call, forget_call, job);
    if (task_start(run_job, job))
        return;
    grpc_call_end(job->call, GRPC_RESOURCE_EXHAUSTED, "too many calls at once");
    kubelet__claims_request__free_unpacked(job->request, NULL);
    free(job->outcomes);
    free(job);
}

/* One prepared claim's part of the answer; strings are in its outcome, in itself, or the request's. */
struct prepared {
    Kubelet__PrepareEntry entry;
    Kubelet__PreparedClaim claim;
    Kubelet__PreparedDevice *list, **pointers;
    char **requests, **cdi; /* one a device */
};

/* "request/subrequest": the container names the first. */
static char *base_request(const char *request)
{
    char *base = strdup(request);
    if (!base)
        abort();
    base[strcspn(base, "/")] = '\0';
    return base;
}

static void fill_prepared(struct prepared *one, const json_t *devices)
{
    size_t count = json_array_size(devices);
    one->list = must_array(count, sizeof(*one->list));
    one->pointers = must_array(count, sizeof(*one->pointers));
    one->requests = must_array(count, sizeof(*one->requests));
    one->cdi = must_array(count, sizeof(*one->cdi));
    for (size_t i = 0; i < count; i++) {
        const json_t *device = json_array_get(devices, i);
        Kubelet__PreparedDevice *to = &one->list[i];
        kubelet__prepared_device__init(to);
        one->requests[i] = base_request(session_text(device, "request"));
        if (asprintf(&one->cdi[i], CDI_KIND "=%s", session_text(device, "cdi")) < 0)
            abort();
        to->n_request_names = 1;
        to->request_names = &one->requests[i];
        to->pool_name = (char *)session_text(device, "pool");
        to->device_name = (char *)session_text(device, "device");
        to->share_id = (char *)session_text(device, "share_id");
        to->n_cdi_device_ids = 1;
        to->cdi_device_ids = &one->cdi[i];
        one->pointers[i] = to;
    }
    one->claim.n_devices = count;
    one->claim.devices = one->pointers;
}

static void free_prepared(struct prepared *one)
{
    for (size_t i = 0; i < one->claim.n_devices; i++) {
        free(one->requests[i]);
        free(one->cdi[i]);
    }
    free(one->cdi);
    free(one->list);
    free(one->pointers);
    free(one->requests);
}

/* Every claim has an answer: one that fails fails alone. */
static void answer_prepared(const struct claims_job *job)
{
    size_t count = job->request->n_claims;
    Kubelet__PrepareAnswer answer = KUBELET__PREPARE_ANSWER__INIT;
    struct prepared *all = must_array(count, sizeof(*all));
    answer.n_claims = count;
    answer.claims = must_array(count, sizeof(*answer.claims));
    for (size_t i = 0; i < count; i++) {
        kubelet__prepare_entry__init(&all[i].entry);
        kubelet__prepared_claim__init(&all[i].claim);
        all[i].entry.key = job->request->claims[i]->uid;
        all[i].entry.value = &all[i].claim;
        answer.claims[i] = &all[i].entry;
        if (job->outcomes[i].error.status)
            all[i].claim.error = job->outcomes[i].error.message;
        else
            fill_prepared(&all[i], job->outcomes[i].devices);
    }
    message_answer(job->call, &answer.base);
    for (size_t i = 0; i < count; i++)
        free_prepared(&all[i]);
    free(all);
    free(answer.claims);
}

struct unprepared {
    Kubelet__UnprepareEntry entry;
    Kubelet__UnpreparedClaim claim;
};

static void answer_unprepared(const struct claims_job *job)
{
    size_t count = job->request->n_claims;
    Kubelet__UnprepareAnswer answer = KUBELET__UNPREPARE_ANSWER__INIT;
    struct unprepared *all = must_array(count, sizeof(*all));
    answer.n_claims = count;
    answer.claims = must_array(count, sizeof(*answer.claims));
    for (size_t i = 0; i < count; i++) {
        kubelet__unprepare_entry__init(&all[i].entry);
        kubelet__unprepared_claim__init(&all[i].claim);
        all[i].entry.key = job->request->claims[i]->uid;
        all[i].entry.value = &all[i].claim;
        answer.claims[i] = &all[i].entry;
        if (job->outcomes[i].error.status)
            all[i].claim.error = job->outcomes[i].error.message;
    }
    message_answer(job->call, &answer.base);
    free(all);
    free(answer.claims);
}

static void prepare_resources(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    const struct dra *dra = context;
    const struct claims_job job = {
        .kubelet = dra->kubelet, .call = call, .act = prepare, .answer = answer_prepared};
    start_job(&job, message, bytes);
}

static void unprepare_resources(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    const struct dra *dra = context;
    const struct claims_job job = {
        .kubelet = dra->kubelet, .call = call, .act = unprepare, .answer = answer_unprepared};
    start_job(&job, message, bytes);
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
        resource_slices_tick(kubelet);
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
    free(dra->told);
    free(dra);
    kubelet->dra = NULL;
}
