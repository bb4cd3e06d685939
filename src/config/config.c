/* gpuslice.conf, the environment and the options; each overrides the ones before. */
#include "config/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/names.h"
#include "config/ini.h"

/* The sections that are there once, by their number. */
static const char *const single_sections[CONFIG_CEILING] = {"daemon", "defaults", "scheduler"};

/* --- Entries --------------------------------------------------------------------------------------- */

static void set_entry(struct config_entry *entry, const char *value, enum config_origin origin, unsigned line)
{
    free(entry->value);
    entry->value = value ? strdup(value) : NULL;
    entry->origin = origin;
    entry->line = line;
}

static struct config_entry *add_entry(struct config *config, const struct config_key *key,
                                      const char *section)
{
    struct config_entry *grown =
        realloc(config->entries, (config->entry_count + 1) * sizeof(*config->entries));
    char *copy = strdup(section);
    if (!grown || !copy) {
        free(copy);
        config->entries = grown ? grown : config->entries;
        return NULL;
    }
    config->entries = grown;
    struct config_entry *entry = &grown[config->entry_count++];
    *entry = (struct config_entry){.key = key, .section = copy};
    return entry;
}

static struct config_entry *find_entry(const struct config *config, const struct config_key *key,
                                       const char *section)
{
    for (size_t i = 0; i < config->entry_count; i++)
        if (config->entries[i].key == key && strcmp(config->entries[i].section, section) == 0)
            return &config->entries[i];
    return NULL;
}

/* The struct that holds a key of a section that is there once. */
static void *section_of(struct config *config, const struct config_key *key)
{
    void *const structs[CONFIG_CEILING] = {&config->daemon, &config->defaults, &config->scheduler};
    return structs[key->section];
}

static int set_standards(struct config *config, struct error *error)
{
    for (const struct config_key *key = config_next_key(NULL); key; key = config_next_key(key)) {
        if (key->section >= CONFIG_CEILING)
            continue;
        struct config_entry *entry = add_entry(config, key, single_sections[key->section]);
        if (!entry)
            return error_set_errno(error, ENOMEM, "cannot keep the settings");
        set_entry(entry, key->standard, CONFIG_BY_DEFAULT, 0);
        int result = key->standard ? config_key_set(key, section_of(config, key), key->standard, error) : 0;
        if (result < 0)
            return result;
    }
    return 0;
}

/* --- The file -------------------------------------------------------------------------------------- */

/* The section being read. */
struct reading {
    struct config *config;
    enum config_section section;
    struct config_ceiling *ceiling;
    bool has[CONFIG_CEILING];
};

static int add_ceiling(struct config *config, const char *section, unsigned line,
                       struct config_ceiling **ceiling, struct error *error)
{
    bool is_group = strncmp(section, "group:", 6) == 0;
    const char *name = section + (is_group ? 6 : 5);
    if (*name == '\0' || strlen(name) >= CONFIG_NAME_BYTES)
        return error_set(error, EINVAL, NULL,
                         "[%.80s] does not name a %s; expected 1 to %d bytes behind the colon", section,
                         is_group ? "group" : "user", CONFIG_NAME_BYTES - 1);
    for (size_t i = 0; i < config->ceiling_count; i++)
        if (config->ceilings[i].is_group == is_group && strcmp(config->ceilings[i].name, name) == 0)
            return error_set(error, EINVAL, NULL, "section [%s] appears twice, first on line %u", section,
                             config->ceilings[i].line);
    struct config_ceiling *grown =
        config->ceiling_count < CONFIG_SECTIONS_MAX
            ? realloc(config->ceilings, (config->ceiling_count + 1) * sizeof(*grown))
            : NULL;
    if (!grown)
        return error_set(error, E2BIG, NULL, "more than %d sections; expected fewer", CONFIG_SECTIONS_MAX);
    config->ceilings = grown;
    *ceiling = &grown[config->ceiling_count++];
    **ceiling = (struct config_ceiling){
        .is_group = is_group, .line = line, .memory_bytes = UINT64_MAX, .sessions = UINT32_MAX};
    strcpy((*ceiling)->name, name);
    return 0;
}

static int begin_section(struct reading *reading, const struct ini_entry *entry, struct error *error)
{
    const char *name = entry->section;
    int single = names_find(single_sections, CONFIG_CEILING, name);
    if (single >= 0) {
        if (reading->has[single])
            return error_set(error, EINVAL, NULL, "section [%s] appears twice", name);
        reading->has[single] = true;
        reading->section = (enum config_section)single;
        return 0;
    }
    reading->section = CONFIG_CEILING;
    if (strncmp(name, "user:", 5) == 0 || strncmp(name, "group:", 6) == 0)
        return add_ceiling(reading->config, name, entry->line, &reading->ceiling, error);
    return error_set(
        error, EINVAL, NULL,
        "the section [%.80s] does not exist; expected [daemon], [defaults], [scheduler], [user:NAME] or "
        "[group:NAME]",
        name);
}

