#include "config/session_properties.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/host_memory.h"
#include "base/names.h"
#include "config/values.h"

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

static const char *const session_ttl_actions[] = {"none", "kill", NULL};

const struct property session_properties[PROPERTY_COUNT] = {
#define SESSION_PROPERTY(id_, field, kind_, words_, noun_, name_, json_, answer_, value_, option_help_,      \
                         default_, environment_, default_help_, ceiling_help_, session_help_, claim_,        \
                         flags_)                                                                             \
    [PROPERTY_##id_] = {.id = PROPERTY_##id_,                                                                \
                        .kind = PROPERTY_KIND_##kind_,                                                       \
                        .name = name_,                                                                       \
                        .json = json_,                                                                       \
                        .answer = answer_,                                                                   \
                        .noun = noun_,                                                                       \
                        .words = words_,                                                                     \
                        .offset = offsetof(struct session_properties, field),                                \
                        .bytes = sizeof(((struct session_properties *)NULL)->field),                         \
                        .claim = claim_,                                                                     \
                        .option_help = option_help_,                                                         \
                        .flags = flags_},
#include "config/session_properties.def"
#undef SESSION_PROPERTY
};

const struct property *property_find_name(const char *name, size_t length)
{
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++)
        if (strlen(row->name) == length && memcmp(row->name, name, length) == 0)
            return row;
    return NULL;
}

const struct property *property_find_json(const char *field)
{
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++)
        if (strcmp(row->json, field) == 0)
            return row;
    return NULL;
}

/* --- Words ----------------------------------------------------------------------------------------- */

/* The first value that has a word, and the one after the last. */
static unsigned first_word(const struct property *row)
{
    return row->words[0] ? 0 : 1;
}
static unsigned end_of_words(const struct property *row)
{
    unsigned end = first_word(row);
    while (row->words[end])
        end++;
    return end;
}

const char *property_list_words(const struct property *row, const char *quote,
                                char text[static PROPERTY_WORDS_TEXT])
{
    unsigned first = first_word(row), end = end_of_words(row);
    size_t length = 0;
    text[0] = '\0';
    for (unsigned i = first; i < end && length < PROPERTY_WORDS_TEXT; i++)
        length += (size_t)snprintf(text + length, PROPERTY_WORDS_TEXT - length, "%s%s%s%s",
                                   i == first     ? ""
                                   : i + 1 == end ? " or "
                                                  : ", ",
                                   quote, row->words[i], quote);
    return text;
}

static int find_word(const struct property *row, const char *text)
{
    return names_find(row->words, end_of_words(row), text);
}

/* --- Text ------------------------------------------------------------------------------------------ */

static int parse_word(const struct property *row, const char *text, unsigned *value, struct error *error)
{
    char words[PROPERTY_WORDS_TEXT];
    int at = find_word(row, text);
    if (at < 0)
        return error_set(error, EINVAL, NULL, "'%.80s' is not %s; expected %s", text, row->noun,
                         property_list_words(row, "", words));
    *value = (unsigned)at;
    return 0;
}

static int parse_seconds(const char *text, uint64_t *seconds, struct error *error)
{
    if (strcmp(text, "never") != 0)
        return value_parse_seconds(text, seconds, error);
    *seconds = 0;
    return 0;
}

static int parse_name(const struct property *row, const char *text, char *name, struct error *error)
{
    size_t length = strspn(text, LETTERS);
    if (length == 0 || length >= row->bytes || text[length])
        return error_set(error, EINVAL, NULL, "'%.80s' is not %s; expected 1 to %zu of A-Z a-z 0-9 . _ -",
                         text, row->noun, row->bytes - 1);
    strcpy(name, text);
    return 0;
}

/* How many bytes of `text` are a KEY=VALUE; 0: none. */
static size_t pair_length(const char *text)
{
    size_t key = strspn(text, LETTERS), value = text[key] == '=' ? strspn(text + key + 1, LETTERS) : 0;
    return key && value ? key + 1 + value : 0;
}

