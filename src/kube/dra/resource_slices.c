#include "kube/dra/resource_slices.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/pci.h"
#include "client/session_fields.h"
#include "kube/dra/claim.h"
#include "kube/dra/claim_words.h"
#include "kube/node/api_server.h"
#include "kube/node/notes.h"
#include "kube/node/tasks.h"

#define PATH "/apis/resource.k8s.io/v1/resourceslices"
/* an annotation: what the devices were made from; the server rewrites quantities, so they cannot be compared */
#define SEEN "gpu.gpuslice.io/devices"
#define DEFAULT_PARTS 10 /* a claim that asks for no memory or cores gets a tenth */
#define MEMORY_STEP (UINT64_C(1) << 20)

/* A semantic version: three numbers without leading zeros. "" if `text` does not begin with a number. */
static void make_version(const char *text, char version[static 40])
{
    unsigned parts[3] = {0};
    version[0] = '\0';
    if (sscanf(text, "%9u.%9u.%9u", &parts[0], &parts[1], &parts[2]) >= 1)
        snprintf(version, 40, "%u.%u.%u", parts[0], parts[1], parts[2]);
}

static void add_attribute(json_t *attributes, const char *name, const char *type, json_t *value)
{
    json_object_set_new(attributes, name, json_pack("{s:o}", type, value));
}

static void add_version(json_t *attributes, const char *name, const char *text)
{
    char version[40];
    make_version(text, version);
    if (*version)
        add_attribute(attributes, name, "version", json_string(version));
}

static json_t *attributes_of(const json_t *gpu)
{
    char model[65], root[PCI_ROOT_TEXT]; /* the longest that an attribute may be */
    const char *address = session_text(gpu, "pci_address");
    bool is_simulated = json_is_true(json_object_get(gpu, "simulated"));
    int node = is_simulated ? -1 : pci_numa_node("/sys", address);
    json_t *attributes = json_object();
    snprintf(model, sizeof(model), "%s", session_text(gpu, "name"));
    add_attribute(attributes, "uuid", "string", json_string(session_text(gpu, "uuid")));
    add_attribute(attributes, "model", "string", json_string(model));
    add_attribute(attributes, "mig", "bool",
                  json_boolean(json_is_integer(json_object_get(gpu, "mig_index"))));
    add_attribute(attributes, "simulated", "bool", json_boolean(is_simulated));
    add_attribute(attributes, "index", "int", json_integer((json_int_t)session_number(gpu, "index")));
    add_version(attributes, "driverVersion", session_text(gpu, "driver_version"));
    add_version(attributes, "computeCapability", session_text(gpu, "compute_capability"));
    if (*address && !is_simulated)
        add_attribute(attributes, "pciBusID", "string", json_string(address));
    if (node >= 0)
        add_attribute(attributes, "numaNode", "int", json_integer(node));
    if (!is_simulated && pci_root("/sys", address, root))
        add_attribute(attributes, "resource.kubernetes.io/pcieRoot", "string", json_string(root));
    return attributes;
}

static json_t *device_of(const json_t *gpu)
{
    cleanup_free char *name = claim_device_name(session_text(gpu, "uuid"));
    uint64_t memory = session_number(gpu, "total_bytes") / MEMORY_STEP * MEMORY_STEP;
    uint64_t part = memory / DEFAULT_PARTS / MEMORY_STEP * MEMORY_STEP;
    char total[32], least[32];
    snprintf(total, sizeof(total), "%lluMi", (unsigned long long)(memory / MEMORY_STEP));
    snprintf(least, sizeof(least), "%lluMi", (unsigned long long)((part ? part : MEMORY_STEP) / MEMORY_STEP));
    json_t *capacity =
        json_pack("{s:{s:s,s:{s:s,s:{s:s,s:s}}},s:{s:s,s:{s:s,s:{s:s,s:s}}}}", "memory", "value", total,
                  "requestPolicy", "default", least, "validRange", "min", "1Mi", "step", "1Mi", "cores",
                  "value", "100", "requestPolicy", "default", "10", "validRange", "min", "1", "step", "1");
    return json_pack("{s:s,s:b,s:o,s:o}", "name", name, "allowMultipleAllocations", 1, "attributes",
                     attributes_of(gpu), "capacity", capacity);
}

