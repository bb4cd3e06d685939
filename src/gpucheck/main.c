/* gpu-check - tests whether GPU Slice keeps its promises on this machine's GPU and driver, and measures both.
 * docs/gpu-check.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/cleanup.h"
#include "gpucheck/checks.h"
#include "gpucheck/part.h"
#include "gpucheck/report.h"
#include "gpucheck/runner.h"

#define BUDGET_S 350.0
#define FIRST_BUDGET_S 600.0

const struct check checks[] = {
#define CHECK(name, function, place, deadline, claim) {name, CHECK_##place, deadline, claim, function},
#include "gpucheck/checks.def"
#undef CHECK
    {NULL},
};

static const char *const first[] = {
#define FIRST(name) name,
#include "gpucheck/first.def"
#undef FIRST
    NULL,
};

const struct part_role part_roles[] = {
#define PART(name, function) {name, function},
#include "gpucheck/parts.def"
#undef PART
    {NULL, NULL},
};

static const char usage[] =
    "usage: gpu-check [--simulated] [--gpu INDEX|UUID] [--first | --only NAME...] [--json FILE]\n"
    "                 [--budget SECONDS] [--list]\n"
    "\n"
    "Checks that GPU Slice keeps quotas on this machine's GPU, and measures the GPU and its driver.\n"
    "\n"
    "  --simulated        on a simulated GPU of its own; no driver is needed\n"
    "  --gpu INDEX|UUID   this GPU (NVML's index) or MIG instance; otherwise the first one that\n"
    "                     CUDA_VISIBLE_DEVICES leaves, of a GPU in MIG mode its first instance\n"
    "  --first            what to know first of a card, in ten minutes, in that order\n"
    "  --only NAME        run only this check; can be given again\n"
    "  --json FILE        write the results there too; - is standard output, and no table\n"
    "  --budget SECONDS   take no longer than this in all (350; 600 with --first); what has not run by then "
    "says so\n"
    "  --list             say what is checked, and run nothing\n"
    "\n"
    "Exit status: 0 all that ran passed, 1 something failed, 2 wrong usage. The card's settings are left "
    "alone.\n";

struct options {
    const char *gpu, *json, *check, *part, *argument;
    const char *only[64];
    unsigned only_count;
    double budget_s;
    bool list, first;
};

static const struct check *find_check(const char *name)
{
    for (const struct check *check = checks; check->name; check++)
        if (strcmp(check->name, name) == 0)
            return check;
    return NULL;
}

/* 0, or 2 after a message. */
static int parse(int count, char **words, struct options *options)
{
    const struct {
        const char *word;
        const char **value;
    } valued[] = {
        {"--gpu", &options->gpu},   {"--json", &options->json},         {"--check", &options->check},
        {"--part", &options->part}, {"--argument", &options->argument},
    };
    for (int i = 1; i < count; i++) {
        const char *word = words[i], *value = i + 1 < count ? words[i + 1] : NULL;
        bool known = false;
        for (unsigned j = 0; j < sizeof(valued) / sizeof(valued[0]) && value && !known; j++)
            if ((known = strcmp(word, valued[j].word) == 0))
                *valued[j].value = value;
        if (!known && value && strcmp(word, "--only") == 0 && options->only_count < 64) {
            if (!find_check(value)) {
                fprintf(stderr, "gpu-check: there is no check '%s'; --list names them\n", value);
                return 2;
            }
            options->only[options->only_count++] = value;
            known = true;
        } else if (!known && value && strcmp(word, "--budget") == 0) {
            char *end;
            options->budget_s = strtod(value, &end);
            known = *value && !*end && options->budget_s > 0;
        }
        if (known) {
            i++;
        } else if (strcmp(word, "--simulated") == 0) {
            settings.simulated = true;
        } else if (strcmp(word, "--first") == 0) {
            options->first = true;
        } else if (strcmp(word, "--list") == 0) {
            options->list = true;
        } else if (strcmp(word, "--help") == 0) {
            fputs(usage, stdout);
            exit(0);
        } else {
            fprintf(stderr, "gpu-check: '%s' is not an option, or has no proper value\n%s", word, usage);
            return 2;
        }
    }
    if (options->first && options->only_count) {
        fputs("gpu-check: --first and --only do not go together\n", stderr);
        return 2;
    }
    if (options->budget_s <= 0)
        options->budget_s = options->first ? FIRST_BUDGET_S : BUDGET_S;
    return 0;
}

/* --- In a check's process -------------------------------------------------------------------------- */

static int run_check(const char *name, const char *end)
{
    const struct check *check = find_check(name);
    if (!check)
        return 2;
    settings.end_s = end ? strtod(end, NULL) : now_s() + check->deadline_s;
    check->run(check);
    report_ended();
    return 0;
}

static int run_part(const char *name, const char *argument)
{
    for (const struct part_role *role = part_roles; role->name; role++)
        if (strcmp(role->name, name) == 0) {
            role->run(argument ? argument : "");
            return 0;
        }
    return 2;
}

/* --- In the main process -------------------------------------------------------------------------- */

