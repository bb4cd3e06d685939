/* sessions.conf, in either of its two formats. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "config/config.h"
#include "config/ini.h"

struct reading {
    struct config_sessions *sessions;
    /* lines of the keys that the session has so far, indexed as config_keys */
    unsigned key_lines[CONFIG_KEYS_MAX];
};

static bool is_name(const char *name)
{
    size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return length > 0 && length < CONFIG_NAME_BYTES && name[length] == '\0';
}

static int add_session(struct config_sessions *sessions, const char *name, unsigned line,
                       struct config_session **session, struct error *error)
{
    if (!is_name(name))
        return error_set(error, EINVAL, NULL,
                         "'%.80s' is not a session's name; expected 1 to 63 of A-Z a-z 0-9 . _ -", name);
    struct config_session *grown = sessions->count < CONFIG_SECTIONS_MAX
                                       ? realloc(sessions->sessions, (sessions->count + 1) * sizeof(*grown))
                                       : NULL;
    if (!grown)
        return error_set(error, E2BIG, NULL, "more than %d sessions; expected fewer", CONFIG_SECTIONS_MAX);
    sessions->sessions = grown;
    *session = &grown[sessions->count++];
    **session = (struct config_session){.line = line, .owner = geteuid()};
    strcpy((*session)->name, name);
    return 0;
}

/* A name must be unique among its owner's sessions. Checked at the end, as the owner may come after the name. */
static int check_names(const struct config_sessions *sessions, unsigned *line, struct error *error)
{
    for (size_t i = 0; i < sessions->count; i++)
        for (size_t j = 0; j < i; j++) {
            const struct config_session *one = &sessions->sessions[j], *other = &sessions->sessions[i];
            if (one->owner != other->owner || strcmp(one->name, other->name) != 0)
                continue;
            *line = other->line;
            return error_set(error, EINVAL, NULL, "'%s' appears twice, first on line %u", one->name,
                             one->line);
        }
    return 0;
}

/* --- Sections of keys ------------------------------------------------------------------------------ */

static int take_entry(void *context, const struct ini_entry *entry, struct error *error)
{
    struct reading *reading = context;
    struct config_session *session;
    const struct config_key *key;
    if (!entry->key) {
        memset(reading->key_lines, 0, sizeof(reading->key_lines));
        return add_session(reading->sessions, entry->section, entry->line, &session, error);
    }
    if (!*entry->section)
        return error_set(error, EINVAL, NULL,
                         "'%.80s' is not in a section; expected a session's [NAME] above it", entry->key);
    int result = config_key_find(CONFIG_SESSION, entry->key, &key, error);
    if (result < 0)
        return result;
    unsigned *first = &reading->key_lines[key - config_keys];
    if (*first)
        return error_set(error, EINVAL, NULL, "'%s' appears twice, first on line %u", key->name, *first);
    *first = entry->line;
    struct error cause;
    session = &reading->sessions->sessions[reading->sessions->count - 1];
    if (config_key_set(key, session, entry->value, &cause) < 0)
        return error_set(error, cause.status, NULL, "%s: %s", key->name, cause.message);
    return 0;
}

/* --- Gemini's lines -------------------------------------------------------------------------------- */

/* A ratio like 0.5 or 1, in ten-thousandths; digits after the fourth are dropped. */
static bool parse_ratio(const char *text, uint32_t *ratio)
{
    uint32_t value = 0, scale = SHARE_WHOLE;
    size_t whole = strspn(text, "0123456789");
    const char *fraction = text + whole;
    if (whole != 1 || text[0] > '1')
        return false;
    value = (uint32_t)(text[0] - '0') * SHARE_WHOLE;
    if (*fraction == '.') {
        const char *at = fraction + 1;
        for (; *at >= '0' && *at <= '9'; at++) {
            scale /= 10;
            value += (uint32_t)(*at - '0') * scale;
        }
        if (at == fraction + 1 || *at)
            return false;
    } else if (*fraction) {
        return false;
    }
    *ratio = value;
    return value <= SHARE_WHOLE;
}

