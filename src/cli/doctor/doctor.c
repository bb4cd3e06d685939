/* gpuslice doctor: what may keep programs from running in their sessions on this machine, and what to do about it. */
#include "cli/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/client.h"

static const struct cli_option options[] = {
    CLI_OPTION_JSON,
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

const struct doctor_check doctor_checks[] = {
    {"driver", "the NVIDIA driver's kernel side", doctor_driver},
    {"nvml", "the NVIDIA driver's libraries", doctor_nvml},
    {"kernel", "features of Linux that the daemon needs", doctor_kernel},
    {"access", "folders, sockets and group", doctor_access},
    {"daemon", "the daemon", doctor_daemon},
    {"disk", "room on the disks that the daemon writes to", doctor_disk},
    {"rules", "rules that put programs into sessions", doctor_rules},
    {"other-daemons", "other daemons on the same GPUs", doctor_other_daemons},
    {"linger", "whether a user's daemon outlives the login", doctor_linger},
    {"gpus", "the GPUs' health", doctor_health},
    {"machine", "GPUs that are not cards of their own", doctor_kind},
    {"mig", "GPUs in MIG mode", doctor_mig},
    {"mps", "NVIDIA's multi-process service", doctor_mps},
    {"uncovered", "GPU processes outside of sessions", doctor_uncovered},
    {"functions", "functions of the driver that are newer than GPU Slice", doctor_functions},
    {"pointers", "entry points unknown to the interceptor", doctor_pointers},
    {"containers", "container runtimes", doctor_containers},
    {"kubernetes", "how Kubernetes gets this node's GPUs", doctor_kubernetes},
    {"library", "the interceptor's file", doctor_library},
    {"program", "whether the program can be intercepted", doctor_program},
    {NULL, NULL, NULL},
};

/* What the interceptor never sees, whatever the checks find. */
static const char *const limits[] = {
    "calls through cuGetExportTable, Vulkan and OpenGL are not limited",
    "programs that load the driver with dlmopen, or a copy of it with RTLD_DEEPBIND, are not limited",
    "a program can remove LD_PRELOAD; 'gpuslice gpus' counts such programs as OUTSIDE",
};

void doctor_say(struct doctor_finding *finding, enum doctor_level level, const char *todo, const char *format,
                ...)
{
    va_list arguments;
    finding->level = level;
    snprintf(finding->todo, sizeof(finding->todo), "%s", todo);
    va_start(arguments, format);
    vsnprintf(finding->what, sizeof(finding->what), format, arguments);
    va_end(arguments);
}

static void ask_daemon(struct doctor *doctor)
{
    struct client client;
    int result = client_open(&client, doctor->simulated, &doctor->no_paths);
    if (result == 0) {
        doctor->paths = client.paths;
        result = client_request(&client, "GET", "/v1/version", NULL, &doctor->version, &doctor->no_daemon);
    } else {
        doctor->no_daemon = doctor->no_paths;
    }
    if (result == 0) {
        /* The peer of the socket may be a service manager, which made the socket, so the daemon is asked for its
         * pid. */
        doctor->daemon_pid = (pid_t)json_integer_value(json_object_get(doctor->version, "pid"));
        result = client_request(&client, "GET", "/v1/gpus", NULL, &doctor->gpus, &doctor->no_daemon);
    }
    if (result == 0)
        client_request(&client, "GET", "/v1/sessions", NULL, &doctor->sessions, &doctor->no_daemon);
    client_close(&client);
}

static const char *const level_names[] = {"ok", "warning", "problem"};
static const enum table_colour level_colours[] = {TABLE_GREEN, TABLE_YELLOW, TABLE_RED};

static void print_finding(const struct doctor_check *check, const struct doctor_finding *finding)
{
    bool colour = table_colour_wanted(stdout);
    enum table_colour of = level_colours[finding->level];
    printf("%s%-7s%s  %-13s  %s%s%s\n", table_colour_begin(of, colour), level_names[finding->level],
           table_colour_end(of, colour), check->id, finding->what, finding->todo[0] ? "; " : "",
           finding->todo);
}

static json_t *finding_json(const struct doctor_check *check, const struct doctor_finding *finding)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:s}", "id", check->id, "looks_at", check->what, "level",
                     level_names[finding->level], "finding", finding->what, "to_do", finding->todo);
}

static enum cli_status run_doctor(const struct cli_arguments *arguments)
{
    struct doctor doctor = {.root = "",
                            .simulated = arguments->simulated,
                            .command = arguments->operand_count ? arguments->operands : NULL};
    unsigned counts[DOCTOR_PROBLEM + 1] = {0};
    json_t *findings = json_array(), *stated = json_array();
    ask_daemon(&doctor);
    for (const struct doctor_check *check = doctor_checks; check->id; check++) {
        struct doctor_finding finding = {.level = DOCTOR_OK};
        check->look(&doctor, &finding);
        counts[finding.level]++;
        if (arguments->json)
            json_array_append_new(findings, finding_json(check, &finding));
        else
            print_finding(check, &finding);
    }
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        json_array_append_new(stated, json_string(limits[i]));
    if (arguments->json) {
        json_t *all = json_pack("{s:O,s:O}", "checks", findings, "limits", stated);
        cells_print_json(all);
        json_decref(all);
    } else {
        puts("\nWhat these checks cannot find (see share/doc/gpuslice/security.md):");
        for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
            printf("  %s\n", limits[i]);
        printf("\n%u problem%s, %u warning%s\n", counts[DOCTOR_PROBLEM],
               counts[DOCTOR_PROBLEM] == 1 ? "" : "s", counts[DOCTOR_WARNING],
               counts[DOCTOR_WARNING] == 1 ? "" : "s");
    }
    json_decref(findings);
    json_decref(stated);
    json_decref(doctor.gpus);
    json_decref(doctor.sessions);
    json_decref(doctor.version);
    enum cli_status status = cli_finish_output();
    return status == CLI_DONE && counts[DOCTOR_PROBLEM] ? CLI_FAILED : status;
}

const struct cli_verb verb_doctor = {
    .name = "doctor",
    .operands = "[--] [COMMAND [ARGUMENT]...]",
    .operand_kind = CLI_COMMAND,
    .operands_min = 0,
    .operands_max = (unsigned)-1,
    .summary = "find what keeps programs from their sessions",
    .text = "Changes nothing and does not run COMMAND: it asks COMMAND's dynamic loader whether it would "
            "load the interceptor into it. Status 0 when it found no problem; warnings do not count.",
    .examples = "  gpuslice doctor -- python train.py",
    .options = options,
    .act = run_doctor,
};
