#include "kube/slices/slices_allocate.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/cdi.h"
#include "client/session_fields.h"
#include "kube/grpc/messages.h"
#include "kube/node/node.h"
#include "kube/node/tasks.h"
#include "kube/slices/pods.h"
#include "kube/slices/slice_files.h"
#include "kube/slices/slice_ids.h"

#define CDI_KIND "gpuslice.io/slice"

/* --- Whose the slices were ------------------------------------------------------------------------------ */

/* Slices that are given, and names of others whose sessions end by that. */
struct given {
    char *const *ids;
    size_t count;
    json_t *inherited;
};

static int end_session(struct kubelet *kubelet, const struct slice_file *found, const struct given *given,
                       struct error *error)
{
    for (size_t i = 0; i < json_array_size(found->devices); i++)
        if (!slice_ids_have(given->ids, given->count, slice_file_name_at(found, i)))
            json_array_append_new(given->inherited, json_string(slice_file_name_at(found, i)));
    return node_end_session(kubelet, found->session, found->file, error);
}

/* A name may be in one specification only. */
static int disinherit(struct kubelet *kubelet, const struct slice_file *found, const struct given *given,
                      struct error *error)
{
    size_t count = json_array_size(found->devices);
    for (size_t i = count; i-- > found->own_count;)
        if (slice_ids_have(given->ids, given->count, slice_file_name_at(found, i)))
            json_array_remove(found->devices, i);
    return json_array_size(found->devices) < count
               ? cdi_write(kubelet->options.cdi_dir, found->file, found->document, error)
               : 0;
}

/* The kubelet gives these slices to a new container, so the containers of sessions that still have some of them have
 * gone. Or they are init containers of the same pod, which have not run yet: the kubelet gives any of their slices to
 * the others again. An init container was told the name of one of its slices, and that must lead to a session, so the
 * new session inherits the names of slices that it does not have. */
static int end_stale(struct kubelet *kubelet, const struct given *given, struct error *error)
{
    const char *path = kubelet->options.cdi_dir;
    cleanup_dir DIR *folder = opendir(path);
    int result = 0;
    for (struct dirent *entry; folder && result == 0 && (entry = readdir(folder));) {
        struct slice_file found;
        bool is_stale = false;
        if (!slice_file_read(path, entry->d_name, &found))
            continue;
        for (size_t i = 0; i < found.own_count; i++)
            is_stale |= slice_ids_have(given->ids, given->count, slice_file_name_at(&found, i));
        result =
            is_stale ? end_session(kubelet, &found, given, error) : disinherit(kubelet, &found, given, error);
        json_decref(found.document);
    }
    return result;
}

/* --- Giving --------------------------------------------------------------------------------------------- */

int slices_fill_wish(const struct kubelet *kubelet, char *const *ids, size_t count, json_t *body,
                     struct error *error)
{
    json_t *gpus = json_array(), *gpu;
    size_t i, most = 0, known = 0;
    char share[UNITS_SHARE_TEXT];
    json_array_foreach(kubelet->gpus, i, gpu)
    {
        size_t here = slice_ids_count(kubelet, gpu, ids, count);
        known += here;
        most = here > most ? here : most;
        if (here)
            json_array_append_new(gpus,
                                  json_pack("{s:s,s:I}", "gpu", session_text(gpu, "uuid"), "memory_bytes",
                                            (json_int_t)(here * slice_bytes(kubelet, gpu))));
    }
    json_object_set_new(body, "gpus", gpus);
    if (known != count || count == 0)
        return error_set(error, EINVAL, NULL, "%zu of %zu requested slices belong to no GPU on this node",
                         count - known, count);
    struct share compute = kubelet->options.slice_compute;
    if (!compute.max)
        compute = (struct share){(uint32_t)(most * SHARE_WHOLE / kubelet->options.slice_count), SHARE_WHOLE};
    json_object_set_new(body, "compute", json_string(units_format_share(compute, share)));
    if (kubelet->options.slice_engine != LEDGER_ENGINE_PLAIN)
        json_object_set_new(body, "oversubscribe",
                            json_string(session_engine_name(kubelet->options.slice_engine)));
    return 0;
}

/* Make the session, with the CDI names of its slices and the inherited ones. Consumes `body`. */
static int make_session(struct kubelet *kubelet, const struct given *given, const char *file, json_t *body,
                        json_t **session, json_t **parts, struct error *error)
{
    size_t inherited = json_array_size(given->inherited);
    cleanup_free const char **names = message_array(given->count + inherited, sizeof(*names));
    for (size_t i = 0; i < given->count; i++)
        names[i] = given->ids[i];
    for (size_t i = 0; i < inherited; i++)
        names[given->count + i] = json_string_value(json_array_get(given->inherited, i));
    const struct node_wish wish = {.body = body,
                                   .replace = true,
                                   .kind = CDI_KIND,
                                   .file = file,
                                   .names = names,
                                   .name_count = (unsigned)(given->count + inherited)};
    return node_make_session(kubelet, &wish, session, parts, error);
}

