/* The bodies of requests for sessions: from JSON to what they ask for (request.h). */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "daemon/api/api.h"
#include "daemon/gpu/gpu.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/identity.h"
#include "daemon/session/request.h"

static int bad_request(struct error *error, const char *field, const char *expected)
{
    return error_set(error, EINVAL, "ERR_BAD_REQUEST", "'%.80s' is wrong; expected %s", field, expected);
}

static int parse_bytes(const char *field, const json_t *value, bool *has_bytes, uint64_t *bytes,
                       struct error *error)
{
    if (*has_bytes)
        return bad_request(error, field, "either 'memory_bytes' or 'memory_ratio'");
    if (!json_is_integer(value) || json_integer_value(value) <= 0)
        return bad_request(error, field, "a whole number of bytes above 0");
    *has_bytes = true;
    *bytes = (uint64_t)json_integer_value(value);
    return 0;
}

/* A part of the card, above 0 and up to 1. A smaller part than a ten-thousandth becomes that. */
static int parse_part(const char *field, const json_t *value, bool *has_bytes, uint32_t *part,
                      struct error *error)
{
    double ratio = json_number_value(value);
    if (*has_bytes)
        return bad_request(error, field, "either 'memory_bytes' or 'memory_ratio'");
    if (!json_is_number(value) || !(ratio > 0) || ratio > 1)
        return bad_request(error, field, "a number above 0 and up to 1");
    *has_bytes = true;
    *part = (uint32_t)(ratio * SHARE_WHOLE + 0.5);
    if (*part == 0)
        *part = 1;
    return 0;
}

static int parse_gpu(const struct daemon *daemon, json_t *object, struct session_request *request,
                     struct error *error)
{
    struct session_limit limit = {0};
    const char *key, *gpu = NULL;
    json_t *value;
    int result = 0;
    json_object_foreach(object, key, value)
    {
        if (strcmp(key, "gpu") == 0) {
            gpu = json_string_value(value);
            result = gpu ? gpu_find(daemon, gpu, &limit.gpu, error)
                         : bad_request(error, "gpu", "a string: an index or the beginning of a UUID");
        } else if (strcmp(key, "memory_bytes") == 0) {
            result = parse_bytes("memory_bytes", value, &limit.has_bytes, &limit.bytes, error);
        } else if (strcmp(key, "memory_ratio") == 0) {
            result = parse_part("memory_ratio", value, &limit.has_bytes, &limit.part, error);
        } else {
            result = bad_request(error, key,
                                 "'gpu' and 'memory_bytes' or 'memory_ratio' alone in an element of 'gpus'");
        }
        if (result < 0)
            return result;
    }
    if (!gpu)
        return bad_request(error, "gpus", "an array of objects with 'gpu' and perhaps 'memory_bytes'");
    for (unsigned i = 0; i < request->limit_count; i++)
        if (request->limits[i].gpu == limit.gpu)
            return error_set(error, EINVAL, "ERR_BAD_REQUEST", "GPU %s is named twice; name each GPU once",
                             daemon->gpus[limit.gpu].label);
    request->limits[request->limit_count++] = limit; /* each card once, so no more than there are cards */
    return 0;
}

/* --- The fields ------------------------------------------------------------------------------------ */

/* What the parser of a field gets. */
struct field {
    const struct daemon *daemon;
    const char *name;
    json_t *value;
    struct session_request *request;
};

static int parse_name(const struct field *field, struct error *error)
{
    field->request->name = json_string_value(field->value);
    return field->request->name ? 0 : bad_request(error, field->name, "a string");
}

static int parse_gpus(const struct field *field, struct error *error)
{
    size_t index;
    json_t *element;
    if (!json_is_array(field->value) || json_array_size(field->value) == 0)
        return bad_request(error, field->name, "an array of objects with 'gpu' and perhaps 'memory_bytes'");
    json_array_foreach(field->value, index, element)
    {
        int result = parse_gpu(field->daemon, element, field->request, error);
        if (result < 0)
            return result;
    }
    return 0;
}

static int parse_memory(const struct field *field, struct error *error)
{
    return parse_bytes(field->name, field->value, &field->request->has_bytes, &field->request->bytes, error);
}

static int parse_memory_ratio(const struct field *field, struct error *error)
{
    return parse_part(field->name, field->value, &field->request->has_bytes, &field->request->part, error);
}

static int parse_own_socket(const struct field *field, struct error *error)
{
    field->request->own_socket = json_is_true(field->value);
    return field->request->own_socket
               ? 0
               : bad_request(error, field->name, "true; a session keeps its own socket");
}

/* Whether the client may ask for this owner is checked later. */
static int parse_owner(const struct field *field, struct error *error)
{
    json_int_t number = json_integer_value(field->value);
    if (!json_is_integer(field->value) || number < 0 || number >= UINT32_MAX)
        return bad_request(error, field->name, "the number of a user");
    field->request->has_owner = true;
    field->request->owner = (uid_t)number;
    return 0;
}

