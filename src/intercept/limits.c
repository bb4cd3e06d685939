#include "intercept/limits.h"

#include <errno.h>
#include <string.h>

#include "base/units.h"
#include "cuda/uuid.h"

#define WORD_BYTES 64 /* a UUID, an index, a size */

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')
        at++;
    return at;
}

/* A string without escapes, or a bare number. Returns what follows, or NULL. */
static const char *read_word(const char *at, bool bare_allowed, char word[static WORD_BYTES])
{
    at = skip_blanks(at);
    bool quoted = *at == '"';
    if (quoted)
        at++;
    else if (!bare_allowed)
        return NULL;
    size_t length = 0;
    for (; *at && *at != '"' && *at != '\\'; at++) {
        if (!quoted && !(*at >= '0' && *at <= '9'))
            break;
        if (length == WORD_BYTES - 1)
            return NULL;
        word[length++] = *at;
    }
    word[length] = '\0';
    if (length == 0 || (quoted && *at != '"'))
        return NULL;
    return quoted ? at + 1 : at;
}

static int read_row(const char *key, const char *value, struct limit *row, struct error *error)
{
    uint64_t index;
    row->by_uuid = gpu_uuid_parse(key, row->uuid);
    if (!row->by_uuid) {
        if (units_parse_number(key, UINT32_MAX, &index, NULL) < 0)
            return error_set(error, EINVAL, NULL, "'%s' is no GPU; write its index or its UUID (GPU-...)",
                             key);
        row->index = (uint32_t)index;
    }
    return units_parse_bytes(value, &row->bytes, error);
}

static int not_an_object(struct error *error)
{
    return error_set(error, EINVAL, NULL,
                     "not a size and not a JSON object of sizes; write 2GiB, or {\"0\": \"2GiB\"}");
}

int limits_parse(const char *text, struct limits *limits, struct error *error)
{
    const char *at = skip_blanks(text);
    struct limits read = {0};
    if (*at != '{') {
        read.every_gpu = true;
        int result = units_parse_bytes(at, &read.every_gpu_bytes, error);
        if (result == 0)
            *limits = read;
        return result;
    }
    at = skip_blanks(at + 1);
    while (*at != '}') {
        char key[WORD_BYTES], value[WORD_BYTES];
        if (read.count && *at++ != ',')
            return not_an_object(error);
        at = read_word(at, false, key);
        if (!at || *(at = skip_blanks(at)) != ':' || !(at = read_word(at + 1, true, value)))
            return not_an_object(error);
        if (read.count == LEDGER_GPUS)
            return error_set(error, E2BIG, NULL, "more than %u GPUs", LEDGER_GPUS);
        int result = read_row(key, value, &read.rows[read.count], error);
        if (result < 0)
            return result;
        read.count++;
        at = skip_blanks(at);
    }
    if (*skip_blanks(at + 1))
        return not_an_object(error);
    *limits = read;
    return 0;
}
