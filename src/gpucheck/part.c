#include "gpucheck/part.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/paths.h"
#include "gpucheck/check.h"

#define WORDS 24

void find_program(const char *name, char path[static PATH_MAX])
{
    struct error error;
    if (paths_program(name, path, &error) < 0)
        fail_and_end("%s", error.message);
}

/* A command with the words that put it into a place, and what the place adds to its environment. */
struct command {
    char gpuslice[PATH_MAX], memory[32];
    const char *words[WORDS];
    unsigned count;
    char interceptor[PATH_MAX]; /* if not empty: preload this, with a limit of `memory` */
};

static void add_word(struct command *command, const char *word)
{
    if (command->count < WORDS - 1)
        command->words[command->count++] = word;
}

/* gpuslice refuses a session whose memory could not leave (docs/machines.md): then there is nothing to check. */
static void require_that_memory_leaves(void)
{
    int is_integrated, has_vmm;
    const char *reason = driver_open(DRIVER_BY_DLSYM);
    if (reason)
        fail_and_end("no driver: %s", reason);
    must(cuInit(0));
    must(cuDeviceGetAttribute(&is_integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0));
    must(cuDeviceGetAttribute(&has_vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    if (is_integrated)
        not_run("no memory leaves this GPU, which shares the host's memory");
    if (!has_vmm)
        not_run("no memory leaves this GPU, which has no virtual memory management");
}

static void begin_command(struct command *command, struct part_place place, const char *name)
{
    struct error error;
    memset(command, 0, sizeof(*command));
    if (!place.quota_bytes && !place.session)
        return;
    snprintf(command->memory, sizeof(command->memory), "%llu", (unsigned long long)place.quota_bytes);
    if (place.standalone) {
        if (paths_library("libgpuslice.so", command->interceptor, &error) < 0)
            fail_and_end("%s", error.message);
        return;
    }
    if (place.moves)
        require_that_memory_leaves();
    find_program("gpuslice", command->gpuslice);
    add_word(command, command->gpuslice);
    add_word(command, "run");
    if (place.session) {
        add_word(command, "--session");
        add_word(command, place.session);
    } else {
        add_word(command, "--name");
        add_word(command, name);
        add_word(command, "--memory");
        add_word(command, command->memory);
        if (place.compute) { /* the previous check's sessions may be just ending */
            add_word(command, "--wait=10s");
            add_word(command, "--compute");
            add_word(command, place.compute);
        }
        if (place.moves)
            add_word(command, "--oversubscribe");
    }
    add_word(command, "--");
}

/* Start it with these standard streams. It dies when this process does. */
static pid_t start(const struct command *command, int in, int out, int errors)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        fail_and_end("fork: %s", strerror(errno));
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    if (command->interceptor[0]) {
        setenv("LD_PRELOAD", command->interceptor, 1);
        setenv("GPUSLICE_MEMORY_LIMIT", command->memory, 1);
    }
    execvp(command->words[0], (char *const *)command->words);
    fprintf(stderr, "%s: %s\n", command->words[0], strerror(errno));
    _exit(127);
}

static void make_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) < 0)
        fail_and_end("pipe: %s", strerror(errno));
}

static const char *session_name(char name[static 32])
{
    static unsigned number;
    snprintf(name, 32, "gpu-check-%d-%u", (int)getpid(), number++);
    return name;
}

void part_start(struct part *part, struct part_place place, const char *name, const char *argument)
{
    char self[PATH_MAX];
    find_program("gpu-check", self);
    const char *const words[] = {
        self, "--part", name, "--argument", argument, settings.simulated ? "--simulated" : NULL, NULL};
    part_start_program(part, place, words);
    snprintf(part->name, sizeof(part->name), "%s", name);
}

