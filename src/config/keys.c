/* The table of keys, and how the text of each kind is parsed. */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/host_memory.h"
#include "config/config.h"
#include "config/values.h"

#define STRUCT_DAEMON struct config_daemon
#define STRUCT_DEFAULTS struct config_defaults
#define STRUCT_SCHEDULER struct config_scheduler
#define STRUCT_CEILING struct config_ceiling
#define STRUCT_SESSION struct config_session

const struct config_key config_keys[] = {
#define CONFIG_KEY(section_, name_, kind_, field, standard_, environment_, option_, when_, help_)            \
    {.section = CONFIG_##section_,                                                                           \
     .name = name_,                                                                                          \
     .kind = CONFIG_##kind_,                                                                                 \
     .offset = offsetof(STRUCT_##section_, field),                                                           \
     .standard = standard_,                                                                                  \
     .environment = environment_,                                                                            \
     .option = option_,                                                                                      \
     .when = CONFIG_##when_,                                                                                 \
     .help = help_},
#include "config/keys.def"
#undef CONFIG_KEY
#define PROPERTY_KEY(in, id, name_, standard_, environment_, help_)                                          \
    {.section = CONFIG_##in,                                                                                 \
     .name = name_,                                                                                          \
     .kind = CONFIG_PROPERTY,                                                                                \
     .offset = offsetof(STRUCT_##in, properties),                                                            \
     .property = PROPERTY_##id,                                                                              \
     .standard = standard_,                                                                                  \
     .environment = environment_,                                                                            \
     .when = CONFIG_LIVE,                                                                                    \
     .help = help_},
#define SESSION_PROPERTY(id, field, kind, words, noun, name, json, answer, value, option_help, standard,     \
                         environment, default_help, ceiling_help, session_help, claim, flags)                \
    PROPERTY_KEY(DEFAULTS, id, name, standard, environment, default_help)                                    \
    PROPERTY_KEY(CEILING, id, name, NULL, NULL, ceiling_help)                                                \
    PROPERTY_KEY(SESSION, id, name, NULL, NULL, session_help)
#include "config/session_properties.def"
#undef SESSION_PROPERTY
    {.name = NULL},
};
_Static_assert(sizeof(config_keys) / sizeof(config_keys[0]) <= CONFIG_KEYS_MAX, "more keys than places");

const struct config_key *config_next_key(const struct config_key *key)
{
    enum config_section section = key ? key->section : CONFIG_DAEMON;
    for (const struct config_key *at = key ? key + 1 : config_keys; section <= CONFIG_SESSION; at++) {
        if (at->name && at->section == section && at->help)
            return at;
        if (at->name)
            continue;
        section++;
        at = config_keys - 1;
    }
    return NULL;
}

int config_key_find(enum config_section section, const char *name, const struct config_key **key,
                    struct error *error)
{
    char known[512] = "";
    size_t used = 0;
    for (const struct config_key *at = config_next_key(NULL); at; at = config_next_key(at)) {
        if (at->section != section)
            continue;
        if (strcmp(at->name, name) == 0) {
            *key = at;
            return 0;
        }
        if (used < sizeof(known))
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "", at->name);
    }
    return error_set(error, EINVAL, NULL, "the key '%.80s' does not exist here; expected one of %s", name,
                     known);
}

/* `yes` means true, `no` false. */
static int set_either(const char *text, const char *yes, const char *no, bool *flag, struct error *error)
{
    *flag = strcmp(text, yes) == 0;
    return *flag || strcmp(text, no) == 0
               ? 0
               : error_set(error, EINVAL, NULL, "'%.80s' is neither %s nor %s", text, yes, no);
}

static int set_stop(const char *text, enum config_stop *stop, struct error *error)
{
    bool flag = false;
    if (strcmp(text, "report") == 0) {
        *stop = CONFIG_STOP_REPORT;
        return 0;
    }
    if (value_parse_flag(text, &flag, NULL) < 0)
        return error_set(error, EINVAL, NULL, "'%.80s' is not one of no, report and yes", text);
    *stop = flag ? CONFIG_STOP_YES : CONFIG_STOP_NO;
    return 0;
}

static int set_text(const char *text, char *target, size_t bytes, struct error *error)
{
    if (strlen(text) >= bytes)
        return error_set(error, ENAMETOOLONG, NULL, "'%.40s...' is too long; expected at most %zu bytes",
                         text, bytes - 1);
    strcpy(target, text);
    return 0;
}

static int set_address(const char *text, char *target, struct error *error)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;
    if (!colon || units_parse_number(colon + 1, UINT16_MAX, &port, NULL) < 0)
        return error_set(error, EINVAL, NULL,
                         "'%.80s' is not an address; expected HOST:PORT, like 127.0.0.1:9400", text);
    /* ":8080" means the loopback address: the daemon serves only this machine. */
    char whole[CONFIG_ADDRESS_BYTES];
    if (colon == text && snprintf(whole, sizeof(whole), "127.0.0.1%s", text) < (int)sizeof(whole))
        text = whole;
    return set_text(text, target, CONFIG_ADDRESS_BYTES, error);
}

