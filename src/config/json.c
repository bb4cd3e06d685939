/* What is in force, in the form of `gpuslice config --json` and GET /v1/config. */
#include <stdio.h>
#include <string.h>

#include "config/config.h"

static const char *const origin_names[] = {
    [CONFIG_BY_DEFAULT] = "default",
    [CONFIG_BY_FILE] = "file",
    [CONFIG_BY_ENVIRONMENT] = "environment",
    [CONFIG_BY_OPTION] = "option",
};

/* Where a value was given: the file and line, the variable, the option; null for a default. */
static json_t *source_json(const struct config *config, const struct config_entry *entry)
{
    char text[PATH_MAX + 16];
    switch (entry->origin) {
    case CONFIG_BY_FILE:
        snprintf(text, sizeof(text), "%s:%u", config->path, entry->line);
        return json_string(text);
    case CONFIG_BY_ENVIRONMENT:
        return json_string(entry->key->environment);
    case CONFIG_BY_OPTION:
        return json_string(entry->key->option);
    default:
        return json_null();
    }
}

static json_t *value_json(const struct config_key *key, const char *value)
{
    if (!value)
        return json_null();
    json_t *json = json_string(key->kind == CONFIG_SECRET ? "(set)" : value);
    return json ? json : json_string("?"); /* not UTF-8 */
}

json_t *config_json(const struct config *config)
{
    json_t *values = json_array();
    for (size_t i = 0; i < config->entry_count; i++) {
        const struct config_entry *entry = &config->entries[i];
        json_array_append_new(values,
                              json_pack("{s:s,s:s,s:o,s:s,s:o,s:b,s:o}", "section", entry->section, "key",
                                        entry->key->name, "value", value_json(entry->key, entry->value),
                                        "origin", origin_names[entry->origin], "source",
                                        source_json(config, entry), "waits_for_start", entry->waits,
                                        "next_value", value_json(entry->key, entry->next_value)));
    }
    return values;
}

json_t *config_sessions_json(const struct config_sessions *sessions)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sessions->count; i++) {
        char source[PATH_MAX + 16];
        snprintf(source, sizeof(source), "%s:%u", sessions->path, sessions->sessions[i].line);
        json_array_append_new(list,
                              json_pack("{s:s,s:I,s:s}", "name", sessions->sessions[i].name, "owner_uid",
                                        (json_int_t)sessions->sessions[i].owner, "source", source));
    }
    return list;
}

json_t *config_warnings_json(const struct config *config)
{
    json_t *list = json_array();
    char text[CONFIG_WARNING_TEXT];
    for (size_t i = 0; i < config->ceiling_count; i++)
        if (config_warning(config, i, text))
            json_array_append_new(list, json_string(text));
    return list;
}

json_t *config_file_json(const char *path, bool is_there, const char *problem)
{
    return json_pack("{s:s,s:b,s:s?}", "path", path, "found", is_there, "problem", problem);
}