void part_start_program(struct part *part, struct part_place place, const char *const *words)
{
    struct command command;
    int to[2], from[2];
    memset(part, 0, sizeof(*part));
    snprintf(part->name, sizeof(part->name), "%s", words[0]);
    if (place.session)
        snprintf(part->session, sizeof(part->session), "%s", place.session);
    else if (place.quota_bytes && !place.standalone)
        session_name(part->session);
    begin_command(&command, place, part->session);
    for (; *words; words++)
        add_word(&command, *words);
    make_pipe(to);
    make_pipe(from);
    part->pid = start(&command, to[0], from[1], STDERR_FILENO);
    close(to[0]);
    close(from[1]);
    part->to = fdopen(to[1], "w");
    part->from = fdopen(from[0], "r");
    if (!part->to || !part->from)
        fail_and_end("fdopen: %s", strerror(errno));
    signal(SIGPIPE, SIG_IGN);
}

void part_say(struct part *part, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(part->to, format, arguments);
    va_end(arguments);
    fputc('\n', part->to);
    fflush(part->to);
}

/* A part that ended with status 0 or 1 has reported why, or its log has, so nothing is added. */
static _Noreturn void tell_end(const struct part *part, int status)
{
    if (WIFSIGNALED(status))
        fail_and_end("its part '%s' was ended by signal %d (%s)", part->name, WTERMSIG(status),
                     strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) > 1)
        fail_and_end("its part '%s' ended with status %d", part->name, WEXITSTATUS(status));
    _exit(WEXITSTATUS(status));
}

const char *part_hear(struct part *part)
{
    if (!fgets(part->line, sizeof(part->line), part->from)) {
        int status = 0;
        waitpid(part->pid, &status, 0);
        tell_end(part, status);
    }
    part->line[strcspn(part->line, "\n")] = '\0';
    return part->line;
}

double part_hear_number(struct part *part)
{
    char *end;
    const char *line = part_hear(part);
    double number = strtod(line, &end);
    if (end == line)
        fail_and_end("its part '%s' said '%s'", part->name, line);
    return number;
}

static int reap(struct part *part)
{
    int status = 0;
    fclose(part->to);
    waitpid(part->pid, &status, 0);
    fclose(part->from);
    return status;
}

void part_end(struct part *part)
{
    int status = reap(part);
    if (status)
        tell_end(part, status);
}

void part_kill(struct part *part)
{
    kill(part->pid, SIGKILL);
    reap(part);
}

