#include "kube/dra/claim.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/priority.h"
#include "base/units.h"
#include "client/session_fields.h"

/* --- Words ----------------------------------------------------------------------------------------- */

int claim_parse_quantity(const char *text, uint64_t *number, struct error *error)
{
    static const struct {
        const char *suffix;
        double factor;
    } suffixes[] = {{"", 1},        {"n", 1e-9},    {"u", 1e-6},    {"m", 1e-3},
                    {"k", 1e3},     {"M", 1e6},     {"G", 1e9},     {"T", 1e12},
                    {"P", 1e15},    {"E", 1e18},    {"Ki", 0x1p10}, {"Mi", 0x1p20},
                    {"Gi", 0x1p30}, {"Ti", 0x1p40}, {"Pi", 0x1p50}, {"Ei", 0x1p60}};
    const char *rest = text + strspn(text, "0123456789.");
    char *end = NULL;
    /* "1e3" has an exponent, "1E" a suffix. */
    if ((*rest == 'e' || *rest == 'E') &&
        (isdigit((unsigned char)rest[1]) ||
         ((rest[1] == '+' || rest[1] == '-') && isdigit((unsigned char)rest[2]))))
        rest += 2 + strspn(rest + 2, "0123456789");
    double value = rest != text && isdigit((unsigned char)rest[-1]) ? strtod(text, &end) : NAN;
    for (size_t i = 0; end == rest && i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        double whole = ceil(value * suffixes[i].factor);
        if (strcmp(rest, suffixes[i].suffix) != 0 || !(whole < 0x1p63))
            continue;
        *number = (uint64_t)whole;
        return 0;
    }
    return error_set(error, EINVAL, NULL,
                     "'%.40s' is not a quantity; expected one like 4Gi, from 0 to less than 8Ei", text);
}

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
    int parsed = claim_parse_quantity(text, number, error);
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
            return error_set(
                error, EINVAL, NULL,
                "the GPUs of a claim have %llu and %llu cores; expected the same of each, as they "
                "are one session; ask for the others in another claim",
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
                           "the claim asks for GPUs with admin access and without; expected one or the other "
                           "in a claim")
               : 0;
}

/* --- Configuration --------------------------------------------------------------------------------- */

struct config {
    struct share share;
    uint32_t counted_share; /* what the scheduler counted */
    const char *priority;   /* NULL: not given */
    const char *oversubscribe;
    uint64_t host_bytes, idle_seconds; /* 0: not given */
    /* on each GPU, at least what the scheduler counted; 0: exactly that */
    uint64_t limit_bytes;
    uint64_t own_limit_bytes; /* the same, if it is more than the classes say; 0: it is not */
};

static int read_part(const json_t *value, const char *key, uint32_t *part, struct error *error)
{
    const char *text = json_string_value(value);
    struct share share;
    struct error cause;
    if (!text || units_parse_share(text, &share, &cause) < 0 || share.min != share.max)
        return error_set(error, EINVAL, NULL, "the claim's %s is wrong; expected a part like \"25%%\"", key);
    *part = share.max;
    return 0;
}

static int read_time(const char *text, uint64_t *seconds, struct error *error)
{
    uint64_t usec;
    int result = units_parse_duration(text, &usec, error);
    if (result == 0)
        *seconds = usec / 1000000 ? usec / 1000000 : 1;
    return result;
}