static void print_figure(FILE *out, const char *name, const json_t *figure)
{
    if (json_is_string(figure)) {
        fprintf(out, "    %-40s %s\n", name, json_string_value(figure));
        return;
    }
    double value = json_number_value(json_object_get(figure, "value"));
    const char *unit = json_string_value(json_object_get(figure, "unit"));
    if (value == (double)(int64_t)value)
        fprintf(out, "    %-40s %lld %s\n", name, (long long)value, unit);
    else
        fprintf(out, "    %-40s %.3f %s\n", name, value, unit);
}

static void print_result(FILE *out, const json_t *result)
{
    const char *name;
    json_t *figure, *reason;
    size_t i;
    fprintf(out, "%-8s %-22s %6.1f s  %s\n", json_string_value(json_object_get(result, "outcome")),
            json_string_value(json_object_get(result, "name")),
            json_number_value(json_object_get(result, "seconds")),
            json_string_value(json_object_get(result, "claim")));
    json_array_foreach(json_object_get(result, "reasons"), i, reason)
        fprintf(out, "    %s\n", json_string_value(reason));
    json_object_foreach(json_object_get((json_t *)result, "figures"), name, figure)
        print_figure(out, name, figure);
    fflush(out);
}

static json_t *describe_run(const json_t *results, double seconds)
{
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    struct utsname machine;
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    uname(&machine);
    /* Only the number of the kernel: the rest says who built it. */
    machine.release[strspn(machine.release, "0123456789.")] = '\0';
    return json_pack("{s:s, s:s, s:b, s:s, s:s, s:f, s:O}", "version", GPUSLICE_VERSION, "date", date,
                     "simulated", settings.simulated, "machine", machine.machine, "kernel", machine.release,
                     "seconds", seconds, "checks", results);
}

static bool is_wanted(const struct options *options, const struct check *check)
{
    for (unsigned i = 0; i < options->only_count; i++)
        if (strcmp(options->only[i], check->name) == 0)
            return true;
    return !options->only_count;
}

/* The check with number `at`, in the order of the table or that of --first. NULL at the end. */
static const struct check *check_at(const struct options *options, unsigned at)
{
    if (options->first)
        return first[at] ? find_check(first[at]) : NULL;
    return checks[at].name ? &checks[at] : NULL;
}

struct run {
    const struct options *options;
    FILE *out; /* where the table goes */
    double begin_s;
    json_t *results;
    unsigned passed, failed, not_run;
    bool cannot_write;
};

static void write_run(struct run *run)
{
    const size_t flags = JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15);
    const char *path = run->options->json;
    json_t *whole = describe_run(run->results, now_s() - run->begin_s);
    if (strcmp(path, "-") == 0)
        run->cannot_write |= json_dumpf(whole, stdout, flags) != 0 || putchar('\n') != '\n';
    else
        run->cannot_write |= json_dump_file(whole, path, flags) != 0;
    json_decref(whole);
}

/* The JSON is written after each check, so that results remain if somebody ends this program. */
static void add_result(struct run *run, json_t *result)
{
    const char *outcome = json_string_value(json_object_get(result, "outcome"));
    run->passed += strcmp(outcome, "passed") == 0;
    run->failed += strcmp(outcome, "failed") == 0;
    run->not_run += strcmp(outcome, "not run") == 0;
    print_result(run->out, result);
    json_array_append_new(run->results, result);
    if (run->options->json && strcmp(run->options->json, "-") != 0)
        write_run(run);
}

static int run_all(const struct options *options)
{
    struct error error;
    bool to_stdout = options->json && strcmp(options->json, "-") == 0, ended_early = false;
    struct run run = {
        .options = options, .out = to_stdout ? stderr : stdout, .begin_s = now_s(), .results = json_array()};
    if (runner_begin(options->gpu, options->budget_s, &error) < 0) {
        fprintf(stderr, "gpu-check: %s\n", error.message);
        json_decref(runner_end());
        json_decref(run.results);
        return 1;
    }
    const struct check *check;
    for (unsigned at = 0; (check = check_at(options, at)) && !ended_early; at++) {
        json_t *result = is_wanted(options, check) ? runner_run(check) : NULL;
        if (result)
            add_result(&run, result);
        else if (is_wanted(options, check))
            ended_early = true;
    }
    json_t *of_daemon = runner_end();
    if (ended_early) {
        fprintf(stderr, "gpu-check: ended early\n");
        json_decref(of_daemon);
    } else {
        add_result(&run, of_daemon);
    }
    if (to_stdout)
        write_run(&run);
    json_decref(run.results);
    if (run.cannot_write)
        fprintf(stderr, "gpu-check: cannot write %s\n", options->json);
    fprintf(run.out, "%u passed, %u failed, %u not run, %.0f s%s\n", run.passed, run.failed, run.not_run,
            now_s() - run.begin_s, settings.simulated ? ", on a simulated GPU" : "");
    return run.failed || ended_early || run.cannot_write ? 1 : 0;
}

int main(int count, char **words)
{
    struct options options = {0};
    int status = parse(count, words, &options);
    if (status)
        return status;
    if (options.check)
        return run_check(options.check, options.argument);
    if (options.part)
        return run_part(options.part, options.argument);
    if (options.list) {
        const struct check *check;
        for (unsigned at = 0; (check = check_at(&options, at)); at++)
            printf("%-22s %s\n", check->name, check->claim);
        return 0;
    }
    return run_all(&options);
}