static int take_line(struct config_sessions *sessions, char *text, unsigned line, struct error *error)
{
    static const char blanks[] = " \t";
    char *rest, *words[5] = {NULL};
    unsigned count = 0;
    for (char *word = strtok_r(text, blanks, &rest); word && count < 5; word = strtok_r(NULL, blanks, &rest))
        words[count++] = word;
    struct config_session *session;
    struct share share;
    uint64_t bytes;
    if (count != 4 || !parse_ratio(words[1], &share.min) || !parse_ratio(words[2], &share.max) ||
        units_parse_number(words[3], INT64_MAX, &bytes, NULL) < 0)
        return error_set(error, EINVAL, NULL,
                         "the line is not ID REQUEST LIMIT GPU_MEM; expected two ratios up to 1 and bytes, "
                         "like client1 0.2 0.5 4294967296");
    if (share.max == 0 || share.min > share.max || bytes == 0)
        return error_set(error, ERANGE, NULL, "expected REQUEST up to LIMIT, and LIMIT and GPU_MEM above 0");
    for (char *at = words[0]; *at; at++) /* a pod's NAMESPACE/NAME */
        *at = *at == '/' ? '.' : *at;
    int result = add_session(sessions, words[0], line, &session, error);
    if (result < 0)
        return result;
    session->properties.compute = share;
    session->properties.given = UINT32_C(1) << PROPERTY_COMPUTE;
    session->memory.bytes = bytes;
    session->memory_is_cap = true;
    return 0;
}

static int parse_lines(struct config_sessions *sessions, char *text, unsigned *line, struct error *error)
{
    char *rest = text, *at;
    uint64_t announced = 0;
    bool is_announced = false;
    for (*line = 0; (at = ini_next_line(&rest));) {
        ++*line;
        if (*at == '\0' || *at == '#')
            continue;
        int result = is_announced ? take_line(sessions, at, *line, error)
                                  : units_parse_number(at, CONFIG_SECTIONS_MAX, &announced, error);
        if (result < 0)
            return result;
        is_announced = true;
    }
    if (sessions->count != announced)
        return error_set(error, EINVAL, NULL,
                         "the first number says %u sessions, but %zu follow; make the numbers equal",
                         (unsigned)announced, sessions->count);
    return 0;
}

/* Whether the first line that is not blank or a comment is just a number. */
static bool is_geminis(const char *text)
{
    for (;;) {
        text += strspn(text, " \t\r\n");
        if (*text != '#')
            break;
        text += strcspn(text, "\n");
    }
    size_t digits = strspn(text, "0123456789");
    const char *end = text + digits + strspn(text + digits, " \t\r");
    return digits && (*end == '\n' || *end == '\0');
}

/* --- The file -------------------------------------------------------------------------------------- */

int config_sessions_parse(struct config_sessions *sessions, char *text, struct error *error)
{
    struct reading reading = {.sessions = sessions};
    struct error cause;
    unsigned line = 0;
    int result = is_geminis(text) ? parse_lines(sessions, text, &line, &cause)
                                  : ini_parse(text, take_entry, &reading, &line, &cause);
    if (result == 0)
        result = check_names(sessions, &line, &cause);
    if (result == 0)
        return 0;
    config_sessions_free(sessions);
    return config_blame(sessions->path, line, &cause, error);
}

static int load(struct config_sessions *sessions, bool must_be, struct error *error)
{
    cleanup_free char *text = NULL;
    int result = config_read_file(sessions->path, &text, error);
    if (result < 0)
        return result;
    if (!text)
        return must_be ? error_set(error, ENOENT, NULL, "%s does not exist", sessions->path) : 0;
    sessions->is_there = true;
    return config_sessions_parse(sessions, text, error);
}

int config_sessions_load(struct config_sessions *sessions, const char *folder, struct error *error)
{
    *sessions = (struct config_sessions){0};
    if (snprintf(sessions->path, sizeof(sessions->path), "%s/" CONFIG_SESSIONS_FILE, folder) >=
        (int)sizeof(sessions->path))
        return error_set(error, ENAMETOOLONG, NULL, "the folder's path is too long: %.80s...", folder);
    return load(sessions, false, error);
}

int config_sessions_load_file(struct config_sessions *sessions, const char *path, struct error *error)
{
    *sessions = (struct config_sessions){0};
    snprintf(sessions->path, sizeof(sessions->path), "%s", path);
    return load(sessions, true, error);
}

void config_sessions_free(struct config_sessions *sessions)
{
    for (size_t i = 0; i < sessions->count; i++) {
        free(sessions->sessions[i].gpus);
        config_match_free(&sessions->sessions[i].match);
    }
    free(sessions->sessions);
    sessions->sessions = NULL;
    sessions->count = 0;
}
