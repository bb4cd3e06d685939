#include "kube/dra/quantity.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int quantity_parse(const char *text, uint64_t *number, struct error *error)
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