void part_tell(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

const char *part_listen(void)
{
    static char line[512];
    if (!fgets(line, sizeof(line), stdin))
        _exit(0);
    line[strcspn(line, "\n")] = '\0';
    return line;
}

static int run(const struct command *command, bool with_errors, char *output, size_t size)
{
    int from[2], status = 0;
    make_pipe(from);
    cleanup_close int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pid_t pid = start(command, nothing, from[1], with_errors ? from[1] : STDERR_FILENO);
    close(from[1]);
    size_t length = 0;
    for (;;) {
        if (length == size - 1) { /* keep the end, which says most */
            length = (size - 1) / 2;
            memmove(output, output + size - 1 - length, length);
        }
        ssize_t bytes = read(from[0], output + length, size - 1 - length);
        if (bytes == 0 || (bytes < 0 && errno != EINTR))
            break;
        length += bytes > 0 ? (size_t)bytes : 0;
    }
    output[length] = '\0';
    close(from[0]);
    waitpid(pid, &status, 0);
    return status;
}

int program_run(char *const *words, uint64_t quota_bytes, bool with_errors, char *output, size_t size)
{
    struct command command;
    char name[32];
    begin_command(&command, (struct part_place){.quota_bytes = quota_bytes}, session_name(name));
    for (; *words; words++)
        add_word(&command, *words);
    return run(&command, with_errors, output, size);
}

/* The output of `gpuslice VERB [ARGUMENT] --json`. */
static json_t *ask_gpuslice(const char *verb, const char *argument)
{
    struct command command = {0};
    static char text[65536];
    json_error_t error;
    find_program("gpuslice", command.gpuslice);
    add_word(&command, command.gpuslice);
    add_word(&command, verb);
    if (argument)
        add_word(&command, argument);
    add_word(&command, "--json");
    if (run(&command, false, text, sizeof(text)) != 0)
        fail_and_end("'gpuslice %s %s --json' failed", verb, argument ? argument : "");
    json_t *object = json_loads(text, 0, &error);
    if (!object)
        fail_and_end("'gpuslice %s %s --json' is not JSON", verb, argument ? argument : "");
    return object;
}

static double sum_of_gpus(const json_t *object, const char *key)
{
    double sum = 0;
    const json_t *gpu;
    size_t i;
    json_array_foreach(json_object_get(object, "gpus"), i, gpu) sum +=
        json_number_value(json_object_get(gpu, key));
    return sum;
}

static uint64_t bytes_in(const json_t *object, const char *key, const char *session)
{
    const json_t *bytes = json_object_get(object, key);
    if (!json_is_integer(bytes))
        fail_and_end("'gpuslice show %s --json' has no %s", session, key);
    return (uint64_t)json_integer_value(bytes);
}

struct session_use session_use(const char *session)
{
    json_t *object = ask_gpuslice("show", session);
    struct session_use use = {.driver_bytes = bytes_in(object, "driver_bytes", session)};
    use.charged_bytes = bytes_in(object, "used_bytes", session) - use.driver_bytes;
    json_decref(object);
    return use;
}

struct session_memory session_memory(const char *session)
{
    json_t *object = ask_gpuslice("show", session);
    struct session_memory memory = {
        .charged_bytes = bytes_in(object, "used_bytes", session) - bytes_in(object, "driver_bytes", session),
        .context_bytes = (uint64_t)sum_of_gpus(object, "context_bytes") *
                         json_array_size(json_object_get(object, "processes")),
        .evicted_bytes = bytes_in(object, "evicted_bytes", session),
    };
    json_decref(object);
    return memory;
}

void sessions_gpu_seconds(const struct part *parts, unsigned count, double *seconds)
{
    json_t *array = ask_gpuslice("list", NULL);
    const json_t *session;
    size_t i;
    for (unsigned part = 0; part < count; part++)
        seconds[part] = NAN;
    json_array_foreach(array, i,
                       session) for (unsigned part = 0; part < count;
                                     part++) if (strcmp(json_string_value(json_object_get(session, "name")),
                                                        parts[part].session) == 0) seconds[part] =
        sum_of_gpus(session, "gpu_seconds");
    json_decref(array);
}

uint64_t session_unknown_pointers(const char *session)
{
    json_t *object = ask_gpuslice("show", session);
    const json_t *process;
    uint64_t sum = 0;
    size_t i;
    json_array_foreach(json_object_get(object, "processes"), i, process) sum +=
        (uint64_t)json_integer_value(json_object_get(process, "unknown_pointers"));
    json_decref(object);
    return sum;
}

void scheduler_quantum(const char *quantum)
{
    char output[256], path[PATH_MAX];
    find_program("gpuslice", path);
    char *words[] = {path, "scheduler", "--quantum", (char *)quantum, NULL};
    if (program_run(words, 0, true, output, sizeof(output)) != 0)
        fail_and_end("'gpuslice scheduler --quantum %s' failed: %s", quantum, output);
}

uint64_t lease_handovers(void)
{
    json_t *object = ask_gpuslice("scheduler", NULL);
    double handovers = sum_of_gpus(object, "handovers");
    json_decref(object);
    return (uint64_t)handovers;
}

void tell_closings(uint64_t handovers_before)
{
    const unsigned least = 10;
    unsigned long long closings = (lease_handovers() - handovers_before) / 2;
    figure("closings_meanwhile", (double)closings, "count");
    if (closings < least)
        fail("gates closed %llu times meanwhile; %u are needed to say anything", closings, least);
}
