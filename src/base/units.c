#include "base/units.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char unit_letters[] = "KMGTP";

static char upper(char letter)
{
    return letter >= 'a' && letter <= 'z' ? (char)(letter - 'a' + 'A') : letter;
}

/* How many bits the unit shifts by; -1 when `text` is not a unit. */
static int unit_shift(const char *text)
{
    if (text[0] == '\0' || (upper(text[0]) == 'B' && text[1] == '\0'))
        return 0;
    const char *letter = upper(text[0]) ? strchr(unit_letters, upper(text[0])) : NULL;
    if (!letter)
        return -1;
    text++;
    if (upper(text[0]) == 'I')
        text++;
    if (upper(text[0]) == 'B')
        text++;
    return text[0] == '\0' ? 10 * (int)(letter - unit_letters + 1) : -1;
}

/* A number of less than this without a unit was hardly meant as bytes. */
#define BARE_BYTES_LEAST (UINT64_C(1) << 20)

/* A number above 0 and nothing else: nothing has no unit. */
static bool is_bare(const char *text)
{
    return text[strspn(text, "0")] && text[strspn(text, "0123456789")] == '\0';
}

int units_parse_bytes(const char *text, uint64_t *bytes, struct error *error)
{
    uint64_t parsed;
    int result = units_parse_bare_bytes(text, &parsed, error);
    if (result < 0)
        return result;
    if (is_bare(text) && parsed < BARE_BYTES_LEAST)
        return error_set(error, EINVAL, NULL, "'%.64s' has no unit; did you mean %.64s%s or %.64s%s?", text,
                         text, parsed < 1024 ? "GiB" : "MiB", text, parsed < 1024 ? "MiB" : "B");
    *bytes = parsed;
    return 0;
}

int units_parse_bare_bytes(const char *text, uint64_t *bytes, struct error *error)
{
    unsigned __int128 whole = 0, fraction = 0, scale = 1;
    const char *at = text;

    for (; *at >= '0' && *at <= '9'; at++) {
        whole = whole * 10 + (unsigned)(*at - '0');
        if (whole > UINT64_MAX)
            return error_set(error, ERANGE, NULL, "size '%.64s' is beyond 64 bits", text);
    }
    if (at == text)
        goto not_a_size;
    if (*at == '.') {
        const char *first = ++at;
        for (; *at >= '0' && *at <= '9'; at++) {
            if (scale < UINT32_MAX) { /* further digits are below one byte of any unit here */
                fraction = fraction * 10 + (unsigned)(*at - '0');
                scale *= 10;
            }
        }
        if (at == first)
            goto not_a_size;
    }
    int shift = unit_shift(at);
    if (shift < 0)
        goto not_a_size;
    unsigned __int128 total = (whole << shift) + ((fraction << shift) / scale);
    if (total > UINT64_MAX)
        return error_set(error, ERANGE, NULL, "size '%.64s' is beyond 64 bits", text);
    *bytes = (uint64_t)total;
    return 0;

not_a_size:
    return error_set(error, EINVAL, NULL,
                     "'%.64s' is not a size; write a number with a unit, like 4GiB or 512M", text);
}

int units_parse_number(const char *text, uint64_t max, uint64_t *number, struct error *error)
{
    uint64_t value = 0;
    if (*text == '\0')
        return error_set(error, EINVAL, NULL, "a number is missing");
    for (const char *at = text; *at; at++) {
        if (*at < '0' || *at > '9')
            return error_set(error, EINVAL, NULL, "'%.64s' is not a number", text);
        unsigned digit = (unsigned)(*at - '0');
        if (value > (max - digit) / 10)
            return error_set(error, ERANGE, NULL, "'%.64s' is above %llu", text, (unsigned long long)max);
        value = value * 10 + digit;
    }
    *number = value;
    return 0;
}

/* Read "12.5%" or "12.5" at `*text`, and move `*text` past it. A number below 1 without a sign is refused: it was
 * most likely meant as a ratio. */
static bool parse_percentage(const char **text, uint32_t *share)
{
    const char *at = *text;
    uint32_t value = 0;
    unsigned digits = 0, decimals = 0;
    for (; *at >= '0' && *at <= '9'; at++, digits++)
        value = value < SHARE_WHOLE ? value * 10 + (uint32_t)(*at - '0') : value;
    if (digits && at[0] == '.' && at[1] != '.') {
        for (at++; decimals < 2 && *at >= '0' && *at <= '9'; at++, decimals++)
            value = value < SHARE_WHOLE ? value * 10 + (uint32_t)(*at - '0') : value;
        if (decimals == 0)
            return false;
    }
    for (; decimals < 2; decimals++)
        value = value <= SHARE_WHOLE ? value * 10 : value;
    bool has_sign = *at == '%';
    if (digits == 0 || (!has_sign && value > 0 && value < SHARE_WHOLE / 100))
        return false;
    *text = at + has_sign;
    *share = value;
    return true;
}

