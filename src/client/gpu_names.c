#include "client/gpu_names.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/units.h"

/* Whether it is an index, an index with that of a MIG instance after a colon, or can begin a UUID as NVML writes
 * it: "GPU-8f2d...", "MIG-...", or its hex digits alone. */
static bool may_name_a_gpu(const char *name)
{
    static const char hex[] = "0123456789abcdefABCDEF-";
    size_t digits = strspn(name, "0123456789");
    if (digits > 0 && name[digits] == ':') {
        size_t more = strspn(name + digits + 1, "0123456789");
        return more > 0 && name[digits + 1 + more] == '\0';
    }
    if (strncasecmp(name, "MIG-", 4) == 0)
        name += 4;
    if (strncasecmp(name, "GPU-", 4) == 0)
        name += 4;
    size_t length = strspn(name, hex);
    if (length > 0 && name[length] == '/') /* MIG-GPU-UUID/INSTANCE/COMPUTE, as drivers before 470 name one */
        length += strspn(name + length, "/0123456789");
    return length > 0 && name[0] != '-' && name[length] == '\0';
}

bool gpu_names_contain(const struct gpu_names *names, const char *name)
{
    for (unsigned i = 0; i < names->count; i++)
        if (strcasecmp(names->names[i], name) == 0)
            return true;
    return false;
}

int gpu_names_add(struct gpu_names *names, const char *text, size_t length, struct error *error)
{
    char name[GPU_NAME_BYTES] = "";
    if (length < sizeof(name))
        memcpy(name, text, length);
    if (!may_name_a_gpu(name))
        return error_set(
            error, EINVAL, NULL,
            "'%.*s' does not name a GPU; expected an index like 0, 0:1 for MIG instance 1 of GPU 0, or "
            "the beginning of a UUID like GPU-8f2d",
            length > 64 ? 64 : (int)length, text);
    if (gpu_names_contain(names, name))
        return error_set(error, EINVAL, NULL, "GPU '%s' is named twice; name each GPU once", name);
    if (names->count == GPU_NAMES_MAX)
        return error_set(error, EINVAL, NULL, "too many GPUs are named; expected at most %d", GPU_NAMES_MAX);
    strcpy(names->names[names->count++], name);
    return 0;
}

int gpu_names_add_list(struct gpu_names *names, const char *list, struct error *error)
{
    struct gpu_names longer = *names;
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        int result = gpu_names_add(&longer, at, length, error);
        if (result < 0)
            return result;
        at += length;
        if (*at == '\0')
            break;
    }
    *names = longer;
    return 0;
}

int gpu_names_from_visible_devices(struct gpu_names *names, const char *value, struct error *error)
{
    struct gpu_names found = {0};
    for (const char *at = value; *at;) {
        at += strspn(at, " ");
        size_t length = strcspn(at, ","), kept = length;
        while (kept > 0 && at[kept - 1] == ' ')
            kept--;
        if (gpu_names_add(&found, at, kept, NULL) < 0)
            break;
        at += length;
        at += *at == ',';
    }
    if (found.count == 0)
        return error_set(
            error, ENODEV, NULL,
            "CUDA_VISIBLE_DEVICES is '%.100s', which hides every GPU; expected indices or UUIDs; name a "
            "GPU with --gpu, or unset it",
            value);
    *names = found;
    return 0;
}

int gpu_names_from_environment(struct gpu_names *names, struct error *error)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *given = getenv("TF_VISIBLE_DEVICES");
    struct gpu_names chosen = {0}, all = {0};
    if (!given || !*given)
        return visible ? gpu_names_from_visible_devices(names, visible, error) : 0;
    int result = gpu_names_add_list(&all, given, error);
    if (result == 0 && visible && *visible)
        result = gpu_names_from_visible_devices(&chosen, visible, error);
    for (unsigned i = 0; i < chosen.count && result == 0; i++) {
        uint64_t index;
        bool is_index = units_parse_number(chosen.names[i], UINT32_MAX, &index, NULL) == 0;
        if (is_index && index >= all.count)
            return error_set(error, ERANGE, NULL,
                             "CUDA_VISIBLE_DEVICES names GPU %s, but TF_VISIBLE_DEVICES has %u of them",
                             chosen.names[i], all.count);
        const char *name = is_index ? all.names[index] : chosen.names[i];
        result = gpu_names_add(names, name, strlen(name), error);
    }
    if (result == 0 && chosen.count == 0)
        *names = all;
    return result;
}
