#include "kube/dra/dra_claims.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/session_fields.h"
#include "kube/dra/claim.h"
#include "kube/grpc/messages.h"
#include "kube/node/api_server.h"
#include "kube/node/node.h"
#include "kube/node/tasks.h"

#define CDI_KIND "gpuslice.io/claim"
#define UID_MAX 50

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

void dra_claims_file_name(const char *uid, char file[static DRA_CLAIMS_FILE_TEXT])
{
    snprintf(file, DRA_CLAIMS_FILE_TEXT, "gpuslice-" CLAIM_PREFIX "%.56s", uid);
}

static void name_session(const char *uid, char session[static 64], char file[static DRA_CLAIMS_FILE_TEXT])
{
    snprintf(session, 64, CLAIM_PREFIX "%.56s", uid);
    dra_claims_file_name(uid, file);
}

/* The result for one claim. */
struct outcome {
    json_t *devices;    /* of a prepared claim */
    struct error error; /* status 0: success */
};

/* Each device of a claim has a CDI name of its own, UID-N, and each name leads to the whole claim. The kubelet
 * takes the names for device IDs and cannot write a pod's status if one occurs twice; after a restart it asks again
 * and adds the answer to what it has. So a repeated request gets new names, and the old ones stay valid. The number
 * of names is stored beside the kubelet's own records, as CDI's folder is empty after a reboot. */
#define NAMES_MOST 128u

static int names_path(const struct kubelet *kubelet, const char *uid, char path[static PATH_MAX],
                      struct error *error)
{
    int length =
        snprintf(path, PATH_MAX, "%s/" DRA_CLAIMS_FOLDER "/%.60s", kubelet->options.kubelet_dir, uid);
    return length < PATH_MAX ? 0 : error_set_errno(error, ENAMETOOLONG, "cannot keep the claim's names");
}

static unsigned count_names(const struct kubelet *kubelet, const char *uid)
{
    char path[PATH_MAX];
    unsigned count = 0;
    if (names_path(kubelet, uid, path, NULL) < 0)
        return 0;
    cleanup_file FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "%9u", &count) != 1)
        return 0;
    return count < NAMES_MOST ? count : NAMES_MOST;
}

/* Store the number of names, before anybody learns the names. */
static int keep_names(const struct kubelet *kubelet, const char *uid, unsigned count, struct error *error)
{
    char path[PATH_MAX], draft[PATH_MAX + 8];
    int result = names_path(kubelet, uid, path, error);
    if (result < 0)
        return result;
    snprintf(draft, sizeof(draft), "%s.new", path);
    FILE *file = fopen(draft, "we");
    bool is_written =
        file && fprintf(file, "%u\n", count) > 0 && fflush(file) == 0 && fsync(fileno(file)) == 0;
    if (file)
        is_written &= fclose(file) == 0;
    return is_written && rename(draft, path) == 0 ? 0
                                                  : error_set_errno(error, errno, "cannot write %s", path);
}

bool dra_claims_is_known(const struct kubelet *kubelet, const char *uid)
{
    char path[PATH_MAX];
    return names_path(kubelet, uid, path, NULL) == 0 && access(path, F_OK) == 0;
}

static void forget_names(const struct kubelet *kubelet, const char *uid)
{
    char path[PATH_MAX];
    if (names_path(kubelet, uid, path, NULL) == 0)
        unlink(path);
}

/* Names before `first` were given earlier. Returns all names, and sets that of each device. */
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

/* Consumes `body`. */
static int make_devices(struct kubelet *kubelet, const char *uid, json_t *body, json_t *devices,
                        struct error *error)
{
    char name[64], file[DRA_CLAIMS_FILE_TEXT];
    json_t *session = NULL, *parts = NULL;
    name_session(uid, name, file);
    json_t *all = name_devices(devices, uid, count_names(kubelet, uid));
    unsigned count = (unsigned)json_array_size(all);
    cleanup_free const char **names = message_array(count, sizeof(*names));
    for (unsigned i = 0; i < count; i++)
        names[i] = json_string_value(json_array_get(all, i));
    const struct node_wish wish = {
        .body = body, .kind = CDI_KIND, .file = file, .names = names, .name_count = count};
    int result = keep_names(kubelet, uid, count, error);
    if (result < 0)
        json_decref(body);
    else if (body)
        result = node_make_session(kubelet, &wish, &session, &parts, error);
    else
        result = node_show_gpus(kubelet, &wish, devices, error);
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
    char name[64], file[DRA_CLAIMS_FILE_TEXT];
    name_session(claim->uid, name, file);
    int result = node_end_session(kubelet, name, file, &outcome->error);
    if (result == 0)
        forget_names(kubelet, claim->uid);
    return result;
}

/* --- The methods ----------------------------------------------------------------------------------- */

/* A call about claims, and the task that handles it. */
struct claims_job {
    struct kubelet *kubelet;
    struct grpc_call *call; /* NULL: the kubelet has gone, and will ask again */
    bool is_prepare;        /* false: unprepare */
    Kubelet__ClaimsRequest *request;
    struct outcome *outcomes; /* one for each claim */
};

