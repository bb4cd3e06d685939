/* gpu-check - tests whether GPU Slice keeps its promises on this machine's GPU and driver, and measures both.
 * docs/gpu-check.md. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/cleanup.h"
#include "gpucheck/beliefs.h"
#include "gpucheck/checks.h"
#include "gpucheck/part.h"
#include "gpucheck/report.h"
#include "gpucheck/runner.h"

#define BUDGET_S 350.0
#define FIRST_BUDGET_S 1800.0

const struct check checks[] = {
#define CHECK(name, function, place, deadline, claim) {name, CHECK_##place, deadline, claim, function},
#include "gpucheck/checks.def"
#undef CHECK
    {NULL},
};

/* A step of --first, or the beginning of a stage (then `check` is NULL). */
static const struct step {
    const char *check, *settles;
    unsigned stage, seconds;
} first[] = {
#define STAGE(number, seconds, title) {NULL, title, number, seconds},
#define FIRST(name, settles, otherwise) {name, settles, 0, 0},
#include "gpucheck/first.def"
#undef FIRST
#undef STAGE
};
#define STEPS (sizeof(first) / sizeof(first[0]))
#define STAGES 5u

const struct part_role part_roles[] = {
#define PART(name, function) {name, function},
#include "gpucheck/parts.def"
#undef PART
    {NULL, NULL},
};

static const char usage[] =
    "usage: gpu-check [--simulated] [--gpu INDEX|UUID] [--first [--stage NUMBER...] | --only NAME...]\n"
    "                 [--json FILE] [--budget SECONDS] [--list]\n"
    "\n"
    "Checks that GPU Slice keeps quotas on this machine's GPU, and measures the GPU and its driver.\n"
    "\n"
    "  --simulated        on a simulated GPU of its own; no driver is needed\n"
    "  --gpu INDEX|UUID   this GPU (NVML's index) or MIG instance; otherwise the first one that\n"
    "                     CUDA_VISIBLE_DEVICES leaves, of a GPU in MIG mode its first instance\n"
    "  --first            what to know first of a card, in thirty minutes, in that order\n"
    "  --stage NUMBER     of --first only this stage, 1 to 5; can be given again\n"
    "  --only NAME        run only this check; can be given again\n"
    "  --json FILE        write the results there too; - is standard output, and no table\n"
    "  --budget SECONDS   take no longer than this in all (350; 1800 with --first); what has not run by then "
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
    bool stages[STAGES + 1], has_stages; /* those asked for */
};

static const struct check *find_check(const char *name)
{
    for (const struct check *check = checks; check->name; check++)
        if (strcmp(check->name, name) == 0)
            return check;
    return NULL;
}

static bool parse_stage(const char *text, struct options *options)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (!*text || *end || number < 1 || number > STAGES)
        return false;
    return options->stages[number] = options->has_stages = true;
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
        } else if (!known && value && strcmp(word, "--stage") == 0)
            known = parse_stage(value, options);
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
    if (options->has_stages && !options->first) {
        fputs("gpu-check: --stage is of --first\n", stderr);
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
    beliefs_print(out, result);
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

struct run {
    const struct options *options;
    FILE *out; /* where the table goes */
    double begin_s;
    json_t *results;
    unsigned passed, failed, not_run;
    const char *stopped_by; /* the check that says that no other means anything; NULL: none */
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

/* Run the check, unless one before has stopped the run. False after a signal that asked us to end. */
static bool run_one(struct run *run, const struct check *check, double until_s)
{
    json_t *result = run->stopped_by ? runner_skip(check, run->stopped_by) : runner_run(check, until_s);
    if (!result)
        return false;
    beliefs_judge(result);
    if (json_is_true(json_object_get(result, "stops")))
        run->stopped_by = check->name;
    add_result(run, result);
    return true;
}

/* Run the checks in the order of the table. False if somebody ended that. */
static bool run_table(struct run *run)
{
    for (const struct check *check = checks; check->name; check++)
        if (is_wanted(run->options, check) && !run_one(run, check, INFINITY))
            return false;
    return true;
}

/* Run the stages of --first. What one stage leaves of its time is the next one's, and none takes another's. */
static bool run_first(struct run *run)
{
    const struct options *options = run->options;
    bool is_asked_for = false;
    double until_s = now_s();
    for (const struct step *step = first; step < first + STEPS; step++) {
        if (!step->check) {
            is_asked_for = !options->has_stages || options->stages[step->stage];
            until_s += is_asked_for ? step->seconds : 0;
            if (is_asked_for)
                fprintf(run->out, "--- %u. %s\n", step->stage, step->settles);
        } else if (is_asked_for && !run_one(run, find_check(step->check), until_s)) {
            return false;
        }
    }
    return true;
}

static int run_all(const struct options *options)
{
    struct error error;
    bool to_stdout = options->json && strcmp(options->json, "-") == 0;
    struct run run = {
        .options = options, .out = to_stdout ? stderr : stdout, .begin_s = now_s(), .results = json_array()};
    if (runner_begin(options->gpu, options->budget_s, &error) < 0) {
        fprintf(stderr, "gpu-check: %s\n", error.message);
        json_decref(runner_end());
        json_decref(run.results);
        return 1;
    }
    bool ended_early = !(options->first ? run_first(&run) : run_table(&run));
    json_t *of_daemon = runner_end();
    if (ended_early) {
        fprintf(stderr, "gpu-check: ended early\n");
        json_decref(of_daemon);
    } else {
        beliefs_judge(of_daemon);
        add_result(&run, of_daemon);
    }
    if (to_stdout)
        write_run(&run);
    beliefs_print_sum(run.out, run.results);
    json_decref(run.results);
    if (run.cannot_write)
        fprintf(stderr, "gpu-check: cannot write %s\n", options->json);
    fprintf(run.out, "%u passed, %u failed, %u not run, %.0f s%s\n", run.passed, run.failed, run.not_run,
            now_s() - run.begin_s, settings.simulated ? ", on a simulated GPU" : "");
    return run.failed || ended_early || run.cannot_write ? 1 : 0;
}

/* Say what is checked, in the order in which it is. */
static void list_all(const struct options *options)
{
    if (!options->first) {
        for (const struct check *check = checks; check->name; check++)
            printf("%-22s %s\n", check->name, check->claim);
        return;
    }
    bool is_asked_for = false;
    for (const struct step *step = first; step < first + STEPS; step++) {
        if (!step->check)
            is_asked_for = !options->has_stages || options->stages[step->stage];
        if (is_asked_for && !step->check)
            printf("--- %u. %s, %u s\n", step->stage, step->settles, step->seconds);
        else if (is_asked_for)
            printf("%-22s %s\n", step->check, find_check(step->check)->claim);
    }
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
        list_all(&options);
        return 0;
    }
    return run_all(&options);
}
