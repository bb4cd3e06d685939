#include "kube/slices/pods.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kube/grpc/messages.h"
#include "kube/node/notes.h"
#include "kube/node/tasks.h"
#include "kube/slices/lost_containers.h"
#include "kube/slices/pod_sessions.h"
#include "kube/slices/slice_files.h"
#include "kube/slices/slice_ids.h"

#define LOOK_NS (UINT64_C(10) * 1000000000) /* between two requests */
#define SOON_NS (UINT64_C(30) * 1000000000) /* for so long after slices were given, every second */
#define TIMEOUT_USEC UINT64_C(5000000)

/* The state of the requests; static, as there is one kubelet. */
static struct {
    struct kubelet *kubelet;
    struct grpc_request *request;
    bool is_comparing; /* a task is comparing */
    uint64_t looked_ns, soon_ns;
    struct pod_list list;
} pods;

/* Of whatever resource: it may have been renamed since the container was made. What is not ours has no session. */
static void note_devices(const Kubelet__Pod *pod, const Kubelet__PodContainer *container,
                         const char *resource)
{
    size_t count = 0;
    const char **ids = NULL;
    char name[SLICES_NAME_TEXT];
    for (size_t i = 0; i < container->n_devices; i++) {
        const Kubelet__PodDevices *devices = container->devices[i];
        if (strcmp(devices->resource_name, resource) != 0)
            continue;
        const char **more = reallocarray(ids, count + devices->n_device_ids + 1, sizeof(*ids));
        if (!more)
            break;
        ids = more;
        for (size_t j = 0; j < devices->n_device_ids; j++)
            ids[count++] = devices->device_ids[j];
    }
    if (count) {
        slices_session_name(ids, count, name);
        json_object_set_new(pods.list.wanted, name,
                            json_pack("{s:s,s:s,s:s}", "namespace", pod->namespace_, "pod", pod->name,
                                      "container", container->name));
    }
    free(ids);
}

static bool is_first_of(const Kubelet__PodContainer *container, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (strcmp(container->devices[i]->resource_name, container->devices[at]->resource_name) == 0)
            return false;
    return true;
}

static void note_container(const Kubelet__Pod *pod, const Kubelet__PodContainer *container)
{
    for (size_t i = 0; i < container->n_devices; i++)
        if (is_first_of(container, i))
            note_devices(pod, container, container->devices[i]->resource_name);
}

static void on_list(void *context, const uint8_t *message, size_t bytes)
{
    Kubelet__PodList *list = kubelet__pod_list__unpack(NULL, bytes, message);
    if (!list)
        return;
    json_decref(pods.list.wanted);
    pods.list.wanted = json_object();
    for (size_t i = 0; i < list->n_pods; i++)
        for (size_t j = 0; j < list->pods[i]->n_containers; j++)
            note_container(list->pods[i], list->pods[i]->containers[j]);
    kubelet__pod_list__free_unpacked(list, NULL);
}

static void forget_list(void)
{
    json_decref(pods.list.wanted);
    pods.list.wanted = NULL;
}

static void compare(void *context)
{
    pod_sessions_compare(pods.kubelet, &pods.list);
    forget_list();
    pods.is_comparing = false;
}

static void on_end(void *context, enum grpc_status status, const char *text)
{
    pods.request = NULL;
    pods.is_comparing = true;
    if (status == GRPC_OK && pods.list.wanted && task_start(compare, NULL))
        return;
    pods.is_comparing = false; /* without a list, nobody knows which containers have gone */
    forget_list();
}

static const struct grpc_answer on_answer = {on_list, on_end};

void pods_note_given(struct kubelet *kubelet, const char *session)
{
    if (!pods.list.given)
        pods.list.given = json_object();
    json_object_set_new(pods.list.given, session, json_true());
    pods.soon_ns = monotonic_ns() + SOON_NS;
}

/* Containers keep their slices where the mode is another one now. */
static bool may_have_containers(struct kubelet *kubelet)
{
    bool are_left = !kubelet->slices && slice_files_are_left(kubelet->options.cdi_dir);
    notes_set(
        kubelet, "slices",
        are_left
            ? "containers still have slices of the device plug-in, which this mode does not offer; their "
              "sessions end with them"
            : NULL);
    return kubelet->slices || are_left;
}

void pods_tick(struct kubelet *kubelet)
{
    char path[PATH_MAX];
    uint64_t now = monotonic_ns();
    if (!kubelet->is_daemon_known || pods.request || pods.is_comparing ||
        (now > pods.soon_ns && now - pods.looked_ns < LOOK_NS) || !may_have_containers(kubelet) ||
        kubelet_path(kubelet, path, "pod-resources/kubelet.sock", NULL) < 0)
        return;
    pods.kubelet = kubelet;
    pods.looked_ns = now;
    json_object_clear(pods.list.given);
    pods.list.is_settled = lost_containers_may_be_told(path);
    pods.request =
        grpc_ask(kubelet->loop, path, "/v1.PodResourcesLister/List", "", 0, TIMEOUT_USEC, &on_answer, NULL);
}

void pods_stop(struct kubelet *kubelet)
{
    grpc_give_up(pods.request);
    pods.request = NULL;
    forget_list();
    json_decref(pods.list.given);
    pods.list.given = NULL;
}
