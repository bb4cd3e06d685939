#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/moment.h"
#include "cli/near.h"
#include "client/columns.h"
#include "client/session_pod.h"

/* --- What each kind of word must look like --------------------------------------------------------- */

static int check_name(const char *text, const char *what, struct error *error)
{
    size_t length = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    if (text[length] == '\0' && length >= 1 && length <= 63)
        return 0;
    return error_set(error, EINVAL, NULL, "'%.80s' is not a %s; expected 1 to 63 of A-Z a-z 0-9 . _ -", text,
                     what);
}

static int check_shell(const char *text, struct error *error)
{
    if (strcmp(text, "bash") == 0 || strcmp(text, "zsh") == 0 || strcmp(text, "fish") == 0)
        return 0;
    return error_set(error, EINVAL, NULL,
                     "there is no completion for the shell '%.80s'; expected bash, zsh or fish", text);
}

static int check_verb(const char *text, struct error *error)
{
    if (cli_verb_find(text))
        return 0;
    return error_set(error, EINVAL, NULL, "'%.80s' is not a verb; 'gpuslice help' lists the verbs", text);
}

const char *const cli_anti_thrash[] = {"on", "off", "auto", NULL};

static int check_anti_thrash(const char *text, struct error *error)
{
    for (const char *const *known = cli_anti_thrash; *known; known++)
        if (strcmp(text, *known) == 0)
            return 0;
    return error_set(error, EINVAL, NULL, "'%.80s' is not a value of --anti-thrash; expected on, off or auto",
                     text);
}

const char *const cli_forms[] = {"table", "wide", "json", "name", NULL};

static int check_form(const char *text, struct error *error)
{
    for (const char *const *known = cli_forms; *known; known++)
        if (strcmp(text, *known) == 0)
            return 0;
    return error_set(error, EINVAL, NULL, "'%.80s' is not an output form; expected table, wide, json or name",
                     text);
}

static int take_count(const char *text, unsigned *count, struct error *error)
{
    uint64_t number;
    if (units_parse_number(text, INT32_MAX, &number, NULL) < 0 || number == 0)
        return error_set(error, EINVAL, NULL,
                         "'%.80s' is not a number of lines; expected a number above 0, like 20", text);
    *count = (unsigned)number;
    return 0;
}

static int check_sort(const char *text, struct error *error)
{
    for (const char *const *known = cli_sort_keys; *known; known++)
        if (strcmp(text, *known) == 0)
            return 0;
    return error_set(
        error, EINVAL, NULL,
        "cannot sort by '%.40s'; expected session, owner, status, used, time, processes or created", text);
}

static int check_columns(const char *text, struct error *error)
{
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const struct column *column = session_columns;
        size_t length = strcspn(at, ",");
        while (column->key && (strlen(column->key) != length || memcmp(column->key, at, length) != 0))
            column++;
        if (!column->key)
            return error_set(
                error, EINVAL, NULL,
                "there is no column '%.*s'; expected names like session,status,used (see --help)",
                (int)(length < 40 ? length : 40), at);
    }
    return 0;
}

static int check_usage_by(const char *text, struct error *error)
{
    for (const char *const *known = cli_usage_by; *known; known++)
        if (strcmp(text, *known) == 0)
            return 0;
    return error_set(error, EINVAL, NULL, "cannot count usage by '%.80s'; expected session, user or gpu",
                     text);
}

static int check_operand(enum cli_kind kind, const char *text, struct error *error)
{
    switch (kind) {
    case CLI_SESSION:
        return session_pod_is_meant(text) ? 0 : check_name(text, "session's ID or name", error);
    case CLI_SHELL:
        return check_shell(text, error);
    case CLI_VERB:
        return check_verb(text, error);
    default:
        return 0;
    }
}

