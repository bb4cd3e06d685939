/* gpuslice backup: a copy of the daemon's state file. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/verbs.h"
#include "client/client.h"

static const struct cli_option options[] = {
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

/* The daemon's own program makes the copy: it alone knows SQLite. */
static enum cli_status run_backup(const struct cli_arguments *arguments)
{
    struct client client;
    struct error error;
    char program[PATH_MAX];
    int result = client_open(&client, arguments->simulated, &error);
    if (result == 0)
        result = paths_program("gpusliced", program, &error);
    if (result < 0)
        return cli_report(&error);
    char *words[] = {"gpusliced", "--backup", arguments->operands[0], client.paths.system ? "--system" : NULL,
                     NULL,        NULL};
    words[client.paths.system ? 4 : 3] = client.paths.simulated ? "--simulated" : NULL;
    execv(program, words);
    error_set_errno(&error, errno, "cannot run %.200s", program);
    return cli_report(&error);
}

const struct cli_verb verb_backup = {
    .name = "backup",
    .operands = "FILE",
    .operand_kind = CLI_FOLDER,
    .operands_min = 1,
    .operands_max = 1,
    .summary = "copy the daemon's state to a file",
    .text = "FILE must not exist; it gets mode 0600, as it has what programs attach with. The copy is whole, "
            "of one "
            "moment, and made while the daemon runs or not; a plain copy of state.db lacks what is in its "
            "log. For the "
            "system daemon's state it needs root. To put it back, stop the daemon, remove state.db, "
            "state.db-wal and "
            "state.db-shm of its state folder, and copy FILE to state.db there.",
    .examples = "  gpuslice backup gpuslice-state.db",
    .options = options,
    .act = run_backup,
};
