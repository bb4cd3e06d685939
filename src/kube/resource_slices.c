#include "kube/resource_slices.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/session_fields.h"
#include "kube/claim.h"

#define PATH "/apis/resource.k8s.io/v1/resourceslices"
#define SEEN                                                                                                 \
    "gpu.gpuslice.io/devices" /* an annotation: what the devices were made from, as the server writes quantities anew */
#define DEFAULT_PARTS 10 /* who asks for no memory or cores gets a tenth */
#define MEMORY_STEP (UINT64_C(1) << 20)

static json_t *device_of(const json_t *gpu)
{
    cleanup_free char *name = claim_device_name(session_text(gpu, "uuid"));
    uint64_t memory = session_number(gpu, "total_bytes") / MEMORY_STEP * MEMORY_STEP;
    uint64_t part = memory / DEFAULT_PARTS / MEMORY_STEP * MEMORY_STEP;
    char total[32], least[32], model[65]; /* as long as an attribute may be */
    snprintf(model, sizeof(model), "%s", session_text(gpu, "name"));
    snprintf(total, sizeof(total), "%lluMi", (unsigned long long)(memory / MEMORY_STEP));
    snprintf(least, sizeof(least), "%lluMi", (unsigned long long)((part ? part : MEMORY_STEP) / MEMORY_STEP));
    json_t *attributes =
        json_pack("{s:{s:s},s:{s:s},s:{s:b},s:{s:b},s:{s:I}}", "uuid", "string", session_text(gpu, "uuid"),
                  "model", "string", model, "mig", "bool", json_is_integer(json_object_get(gpu, "mig_index")),
                  "simulated", "bool", json_is_true(json_object_get(gpu, "simulated")), "index", "int",
                  (json_int_t)session_number(gpu, "index"));
    json_t *capacity =
        json_pack("{s:{s:s,s:{s:s,s:{s:s,s:s}}},s:{s:s,s:{s:s,s:{s:s,s:s}}}}", "memory", "value", total,
                  "requestPolicy", "default", least, "validRange", "min", "1Mi", "step", "1Mi", "cores",
                  "value", "100", "requestPolicy", "default", "10", "validRange", "min", "1", "step", "1");
    return json_pack("{s:s,s:b,s:o,s:o}", "name", name, "allowMultipleAllocations", 1, "attributes",
                     attributes, "capacity", capacity);
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

/* Ask, and want one of two statuses: of a change that somebody else made first, too. */
static int must(const struct kubelet *kubelet, const char *method, const char *path, const json_t *body,
                int other, json_t **answer_out, struct error *error)
{
    json_t *answer = NULL;
    int status = api_request(&kubelet->options.api, method, path, body, &answer, error);
    int result = status < 0 ? status : 0;
    if (status > 0 && (status < 200 || status > 299) && status != other)
        result = api_refused(status, path, answer, error);
    if (result == 0 && answer_out)
        *answer_out = json_incref(answer);
    json_decref(answer);
    return result;
}

/* The node owns its slices: they end with it. It is no matter where that cannot be said. */
static void set_owner(const struct kubelet *kubelet, json_t *slice)
{
    char path[512];
    json_t *node = NULL;
    snprintf(path, sizeof(path), "/api/v1/nodes/%s", kubelet->options.node);
    int status = api_request(&kubelet->options.api, "GET", path, NULL, &node, NULL);
    const char *uid = status == 200 ? session_text(json_object_get(node, "metadata"), "uid") : "";
    if (*uid)
        json_object_set_new(json_object_get(slice, "metadata"), "ownerReferences",
                            json_pack("[{s:s,s:s,s:s,s:s,s:b}]", "apiVersion", "v1", "kind", "Node", "name",
                                      kubelet->options.node, "uid", uid, "controller", 1));
    json_decref(node);
}

static int remove_slice(const struct kubelet *kubelet, const json_t *slice, struct error *error)
{
    char path[512];
    snprintf(path, sizeof(path), PATH "/%s", session_text(json_object_get(slice, "metadata"), "name"));
    return must(kubelet, "DELETE", path, NULL, 404, NULL, error);
}

/* `slice` is the server's of our name, NULL for none. */
static int put_slice(const struct kubelet *kubelet, const json_t *slice, json_t *devices, struct error *error)
{
    cleanup_free char *seen = json_dumps(devices, JSON_COMPACT | JSON_SORT_KEYS);
    const json_t *metadata = json_object_get(slice, "metadata");
    const char *told = session_text(json_object_get(metadata, "annotations"), SEEN);
    json_int_t generation = json_integer_value(
        json_object_get(json_object_get(json_object_get(slice, "spec"), "pool"), "generation"));
    if (!seen)
        return error_set_errno(error, ENOMEM, "cannot publish the GPUs");
    if (slice && strcmp(told, seen) == 0)
        return 0;
    json_t *wanted = slice_of(kubelet, devices, seen, generation + 1);
    int result;
    if (slice) {
        char path[512];
        snprintf(path, sizeof(path), PATH "/%s", session_text(metadata, "name"));
        json_object_set(json_object_get(wanted, "metadata"), "resourceVersion",
                        json_object_get(metadata, "resourceVersion"));
        if (json_object_get(metadata, "ownerReferences"))
            json_object_set(json_object_get(wanted, "metadata"), "ownerReferences",
                            json_object_get(metadata, "ownerReferences"));
        result = must(kubelet, "PUT", path, wanted, 0, NULL, error);
    } else {
        set_owner(kubelet, wanted);
        result = must(kubelet, "POST", PATH, wanted, 0, NULL, error);
    }
    json_decref(wanted);
    return result;
}

int resource_slices_publish(const struct kubelet *kubelet, struct error *error)
{
    char path[512], name[300];
    json_t *list = NULL, *devices = resource_slices_devices(kubelet->gpus), *item;
    const json_t *ours = NULL;
    size_t i;
    snprintf(path, sizeof(path), PATH "?fieldSelector=spec.driver%%3D" CLAIM_DRIVER ",spec.nodeName%%3D%s",
             kubelet->options.node);
    snprintf(name, sizeof(name), "%s-" CLAIM_DRIVER, kubelet->options.node);
    int result = must(kubelet, "GET", path, NULL, 0, &list, error);
    json_array_foreach(json_object_get(list, "items"), i, item)
    {
        if (strcmp(session_text(json_object_get(item, "metadata"), "name"), name) == 0 &&
            json_array_size(devices))
            ours = item;
        else if (result == 0)
            result = remove_slice(kubelet, item, error);
    }
    if (result == 0 && json_array_size(devices))
        result = put_slice(kubelet, ours, devices, error);
    json_decref(list);
    json_decref(devices);
    return result;
}
