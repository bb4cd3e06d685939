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

/* A property by its row: sizes are Kubernetes' quantities, and a time is rounded down to whole seconds, but not to none. */
static int read_property(struct session_properties *properties, const struct property *row, const char *text,
                         struct error *error)
{
    uint64_t number = 0;
    int result;
    if (row->kind == PROPERTY_KIND_SIZE)
        result = quantity_parse(text, &number, error);
    else if (row->kind == PROPERTY_KIND_SECONDS)
        result = units_parse_duration(text, &number, error);
    else
        return property_parse(row, text, properties, error);
    if (result < 0)
        return result;
    if (row->kind == PROPERTY_KIND_SECONDS)
        number = number < 1000000 ? 1 : number / 1000000;
    *(uint64_t *)property_at(row, properties) = number;
    properties->given |= number ? UINT32_C(1) << row->id : 0;
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
    if (strcmp(key, "apiVersion") == 0 && text && strcmp(text, CLAIM_CONFIG_VERSION) == 0)
        return 0;
    if (strcmp(key, "kind") == 0 && text && strcmp(text, CLAIM_CONFIG_KIND) == 0)
        return 0;
    if (strcmp(key, "memoryLimit") == 0 && text)
        return quantity_parse(text, &config->limit_bytes, error);
    const struct property *row = find_property(key);
    return row && text ? read_property(&config->properties, row, text, error) : unknown_parameter(key, error);
}

/* A class is an administrator's, and a claim any user's of its namespace. What others are kept from for a claim is what
 * the scheduler counted for it, or what its class says: the claim itself may ask for less. `before` is what held without
 * its own configuration. Memory limits are looked at when all are read. */
static int check_own(const struct claim_config *config, const struct claim_config *before,
                     struct error *error)
{
    char least[UNITS_SHARE_TEXT], asked[UNITS_SHARE_TEXT];
    uint32_t most = before->properties.compute.min > config->counted_share ? before->properties.compute.min
                                                                           : config->counted_share;
    if (config->properties.compute.min > most)
        return error_set(
            error, EPERM, NULL,
            "the claim's minimumShare is %s; expected at most the %s that its cores, or its DeviceClass, "
            "give it; ask for more cores",
            units_format_share((struct share){config->properties.compute.min, config->properties.compute.min},
                               asked),
            units_format_share((struct share){most, most}, least));
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

int claim_config_read(struct claim_config *config, const json_t *allocation, struct error *error)
{
    size_t i;
    json_t *each;
    json_array_foreach(json_object_get(allocation, "config"), i, each)
    {
        const json_t *opaque = json_object_get(each, "opaque");
        const struct claim_config before = *config;
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
    if (config->properties.compute.min > config->properties.compute.max)
        return error_set(error, EINVAL, NULL, "the claim's minimum share is above its maximum");
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
