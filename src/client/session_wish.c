#include "client/session_wish.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

int session_wish_check(const struct session_wish *wish, struct error *error)
{
    const struct gpu_names *apart = &wish->memory.gpus;
    for (unsigned i = 0; wish->gpus.count > 0 && i < apart->count; i++)
        if (!gpu_names_contain(&wish->gpus, apart->names[i]))
            return error_set(
                error, EINVAL, NULL,
                "--memory gives GPU '%s' a limit, but no --gpu names that GPU; write it the same "
                "way in both",
                apart->names[i]);
    return 0;
}

static void set_limit(json_t *object, uint64_t bytes, uint32_t part)
{
    if (bytes)
        json_object_set_new(object, "memory_bytes", json_integer((json_int_t)bytes));
    else if (part)
        json_object_set_new(object, "memory_ratio", json_real((double)part / SHARE_WHOLE));
}

/* Add the limit that the wish gives to `name` alone, if it gives one. */
static void set_limit_apart(json_t *object, const struct memory_limits *memory, const char *name)
{
    struct gpu_names one = {.count = 1};
    strcpy(one.names[0], name);
    for (unsigned i = 0; i < memory->gpus.count; i++)
        if (gpu_names_contain(&one, memory->gpus.names[i]))
            set_limit(object, memory->gpu_bytes[i], memory->gpu_parts[i]);
}

static json_t *gpus_body(const struct gpu_names *gpus, const struct memory_limits *memory)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < gpus->count; i++) {
        json_t *gpu = json_pack("{s:s}", "gpu", gpus->names[i]);
        set_limit_apart(gpu, memory, gpus->names[i]);
        json_array_append_new(array, gpu);
    }
    return array;
}

int session_wish_body(const struct session_wish *wish, const char *visible_devices, json_t **body,
                      struct error *error)
{
    const struct memory_limits *memory = &wish->memory;
    const struct gpu_names *gpus = wish->gpus.count ? &wish->gpus : &memory->gpus;
    struct gpu_names visible = {0};
    if (gpus->count == 0 && visible_devices) {
        int result = gpu_names_from_visible_devices(&visible, visible_devices, error);
        if (result < 0)
            return result;
        gpus = &visible;
    }
    *body = json_object();
    if (wish->name)
        json_object_set_new(*body, "name", json_string(wish->name));
    if (gpus->count)
        json_object_set_new(*body, "gpus", gpus_body(gpus, memory));
    set_limit(*body, memory->every_bytes, memory->every_part);
    properties_to_json(&wish->properties, *body);
    if (wish->own_socket)
        json_object_set_new(*body, "own_socket", json_true());
    return 0;
}