static void answer_claims(const struct claims_job *job);

/* A claim is not unprepared while it is being prepared. Nothing is started after the kubelet has gone. */
static void do_claim(const struct claims_job *job, size_t i)
{
    const Kubelet__Claim *claim = job->request->claims[i];
    struct outcome *outcome = &job->outcomes[i];
    struct task_lock lock;
    if (check_claim(claim, &outcome->error) == 0) {
        task_lock(&lock, claim->uid);
        int (*act)(struct kubelet *, const Kubelet__Claim *, struct outcome *) =
            job->is_prepare ? prepare : unprepare;
        if (job->call && act(job->kubelet, claim, outcome) < 0) {
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
        answer_claims(job);
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

static void start_job(struct kubelet *kubelet, struct grpc_call *call, const uint8_t *message, size_t bytes,
                      bool is_prepare)
{
    struct claims_job *job = message_array(1, sizeof(*job));
    *job = (struct claims_job){.kubelet = kubelet,
                               .call = call,
                               .is_prepare = is_prepare,
                               .request = kubelet__claims_request__unpack(NULL, bytes, message)};
    if (!job->request) {
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "this is not a list of claims");
        free(job);
        return;
    }
    job->outcomes = message_array(job->request->n_claims, sizeof(*job->outcomes));
    grpc_call_watch(call, forget_call, job);
    if (task_start(run_job, job))
        return;
    grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "too many calls at once");
    kubelet__claims_request__free_unpacked(job->request, NULL);
    free(job->outcomes);
    free(job);
}

void dra_claims_prepare(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    start_job(*(struct kubelet *const *)context, call, message, bytes, true);
}

void dra_claims_unprepare(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    start_job(*(struct kubelet *const *)context, call, message, bytes, false);
}

/* --- The answers ------------------------------------------------------------------------------------ */

/* One claim's part of either answer. Its strings belong to the outcome, to this struct, or to the request. */
struct answered {
    Kubelet__PrepareEntry prepare;
    Kubelet__PreparedClaim prepared;
    Kubelet__UnprepareEntry unprepare;
    Kubelet__UnpreparedClaim unprepared;
    Kubelet__PreparedDevice *list, **pointers;
    char **requests, **cdi; /* one for each device */
};

/* "request/subrequest": the container names the part before the slash. */
static char *base_request(const char *request)
{
    char *base = strdup(request);
    if (!base)
        abort();
    base[strcspn(base, "/")] = '\0';
    return base;
}

static void fill_prepared(struct answered *one, const json_t *devices)
{
    size_t count = json_array_size(devices);
    one->list = message_array(count, sizeof(*one->list));
    one->pointers = message_array(count, sizeof(*one->pointers));
    one->requests = message_array(count, sizeof(*one->requests));
    one->cdi = message_array(count, sizeof(*one->cdi));
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
    one->prepared.n_devices = count;
    one->prepared.devices = one->pointers;
}

static void free_prepared(struct answered *one)
{
    for (size_t i = 0; i < one->prepared.n_devices; i++) {
        free(one->requests[i]);
        free(one->cdi[i]);
    }
    free(one->cdi);
    free(one->list);
    free(one->pointers);
    free(one->requests);
}

static void begin_answer(struct answered *one, char *uid, struct error *error)
{
    kubelet__prepare_entry__init(&one->prepare);
    kubelet__prepared_claim__init(&one->prepared);
    kubelet__unprepare_entry__init(&one->unprepare);
    kubelet__unprepared_claim__init(&one->unprepared);
    one->prepare.key = one->unprepare.key = uid;
    one->prepare.value = &one->prepared;
    one->unprepare.value = &one->unprepared;
    if (error->status)
        one->prepared.error = one->unprepared.error = error->message;
}

/* Each claim has an answer of its own: the failure of one does not affect the others. */
static void answer_claims(const struct claims_job *job)
{
    size_t count = job->request->n_claims;
    struct answered *all = message_array(count, sizeof(*all));
    Kubelet__PrepareAnswer prepared = KUBELET__PREPARE_ANSWER__INIT;
    Kubelet__UnprepareAnswer unprepared = KUBELET__UNPREPARE_ANSWER__INIT;
    prepared.claims = message_array(count, sizeof(*prepared.claims));
    unprepared.claims = message_array(count, sizeof(*unprepared.claims));
    prepared.n_claims = unprepared.n_claims = count;
    for (size_t i = 0; i < count; i++) {
        struct outcome *outcome = &job->outcomes[i];
        begin_answer(&all[i], job->request->claims[i]->uid, &outcome->error);
        prepared.claims[i] = &all[i].prepare;
        unprepared.claims[i] = &all[i].unprepare;
        if (outcome->devices)
            fill_prepared(&all[i], outcome->devices);
    }
    message_answer(job->call, job->is_prepare ? &prepared.base : &unprepared.base);
    for (size_t i = 0; i < count; i++)
        free_prepared(&all[i]);
    free(all);
    free(prepared.claims);
    free(unprepared.claims);
}
