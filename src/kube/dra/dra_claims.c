#include "kube/dra/dra_claims.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/session_fields.h"
#include "kube/dra/claim.h"
#include "kube/dra/claim_names.h"
#include "kube/dra/claim_words.h"
#include "kube/dra/claims_answer.h"
#include "kube/grpc/messages.h"
#include "kube/node/api_server.h"
#include "kube/node/node.h"
#include "kube/node/tasks.h"

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
        return error_set(error, EINVAL, NULL,
                         "claim %.63s/%.253s (UID %.60s): invalid namespace, name or UID", claim->namespace_,
                         claim->name, claim->uid);
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
    json_t *all = name_devices(devices, uid, claim_names_count(kubelet, uid));
    unsigned count = (unsigned)json_array_size(all);
    cleanup_free const char **names = message_array(count, sizeof(*names));
    for (unsigned i = 0; i < count; i++)
        names[i] = json_string_value(json_array_get(all, i));
    const struct node_wish wish = {
        .body = body, .kind = CLAIM_CDI_KIND, .file = file, .names = names, .name_count = count};
    int result = claim_names_keep(kubelet, uid, count, error);
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

static int prepare(struct kubelet *kubelet, const Kubelet__Claim *claim, struct claim_outcome *outcome)
{
    struct error *error = &outcome->error;
    char path[512];
    json_t *document = NULL, *body = NULL;
    if (!kubelet->options.dra && !claim_names_are_kept(kubelet, claim->uid))
        return error_set(error, EPERM, NULL,
                         "this node offers slices now (gpuslice-kubelet's --mode is device-plugin); it "
                         "prepares no further "
                         "claims");
    snprintf(path, sizeof(path), "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s",
             claim->namespace_, claim->name);
    int status = api_request(kubelet, "GET", path, NULL, &document, error);
    int result = status < 0 ? status : status == 200 ? 0 : api_refused(status, path, document, error);
    if (result == 0)
        result = claim_read(document, claim->uid, kubelet->gpus, &body, &outcome->devices, error);
    json_decref(document);
    return result < 0 ? result : make_devices(kubelet, claim->uid, body, outcome->devices, error);
}

static int unprepare(struct kubelet *kubelet, const Kubelet__Claim *claim, struct claim_outcome *outcome)
{
    char name[64], file[DRA_CLAIMS_FILE_TEXT];
    name_session(claim->uid, name, file);
    int result = node_end_session(kubelet, name, file, &outcome->error);
    if (result == 0)
        claim_names_forget(kubelet, claim->uid);
    return result;
}

/* --- The methods ----------------------------------------------------------------------------------- */

/* A call about claims, and the task that handles it. */
struct claims_job {
    struct kubelet *kubelet;
    struct grpc_call *call; /* NULL: the kubelet has gone, and will ask again */
    bool is_prepare;        /* false: unprepare */
    Kubelet__ClaimsRequest *request;
    struct claim_outcome *outcomes; /* one for each claim */
};

/* A claim is not unprepared while it is being prepared. Nothing is started after the kubelet has gone. */
static void do_claim(const struct claims_job *job, size_t i)
{
    const Kubelet__Claim *claim = job->request->claims[i];
    struct claim_outcome *outcome = &job->outcomes[i];
    struct task_lock lock;
    if (check_claim(claim, &outcome->error) == 0) {
        task_lock(&lock, claim->uid);
        int (*act)(struct kubelet *, const Kubelet__Claim *, struct claim_outcome *) =
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
        claims_answer(job->call, job->is_prepare, job->request, job->outcomes);
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
