#include "kube/dra/claim_config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/session_fields.h"
#include "kube/dra/claim_words.h"
#include "kube/dra/quantity.h"

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

/* A size is a quantity of Kubernetes. None is not a way to leave the field out. */
static int read_size(const char *key, const char *text, uint64_t *bytes, struct error *error)
{
    int result = quantity_parse(text, bytes, error);
    return result == 0 && *bytes == 0
               ? error_set(error, EINVAL, NULL, "the claim's %s is 0; expected more, or leave it out", key)
               : result;
}

/* A property by its row: sizes are Kubernetes' quantities, and a time is rounded down to whole seconds, but not to none. */
static int read_property(struct session_properties *properties, const struct property *row, const char *text,
                         struct error *error)
{
    uint64_t number = 0;
    int result;
    if (row->kind == PROPERTY_KIND_SIZE)
        result = read_size(row->claim, text, &number, error);
    else if (row->kind == PROPERTY_KIND_SECONDS)
        result = units_parse_duration(text, &number, error);
    else
        return property_parse(row, text, properties, error);
    if (result < 0)
        return result;
    if (row->kind == PROPERTY_KIND_SECONDS)
        number = number < 1000000 ? 1 : number / 1000000;
    *(uint64_t *)property_at(row, properties) = number;
    properties->given |= UINT32_C(1) << row->id;
    return 0;
}

static const struct property *find_property(const char *key)
{
    for (size_t i = 0; i < PROPERTY_COUNT; i++)
        if (session_properties[i].claim && strcmp(session_properties[i].claim, key) == 0)
            return &session_properties[i];
    return NULL;
}

/* A field that a claim's configuration cannot have, and those that it can. */
static int unknown_parameter(const char *key, struct error *error)
{
    char known[160] = "";
    size_t length = 0;
    for (size_t i = 0; i < PROPERTY_COUNT && length < sizeof(known); i++)
        if (session_properties[i].claim)
            length +=
                (size_t)snprintf(known + length, sizeof(known) - length, ", %s", session_properties[i].claim);
    return error_set(
        error, EINVAL, NULL,
        "the claim's configuration has the field '%.40s'; expected apiVersion " CLAIM_CONFIG_VERSION
        ", kind " CLAIM_CONFIG_KIND ", minimumShare, maximumShare, memoryLimit%s",
        key, known);
}

static int expect_text(const char *key, const char *text, const char *expected, struct error *error)
{
    return text && strcmp(text, expected) == 0
               ? 0
               : error_set(error, EINVAL, NULL, "the claim's configuration has %s '%.60s'; expected %s", key,
                           text ? text : "", expected);
}

static int read_parameter(struct claim_config *config, const char *key, const json_t *value,
                          struct error *error)
{
    const char *text = json_string_value(value);
    if (strcmp(key, "minimumShare") == 0 && text && strcmp(text, "0%") == 0) {
        config->properties.compute.min = 0; /* no minimum is promised */
        return 0;
    }
    if (strcmp(key, "minimumShare") == 0)
        return read_part(value, key, &config->properties.compute.min, error);
    if (strcmp(key, "maximumShare") == 0)
        return read_part(value, key, &config->properties.compute.max, error);
    if (strcmp(key, "apiVersion") == 0)
        return expect_text(key, text, CLAIM_CONFIG_VERSION, error);
    if (strcmp(key, "kind") == 0)
        return expect_text(key, text, CLAIM_CONFIG_KIND, error);
    if (strcmp(key, "memoryLimit") == 0 && text)
        return read_size(key, text, &config->limit_bytes, error);
    const struct property *row = find_property(key);
    return row && text ? read_property(&config->properties, row, text, error) : unknown_parameter(key, error);
}

/* A class is an administrator's, and a claim any user's of its namespace, so only a class gives a priority above the
 * normal one. `before` is what held without the claim's own configuration. Shares and memory limits are looked at when all
 * are read. */
static int check_own(const struct claim_config *config, const struct claim_config *before,
                     struct error *error)
{
    if (config->properties.priority > PRIORITY_NORMAL &&
        config->properties.priority > before->properties.priority)
        return error_set(error, EPERM, NULL,
                         "the claim's priority is %.20s; expected normal or low; only a DeviceClass gives a "
                         "higher priority",
                         session_priority_name(config->properties.priority));
    return 0;
}