json_t *resource_slices_devices(const json_t *gpus)
{
    json_t *devices = json_array(), *gpu;
    size_t i;
    json_array_foreach((json_t *)gpus, i, gpu)
    {
        if (json_is_true(json_object_get(gpu, "healthy")))
            json_array_append_new(devices, device_of(gpu));
    }
    return devices;
}

static json_t *slice_of(const struct kubelet *kubelet, json_t *devices, const char *seen,
                        json_int_t generation)
{
    const char *node = kubelet->options.node;
    return json_pack("{s:s,s:s,s:{s:o,s:{s:s}},s:{s:s,s:s,s:{s:s,s:I,s:i},s:O}}", "apiVersion",
                     "resource.k8s.io/v1", "kind", "ResourceSlice", "metadata", "name",
                     json_sprintf("%s-" CLAIM_DRIVER, node), "annotations", SEEN, seen, "spec", "driver",
                     CLAIM_DRIVER, "nodeName", node, "pool", "name", node, "generation", generation,
                     "resourceSliceCount", 1, "devices", devices);
}

/* --- What the server has --------------------------------------------------------------------------- */

/* The state of the watch; static, as there is one kubelet. */
static struct {
    struct kubelet *kubelet;
    json_t *seen;      /* slices of this node and driver by name, as the server last told; NULL: unknown */
    char version[128]; /* where the watch goes on */
    bool is_following; /* a task is following */
    bool is_publishing;
    bool is_expired;
    uint64_t retry_ns;       /* do not publish before; 0: at once */
    uint64_t offer_again_ns; /* when to try again if the server left something out */
    bool is_failure_told;
} slices;

static void tell_failure(const struct error *error)
{
    if (!slices.is_failure_told)
        fprintf(stderr, "gpuslice-kubelet: %s; trying again\n", error->message);
    slices.is_failure_told = true;
}

/* Send a request that must end with status 2xx or with `other`. */
static int must(const char *method, const char *path, const json_t *body, int other, json_t **answer_out,
                struct error *error)
{
    json_t *answer = NULL;
    int status = api_request(slices.kubelet, method, path, body, &answer, error);
    int result = status < 0 ? status : 0;
    if (status > 0 && (status < 200 || status > 299) && status != other)
        result = api_refused(status, path, answer, error);
    if (result == 0 && answer_out)
        *answer_out = json_incref(answer);
    json_decref(answer);
    return result;
}

static void note_version(const json_t *metadata)
{
    snprintf(slices.version, sizeof(slices.version), "%.127s", session_text(metadata, "resourceVersion"));
}

static void forget_all(void)
{
    json_decref(slices.seen);
    slices.seen = NULL;
}

static int list_slices(const char *selector, struct error *error)
{
    char path[512];
    json_t *list = NULL, *item;
    size_t i;
    snprintf(path, sizeof(path), PATH "?%s", selector);
    int result = must("GET", path, NULL, 0, &list, error);
    if (result < 0)
        return result;
    forget_all();
    slices.seen = json_object();
    json_array_foreach(json_object_get(list, "items"), i, item)
        json_object_set(slices.seen, session_text(json_object_get(item, "metadata"), "name"), item);
    note_version(json_object_get(list, "metadata"));
    json_decref(list);
    return 0;
}

/* {"type": "ADDED", "object": {...}} */
static bool take_event(void *context, json_t *event)
{
    const char *type = session_text(event, "type");
    json_t *object = json_object_get(event, "object");
    const json_t *metadata = json_object_get(object, "metadata");
    const char *name = session_text(metadata, "name");
    if (strcmp(type, "ERROR") == 0 || !metadata || !slices.seen) {
        slices.is_expired = true; /* 410: the server no longer remembers so far back */
        return false;
    }
    note_version(metadata);
    if (strcmp(type, "DELETED") == 0)
        json_object_del(slices.seen, name);
    else if (strcmp(type, "BOOKMARK") != 0)
        json_object_set(slices.seen, name, object);
    if (strcmp(type, "BOOKMARK") != 0)
        kubelet_look_soon(slices.kubelet);
    return true;
}

/* Watch until the server ends the watch, then return 0. On a negative errno all slices must be listed again, after
 * a pause. */