/* Store an option's value where its row says. */
static int take_value(const struct cli_option *option, const char *value, struct cli_arguments *arguments,
                      struct error *error)
{
    void *target = (char *)arguments + option->offset;
    int result = 0;
    switch (option->kind) {
    case CLI_SESSION_NAME:
        result = check_name(value, "name for a session", error);
        break;
    case CLI_GPU:
        return gpu_names_add_list(target, value, error);
    case CLI_MEMORY:
        return memory_limits_parse(target, value, error);
    case CLI_FIELDS:
        if (value[strspn(value, "abcdefghijklmnopqrstuvwxyz_,")] || !*value)
            result = error_set(
                error, EINVAL, NULL,
                "'%.80s' is not a list of fields; expected names separated by commas, like name,used_bytes",
                value);
        break;
    case CLI_USAGE_BY:
        result = check_usage_by(value, error);
        break;
    case CLI_FORM:
        result = check_form(value, error);
        break;
    case CLI_SORT:
        result = check_sort(value, error);
        break;
    case CLI_COLUMNS:
        result = check_columns(value, error);
        break;
    case CLI_COUNT:
        return take_count(value, target, error);
    case CLI_QUANTUM:
        result = units_parse_quantum(value, &(uint64_t){0}, error);
        break;
    case CLI_ANTI_THRASH:
        result = check_anti_thrash(value, error);
        break;
    case CLI_PROPERTY:
        return property_parse(option->property, value, target, error);
    case CLI_MOMENT:
        return moment_parse(value, time(NULL), target, error);
    case CLI_DURATION:
    case CLI_MAYBE_DURATION:
        return units_parse_duration(value, target, error);
    default:
        result = check_operand(option->kind, value, error);
    }
    if (result == 0)
        *(const char **)target = value;
    return result;
}

/* --- Reading the words ----------------------------------------------------------------------------- */

static const struct cli_option *find_option(const struct cli_verb *verb, const char *name, size_t length)
{
    if (length == 1 && *name == 'h') {
        name = "help";
        length = 4;
    }
    for (const struct cli_option *option = cli_next_option(verb, NULL); option;
         option = cli_next_option(verb, option))
        if ((strlen(option->name) == length && memcmp(option->name, name, length) == 0) ||
            (length == 1 && option->letter && option->letter == *name))
            return option;
    return NULL;
}

/* The verb's option that `word`, which begins with dashes, may have been meant for; NULL: none is near. */
static const struct cli_option *nearest_option(const struct cli_verb *verb, const char *word)
{
    const struct cli_option *nearest = NULL;
    char name[64];
    unsigned least = NEAR_NEVER;
    word += strspn(word, "-");
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
    for (const struct cli_option *option = cli_next_option(verb, NULL); option;
         option = cli_next_option(verb, option)) {
        unsigned distance = near_distance(name, option->name);
        nearest = distance < least ? option : nearest;
        least = distance < least ? distance : least;
    }
    return nearest;
}

static int unknown_option(const struct cli_verb *verb, const char *word, struct error *error)
{
    const struct cli_option *nearest = nearest_option(verb, word);
    char known[256] = "";
    if (nearest)
        return error_set(error, EINVAL, NULL, "'gpuslice %s' has no option '%.*s'; did you mean --%s?",
                         verb->name, (int)strcspn(word, "="), word, nearest->name);
    size_t used = 0;
    for (const struct cli_option *option = cli_next_option(verb, NULL); option && used < sizeof(known);
         option = cli_next_option(verb, option))
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s--%s", used ? " " : "", option->name);
    return error_set(error, EINVAL, NULL, "'gpuslice %s' has no option '%.*s'; expected one of %s",
                     verb->name, (int)strcspn(word, "="), word, known);
}

/* Put "--OPTION: " before the message about its value. */
static int blame_option(const struct cli_option *option, const struct error *cause, struct error *error)
{
    return error_set(error, cause->status, cause->code, "--%s: %s", option->name, cause->message);
}

/* What an option means that has no value: nothing to wait for, or the first of the words that turns it on. */
static int take_no_value(const struct cli_option *option, struct cli_arguments *arguments)
{
    void *target = (char *)arguments + option->offset;
    if (option->kind == CLI_FLAG)
        *(bool *)target = true;
    else if (option->kind == CLI_MAYBE_DURATION)
        *(uint64_t *)target = UINT64_MAX;
    else
        property_parse(option->property, option->value ? option->property->words[1] : "yes", target, NULL);
    return 1;
}

/* Whether `next`, the word behind an option that may lack its value, seems to be meant as that. */
static bool is_meant_as_value(const struct cli_option *option, const char *next,
                              const struct cli_arguments *arguments)
{
    struct cli_arguments scratch = *arguments;
    return next && cli_option_may_lack_value(option) && take_value(option, next, &scratch, NULL) == 0;
}

