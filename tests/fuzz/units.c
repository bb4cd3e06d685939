/* Sizes, shares, durations and numbers as people write them. */
#include <errno.h>

#include "base/units.h"
#include "fuzz.h"

static void check_refusal(int result, const struct error *error)
{
    fuzz_require(result == -EINVAL || result == -ERANGE);
    fuzz_require(error->message[0] && strlen(error->message) < sizeof(error->message));
    fuzz_require(!strchr(error->message, '\n') && !strchr(error->message, '\033'));
}

static void check_bytes(const char *text)
{
    uint64_t bytes;
    struct error error = {0};
    char written[UNITS_BYTES_TEXT];
    int result = units_parse_bytes(text, &bytes, &error);
    if (result < 0)
        check_refusal(result, &error);
    else
        fuzz_require(strlen(units_format_bytes(bytes, written)) < sizeof(written));
}

static void check_share(const char *text)
{
    struct share share, again;
    struct error error = {0};
    char written[UNITS_SHARE_TEXT];
    int result = units_parse_share(text, &share, &error);
    if (result < 0) {
        check_refusal(result, &error);
        return;
    }
    fuzz_require(share.min <= share.max && share.max > 0 && share.max <= SHARE_WHOLE);
    fuzz_require(units_parse_share(units_format_share(share, written), &again, &error) == 0);
    fuzz_require(share.min == again.min && share.max == again.max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    uint64_t number;
    struct error error = {0};
    check_bytes(text);
    check_share(text);
    int result = units_parse_duration(text, &number, &error);
    if (result < 0)
        check_refusal(result, &error);
    else
        fuzz_require(number > 0 && number <= UINT64_C(366) * 86400 * 1000000);
    error = (struct error){0};
    result = units_parse_quantum(text, &number, &error);
    if (result < 0)
        check_refusal(result, &error);
    else
        fuzz_require(number == 0 ||
                     (number >= UNITS_QUANTUM_LEAST_USEC && number <= UNITS_QUANTUM_MOST_USEC));
    error = (struct error){0};
    result = units_parse_number(text, 1000, &number, &error);
    if (result < 0)
        check_refusal(result, &error);
    else
        fuzz_require(number <= 1000);
    free(text);
    return 0;
}
