#include "config/values.h"

#include <errno.h>
#include <string.h>

#include "base/units.h"

int value_parse_flag(const char *text, bool *flag, struct error *error)
{
    static const char *const words[][2] = {{"no", "yes"}, {"false", "true"}, {"off", "on"}, {"0", "1"}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        for (unsigned value = 0; value < 2; value++)
            if (strcmp(text, words[i][value]) == 0) {
                *flag = value;
                return 0;
            }
    return error_set(error, EINVAL, NULL, "'%.80s' is neither yes nor no", text);
}

int value_parse_seconds(const char *text, uint64_t *seconds, struct error *error)
{
    uint64_t usec;
    int result = units_parse_duration(text, &usec, error);
    if (result < 0)
        return result;
    if (usec % 1000000 || usec / 1000000 > VALUE_SECONDS_MAX)
        return error_set(error, EINVAL, NULL,
                         "'%.80s' is not a whole number of seconds; expected a time like 90s or 2h", text);
    *seconds = usec / 1000000;
    return 0;
}

int value_parse_size(const char *text, uint64_t *bytes, struct error *error)
{
    uint64_t size;
    int result = units_parse_bytes(text, &size, error);
    if (result < 0)
        return result;
    if (size == 0 || size > INT64_MAX)
        return error_set(error, ERANGE, NULL, "size '%.80s' is out of range; expected above 0 and below 8EiB",
                         text);
    *bytes = size;
    return 0;
}
