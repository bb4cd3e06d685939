#include "cli/container_command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/session_fields.h"

struct program {
    const char *name;
    const char *starts[4];  /* verbs that start a container from an image, and take options */
    const char *resumes[6]; /* verbs that start an existing container, or several */
    const char *volume, *device;
    /* the option that passes on a variable by its name; NULL: `prefix` before the variable's name does it */
    const char *environment;
    const char *prefix;
};

static const struct program programs[] = {
    {"podman",
     {"run", "create"},
     {"start", "restart", "exec", "kube", "play", "compose"},
     "--volume",
     "--device",
     "--env",
     NULL},
    {"docker",
     {"run", "create"},
     {"start", "restart", "exec", "compose", "stack"},
     "--volume",
     "--device",
     "--env",
     NULL},
    {"nerdctl",
     {"run", "create"},
     {"start", "restart", "exec", "compose"},
     "--volume",
     "--device",
     "--env",
     NULL},
    {"docker-compose", {NULL}, {"up", "run", "start", "restart", "exec"}, NULL, NULL, NULL, NULL},
    {"podman-compose", {NULL}, {"up", "run", "start", "restart", "exec"}, NULL, NULL, NULL, NULL},
    {"apptainer", {"run", "exec", "shell", "test"}, {"instance"}, "--bind", NULL, NULL, "APPTAINERENV_"},
    {"singularity", {"run", "exec", "shell", "test"}, {"instance"}, "--bind", NULL, NULL, "SINGULARITYENV_"},
};

/* Programs that start the command after them. */
static const char *const launchers[] = {"sudo", "doas",    "env",    "nice",   "nohup",
                                        "time", "timeout", "stdbuf", "setsid", "ionice"};

static const char *name_of(const char *word)
{
    const char *slash = strrchr(word, '/');
    return slash ? slash + 1 : word;
}

static const struct program *find_program(const char *word)
{
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
        if (strcmp(programs[i].name, name_of(word)) == 0)
            return &programs[i];
    return NULL;
}

static bool is_among(const char *word, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count && words[i]; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

/* The index of the word that says what to do; 0 if none starts a container. It is searched for, as global options
 * before it may have values. */
static size_t find_verb(const struct program *program, char *const *command, bool *is_start)
{
    for (size_t i = 1; command[i]; i++) {
        *is_start = is_among(command[i], program->starts, 4);
        if (*is_start || is_among(command[i], program->resumes, 6))
            return i;
    }
    return 0;
}

static const char *started_by(char *const *command)
{
    const struct program *program = find_program(command[0]);
    bool is_start;
    return program && find_verb(program, command, &is_start) > 0 ? program->name : NULL;
}

const char *container_command_starts(char *const *command)
{
    const char *found = started_by(command);
    if (is_among(name_of(command[0]), launchers, sizeof(launchers) / sizeof(launchers[0])))
        for (size_t i = 1; command[i] && !found; i++)
            found = started_by(command + i);
    return found;
}

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

int container_command_check(char *const *command, bool outlives, struct error *error)
{
    const struct program *program = find_program(command[0]);
    bool is_start = false;
    size_t verb = program ? find_verb(program, command, &is_start) : 0;
    const char *behind = verb ? NULL : container_command_starts(command);
    if (behind)
        return error_set(error, EINVAL, NULL,
                         "'%.80s' comes between --container and '%s'; expected it before gpuslice: %.80s "
                         "gpuslice run --container -- %s ...",
                         command[0], behind, command[0], behind);
    if (!verb)
        return error_set(
            error, EINVAL, NULL,
            "--container is for commands that start a container; expected podman, docker, nerdctl or "
            "apptainer with 'run', not '%.80s'",
            command[0]);
    if (!is_start)
        return error_set(error, EINVAL, NULL,
                         "'%s %s' starts containers that were described elsewhere; there, name a session as "
                         "the device gpuslice.io/session=NAME, which 'gpuslice cdi' writes",
                         program->name, command[verb]);
    if (!outlives && (strcmp(command[verb], "create") == 0 || is_detached(command + verb + 1)))
        return error_set(error, EINVAL, NULL,
                         "the container goes on after '%s %s' has ended, but the session would not; make a "
                         "session with 'gpuslice create', and use --session NAME --container",
                         program->name, command[verb]);
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

static int add_variable(struct words *words, const struct program *program, const char *entry,
                        struct error *error)
{
    const char *equals = strchr(entry, '=');
    cleanup_free char *name = NULL;
    if (asprintf(&name, "%s%.*s", program->prefix ? program->prefix : "", (int)(equals - entry), entry) < 0)
        return error_set_errno(error, ENOMEM, "cannot compose the command");
    setenv(name, equals + 1, 1);
    return program->environment ? add_formatted(words, program->environment, error, "%s", name, "", "") : 0;
}

static int add_mount(struct words *words, const struct program *program, const json_t *mount,
                     struct error *error)
{
    const char *from = session_text(mount, "hostPath");
    const char *mode = json_string_value(json_array_get(json_object_get(mount, "options"), 0));
    if (strchr(from, ':'))
        return error_set(
            error, EINVAL, NULL,
            "'%.300s' has a colon, which ends a path in %s's options; install GPU Slice in another folder",
            from, program->name);
    return add_formatted(words, program->volume, error, "%s:%s:%s", from,
                         session_text(mount, "containerPath"), mode ? mode : "ro");
}

static int add_parts(struct words *words, const struct program *program, const json_t *parts,
                     struct error *error)
{
    size_t i;
    json_t *each;
    int result = 0;
    json_array_foreach(json_object_get(parts, "env"), i, each)
    {
        if ((result = add_variable(words, program, json_string_value(each), error)) < 0)
            return result;
    }
    json_array_foreach(json_object_get(parts, "mounts"), i, each)
    {
        if ((result = add_mount(words, program, each, error)) < 0)
            return result;
    }
    json_array_foreach(json_object_get(parts, "deviceNodes"), i, each)
    {
        if (program->device && (result = add_formatted(words, program->device, error, "%s",
                                                       session_text(each, "path"), "", "")) < 0)
            return result;
    }
    return 0;
}

int container_command_compose(char *const *command, const json_t *parts, char ***composed,
                              struct error *error)
{
    const struct program *program = find_program(command[0]);
    struct words words = {0};
    bool is_start;
    size_t verb = find_verb(program, command, &is_start);
    int result = 0;
    for (size_t i = 0; command[i] && result == 0; i++) {
        result = add_word(&words, command[i], error);
        if (i == verb && result == 0)
            result = add_parts(&words, program, parts, error);
    }
    if (result < 0)
        free(words.at);
    else
        *composed = words.at;
    return result;
}