static int read_parameter(struct config *config, const char *key, const json_t *value, struct error *error)
{
    const char *text = json_string_value(value);
    if (strcmp(key, "minimumShare") == 0 && text && strcmp(text, "0%") == 0) {
        config->share.min = 0; /* no minimum is promised */
        return 0;
    }
    if (strcmp(key, "minimumShare") == 0)
        return read_part(value, key, &config->share.min, error);
    if (strcmp(key, "maximumShare") == 0)
        return read_part(value, key, &config->share.max, error);
    if (strcmp(key, "priority") == 0 && text) {
        config->priority = text; /* the daemon checks it */
        return 0;
    }
    if (strcmp(key, "apiVersion") == 0 && text && strcmp(text, CLAIM_CONFIG_VERSION) == 0)
        return 0;
    if (strcmp(key, "kind") == 0 && text && strcmp(text, CLAIM_CONFIG_KIND) == 0)
        return 0;
    if (strcmp(key, "oversubscribe") == 0 && text) {
        config->oversubscribe = text; /* the daemon checks this too */
        return 0;
    }
    if (strcmp(key, "hostMemory") == 0 && text)
        return claim_parse_quantity(text, &config->host_bytes, error);
    if (strcmp(key, "memoryLimit") == 0 && text)
        return claim_parse_quantity(text, &config->limit_bytes, error);
    if (strcmp(key, "idleSuspend") == 0 && text)
        return read_time(text, &config->idle_seconds, error);
    return error_set(
        error, EINVAL, NULL,
        "the claim's configuration has the field '%.40s'; expected apiVersion " CLAIM_CONFIG_VERSION
        ", kind " CLAIM_CONFIG_KIND
        ", minimumShare, maximumShare, priority, oversubscribe, memoryLimit, hostMemory, idleSuspend",
        key);
}

static bool is_on_card(const char *oversubscribe)
{
    return !oversubscribe || strcmp(oversubscribe, "none") == 0;
}

static enum session_priority priority_of(const struct config *config)
{
    enum session_priority priority;
    return config->priority && session_priority_parse(config->priority, &priority) ? priority
                                                                                   : PRIORITY_NORMAL;
}

/* A class is an administrator's, and a claim any user's of its namespace. What others are kept from for a claim is what
 * the scheduler counted for it, or what its class says: the claim itself may ask for less. `before` is what held without
 * its own configuration. Memory limits are looked at when all are read. */
static int check_own(const struct config *config, const struct config *before, struct error *error)
{
    char least[UNITS_SHARE_TEXT], asked[UNITS_SHARE_TEXT];
    uint32_t most = before->share.min > config->counted_share ? before->share.min : config->counted_share;
    if (config->share.min > most)
        return error_set(
            error, EPERM, NULL,
            "the claim's minimumShare is %s; expected at most the %s that its cores, or its DeviceClass, "
            "give it; ask for more cores",
            units_format_share((struct share){config->share.min, config->share.min}, asked),
            units_format_share((struct share){most, most}, least));
    if (priority_of(config) > PRIORITY_NORMAL && priority_of(config) > priority_of(before))
        return error_set(
            error, EPERM, NULL,
            "the claim's priority is %.20s; expected normal or low; a higher one is for a DeviceClass to "
            "give",
            config->priority);
    return 0;
}

static int read_parameters(struct config *config, const json_t *parameters, struct error *error)
{
    const char *key;
    json_t *value;
    if (json_object_get(parameters, "oversubscribe") && is_on_card(session_text(parameters, "oversubscribe")))
        config->limit_bytes = config->host_bytes = config->idle_seconds = 0;
    json_object_foreach((json_t *)parameters, key, value)
    {
        int result = read_parameter(config, key, value, error);
        if (result < 0)
            return result;
    }
    return 0;
}

/* The classes' configurations come before the claim's own, which therefore wins. One whose memory is to stay on the
 * card takes back what earlier ones said about memory that can leave it. */
static int read_configs(struct config *config, const json_t *allocation, struct error *error)
{
    size_t i;
    json_t *each;
    json_array_foreach(json_object_get(allocation, "config"), i, each)
    {
        const json_t *opaque = json_object_get(each, "opaque");
        const struct config before = *config;
        if (strcmp(session_text(opaque, "driver"), CLAIM_DRIVER) != 0)
            continue;
        int result = read_parameters(config, json_object_get(opaque, "parameters"), error);
        bool is_own = strcmp(session_text(each, "source"), "FromClass") != 0;
        if (is_own && config->limit_bytes > before.limit_bytes)
            config->own_limit_bytes = config->limit_bytes;
        if (result == 0 && is_own)
            result = check_own(config, &before, error);
        if (result < 0)
            return result;
    }
    if (config->share.min > config->share.max)
        return error_set(error, EINVAL, NULL, "the claim's minimum share is above its maximum");
    return 0;
}