static int parse_managed(const struct field *field, struct error *error)
{
    field->request->is_managed = json_is_true(field->value);
    return json_is_boolean(field->value) ? 0 : bad_request(error, field->name, "true or false");
}

static int parse_run(const struct field *field, struct error *error)
{
    const char *text = json_string_value(field->value);
    field->request->run_parent = text && strcmp(text, "parent") == 0;
    field->request->run = field->request->run_parent || json_is_true(field->value);
    return field->request->run_parent || json_is_boolean(field->value)
               ? 0
               : bad_request(error, field->name, "true, false or \"parent\"");
}

static int parse_token(const struct field *field, struct error *error)
{
    field->request->token = json_string_value(field->value);
    return field->request->token && identity_is_token(field->request->token)
               ? 0
               : bad_request(error, field->name, "64 hexadecimal digits, in lower case");
}

static int parse_key(const struct field *field, struct error *error)
{
    field->request->key = json_string_value(field->value);
    return field->request->key && identity_is_key(field->request->key)
               ? 0
               : bad_request(error, field->name, "32 hexadecimal digits, in lower case, chosen by chance");
}

static int parse_wait(const struct field *field, struct error *error)
{
    field->request->wait = json_is_true(field->value);
    return json_is_boolean(field->value) ? 0 : bad_request(error, field->name, "true or false");
}

/* What has no row in session_properties.def; in the order in which errors name them. */
static const struct {
    const char *name;
    bool is_creations; /* only in a POST */
    int (*parse)(const struct field *field, struct error *error);
} fields[] = {
    {"name", false, parse_name},
    {"gpus", false, parse_gpus},
    {"memory_bytes", false, parse_memory},
    {"memory_ratio", false, parse_memory_ratio},
    {"own_socket", false, parse_own_socket},
    {"owner_uid", true, parse_owner},
    {"managed", true, parse_managed},
    {"token", true, parse_token},
    {"request_key", true, parse_key},
    {"run", true, parse_run},
    {"wait", true, parse_wait},
};
#define FIELD_COUNT (sizeof(fields) / sizeof(fields[0]))

static int unknown_field(const char *name, bool creating, struct error *error)
{
    char known[512] = "";
    size_t length = 0;
    for (size_t i = 0; i < FIELD_COUNT && length < sizeof(known); i++)
        if (creating || !fields[i].is_creations)
            length += (size_t)snprintf(known + length, sizeof(known) - length, "%s%s", length ? ", " : "",
                                       fields[i].name);
    for (size_t i = 0; i < PROPERTY_COUNT && length < sizeof(known); i++)
        if (creating || !(session_properties[i].flags & IS_FIXED))
            length +=
                (size_t)snprintf(known + length, sizeof(known) - length, ", %s", session_properties[i].json);
    return error_set(error, EINVAL, "ERR_BAD_REQUEST", "the field '%.80s' does not exist; expected %s", name,
                     known);
}

static int parse_field(const struct field *field, bool creating, struct error *error)
{
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (strcmp(fields[i].name, field->name) == 0 && (creating || !fields[i].is_creations))
            return fields[i].parse(field, error);
    const struct property *row = property_find_json(field->name);
    if (row && (creating || !(row->flags & IS_FIXED)))
        return property_from_json(row, field->value, &field->request->properties, error);
    return unknown_field(field->name, creating, error);
}

/* --- Whole bodies ---------------------------------------------------------------------------------- */

int api_parse_session(const struct daemon *daemon, const char *body, size_t bytes, bool creating,
                      json_t **document, struct session_request *request, struct error *error)
{
    struct field field = {.daemon = daemon, .request = request};
    int result = api_parse_body(body, bytes, document, error);
    if (result < 0)
        return result;
    json_object_foreach(*document, field.name, field.value)
    {
        result = parse_field(&field, creating, error);
        if (result < 0) {
            json_decref(*document);
            *document = NULL;
            return result;
        }
    }
    return 0;
}

int api_parse_gslice(const char *body, size_t bytes, struct session_request *request, struct error *error)
{
    json_t *document, *value;
    const char *key;
    int result = api_parse_body(body, bytes, &document, error);
    if (result < 0)
        return result;
    json_object_foreach(document, key, value)
    {
        if (strcmp(key, "limit_bytes") == 0)
            result = parse_bytes(key, value, &request->has_bytes, &request->bytes, error);
        else if (strcmp(key, "ttl_seconds") == 0)
            result = json_is_null(value) ? -EINVAL
                                         : property_from_json(&session_properties[PROPERTY_TTL], value,
                                                              &request->properties, error);
        else
            result = -EINVAL;
        if (result < 0) {
            bad_request(error, key, "limit_bytes (above 0) and ttl_seconds (1 to 2147483647) alone");
            break;
        }
    }
    json_decref(document);
    if (result == 0 && !request->has_bytes)
        return error_set(error, EINVAL, "ERR_BAD_REQUEST",
                         "field 'limit_bytes' is missing; expected a whole number of bytes above 0");
    return result;
}