static int watch_slices(const char *selector, struct error *error)
{
    char path[1024];
    slices.is_expired = false;
    snprintf(path, sizeof(path),
             PATH "?%s&watch=true&allowWatchBookmarks=true&timeoutSeconds=%d&resourceVersion=%s", selector,
             API_WATCH_MS / 1000, slices.version);
    int status = api_watch(slices.kubelet, path, take_event, NULL, error);
    if (status < 0)
        return status;
    if (status == 410 || slices.is_expired)
        return error_set(error, ESTALE, NULL, "the API server has forgotten where the watch began");
    return status == 200 ? 0 : api_refused(status, path, NULL, error);
}

#define PAUSE_FIRST_MS 500u
#define PAUSE_MOST_MS 10000u
#define BRIEF_NS (UINT64_C(5) * 1000000000) /* a pause follows a watch that ended sooner */

static void follow(void *context)
{
    struct kubelet *kubelet = context;
    char selector[400];
    unsigned pause_ms = PAUSE_FIRST_MS;
    snprintf(selector, sizeof(selector), "fieldSelector=spec.driver%%3D" CLAIM_DRIVER ",spec.nodeName%%3D%s",
             kubelet->options.node);
    do {
        struct error error = {0};
        int result = list_slices(selector, &error);
        if (result == 0) {
            slices.retry_ns = 0;
            slices.is_failure_told = false;
            pause_ms = PAUSE_FIRST_MS;
            kubelet_look_soon(kubelet);
        }
        while (result == 0) {
            uint64_t began_ns = monotonic_ns();
            result = watch_slices(selector, &error);
            if (result == 0 && monotonic_ns() - began_ns < BRIEF_NS &&
                !ask_pause(kubelet->asker, PAUSE_FIRST_MS))
                result = -ECANCELED;
        }
        if (result != -ECANCELED && result != -ESTALE)
            tell_failure(&error);
        pause_ms = 2 * pause_ms < PAUSE_MOST_MS ? 2 * pause_ms : PAUSE_MOST_MS;
    } while (ask_pause(kubelet->asker, pause_ms));
    forget_all();
}

/* --- Publishing ------------------------------------------------------------------------------------ */

#define RETRY_NS (UINT64_C(2) * 1000000000)
#define OFFER_AGAIN_NS (UINT64_C(10) * 1000000000) /* the server may count capacity by then */

/* The node owns its slices, so that they are deleted with it. Without an answer about the node the slice has no
 * owner. */
static void set_owner(const struct kubelet *kubelet, json_t *slice)
{
    char path[512];
    json_t *node = NULL;
    snprintf(path, sizeof(path), "/api/v1/nodes/%s", kubelet->options.node);
    int status = api_request(kubelet, "GET", path, NULL, &node, NULL);
    const char *uid = status == 200 ? session_text(json_object_get(node, "metadata"), "uid") : "";
    if (*uid)
        json_object_set_new(json_object_get(slice, "metadata"), "ownerReferences",
                            json_pack("[{s:s,s:s,s:s,s:s,s:b}]", "apiVersion", "v1", "kind", "Node", "name",
                                      kubelet->options.node, "uid", uid, "controller", 1));
    json_decref(node);
}

static int remove_slice(const char *name, struct error *error)
{
    char path[512];
    snprintf(path, sizeof(path), PATH "/%s", name);
    return must("DELETE", path, NULL, 404, NULL, error);
}

/* `slice` is the server's slice of our name; NULL: none. */
static int put_slice(const struct kubelet *kubelet, const json_t *slice, json_t *devices, const char *told,
                     struct error *error)
{
    const json_t *metadata = json_object_get(slice, "metadata");
    json_int_t generation = json_integer_value(
        json_object_get(json_object_get(json_object_get(slice, "spec"), "pool"), "generation"));
    json_t *wanted = slice_of(kubelet, devices, told, generation + 1);
    int result;
    if (slice) {
        char path[512];
        snprintf(path, sizeof(path), PATH "/%s", session_text(metadata, "name"));
        json_object_set(json_object_get(wanted, "metadata"), "resourceVersion",
                        json_object_get(metadata, "resourceVersion"));
        if (json_object_get(metadata, "ownerReferences"))
            json_object_set(json_object_get(wanted, "metadata"), "ownerReferences",
                            json_object_get(metadata, "ownerReferences"));
        result = must("PUT", path, wanted, 0, NULL, error);
    } else {
        set_owner(kubelet, wanted);
        result = must("POST", PATH, wanted, 0, NULL, error);
    }
    json_decref(wanted);
    return result;
}