static int take_entry(void *context, const struct ini_entry *entry, struct error *error)
{
    struct reading *reading = context;
    struct config *config = reading->config;
    const struct config_key *key;
    if (!entry->key)
        return begin_section(reading, entry, error);
    if (!*entry->section)
        return error_set(error, EINVAL, NULL,
                         "'%.80s' is not in a section; expected [daemon] or another section above it",
                         entry->key);
    int result = config_key_find(reading->section, entry->key, &key, error);
    if (result < 0)
        return result;
    if (key->kind == CONFIG_SECRET)
        return error_set(error, EINVAL, NULL,
                         "'%s' does not belong in a file that others can read; set %s for the daemon",
                         key->name, key->environment);
    struct config_entry *kept = find_entry(config, key, entry->section);
    if (kept && kept->origin == CONFIG_BY_FILE)
        return error_set(error, EINVAL, NULL, "'%s' appears twice, first on line %u", key->name, kept->line);
    void *section = key->section == CONFIG_CEILING ? (void *)reading->ceiling : section_of(config, key);
    struct error cause;
    if (config_key_set(key, section, entry->value, &cause) < 0)
        return error_set(error, cause.status, NULL, "%s: %s", key->name, cause.message);
    if (!kept && !(kept = add_entry(config, key, entry->section)))
        return error_set_errno(error, ENOMEM, "cannot keep the settings");
    set_entry(kept, entry->value, CONFIG_BY_FILE, entry->line);
    return 0;
}

static int read_file(struct config *config, struct error *error)
{
    cleanup_free char *text = NULL;
    unsigned line = 0;
    struct error cause;
    struct reading reading = {.config = config};
    int result = config_read_file(config->path, &text, error);
    if (result < 0 || !text)
        return result;
    config->is_there = true;
    if (ini_parse(text, take_entry, &reading, &line, &cause) < 0)
        return config_blame(config->path, line, &cause, error);
    return 0;
}

/* --- The environment and the options ----------------------------------------------------------------- */

static int set_over(struct config *config, const struct config_key *key, const char *value,
                    enum config_origin origin, struct error *error)
{
    struct error cause;
    char folder[PATH_MAX / 2], path[PATH_MAX];
    /* A path in the environment may be relative to the folder in which the daemon was started. */
    if (key->kind == CONFIG_PATH && origin == CONFIG_BY_ENVIRONMENT && *value != '/' &&
        getcwd(folder, sizeof(folder)) &&
        snprintf(path, sizeof(path), "%s/%s", folder, value) < (int)sizeof(path))
        value = path;
    if (config_key_set(key, section_of(config, key), value, &cause) < 0)
        return error_set(error, cause.status, NULL, "%s: %s",
                         origin == CONFIG_BY_OPTION ? key->option : key->environment, cause.message);
    set_entry(find_entry(config, key, single_sections[key->section]), value, origin, 0);
    return 0;
}

static int set_from_outside(struct config *config, const struct config_option *options, struct error *error)
{
    for (const struct config_key *key = config_next_key(NULL); key; key = config_next_key(key)) {
        const char *value = key->environment ? getenv(key->environment) : NULL;
        int result = 0;
        if (value && *value)
            result = set_over(config, key, value, CONFIG_BY_ENVIRONMENT, error);
        for (const struct config_option *option = options; option && option->option && result == 0; option++)
            if (key->option && strcmp(key->option, option->option) == 0)
                result = set_over(config, key, option->value, CONFIG_BY_OPTION, error);
        if (result < 0)
            return result;
    }
    if (config->daemon.ipc_token_required && !config->daemon.ipc_token[0])
        return error_set(
            error, EINVAL, NULL,
            "ipc-token-required (GPUSLICE_IPC_TOKEN_REQUIRED) is set, but GPUSLICE_IPC_TOKEN is not; set it "
            "to the token");
    return 0;
}

/* --- All of it --------------------------------------------------------------------------------------- */

int config_load(struct config *config, const char *folder, const struct config_option *options,
                struct error *error)
{
    *config = (struct config){0};
    int result = set_standards(config, error);
    if (result == 0 &&
        snprintf(config->path, sizeof(config->path), "%s/" CONFIG_FILE, folder) >= (int)sizeof(config->path))
        result = error_set(error, ENAMETOOLONG, NULL, "the folder's path is too long: %.80s...", folder);
    if (result == 0)
        result = read_file(config, error);
    if (result == 0)
        result = set_from_outside(config, options, error);
    if (result < 0)
        config_free(config);
    return result;
}

int config_load_file(struct config *config, const char *path, struct error *error)
{
    *config = (struct config){0};
    snprintf(config->path, sizeof(config->path), "%s", path);
    int result = set_standards(config, error);
    if (result == 0)
        result = read_file(config, error);
    if (result == 0 && !config->is_there)
        result = error_set(error, ENOENT, NULL, "%s does not exist", path);
    if (result < 0)
        config_free(config);
    return result;
}

int config_carry_over(struct config *next, const struct config *now, struct error *error)
{
    /* Both begin with the same entries, those of set_standards(). Entries of ceilings follow, and differ. */
    for (size_t i = 0; i < now->entry_count && now->entries[i].key->section < CONFIG_CEILING; i++) {
        const struct config_entry *old = &now->entries[i];
        struct config_entry *entry = &next->entries[i];
        bool is_same =
            old->value && entry->value ? strcmp(old->value, entry->value) == 0 : old->value == entry->value;
        if (old->key->when != CONFIG_AT_START || is_same)
            continue;
        char *target = (char *)section_of(next, old->key) + old->key->offset;
        int result = old->value ? config_key_set(old->key, section_of(next, old->key), old->value, error) : 0;
        if (result < 0)
            return result;
        if (!old->value)
            *target = '\0'; /* keys without a default are text */
        entry->waits = true;
        entry->next_value = entry->value;
        entry->value = NULL;
        set_entry(entry, old->value, old->origin, old->line);
    }
    return 0;
}

void config_free(struct config *config)
{
    for (size_t i = 0; i < config->entry_count; i++) {
        free(config->entries[i].section);
        free(config->entries[i].value);
        free(config->entries[i].next_value);
    }
    free(config->entries);
    free(config->ceilings);
    *config = (struct config){0};
}
