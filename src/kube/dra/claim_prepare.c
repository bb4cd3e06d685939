#include "kube/dra/claim_prepare.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/session_fields.h"
#include "kube/dra/claim.h"
#include "kube/dra/claim_names.h"
#include "kube/dra/claim_words.h"
#include "kube/grpc/messages.h"
#include "kube/node/api_server.h"
#include "kube/node/node.h"

#define UID_MAX 50

int claim_check(const Kubelet__Claim *claim, struct error *error)
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

void claim_file_name(const char *uid, char file[static CLAIM_FILE_TEXT])
{
    snprintf(file, CLAIM_FILE_TEXT, "gpuslice-" CLAIM_PREFIX "%.56s", uid);
}

static void name_session(const char *uid, char session[static 64], char file[static CLAIM_FILE_TEXT])
{
    snprintf(session, 64, CLAIM_PREFIX "%.56s", uid);
    claim_file_name(uid, file);
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
    char name[64], file[CLAIM_FILE_TEXT];
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

int claim_prepare(struct kubelet *kubelet, const Kubelet__Claim *claim, struct claim_outcome *outcome)
{
    struct error *error = &outcome->error;
    char path[512];
    json_t *document = NULL, *body = NULL;
    if (!kubelet->options.dra && !claim_names_are_kept(kubelet, claim->uid))
        return error_set(error, EPERM, NULL,
                         "this node offers slices now (gpuslice-kubelet's --mode is device-plugin); it "
                         "prepares no further claims");
    snprintf(path, sizeof(path), "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s",
             claim->namespace_, claim->name);
    int status = api_request(kubelet, "GET", path, NULL, &document, error);
    int result = status < 0 ? status : status == 200 ? 0 : api_refused(status, path, document, error);
    if (result == 0)
        result = claim_read(document, claim->uid, kubelet->gpus, &body, &outcome->devices, error);
    json_decref(document);
    return result < 0 ? result : make_devices(kubelet, claim->uid, body, outcome->devices, error);
}

int claim_unprepare(struct kubelet *kubelet, const Kubelet__Claim *claim, struct claim_outcome *outcome)
{
    char name[64], file[CLAIM_FILE_TEXT];
    name_session(claim->uid, name, file);
    int result = node_end_session(kubelet, name, file, &outcome->error);
    if (result == 0)
        claim_names_forget(kubelet, claim->uid);
    return result;
}
