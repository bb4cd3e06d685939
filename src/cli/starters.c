#include "cli/starters.h"

#include <errno.h>
#include <string.h>

/* clang-format off */
#define STARTER_CONTAINER(name_, starts_, resumes_, volume_, device_, environment_, prefix_)                 \
    {.name = (name_), .starts = (starts_), .resumes = (resumes_), .volume = (volume_), .device = (device_),  \
     .environment = (environment_), .prefix = (prefix_)},
#define STARTER_ELSEWHERE(name_, verbs_, where_, instead_)                                                   \
    {.name = (name_), .starts = (verbs_), .resumes = "", .where = (where_), .instead = (instead_)},
/* clang-format on */

static const struct starter starters[] = {
#include "cli/starters.def"
};

#define LAUNCHERS "env nice nohup time timeout stdbuf setsid ionice sudo doas"
/* Words by which a program whose every command starts others only tells something. */
#define LOOKS "--help -h --version -V ls -ls -list list-sessions kill-session kill-server -l -v -k"

static const char *name_of(const char *word)
{
    const char *slash = strrchr(word, '/');
    return slash ? slash + 1 : word;
}

/* `words` has blanks between its words. */
static bool is_among(const char *word, const char *words)
{
    size_t length = strchr(word, ' ') ? 0 : strlen(word);
    for (const char *at = words; length && (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

/* "./batch" is somebody's own program, whatever its name. */
static bool is_own_program(const char *word)
{
    return strchr(word, '/') && word[0] != '/';
}

const struct starter *starter_named(const char *word)
{
    if (is_own_program(word))
        return NULL;
    for (size_t i = 0; i < sizeof(starters) / sizeof(starters[0]); i++)
        if (strcmp(starters[i].name, name_of(word)) == 0)
            return &starters[i];
    return NULL;
}

bool starter_starts(const struct starter *starter, char *const *command, size_t *verb, bool *is_new)
{
    *verb = 0;
    *is_new = true;
    if (strcmp(starter->starts, "*") == 0)
        return !(command[1] && !command[2] && is_among(command[1], LOOKS));
    /* Global options before the verb may have values, so any word may be it. */
    for (size_t i = 1; command[i]; i++) {
        *is_new = is_among(command[i], starter->starts);
        if (*is_new || is_among(command[i], starter->resumes)) {
            *verb = i;
            return true;
        }
    }
    return false;
}

static const struct starter *used_first(char *const *command)
{
    const struct starter *starter = starter_named(command[0]);
    size_t verb;
    bool is_new;
    return starter && starter_starts(starter, command, &verb, &is_new) ? starter : NULL;
}

const struct starter *starter_used(char *const *command)
{
    const struct starter *found = used_first(command);
    if (!is_among(name_of(command[0]), LAUNCHERS))
        return found;
    for (size_t i = 1; command[i]; i++) {
        const struct starter *behind = used_first(command + i);
        if (behind && (!found || !behind->where))
            found = behind;
        if (found && !found->where)
            break;
    }
    return found;
}

int starter_check(char *const *command, struct error *error)
{
    const struct starter *starter = starter_used(command);
    if (!starter)
        return 0;
    if (!starter->where)
        return error_set(
            error, EINVAL, NULL,
            "'%.80s' starts programs in a container, where they would run without limits; add --container",
            starter->name);
    return error_set(error, EINVAL, NULL,
                     "'%.80s' starts programs %s: they would run without limits; expected %s", starter->name,
                     starter->where, starter->instead);
}