static int read_parameters(struct claim_config *config, const json_t *parameters, struct error *error)
{
    const char *key;
    json_t *value;
    const char *engine = json_string_value(json_object_get(parameters, "oversubscribe"));
    if (engine && strcmp(engine, session_engine_name(LEDGER_ENGINE_PLAIN)) == 0) {
        config->limit_bytes = 0;
        config->properties.given &= ~(1u << PROPERTY_HOST_MEMORY | 1u << PROPERTY_IDLE_SUSPEND);
    }
    json_object_foreach((json_t *)parameters, key, value)
    {
        int result = read_parameter(config, key, value, error);
        if (result < 0)
            return result;
    }
    return 0;
}

/* Others can be promised what the scheduler did not count for this claim, so it is promised no more than that. */
static int check_share(const struct claim_config *config, struct error *error)
{
    const struct share *share = &config->properties.compute;
    char minimum[UNITS_SHARE_TEXT], other[UNITS_SHARE_TEXT];
    units_format_share((struct share){share->min, share->min}, minimum);
    if (share->min > config->counted_share)
        return error_set(
            error, EPERM, NULL,
            "the claim's minimumShare is %s, and its cores are %s of the GPU; expected a minimum of "
            "at most its cores; ask for more cores",
            minimum, units_format_share((struct share){config->counted_share, config->counted_share}, other));
    if (share->min > share->max)
        return error_set(
            error, EINVAL, NULL,
            "the claim's minimum of %s (its minimumShare, or else its cores) is above its maximum of "
            "%s (its maximumShare, or else its cores); set both, or ask for other cores",
            minimum, units_format_share((struct share){share->max, share->max}, other));
    return 0;
}

/* Whether an entry of the allocation's configuration is about the request: it names it, or none. The request of a device
 * that was chosen from a list is REQUEST/SUBREQUEST, and a configuration may name the whole. */
static bool is_about(const json_t *entry, const char *request)
{
    const json_t *names = json_object_get(entry, "requests"), *name;
    size_t i, whole = strcspn(request, "/");
    json_array_foreach((json_t *)names, i, name)
    {
        const char *text = json_string_value(name) ? json_string_value(name) : "";
        if (strcmp(text, request) == 0 || (strlen(text) == whole && strncmp(text, request, whole) == 0))
            return true;
    }
    return json_array_size(names) == 0;
}

static int read_for(struct claim_config *config, const json_t *entries, const char *request,
                    struct error *error)
{
    size_t i;
    json_t *each;
    json_array_foreach((json_t *)entries, i, each)
    {
        const json_t *opaque = json_object_get(each, "opaque");
        const struct claim_config before = *config;
        if (strcmp(session_text(opaque, "driver"), CLAIM_DRIVER) != 0 || !is_about(each, request))
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
    return check_share(config, error);
}

static bool are_equal(const struct claim_config *one, const struct claim_config *other)
{
    json_t *a = json_object(), *b = json_object();
    properties_to_json(&one->properties, a);
    properties_to_json(&other->properties, b);
    bool equal = json_equal(a, b) && one->limit_bytes == other->limit_bytes;
    json_decref(a);
    json_decref(b);
    return equal;
}

int claim_config_read(struct claim_config *config, const json_t *allocation, struct error *error)
{
    const struct claim_config counted = *config;
    const char *first = NULL;
    size_t i;
    json_t *device;
    json_array_foreach(json_object_get(allocation, "results"), i, device)
    {
        struct claim_config here = counted;
        const char *request = session_text(device, "request");
        if (strcmp(session_text(device, "driver"), CLAIM_DRIVER) != 0)
            continue;
        int result = read_for(&here, json_object_get(allocation, "config"), request, error);
        if (result < 0)
            return result;
        if (first && !are_equal(config, &here))
            return error_set(
                error, EINVAL, NULL,
                "the claim's requests %.60s and %.60s have different configurations; expected the "
                "same, because they become one session; use a claim for each",
                first, request);
        first = request;
        *config = here;
    }
    return 0;
}

int claim_config_check_limit(const struct claim_config *config, const json_t *consumed_bytes,
                             struct error *error)
{
    const char *uuid;
    json_t *bytes;
    if (config->limit_bytes && config->properties.engine == LEDGER_ENGINE_PLAIN)
        return error_set(error, EINVAL, NULL,
                         "the claim has a memoryLimit, which needs memory that can leave the card; add "
                         "oversubscribe: swap");
    json_object_foreach((json_t *)consumed_bytes, uuid, bytes)
    {
        uint64_t counted = (uint64_t)json_integer_value(bytes);
        if (config->own_limit_bytes > counted)
            return error_set(error, EPERM, NULL,
                             "the claim's memoryLimit of %llu bytes is more than the %llu that it consumes "
                             "of GPU %.80s; expected at most that; a DeviceClass can give more",
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
