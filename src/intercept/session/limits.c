#include "intercept/session/limits.h"

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

/* How one limit is written. */
typedef int read_amount(const char *text, uint64_t *amount, struct error *error);

static int read_share(const char *text, uint64_t *amount, struct error *error)
{
    struct share share;
    int result = units_parse_share(text, &share, error);
    if (result == 0)
        *amount = share.max;
    return result;
}

static int read_row(const char *key, const char *value, read_amount *read, struct limit *row,
                    struct error *error)
{
    uint64_t index;
    row->by_uuid = gpu_uuid_parse(key, row->uuid);
    if (!row->by_uuid) {
        if (units_parse_number(key, UINT32_MAX, &index, NULL) < 0)
            return error_set(error, EINVAL, NULL, "'%s' is not a GPU; write its index or its UUID (GPU-...)",
                             key);
        row->index = (uint32_t)index;
    }
    return read(value, &row->amount, error);
}

static int not_an_object(read_amount *amount, struct error *error)
{
    const char *example = amount == read_share ? "25%" : "2GiB";
    return error_set(error, EINVAL, NULL,
                     "neither a limit nor a JSON object of limits; write %s, or {\"0\": \"%s\"}", example,
                     example);
}

static int parse(const char *text, read_amount *amount, struct limits *limits, struct error *error)
{
    const char *at = skip_blanks(text);
    struct limits read = {0};
    if (*at != '{') {
        read.every_gpu = true;
        int result = amount(at, &read.every_gpu_amount, error);
        if (result == 0)
            *limits = read;
        return result;
    }
    at = skip_blanks(at + 1);
    bool is_first = true;
    while (*at != '}') {
        char key[WORD_BYTES], value[WORD_BYTES];
        if (!is_first && *at++ != ',')
            return not_an_object(amount, error);
        at = read_word(at, false, key);
        if (!at || *(at = skip_blanks(at)) != ':' || !(at = read_word(at + 1, true, value)))
            return not_an_object(amount, error);
        if (read.count == LEDGER_GPUS)
            return error_set(error, E2BIG, NULL, "more than %u GPUs", LEDGER_GPUS);
        bool is_rest = strcmp(key, "*") == 0;
        int result = is_rest ? amount(value, &read.every_gpu_amount, error)
                             : read_row(key, value, amount, &read.rows[read.count], error);
        if (result < 0)
            return result;
        read.every_gpu |= is_rest;
        read.count += !is_rest;
        is_first = false;
        at = skip_blanks(at);
    }
    if (*skip_blanks(at + 1))
        return not_an_object(amount, error);
    *limits = read;
    return 0;
}

int limits_parse(const char *text, struct limits *limits, struct error *error)
{
    return parse(text, units_parse_bare_bytes, limits, error);
}

int limits_parse_shares(const char *text, struct limits *limits, struct error *error)
{
    return parse(text, read_share, limits, error);
}

bool limits_find(const struct limits *limits, const uint8_t uuid[static 16], int index, uint64_t *amount)
{
    for (uint32_t i = 0; i < limits->count; i++) {
        const struct limit *row = &limits->rows[i];
        if (row->by_uuid ? memcmp(row->uuid, uuid, 16) != 0 : index < 0 || row->index != (uint32_t)index)
            continue;
        *amount = row->amount;
        return true;
    }
    if (limits->every_gpu)
        *amount = limits->every_gpu_amount;
    return limits->every_gpu;
}