int units_parse_share(const char *text, struct share *share, struct error *error)
{
    const char *at = text;
    struct share parsed;
    bool is_range = false;
    if (!parse_percentage(&at, &parsed.min))
        goto not_a_share;
    parsed.max = parsed.min;
    if (at[0] == '.' && at[1] == '.') {
        is_range = true;
        at += 2;
        if (!parse_percentage(&at, &parsed.max))
            goto not_a_share;
    }
    if (*at)
        goto not_a_share;
    if (parsed.max == 0 || parsed.max > SHARE_WHOLE || parsed.min > SHARE_WHOLE)
        return error_set(error, ERANGE, NULL,
                         "share '%.64s' is out of range; expected %s above 0%% and up to 100%%", text,
                         is_range ? "its second percentage" : "a percentage");
    if (parsed.min > parsed.max)
        return error_set(error, ERANGE, NULL,
                         "share '%.64s' is upside down; expected MIN%%..MAX%%, like 20%%..60%%", text);
    *share = parsed;
    return 0;

not_a_share:
    return error_set(
        error, EINVAL, NULL,
        "'%.64s' is not a share; write a percentage, like 25%% or 12.25%%, or a range, like 20%%..60%%",
        text);
}

int units_parse_duration(const char *text, uint64_t *usec, struct error *error)
{
    static const struct {
        const char *unit;
        uint64_t usec;
    } units[] = {{"ms", 1000}, {"s", 1000000}, {"m", 60000000}, {"h", 3600000000}, {"d", 86400000000}};
    static const uint64_t year_usec = UINT64_C(366) * 24 * 3600 * 1000000;
    uint64_t number = 0;
    const char *at = text;
    if (is_bare(text))
        return error_set(error, EINVAL, NULL, "'%.64s' has no unit; did you mean %.64ss or %.64sm?", text,
                         text, text);
    for (; *at >= '0' && *at <= '9' && number <= year_usec; at++)
        number = number * 10 + (unsigned)(*at - '0');
    for (size_t i = 0; at != text && i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(at, units[i].unit) != 0)
            continue;
        if (number == 0 || number > year_usec / units[i].usec)
            return error_set(error, EINVAL, NULL,
                             "duration '%.64s' is out of range; expected above 0 and at most a year", text);
        *usec = number * units[i].usec;
        return 0;
    }
    return error_set(error, EINVAL, NULL,
                     "'%.64s' is not a duration; write a whole number with a unit, like 30s, 5m, 2h or 7d",
                     text);
}

int units_parse_quantum(const char *text, uint64_t *usec, struct error *error)
{
    if (strcmp(text, "auto") == 0) {
        *usec = 0;
        return 0;
    }
    if (is_bare(text))
        return error_set(error, EINVAL, NULL, "'%.64s' has no unit; did you mean %.64sms or %.64ss?", text,
                         text, text);
    if (units_parse_duration(text, usec, error) == 0 && *usec >= UNITS_QUANTUM_LEAST_USEC &&
        *usec <= UNITS_QUANTUM_MOST_USEC)
        return 0;
    return error_set(error, EINVAL, NULL, "'%.64s' is not a turn's length; expected 1ms to 1h, or auto",
                     text);
}

static size_t format_percentage(uint32_t share, char *buffer, size_t bytes)
{
    unsigned whole = share / 100, hundredths = share % 100;
    int length = hundredths == 0        ? snprintf(buffer, bytes, "%u%%", whole)
                 : hundredths % 10 == 0 ? snprintf(buffer, bytes, "%u.%u%%", whole, hundredths / 10)
                                        : snprintf(buffer, bytes, "%u.%02u%%", whole, hundredths);
    return (size_t)length;
}

const char *units_format_share(struct share share, char buffer[static UNITS_SHARE_TEXT])
{
    size_t length = format_percentage(share.min, buffer, UNITS_SHARE_TEXT);
    if (share.min != share.max) {
        memcpy(buffer + length, "..", 2);
        format_percentage(share.max, buffer + length + 2, UNITS_SHARE_TEXT - length - 2);
    }
    return buffer;
}

const char *units_format_bytes(uint64_t bytes, char buffer[static UNITS_BYTES_TEXT])
{
    int shift = 0;
    while (shift < 50 && bytes >> (shift + 10))
        shift += 10;
    if (shift == 0) {
        snprintf(buffer, UNITS_BYTES_TEXT, "%lluB", (unsigned long long)bytes);
        return buffer;
    }
    unsigned long long whole = bytes >> shift;
    unsigned long long tenth = ((bytes & ((UINT64_C(1) << shift) - 1)) * 10) >> shift;
    if (tenth)
        snprintf(buffer, UNITS_BYTES_TEXT, "%llu.%llu%ciB", whole, tenth, unit_letters[shift / 10 - 1]);
    else
        snprintf(buffer, UNITS_BYTES_TEXT, "%llu%ciB", whole, unit_letters[shift / 10 - 1]);
    return buffer;
}

const char *units_format_stays(const struct units_part *parts, unsigned count, char *text, size_t size)
{
    char bytes[UNITS_BYTES_TEXT];
    uint64_t sum = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < count; i++)
        sum += parts[i].bytes;
    if (count == 0)
        return text;
    size_t length = (size_t)snprintf(text, size, "%s stay (", units_format_bytes(sum, bytes));
    for (unsigned i = 0; i < count && length < size; i++)
        length += (size_t)snprintf(text + length, size - length, "%s%s%s%s", i ? ", " : "",
                                   count > 1 ? units_format_bytes(parts[i].bytes, bytes) : "",
                                   count > 1 ? " " : "", parts[i].text);
    if (length < size)
        snprintf(text + length, size - length, ")");
    return text;
}
