#include "client/memory_limits.h"

#include <errno.h>
#include <string.h>

#include "base/units.h"

bool memory_limits_given(const struct memory_limits *limits)
{
    return limits->every_bytes || limits->every_part || limits->gpus.count;
}

/* Read "50%": units_parse_share() gives it as a share whose two ends are the same. */
static int parse_part(const char *text, uint32_t *part, struct error *error)
{
    struct share share;
    if (strstr(text, "..") || units_parse_share(text, &share, NULL) < 0)
        return error_set(
            error, EINVAL, NULL,
            "'%.64s' is not a part of a GPU's memory; expected more than 0%% and at most 100%%, like 50%%",
            text);
    *part = share.max;
    return 0;
}

static int parse_size(const char *text, uint64_t *bytes, uint32_t *part, struct error *error)
{
    uint64_t parsed;
    if (strchr(text, '%'))
        return parse_part(text, part, error);
    int result = units_parse_bytes(text, &parsed, error);
    if (result < 0)
        return result;
    if (parsed == 0)
        return error_set(error, EINVAL, NULL, "the limit '%.64s' is 0; expected at least 1 byte, like 4GiB",
                         text);
    if (parsed > INT64_MAX) /* the API's numbers are JSON's, which every reader takes as signed */
        return error_set(error, ERANGE, NULL, "size '%.64s' is beyond 2^63 bytes; expected less, like 4GiB",
                         text);
    *bytes = parsed;
    return 0;
}

/* One "GPU=SIZE" of `length` bytes. */
static int parse_pair(struct memory_limits *limits, const char *text, size_t length, struct error *error)
{
    const char *equals = memchr(text, '=', length);
    if (!equals)
        return error_set(error, EINVAL, NULL,
                         "'%.*s' does not name a GPU; expected GPU=SIZE, like 0=4GiB,1=2GiB",
                         length > 64 ? 64 : (int)length, text);
    char size[80] = "";
    size_t size_length = length - (size_t)(equals + 1 - text);
    if (size_length >= sizeof(size))
        return error_set(error, EINVAL, NULL,
                         "'%.64s...' is not a size; write bytes or a unit, like 4GiB or 512M", equals + 1);
    memcpy(size, equals + 1, size_length);

    uint64_t bytes = 0;
    uint32_t part = 0;
    int result = parse_size(size, &bytes, &part, error);
    if (result < 0 || (result = gpu_names_add(&limits->gpus, text, (size_t)(equals - text), error)) < 0)
        return result;
    limits->gpu_bytes[limits->gpus.count - 1] = bytes;
    limits->gpu_parts[limits->gpus.count - 1] = part;
    return 0;
}

int memory_limits_parse(struct memory_limits *limits, const char *text, struct error *error)
{
    struct memory_limits parsed = {0};
    if (!strchr(text, '=')) {
        int result = parse_size(text, &parsed.every_bytes, &parsed.every_part, error);
        if (result < 0)
            return result;
        *limits = parsed;
        return 0;
    }
    for (const char *at = text;;) {
        size_t length = strcspn(at, ",");
        int result = parse_pair(&parsed, at, length, error);
        if (result < 0)
            return result;
        if (at[length] == '\0')
            break;
        at += length + 1;
    }
    *limits = parsed;
    return 0;
}
