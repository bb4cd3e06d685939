#include "daemon/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "config/config.h"
#include "daemon/loop/daemon.h"

static const struct {
    const char *name, *argument;
    int letter;
    const char *help;
} options[] = {
    {"system", NULL, 's', "serve all users of the machine (needs root); without it, the user that starts it"},
    {"simulated", NULL, 'f', "offer simulated GPUs (also GPUSLICE_SIMULATED=1)"},
    {"on-demand", NULL, 'd',
     "go to the background, return when the daemon is ready (or another daemon serves already), and exit "
     "after a while without sessions"},
    {"idle-exit", "DURATION", 'i', "how long an on-demand daemon stays without sessions (30s)"},
    {"probe-context", "UUID", 'p', NULL}, /* context_probe.h: not for users */
    {"checkpoint", "ORDER", 'c', NULL},   /* checkpoint_run.h: not for users */
    {"fresh", NULL, 'F', "keep a damaged state file aside, and begin without sessions"},
    {"backup", "FILE", 'b', "copy the state file to FILE, a new file, while a daemon runs or not, and exit"},
    {"version", NULL, 'V', "print the version"},
    {"help", NULL, 'h', "print this"},
};
#define OPTION_COUNT (sizeof(options) / sizeof(options[0]))

static void print_help(void)
{
    printf("Usage: gpusliced [OPTION]...\nThe GPU Slice daemon. 'gpuslice run' and 'gpuslice create' start "
           "it when it is "
           "needed.\n\n");
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (!options[i].help)
            continue;
        char left[32];
        snprintf(left, sizeof(left), "--%s%s%s", options[i].name, options[i].argument ? " " : "",
                 options[i].argument ? options[i].argument : "");
        printf("  %-20s %s\n", left, options[i].help);
    }
    puts("\nEnvironment: GPUSLICE_RUNTIME_DIR, GPUSLICE_STATE_DIR, GPUSLICE_CONFIG_DIR, GPUSLICE_SIMULATED, "
         "and\n"
         "over what gpuslice.conf says:");
    for (const struct config_key *key = config_next_key(NULL); key; key = config_next_key(key))
        if (key->environment)
            printf("  %-28s %s\n", key->environment, key->name);
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value && strcmp(value, "0") != 0;
}

int options_parse(struct daemon_options *chosen, const char **idle_exit, const char **probed,
                  const char **checkpoint, int count, char **arguments)
{
    struct option table[OPTION_COUNT + 1] = {0};
    for (size_t i = 0; i < OPTION_COUNT; i++)
        table[i] = (struct option){.name = options[i].name,
                                   .has_arg = options[i].argument ? required_argument : no_argument,
                                   .val = options[i].letter};
    uint64_t usec;
    struct error error;
    chosen->simulated = is_set("GPUSLICE_SIMULATED");
    opterr = 0; /* we print the error ourselves, in one line */
    for (int letter; (letter = getopt_long(count, arguments, ":", table, NULL)) != -1;) {
        switch (letter) {
        case 's':
            chosen->system = true;
            break;
        case 'f':
            chosen->simulated = true;
            break;
        case 'F':
            chosen->fresh = true;
            break;
        case 'p':
            *probed = optarg;
            break;
        case 'c':
            *checkpoint = optarg;
            break;
        case 'b':
            chosen->backup = optarg;
            break;
        case 'd':
            chosen->on_demand = true;
            break;
        case 'i':
            if (units_parse_duration(optarg, &usec, &error) < 0) {
                fprintf(stderr, "gpusliced: --idle-exit: %s\n", error.message);
                return 2;
            }
            *idle_exit = optarg;
            break;
        case 'V':
            printf("gpusliced %s\n", GPUSLICE_VERSION);
            return 0;
        case 'h':
            print_help();
            return 0;
        default:
            fprintf(stderr, "gpusliced: '%.80s' %s; try 'gpusliced --help'\n", arguments[optind - 1],
                    letter == ':' ? "needs a value" : "is not an option, or takes no value");
            return 2;
        }
    }
    if (optind < count) {
        fprintf(stderr, "gpusliced: '%s' is an unexpected argument; try 'gpusliced --help'\n",
                arguments[optind]);
        return 2;
    }
    return -1;
}
