/* `match` of a declared session: which programs run in it. */
#include <errno.h>
#include <fnmatch.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "config/config.h"

#define RULES_MAX 64

/* An account's number: `known` if the account database has `name`, else `name` read as a number. */
static int find_number(bool is_known, uint32_t known, const char *name, const char *what, uint32_t *number,
                       struct error *error)
{
    uint64_t parsed;
    if (!is_known && units_parse_number(name, UINT32_MAX - 1, &parsed, NULL) < 0)
        return error_set(error, EINVAL, NULL, "there is no %s '%.80s'; expected a %s's name or number", what,
                         name, what);
    *number = is_known ? known : (uint32_t)parsed;
    return 0;
}

static int parse_rule(const char *word, struct config_rule *rule, struct error *error)
{
    const char *value = strchr(word, ':');
    size_t length = value ? (size_t)(value - word) : 0;
    value = value ? value + 1 : "";
    if (length == 4 && strncmp(word, "user", length) == 0) {
        const struct passwd *user = getpwnam(value);
        rule->kind = CONFIG_RULE_USER;
        return find_number(user, user ? user->pw_uid : 0, value, "user", &rule->number, error);
    }
    if (length == 5 && strncmp(word, "group", length) == 0) {
        const struct group *group = getgrnam(value);
        rule->kind = CONFIG_RULE_GROUP;
        return find_number(group, group ? group->gr_gid : 0, value, "group", &rule->number, error);
    }
    if (length == 3 && strncmp(word, "exe", length) == 0 && *value == '/') {
        rule->kind = CONFIG_RULE_EXECUTABLE;
        rule->path = strdup(value);
        return rule->path ? 0 : error_set_errno(error, ENOMEM, "cannot keep a setting");
    }
    return error_set(error, EINVAL, NULL,
                     "'%.80s' is not a rule; expected user:NAME, group:NAME, or exe: and an absolute path",
                     word);
}

int config_match_parse(struct config_match *match, char *words, struct error *error)
{
    struct config_match made = {.rules = calloc(RULES_MAX, sizeof(*made.rules))};
    char *rest;
    int result = made.rules ? 0 : error_set_errno(error, ENOMEM, "cannot keep a setting");
    for (char *word = strtok_r(words, ",", &rest); word && result == 0; word = strtok_r(NULL, ",", &rest)) {
        if (made.count == RULES_MAX)
            result = error_set(error, E2BIG, NULL, "more than %d rules; expected fewer", RULES_MAX);
        else
            result = parse_rule(word, &made.rules[made.count++], error);
    }
    config_match_free(result == 0 ? match : &made);
    if (result == 0)
        *match = made;
    return result;
}

void config_match_free(struct config_match *match)
{
    for (size_t i = 0; i < match->count; i++)
        free(match->rules[i].path);
    free(match->rules);
    *match = (struct config_match){.count = 0};
}

static bool is_true(const struct config_rule *rule, const struct config_program *program)
{
    switch (rule->kind) {
    case CONFIG_RULE_USER:
        return rule->number == program->uid;
    case CONFIG_RULE_GROUP:
        for (size_t i = 0; i < program->group_count; i++)
            if (rule->number == program->groups[i])
                return true;
        return false;
    case CONFIG_RULE_EXECUTABLE:
        return fnmatch(rule->path, program->executable, FNM_PATHNAME) == 0 &&
               program->runs_executable(program);
    case CONFIG_RULE_KINDS:
        break;
    }
    return false;
}

bool config_match_is(const struct config_match *match, const struct config_program *program)
{
    bool is_asked[CONFIG_RULE_KINDS] = {false}, is_met[CONFIG_RULE_KINDS] = {false};
    for (size_t i = 0; i < match->count; i++) {
        const struct config_rule *rule = &match->rules[i];
        is_asked[rule->kind] = true;
        is_met[rule->kind] = is_met[rule->kind] || is_true(rule, program);
    }
    for (unsigned kind = 0; kind < CONFIG_RULE_KINDS; kind++)
        if (is_asked[kind] && !is_met[kind])
            return false;
    return match->count > 0;
}