static int allocate_session(struct kubelet *kubelet, const Kubelet__ContainerAllocateRequest *request,
                            json_t **session, json_t **parts, struct error *error)
{
    char name[SLICES_NAME_TEXT], file[SLICES_FILE_TEXT];
    const struct given given = {request->devices, request->n_devices, json_array()};
    slices_session_name((const char *const *)given.ids, given.count, name);
    slices_file_name(name, file);
    json_t *body = json_pack("{s:s}", "name", name);
    int result = slices_fill_wish(kubelet, given.ids, given.count, body, error);
    if (result == 0)
        result = end_stale(kubelet, &given, error);
    if (result == 0) {
        pods_note_given(kubelet, name);
        result = make_session(kubelet, &given, file, body, session, parts, error);
    } else {
        json_decref(body);
    }
    json_decref(given.inherited);
    return result;
}

/* One container's part of the answer. What it points to is in `parts` and in this struct. */
struct allocation {
    Kubelet__ContainerAllocateAnswer answer;
    json_t *session, *parts;
    Kubelet__TextEntry *envs;
    Kubelet__Mount *mounts;
    Kubelet__DeviceFile *devices;
    Kubelet__CdiName cdi, *cdi_pointer;
    char cdi_name[128];
};

static void fill_envs(struct allocation *one, json_t *envs)
{
    size_t count = json_array_size(envs), i;
    Kubelet__TextEntry *entries = one->envs = message_array(count, sizeof(*entries));
    one->answer.envs = message_array(count, sizeof(*one->answer.envs));
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
    Kubelet__Mount *entries = one->mounts = message_array(count, sizeof(*entries));
    one->answer.mounts = message_array(count, sizeof(*one->answer.mounts));
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
    Kubelet__DeviceFile *entries = one->devices = message_array(count, sizeof(*entries));
    one->answer.devices = message_array(count, sizeof(*one->answer.devices));
    for (size_t i = 0; i < count; i++) {
        const char *path = session_text(json_array_get(devices, i), "path");
        kubelet__device_file__init(&entries[i]);
        entries[i].host_path = entries[i].container_path = (char *)path;
        entries[i].permissions = "rw";
        one->answer.devices[i] = &entries[i];
    }
    one->answer.n_devices = count;
}

/* Environment, mounts and devices are given too: a runtime that ignores CDI names must not start the container
 * without limits. */
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

/* A call, and the task that handles it. */
struct allocate_job {
    struct kubelet *kubelet;
    struct grpc_call *call; /* NULL: the kubelet has gone, and will ask again */
    Kubelet__AllocateRequest *request;
};

/* The kubelet takes an error's text for a format of printf (status.Errorf), and shows what is missing in the pod's
 * events, so percent signs are written out. */
static void refuse_allocate(struct grpc_call *call, int result, const char *message)
{
    char *text = NULL;
    size_t length;
    FILE *words = open_memstream(&text, &length);
    fprintf(stderr, "gpuslice-kubelet: cannot give slices: %s\n", message);
    for (const char *at = message; words && *at; at++)
        if (*at == '%')
            fputs(" percent", words);
        else
            fputc(*at, words);
    if (words)
        fclose(words);
    grpc_call_end(call, result == -EINVAL ? GRPC_INVALID_ARGUMENT : GRPC_INTERNAL,
                  text ? text : "memory is short");
    free(text);
}

static void answer_allocate(const struct allocate_job *job, struct allocation *all, size_t done, int result,
                            const struct error *error)
{
    Kubelet__AllocateAnswer answer = KUBELET__ALLOCATE_ANSWER__INIT;
    if (!job->call)
        return;
    if (result < 0) {
        refuse_allocate(job->call, result, error->message);
        return;
    }
    answer.n_containers = done;
    answer.containers = message_array(done, sizeof(*answer.containers));
    for (size_t i = 0; i < done; i++)
        answer.containers[i] = &all[i].answer;
    message_answer(job->call, &answer.base);
    free(answer.containers);
}

static void run_allocate(void *context)
{
    struct allocate_job *job = context;
    size_t count = job->request->n_containers, done = 0;
    struct allocation *all = message_array(count, sizeof(*all));
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

void slices_allocate(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    struct allocate_job *job = message_array(1, sizeof(*job));
    *job = (struct allocate_job){.kubelet = *(struct kubelet *const *)context,
                                 .call = call,
                                 .request = kubelet__allocate_request__unpack(NULL, bytes, message)};
    if (!job->request) {
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "this is not an AllocateRequest");
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
