/* gslice.h - gslice's forms of the command line, for its users' scripts. */
#pragma once

#include <stdbool.h>

#include "cli/cli.h"

/* Whether the operands of `run` are gslice's: BYTES SECONDS PRELOAD LIBRARY-FOLDER COMMAND... */
bool gslice_is_run(char *const *operands, unsigned count);

/* Turn the operands of `run` into the options that they mean; prints the equivalent command on stderr. */
int gslice_read_run(const struct cli_arguments *given, struct cli_arguments *meant, struct error *error);

/* The same for `run-existing`: SESSION PRELOAD FOLDER COMMAND... */
int gslice_read_run_existing(const struct cli_arguments *given, struct cli_arguments *meant,
                             struct error *error);

/* The same for `allocate`, without a message: [BYTES [SECONDS]] */
int gslice_read_allocate(const struct cli_arguments *given, struct cli_arguments *meant, struct error *error);