/* What must be done to make the server's slices right: ours must exist if there are devices, and others must not. */
struct difference {
    json_t *strange; /* names of slices to delete */
    json_t *devices;
    char *told;         /* the devices as text, as in the annotation */
    const json_t *ours; /* on the server; NULL: none */
    bool is_ours_right;
    /* the server left out the fields that let claims share a GPU */
    bool is_sharing_lost;
};

static void free_difference(struct difference *difference)
{
    json_decref(difference->strange);
    json_decref(difference->devices);
    free(difference->told);
}

/* Whether the slice was stored by a server without the feature gate DRAConsumableCapacity. */
static bool has_lost_sharing(const json_t *slice)
{
    json_t *device;
    size_t i;
    json_array_foreach(json_object_get(json_object_get(slice, "spec"), "devices"), i, device)
    {
        if (!json_is_true(json_object_get(device, "allowMultipleAllocations")))
            return true;
    }
    return false;
}

static void note_loss(struct kubelet *kubelet, const struct difference *difference)
{
    if (difference->ours)
        notes_set(
            kubelet, "sharing",
            difference->is_sharing_lost
                ? "the API server drops the fields that let claims share a GPU, so each claim gets a whole "
                  "GPU; switch on the feature gate DRAConsumableCapacity in the API server, the scheduler, "
                  "the "
                  "controller manager and the kubelets"
                : NULL);
}

static bool find_difference(const struct kubelet *kubelet, struct difference *difference)
{
    char own[300];
    const char *name;
    json_t *slice;
    snprintf(own, sizeof(own), "%s-" CLAIM_DRIVER, kubelet->options.node);
    *difference = (struct difference){.strange = json_array(),
                                      .devices = kubelet->options.dra ? resource_slices_devices(kubelet->gpus)
                                                                      : json_array()};
    difference->told = json_dumps(difference->devices, JSON_COMPACT | JSON_SORT_KEYS);
    bool has_devices = json_array_size(difference->devices) > 0;
    json_object_foreach(slices.seen, name, slice)
    {
        if (strcmp(name, own) == 0 && has_devices)
            difference->ours = slice;
        else
            json_array_append_new(difference->strange, json_string(name));
    }
    const json_t *annotations = json_object_get(json_object_get(difference->ours, "metadata"), "annotations");
    difference->is_sharing_lost = has_lost_sharing(difference->ours);
    difference->is_ours_right =
        !has_devices || (difference->ours && difference->told &&
                         strcmp(session_text(annotations, SEEN), difference->told) == 0 &&
                         !(difference->is_sharing_lost && monotonic_ns() >= slices.offer_again_ns));
    return json_array_size(difference->strange) > 0 || !difference->is_ours_right;
}

/* The server's slices come back through the watch. */
static void publish(void *context)
{
    struct kubelet *kubelet = context;
    struct difference difference;
    struct error error = {0};
    size_t i;
    json_t *name;
    find_difference(kubelet, &difference);
    json_t *ours = json_incref((json_t *)difference.ours); /* the watch may change slices.seen */
    int result = 0;
    json_array_foreach(difference.strange, i, name)
    {
        if (result == 0)
            result = remove_slice(json_string_value(name), &error);
    }
    if (result == 0 && !difference.is_ours_right && difference.told)
        result = put_slice(kubelet, ours, difference.devices, difference.told, &error);
    if (result < 0 && result != -ECANCELED)
        tell_failure(&error);
    else
        slices.is_failure_told = false;
    slices.retry_ns = monotonic_ns() + RETRY_NS;
    slices.offer_again_ns = monotonic_ns() + OFFER_AGAIN_NS;
    json_decref(ours);
    free_difference(&difference);
    slices.is_publishing = false;
}

void resource_slices_tick(struct kubelet *kubelet)
{
    struct difference difference;
    slices.kubelet = kubelet;
    if (!slices.is_following)
        slices.is_following = task_start(follow, kubelet);
    if (!slices.seen || slices.is_publishing || monotonic_ns() < slices.retry_ns)
        return;
    bool is_different = find_difference(kubelet, &difference);
    note_loss(kubelet, &difference);
    free_difference(&difference);
    if (!is_different)
        return;
    slices.is_publishing = true;
    if (!task_start(publish, kubelet))
        slices.is_publishing = false;
}