/* Add pairs with commas between to those in `labels`. */
static int parse_labels(const struct property *row, const char *text, char *labels, struct error *error)
{
    char made[PROPERTY_LABEL_TEXT];
    size_t used = strlen(labels), length = 0;
    const char *at = text;
    while ((length = pair_length(at)) && at[length] == ',')
        at += length + 1;
    if (!length || at[length])
        return error_set(error, EINVAL, NULL,
                         "'%.80s' is not %s; expected KEY=VALUE, each of A-Z a-z 0-9 . _ -", text, row->noun);
    if (used + 1 + strlen(text) >= row->bytes)
        return error_set(error, EINVAL, NULL, "the labels are too long; expected at most %zu bytes together",
                         row->bytes - 1);
    snprintf(made, sizeof(made), "%s%s%s", labels, used ? "," : "", text);
    strcpy(labels, made);
    return 0;
}

static int parse(const struct property *row, const char *text, void *value, struct error *error)
{
    switch (row->kind) {
    case PROPERTY_KIND_SHARE:
        return units_parse_share(text, value, error);
    case PROPERTY_KIND_WORD:
        return parse_word(row, text, value, error);
    case PROPERTY_KIND_FLAG:
        return value_parse_flag(text, value, error);
    case PROPERTY_KIND_SECONDS:
        return parse_seconds(text, value, error);
    case PROPERTY_KIND_SIZE:
        return value_parse_size(text, value, error);
    case PROPERTY_KIND_LABELS:
        return parse_labels(row, text, value, error);
    case PROPERTY_KIND_NAME:
        return parse_name(row, text, value, error);
    }
    return -EINVAL;
}

int property_parse(const struct property *row, const char *text, struct session_properties *properties,
                   struct error *error)
{
    int result = parse(row, text, property_at(row, properties), error);
    if (result == 0)
        properties->given |= UINT32_C(1) << row->id;
    return result;
}

const char *property_format(const struct property *row, const struct session_properties *properties,
                            char text[static PROPERTY_TEXT])
{
    const void *value = property_of(row, properties);
    const uint64_t *number = value;
    text[0] = '\0';
    switch (row->kind) {
    case PROPERTY_KIND_SHARE:
        units_format_share(*(const struct share *)value, text);
        break;
    case PROPERTY_KIND_WORD:
        snprintf(text, PROPERTY_TEXT, "%s",
                 row->words[*(const unsigned *)value] ? row->words[*(const unsigned *)value] : "");
        break;
    case PROPERTY_KIND_FLAG:
        strcpy(text, *(const bool *)value ? "yes" : "no");
        break;
    case PROPERTY_KIND_SECONDS:
        if (*number)
            snprintf(text, PROPERTY_TEXT, "%llus", (unsigned long long)*number);
        else
            strcpy(text, "never");
        break;
    case PROPERTY_KIND_SIZE:
        if (*number)
            units_format_bytes(*number, text);
        else
            strcpy(text, "no bound");
        break;
    case PROPERTY_KIND_LABELS:
    case PROPERTY_KIND_NAME:
        snprintf(text, PROPERTY_TEXT, "%s", (const char *)value);
        break;
    }
    return text;
}

/* --- JSON ------------------------------------------------------------------------------------------ */

static int wrong(const struct property *row, const char *expected, struct error *error)
{
    return error_set(error, EINVAL, "ERR_BAD_REQUEST", "'%s' is wrong; expected %s", row->json, expected);
}

/* A whole number above 0; null is 0. */
static int number_from_json(const struct property *row, const json_t *value, uint64_t *number,
                            struct error *error)
{
    json_int_t given = json_integer_value(value);
    bool is_time = row->kind == PROPERTY_KIND_SECONDS;
    if (!json_is_null(value) &&
        (!json_is_integer(value) || given <= 0 || (is_time && given > VALUE_SECONDS_MAX)))
        return wrong(
            row, is_time ? "a whole number of seconds, 1 to 2147483647" : "a whole number of bytes above 0",
            error);
    *number = (uint64_t)given;
    return 0;
}

