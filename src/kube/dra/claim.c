#include "kube/dra/claim.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "client/session_fields.h"
#include "kube/dra/claim_config.h"
#include "kube/dra/claim_words.h"
#include "kube/dra/quantity.h"

char *claim_device_name(const char *uuid)
{
    char *name = strdup(uuid);
    for (char *at = name; at && *at; at++)
        *at = isalnum((unsigned char)*at) ? (char)tolower((unsigned char)*at) : '-';
    return name;
}

static json_t *find_gpu(const json_t *gpus, const char *device)
{
    size_t i;
    json_t *gpu;
    json_array_foreach((json_t *)gpus, i, gpu)
    {
        cleanup_free char *name = claim_device_name(session_text(gpu, "uuid"));
        if (name && strcmp(name, device) == 0)
            return gpu;
    }
    return NULL;
}

/* --- Devices --------------------------------------------------------------------------------------- */

/* What was consumed of a capacity. Returns 1, or 0 if the result says nothing about it. */
static int consumed(const json_t *result, const char *capacity, uint64_t *number, struct error *error)
{
    const json_t *all = json_object_get(result, "consumedCapacity");
    char qualified[64];
    snprintf(qualified, sizeof(qualified), CLAIM_DRIVER "/%s", capacity);
    const json_t *value = json_object_get(all, capacity);
    value = value ? value : json_object_get(all, qualified);
    if (!value)
        return 0;
    char text[64];
    if (json_is_integer(value))
        snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(value));
    else
        snprintf(text, sizeof(text), "%.60s", json_string_value(value) ? json_string_value(value) : "?");
    int parsed = quantity_parse(text, number, error);
    return parsed < 0 ? parsed : 1;
}

struct reading {
    const json_t *gpus;
    json_t *bytes, *cores; /* sums by the GPU's UUID; cores are hundredths of a GPU */
    json_t *devices;
    bool has_admin; /* at least one device has admin access */
};

static void add_to(json_t *sums, const char *uuid, uint64_t more)
{
    json_int_t before = json_integer_value(json_object_get(sums, uuid));
    json_object_set_new(sums, uuid, json_integer(before + (json_int_t)more));
}

/* The cores that each GPU of the claim has; they must be the same on all of them. */
static int read_cores(const struct reading *reading, uint64_t *cores, struct error *error)
{
    const char *uuid;
    json_t *sum;
    bool is_first = true;
    json_object_foreach(reading->cores, uuid, sum)
    {
        uint64_t here = (uint64_t)json_integer_value(sum);
        if (here > 100)
            return error_set(error, EINVAL, NULL, "GPU %.80s: %llu cores were consumed; expected 100 at most",
                             uuid, (unsigned long long)here);
        if (!is_first && here != *cores)
            return error_set(error, EINVAL, NULL,
                             "the GPUs of the claim have %llu and %llu cores; expected the same number on "
                             "each, because they become one session; ask for the others in another claim",
                             (unsigned long long)*cores, (unsigned long long)here);
        *cores = here;
        is_first = false;
    }
    return 0;
}

static int read_result(struct reading *reading, const json_t *result, struct error *error)
{
    const char *device = session_text(result, "device"), *share = session_text(result, "shareID");
    const json_t *gpu = find_gpu(reading->gpus, device);
    uint64_t bytes = 0, cores = 100;
    if (!gpu)
        return error_set(error, ENODEV, NULL, "device '%.80s' is not a GPU of this node", device);
    const char *uuid = session_text(gpu, "uuid");
    int has_bytes = consumed(result, "memory", &bytes, error);
    int has_cores = has_bytes < 0 ? has_bytes : consumed(result, "cores", &cores, error);
    if (has_cores < 0)
        return has_cores;
    if (json_is_true(json_object_get(result, "adminAccess"))) {
        reading->has_admin = true;
    } else {
        add_to(reading->bytes, uuid,
               has_bytes ? bytes : session_number(gpu, "total_bytes")); /* not said: the whole device */
        add_to(reading->cores, uuid, cores < UINT32_MAX ? cores : UINT32_MAX);
    }
    json_t *entry = json_pack("{s:s,s:s,s:s,s:s}", "request", session_text(result, "request"), "pool",
                              session_text(result, "pool"), "device", device, "uuid", uuid);
    if (*share)
        json_object_set_new(entry, "share_id", json_string(share));
    return json_array_append_new(reading->devices, entry) == 0 ? 0 : -ENOMEM;
}