/* A limit above what the scheduler counted is only for memory that can leave the card, which then takes turns with
 * others'. */
static int check_limit(const struct config *config, const struct reading *reading, struct error *error)
{
    const char *uuid;
    json_t *bytes;
    if (config->limit_bytes && is_on_card(config->oversubscribe))
        return error_set(error, EINVAL, NULL,
                         "the claim has a memoryLimit, which is for memory that can leave the card; expected "
                         "oversubscribe: swap beside it");
    json_object_foreach(reading->bytes, uuid, bytes)
    {
        uint64_t counted = (uint64_t)json_integer_value(bytes);
        if (config->own_limit_bytes > counted)
            return error_set(
                error, EPERM, NULL,
                "the claim's memoryLimit of %llu bytes is more than the %llu that it consumes of GPU %.80s; "
                "expected as much, or a DeviceClass that gives more",
                (unsigned long long)config->own_limit_bytes, (unsigned long long)counted, uuid);
        if (config->limit_bytes && config->limit_bytes < counted)
            return error_set(
                error, EINVAL, NULL,
                "the claim's memoryLimit of %llu bytes is less than the %llu that it consumes of "
                "GPU %.80s; expected at least as much",
                (unsigned long long)config->limit_bytes, (unsigned long long)counted, uuid);
    }
    return 0;
}

/* --- The claim ------------------------------------------------------------------------------------- */

static json_t *make_body(const struct reading *reading, const struct config *config, const json_t *claim,
                         const char *uid)
{
    json_t *gpus = json_array(), *bytes;
    const char *uuid;
    char name[64], share[UNITS_SHARE_TEXT];
    json_object_foreach(reading->bytes, uuid, bytes) json_array_append_new(
        gpus, json_pack("{s:s,s:I}", "gpu", uuid, "memory_bytes",
                        config->limit_bytes ? (json_int_t)config->limit_bytes : json_integer_value(bytes)));
    snprintf(name, sizeof(name), CLAIM_PREFIX "%.56s", uid);
    json_t *body = json_pack("{s:s,s:o,s:s}", "name", name, "gpus", gpus, "compute",
                             units_format_share(config->share, share));
    const json_t *metadata = json_object_get(claim, "metadata");
    const char *namespace = session_text(metadata, "namespace");
    const char *pod = session_text(
        json_array_get(json_object_get(json_object_get(claim, "status"), "reservedFor"), 0), "name");
    if (*namespace)
        json_object_set_new(body, "namespace", json_string(namespace));
    if (*pod)
        json_object_set_new(body, "pod", json_string(pod));
    if (config->priority)
        json_object_set_new(body, "priority", json_string(config->priority));
    if (config->oversubscribe)
        json_object_set_new(body, "oversubscribe", json_string(config->oversubscribe));
    if (config->host_bytes)
        json_object_set_new(body, "host_memory_bytes", json_integer((json_int_t)config->host_bytes));
    if (config->idle_seconds)
        json_object_set_new(body, "idle_suspend_seconds", json_integer((json_int_t)config->idle_seconds));
    return body;
}

int claim_read(const json_t *claim, const char *uid, const json_t *gpus, json_t **body, json_t **devices,
               struct error *error)
{
    const json_t *allocation =
        json_object_get(json_object_get(json_object_get(claim, "status"), "allocation"), "devices");
    const char *found = session_text(json_object_get(claim, "metadata"), "uid");
    if (strcmp(found, uid) != 0)
        return error_set(error, ESTALE, NULL,
                         "the claim of that name has the UID '%.60s', not '%.60s': it was made anew", found,
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
    struct config config = {.share = {share, share ? share : SHARE_WHOLE}, .counted_share = share};
    if (result == 0)
        result = read_configs(&config, allocation, error);
    if (result == 0)
        result = check_limit(&config, &reading, error);
    if (result == 0) {
        *body = reading.has_admin ? NULL : make_body(&reading, &config, claim, uid);
        *devices = json_incref(reading.devices);
    }
    json_decref(reading.bytes);
    json_decref(reading.cores);
    json_decref(reading.devices);
    return result;
}