static int text_from_json(const struct property *row, const json_t *value,
                          struct session_properties *properties, struct error *error)
{
    const char *text = json_string_value(value);
    char expected[PROPERTY_WORDS_TEXT];
    struct error cause;
    if (row->kind == PROPERTY_KIND_WORD)
        property_list_words(row, "\"", expected);
    else if (row->kind == PROPERTY_KIND_LABELS)
        snprintf(expected, sizeof(expected), "KEY=VALUE with commas between, each of A-Z a-z 0-9 . _ -");
    else if (row->kind == PROPERTY_KIND_NAME)
        snprintf(expected, sizeof(expected), "1 to %zu of A-Z a-z 0-9 . _ -", row->bytes - 1);
    else
        snprintf(expected, sizeof(expected), "a string, like \"25%%\" or \"20%%..60%%\"");
    if (!text)
        return wrong(row, expected, error);
    if (parse(row, text, property_at(row, properties), &cause) == 0)
        return 0;
    return row->kind == PROPERTY_KIND_SHARE
               ? error_set(error, EINVAL, "ERR_BAD_REQUEST", "'%s': %s", row->json, cause.message)
               : wrong(row, expected, error);
}

int property_from_json(const struct property *row, const json_t *value, struct session_properties *properties,
                       struct error *error)
{
    int result;
    if (row->kind == PROPERTY_KIND_SECONDS || row->kind == PROPERTY_KIND_SIZE)
        result = number_from_json(row, value, property_at(row, properties), error);
    else if (row->kind != PROPERTY_KIND_FLAG)
        result = text_from_json(row, value, properties, error);
    else if ((result = json_is_boolean(value) ? 0 : wrong(row, "true or false", error)) == 0)
        *(bool *)property_at(row, properties) = json_is_true(value);
    if (result == 0)
        properties->given |= UINT32_C(1) << row->id;
    return result;
}

json_t *property_json(const struct property *row, const struct session_properties *properties)
{
    char text[PROPERTY_TEXT];
    const void *value = property_of(row, properties);
    if (row->kind == PROPERTY_KIND_FLAG)
        return json_boolean(*(const bool *)value);
    if (row->kind == PROPERTY_KIND_SECONDS || row->kind == PROPERTY_KIND_SIZE)
        return *(const uint64_t *)value ? json_integer((json_int_t) * (const uint64_t *)value) : json_null();
    property_format(row, properties, text);
    return text[0] ? json_string(text) : json_null();
}

void properties_to_json(const struct session_properties *properties, json_t *body)
{
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++)
        if (property_is_given(properties, row->id))
            json_object_set_new(body, row->json, property_json(row, properties));
}

/* --- Values ---------------------------------------------------------------------------------------- */

int property_check_bound(const struct property *row, const struct session_properties *properties,
                         struct error *error)
{
    uint64_t bytes = properties->host_memory_bytes;
    return row->id == PROPERTY_HOST_MEMORY && bytes ? host_memory_check_bound(bytes, error) : 0;
}

void property_copy(const struct property *row, struct session_properties *to,
                   const struct session_properties *from)
{
    memcpy(property_at(row, to), property_of(row, from), row->bytes);
}

void properties_take_given(struct session_properties *to, const struct session_properties *from)
{
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++)
        if (property_is_given(from, row->id))
            property_copy(row, to, from);
    to->given |= from->given;
}

bool property_is_same(const struct property *row, const struct session_properties *one,
                      const struct session_properties *other)
{
    return memcmp(property_of(row, one), property_of(row, other), row->bytes) == 0;
}

uint64_t property_rank(const struct property *row, const struct session_properties *properties)
{
    const void *value = property_of(row, properties);
    switch (row->kind) {
    case PROPERTY_KIND_SHARE:
        return ((const struct share *)value)->max;
    case PROPERTY_KIND_WORD:
        return *(const unsigned *)value;
    case PROPERTY_KIND_FLAG:
        return *(const bool *)value;
    case PROPERTY_KIND_SECONDS:
    case PROPERTY_KIND_SIZE:
        return *(const uint64_t *)value ? *(const uint64_t *)value : UINT64_MAX;
    case PROPERTY_KIND_LABELS:
    case PROPERTY_KIND_NAME:
        break;
    }
    return 0;
}
