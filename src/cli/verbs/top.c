/* gpuslice top: sessions and GPUs as they change. It is a program of its own (top/), as otherwise every verb would
 * have to load the terminal's library. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/paths.h"
#include "cli/options.h"
#include "cli/verbs.h"

static const struct cli_option options[] = {
    {"interval", "DURATION", CLI_DURATION, offsetof(struct cli_arguments, since_usec),
     "ask the daemon this often, 100ms to 60s; without, 1s"},
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

static enum cli_status run_top(const struct cli_arguments *arguments)
{
    char program[PATH_MAX], interval[48];
    char *words[4] = {"gpuslice-top"};
    unsigned count = 1;
    struct error error;
    if (arguments->since_usec) {
        snprintf(interval, sizeof(interval), "--interval=%" PRIu64 "ms", arguments->since_usec / 1000);
        words[count++] = interval;
    }
    if (arguments->simulated)
        words[count++] = "--simulated";
    if (paths_program("gpuslice-top", program, &error) == 0) {
        execv(program, words);
        error_set_errno(&error, errno, "cannot run %s", program);
    }
    return cli_report(&error);
}

const struct cli_verb verb_top = {
    .name = "top",
    .aliases = {"stats"},
    .summary = "show sessions and GPUs as they change, and change them",
    .text = "Takes the whole terminal, 80 columns by 24 lines or more; more columns show more. '?' lists the "
            "keys.",
    .examples = "  gpuslice top",
    .options = options,
    .act = run_top,
};