static int read_results(struct reading *reading, const json_t *allocation, struct error *error)
{
    size_t i;
    json_t *result;
    json_array_foreach(json_object_get(allocation, "results"), i, result)
    {
        if (strcmp(session_text(result, "driver"), CLAIM_DRIVER) != 0)
            continue;
        int read = read_result(reading, result, error);
        if (read < 0)
            return read;
    }
    if (json_array_size(reading->devices) == 0)
        return error_set(error, EINVAL, NULL, "the claim has no device of " CLAIM_DRIVER);
    return reading->has_admin && json_object_size(reading->bytes)
               ? error_set(error, EINVAL, NULL,
                           "the claim asks for GPUs with and without admin access; expected one of the two; "
                           "use two claims")
               : 0;
}

/* --- The claim ------------------------------------------------------------------------------------- */

static json_t *make_body(const struct reading *reading, const struct claim_config *config,
                         const json_t *claim, const char *uid)
{
    json_t *gpus = json_array(), *bytes;
    const char *uuid;
    char name[64];
    json_object_foreach(reading->bytes, uuid, bytes) json_array_append_new(
        gpus, json_pack("{s:s,s:I}", "gpu", uuid, "memory_bytes",
                        config->limit_bytes ? (json_int_t)config->limit_bytes : json_integer_value(bytes)));
    snprintf(name, sizeof(name), CLAIM_PREFIX "%.56s", uid);
    json_t *body = json_pack("{s:s,s:o}", "name", name, "gpus", gpus);
    const json_t *metadata = json_object_get(claim, "metadata");
    const char *namespace = session_text(metadata, "namespace");
    const char *pod = session_text(
        json_array_get(json_object_get(json_object_get(claim, "status"), "reservedFor"), 0), "name");
    if (*namespace)
        json_object_set_new(body, "namespace", json_string(namespace));
    if (*pod)
        json_object_set_new(body, "pod", json_string(pod));
    properties_to_json(&config->properties, body);
    return body;
}

int claim_read(const json_t *claim, const char *uid, const json_t *gpus, json_t **body, json_t **devices,
               struct error *error)
{
    const json_t *allocation =
        json_object_get(json_object_get(json_object_get(claim, "status"), "allocation"), "devices");
    const char *found = session_text(json_object_get(claim, "metadata"), "uid");
    if (strcmp(found, uid) != 0)
        return error_set(
            error, ESTALE, NULL,
            "the claim of that name has the UID '%.60s', not '%.60s': it was deleted and made again", found,
            uid);
    if (!allocation)
        return error_set(error, EAGAIN, NULL, "the claim is not allocated");
    struct reading reading = {
        .gpus = gpus, .bytes = json_object(), .cores = json_object(), .devices = json_array()};
    uint64_t cores = 0;
    int result = read_results(&reading, allocation, error);
    if (result == 0)
        result = read_cores(&reading, &cores, error);
    uint32_t share = (uint32_t)(cores * (SHARE_WHOLE / 100));
    struct claim_config config = {.properties = {.given = 1u << PROPERTY_COMPUTE,
                                                 .compute = {share, share ? share : SHARE_WHOLE},
                                                 .priority = PRIORITY_NORMAL},
                                  .counted_share = share};
    if (result == 0)
        result = claim_config_read(&config, allocation, error);
    if (result == 0)
        result = claim_config_check_limit(&config, reading.bytes, error);
    if (result == 0) {
        *body = reading.has_admin ? NULL : make_body(&reading, &config, claim, uid);
        *devices = json_incref(reading.devices);
    }
    json_decref(reading.bytes);
    json_decref(reading.cores);
    json_decref(reading.devices);
    return result;
}
