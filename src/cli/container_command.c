#include "cli/container_command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/starters.h"
#include "client/session_fields.h"

/* Looks at the options up to the first other word; what follows may be the container's own. */
static bool is_detached(char *const *options)
{
    for (; *options && (*options)[0] == '-' && strcmp(*options, "--") != 0; options++) {
        size_t letters = strspn(*options + 1, "ditPq"); /* -itd, but not -v/data */
        if (((*options)[1 + letters] == '\0' && strchr(*options, 'd')) || strcmp(*options, "--detach") == 0 ||
            strcmp(*options, "--detach=true") == 0)
            return true;
    }
    return false;
}

/* The command's container runtime; NULL: it starts no container. */
static const struct starter *find_runtime(char *const *command, size_t *verb, bool *is_new)
{
    const struct starter *starter = starter_named(command[0]);
    bool starts = starter && !starter->where && starter_starts(starter, command, verb, is_new);
    return starts ? starter : NULL;
}

int container_command_check(char *const *command, bool outlives, struct error *error)
{
    bool is_new = false;
    size_t verb = 0;
    const struct starter *starter = find_runtime(command, &verb, &is_new);
    const struct starter *behind = starter ? NULL : starter_used(command);
    if (behind && !behind->where)
        return error_set(error, EINVAL, NULL,
                         "'%.80s' comes between --container and '%s'; expected it before gpuslice: %.80s "
                         "gpuslice run --container -- %s ...",
                         command[0], behind->name, command[0], behind->name);
    if (!starter)
        return error_set(
            error, EINVAL, NULL,
            "--container is for commands that start a container; expected podman, docker, nerdctl or "
            "apptainer with 'run', not '%.80s'",
            command[0]);
    if (!is_new)
        return error_set(error, EINVAL, NULL,
                         "'%s %s' starts containers that were described elsewhere; there, name a session as "
                         "the device gpuslice.io/session=NAME, which 'gpuslice cdi' writes",
                         starter->name, command[verb]);
    if (!outlives && (strcmp(command[verb], "create") == 0 || is_detached(command + verb + 1)))
        return error_set(error, EINVAL, NULL,
                         "the container goes on after '%s %s' has ended, but the session would not; make a "
                         "session with 'gpuslice create', and use --session NAME --container",
                         starter->name, command[verb]);
    return 0;
}

/* --- Composing ------------------------------------------------------------------------------------- */

struct words {
    char **at;
    size_t count, room;
};

static int add_word(struct words *words, char *word, struct error *error)
{
    if (words->count + 1 >= words->room) {
        size_t room = words->room ? 2 * words->room : 64;
        char **more = reallocarray(words->at, room, sizeof(*more));
        if (!more)
            return error_set_errno(error, ENOMEM, "cannot compose the command");
        words->at = more;
        words->room = room;
    }
    words->at[words->count++] = word;
    words->at[words->count] = NULL;
    return 0;
}

static int add_formatted(struct words *words, const char *option, struct error *error, const char *format,
                         const char *a, const char *b, const char *c)
{
    char *value = NULL;
    if (asprintf(&value, format, a, b, c) < 0)
        return error_set_errno(error, ENOMEM, "cannot compose the command");
    int result = option ? add_word(words, (char *)option, error) : 0;
    return result < 0 ? result : add_word(words, value, error);
}

static int add_variable(struct words *words, const struct starter *starter, const char *entry,
                        struct error *error)
{
    const char *equals = strchr(entry, '=');
    cleanup_free char *name = NULL;
    if (asprintf(&name, "%s%.*s", starter->prefix ? starter->prefix : "", (int)(equals - entry), entry) < 0)
        return error_set_errno(error, ENOMEM, "cannot compose the command");
    setenv(name, equals + 1, 1);
    return starter->environment ? add_formatted(words, starter->environment, error, "%s", name, "", "") : 0;
}

static int add_mount(struct words *words, const struct starter *starter, const json_t *mount,
                     struct error *error)
{
    const char *from = session_text(mount, "hostPath");
    const char *mode = json_string_value(json_array_get(json_object_get(mount, "options"), 0));
    if (strchr(from, ':'))
        return error_set(
            error, EINVAL, NULL,
            "'%.300s' has a colon, which ends a path in %s's options; install GPU Slice in another folder",
            from, starter->name);
    return add_formatted(words, starter->volume, error, "%s:%s:%s", from,
                         session_text(mount, "containerPath"), mode ? mode : "ro");
}

static int add_parts(struct words *words, const struct starter *starter, const json_t *parts,
                     struct error *error)
{
    size_t i;
    json_t *each;
    int result = 0;
    json_array_foreach(json_object_get(parts, "env"), i, each)
    {
        if ((result = add_variable(words, starter, json_string_value(each), error)) < 0)
            return result;
    }
    json_array_foreach(json_object_get(parts, "mounts"), i, each)
    {
        if ((result = add_mount(words, starter, each, error)) < 0)
            return result;
    }
    json_array_foreach(json_object_get(parts, "deviceNodes"), i, each)
    {
        if (starter->device && (result = add_formatted(words, starter->device, error, "%s",
                                                       session_text(each, "path"), "", "")) < 0)
            return result;
    }
    return 0;
}

int container_command_compose(char *const *command, const json_t *parts, char ***composed,
                              struct error *error)
{
    struct words words = {0};
    size_t verb = 0;
    bool is_new;
    const struct starter *starter = find_runtime(command, &verb, &is_new);
    int result = 0;
    for (size_t i = 0; command[i] && result == 0; i++) {
        result = add_word(&words, command[i], error);
        if (i == verb && result == 0)
            result = add_parts(&words, starter, parts, error);
    }
    if (result < 0)
        free(words.at);
    else
        *composed = words.at;
    return result;
}