static int set_memory(const char *text, struct config_memory *memory, struct error *error)
{
    struct share part;
    if (!strchr(text, '%')) {
        struct config_memory given = {0};
        int result = value_parse_size(text, &given.bytes, error);
        if (result == 0)
            *memory = given;
        return result;
    }
    if (strstr(text, "..") || units_parse_share(text, &part, NULL) < 0)
        return error_set(error, EINVAL, NULL,
                         "'%.64s' is not a part of a GPU's memory; expected more than 0%% and at most 100%%, "
                         "like 50%%",
                         text);
    *memory = (struct config_memory){.part = part.max};
    return 0;
}

static int set_host_size(const char *text, uint64_t *bytes, struct error *error)
{
    uint64_t size = 0;
    int result = value_parse_size(text, &size, error);
    if (result == 0 && (result = host_memory_check_bound(size, error)) == 0)
        *bytes = size;
    return result;
}

static int set_count(const char *text, uint32_t *count, struct error *error)
{
    uint64_t number;
    int result = units_parse_number(text, INT32_MAX, &number, error);
    if (result == 0)
        *count = (uint32_t)number;
    return result;
}

static int set_user(const char *text, uid_t *uid, struct error *error)
{
    uint64_t number;
    const struct passwd *user = getpwnam(text);
    if (user)
        *uid = user->pw_uid;
    else if (units_parse_number(text, UINT32_MAX - 1, &number, NULL) == 0)
        *uid = (uid_t)number;
    else
        return error_set(error, EINVAL, NULL, "there is no user '%.80s'; expected a user's name or number",
                         text);
    return 0;
}

/* "0, 1" becomes "0,1". */
static int set_words(const char *text, char **words, struct error *error)
{
    char *made = malloc(strlen(text) + 1);
    if (!made)
        return error_set_errno(error, ENOMEM, "cannot keep a setting");
    size_t used = 0;
    const char *at = text;
    for (;;) {
        at += strspn(at, " \t");
        size_t length = strcspn(at, " \t,");
        const char *end = at + length + strspn(at + length, " \t");
        if (length == 0 || (*end && *end != ',')) {
            free(made);
            return error_set(error, EINVAL, NULL, "'%.80s' is not a list; expected words with commas between",
                             text);
        }
        memcpy(made + used, at, length);
        used += length;
        made[used++] = *end; /* a comma, or the end */
        if (!*end)
            break;
        at = end + 1;
    }
    free(*words);
    *words = made;
    return 0;
}

static int set_match(const char *text, struct config_match *match, struct error *error)
{
    char *words = NULL;
    int result = set_words(text, &words, error);
    if (result == 0)
        result = config_match_parse(match, words, error);
    free(words);
    return result;
}

/* A ceiling on a share is its upper end alone. */
static int set_property(const struct config_key *key, const char *text, struct session_properties *properties,
                        struct error *error)
{
    const struct property *row = &session_properties[key->property];
    struct session_properties given = {0};
    int result = property_parse(row, text, &given, error);
    if (result == 0)
        result = property_check_bound(row, &given, error);
    if (result < 0)
        return result;
    if (row->kind == PROPERTY_KIND_SHARE && key->section == CONFIG_CEILING && strstr(text, ".."))
        return error_set(error, EINVAL, NULL, "'%.80s' is a range; expected one percentage, like 50%%", text);
    properties_take_given(properties, &given);
    return 0;
}

int config_key_set(const struct config_key *key, void *section, const char *text, struct error *error)
{
    void *target = (char *)section + key->offset;
    switch (key->kind) {
    case CONFIG_SIZE:
        return value_parse_size(text, target, error);
    case CONFIG_MEMORY:
        return set_memory(text, target, error);
    case CONFIG_HOST_SIZE:
        return set_host_size(text, target, error);
    case CONFIG_DURATION:
        return units_parse_duration(text, target, error);
    case CONFIG_SECONDS:
        return value_parse_seconds(text, target, error);
    case CONFIG_COUNT:
        return set_count(text, target, error);
    case CONFIG_FLAG:
        return value_parse_flag(text, target, error);
    case CONFIG_COMPAT:
        return set_either(text, "gslice", "none", target, error);
    case CONFIG_LINES:
        return set_either(text, "json", "influx", target, error);
    case CONFIG_STOP:
        return set_stop(text, target, error);
    case CONFIG_PLACEMENT:
        return set_either(text, "pack", "spread", target, error);
    case CONFIG_ADDRESS:
        return set_address(text, target, error);
    case CONFIG_PATH:
        if (*text != '/')
            return error_set(error, EINVAL, NULL, "'%.80s' is not an absolute path; expected /...", text);
        return set_text(text, target, PATH_MAX, error);
    case CONFIG_SECRET:
        return set_text(text, target, CONFIG_SECRET_BYTES, error);
    case CONFIG_USER:
        return set_user(text, target, error);
    case CONFIG_WORDS:
        return set_words(text, target, error);
    case CONFIG_PROPERTY:
        return set_property(key, text, target, error);
    case CONFIG_MATCH:
        return set_match(text, target, error);
    }
    return -EINVAL;
}