/* Read the option at `words[0]` and its value. Returns how many words it took. */
static int parse_option(const struct cli_verb *verb, char **words, struct cli_arguments *arguments,
                        struct error *error)
{
    const char *word = words[0], *name = word + (word[1] == '-' ? 2 : 1);
    const char *equals = strchr(name, '=');
    bool one_dash = word[1] != '-';
    const struct cli_option *option =
        find_option(verb, name, equals ? (size_t)(equals - name) : strlen(name));
    bool is_letter = word[1] && word[1] != '-' && word[2] == '\0';
    if (!option || one_dash != is_letter)
        return unknown_option(verb, word, error);

    if (!option->value && equals)
        return error_set(error, EINVAL, NULL, "--%s has the value '%.80s'; expected none", option->name,
                         equals + 1);
    if (!equals && is_meant_as_value(option, words[1], arguments))
        return error_set(error, EINVAL, NULL, "--%s takes its value with '=': --%s=%.80s", option->name,
                         option->name, words[1]);
    if (!equals && !cli_option_takes_word(option))
        return take_no_value(option, arguments);
    const char *value = equals ? equals + 1 : words[1];
    if (!value || (!equals && strncmp(value, "--", 2) == 0))
        return error_set(error, EINVAL, NULL, "--%s has no value; expected --%s %s", option->name,
                         option->name, option->value);
    struct error cause;
    int result = take_value(option, value, arguments, &cause);
    return result < 0 ? blame_option(option, &cause, error) : equals ? 1 : 2;
}

static int check_operands(const struct cli_verb *verb, const struct cli_arguments *arguments,
                          struct error *error)
{
    if (arguments->operand_count < verb->operands_min)
        return error_set(error, EINVAL, NULL, "'gpuslice %s' needs %s; expected gpuslice %s %s", verb->name,
                         verb->operand_kind == CLI_COMMAND   ? "a command"
                         : verb->operand_kind == CLI_SESSION ? "a session"
                                                             : "an operand",
                         verb->name, verb->operands);
    if (arguments->operand_count == 1 && verb->operands_max == 0 && find_option(verb, "name", 4))
        return error_set(error, EINVAL, NULL, "give the name with --name: gpuslice %s --name %.80s",
                         verb->name, arguments->operands[0]);
    if (arguments->operand_count > verb->operands_max)
        return error_set(error, EINVAL, NULL, "'%.80s' is an unexpected word; expected gpuslice %s%s%s",
                         arguments->operands[verb->operands_max], verb->name, verb->operands ? " " : "",
                         verb->operands ? verb->operands : "");
    for (unsigned i = 0; i < arguments->operand_count; i++) {
        int result = check_operand(verb->operand_kind, arguments->operands[i], error);
        if (result < 0)
            return result;
    }
    return 0;
}

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text && *text && strcmp(text, "0") != 0;
}

/* nvshare's users may have this variable in their environment. */
static void read_environment(struct cli_arguments *arguments)
{
    struct session_properties *properties = &arguments->wish.properties;
    if (properties->engine == LEDGER_ENGINE_MANAGED && is_set("NVSHARE_ENABLE_SINGLE_OVERSUB"))
        property_parse(&session_properties[PROPERTY_SINGLE_OVERSUBSCRIBE], "yes", properties, NULL);
}

int cli_parse(const struct cli_verb *verb, char **words, struct cli_arguments *arguments, struct error *error)
{
    /* Operands are moved to the front of `words`, to places that were read already. */
    char **operands = words;
    unsigned count = 0;
    bool options_ended = false;

    *arguments = (struct cli_arguments){.simulated = is_set("GPUSLICE_SIMULATED")};
    while (*words) {
        if (options_ended || (*words)[0] != '-' || (*words)[1] == '\0') {
            options_ended |= verb->operand_kind == CLI_COMMAND;
            operands[count++] = *words++;
        } else if (strcmp(*words, "--") == 0) {
            options_ended = true;
            words++;
        } else {
            int taken = parse_option(verb, words, arguments, error);
            if (taken < 0)
                return taken;
            words += taken;
            if (arguments->help)
                return 0;
        }
    }
    operands[count] = NULL;
    arguments->operands = operands;
    arguments->operand_count = count;

    read_environment(arguments);
    int result = check_operands(verb, arguments, error);
    return result < 0 || !verb->check ? result : verb->check(arguments, error);
}
