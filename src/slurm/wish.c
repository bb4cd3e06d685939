#include "slurm/wish.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "config/session_properties.h"

static int take_memory(json_t *body, const char *value, struct error *error)
{
    uint64_t bytes;
    int result = units_parse_bytes(value, &bytes, error);
    if (result == 0 && (bytes == 0 || bytes > INT64_MAX))
        result = error_set(error, ERANGE, NULL, "'%.40s' is not a memory limit; expected more than 0", value);
    if (result == 0)
        json_object_set_new(body, "memory_bytes", json_integer((json_int_t)bytes));
    return result;
}

static int take_gpu(json_t *body, const char *value, struct error *error)
{
    return json_object_set_new(body, "gpus", json_pack("[{s:s}]", "gpu", value));
}

static const struct {
    const char *name;
    int (*take)(json_t *body, const char *value, struct error *error);
    const char *field;
} parts[] = {
    /* besides properties */
    {"memory", take_memory, "memory_bytes"},
    {"gpu", take_gpu, "gpus"},
};

/* A word that is a property's. */
static int take_property(json_t *body, const char *name, size_t length, const char *value,
                         struct error *error)
{
    struct session_properties properties = {0};
    const struct property *row = property_find_name(name, length);
    if (!row || !(row->flags & IN_SLURM))
        return error_set(error, EINVAL, NULL,
                         "'%.40s' is not known; expected memory=SIZE,compute=SHARE,priority=LEVEL,gpu=GPU",
                         name);
    if (!value || !*value)
        return error_set(error, EINVAL, NULL, "%s has no value; expected %s=VALUE", row->name, row->name);
    if (json_object_get(body, row->json))
        return error_set(error, EINVAL, NULL, "%s is given twice; expected it once", row->name);
    int result = property_parse(row, value, &properties, error);
    if (result == 0)
        properties_to_json(&properties, body);
    return result;
}

static int take_part(json_t *body, const char *part, struct error *error)
{
    const char *equals = strchr(part, '=');
    size_t length = equals ? (size_t)(equals - part) : strlen(part);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (strlen(parts[i].name) != length || memcmp(parts[i].name, part, length) != 0)
            continue;
        if (!equals || !equals[1])
            return error_set(error, EINVAL, NULL, "%s has no value; expected %s=VALUE", parts[i].name,
                             parts[i].name);
        if (json_object_get(body, parts[i].field))
            return error_set(error, EINVAL, NULL, "%s is given twice; expected it once", parts[i].name);
        return parts[i].take(body, equals + 1, error);
    }
    return take_property(body, part, length, equals ? equals + 1 : NULL, error);
}

int wish_parse(const char *text, json_t **body, struct error *error)
{
    json_t *made = json_object();
    int result = 0;
    while (*text && result == 0) {
        char part[128];
        size_t length = strcspn(text, ",");
        if (snprintf(part, sizeof(part), "%.*s", (int)(length < 200 ? length : 200), text) >=
            (int)sizeof(part))
            result = error_set(error, EINVAL, NULL, "'%.40s...' is too long", text);
        else if (length)
            result = take_part(made, part, error);
        text += length;
        text += *text == ',';
    }
    if (result == 0 && !json_object_get(made, "memory_bytes"))
        result = error_set(error, EINVAL, NULL, "memory is missing; expected memory=SIZE, like memory=4GiB");
    if (result < 0)
        json_decref(made);
    else
        *body = made;
    return result;
}
