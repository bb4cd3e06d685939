/* gslice.h - the forms of gslice's command line, for its users' scripts. */
#pragma once

#include <stdbool.h>

#include "cli/cli.h"

/* Whether the operands of `run` are gslice's: BYTES SECONDS PRELOAD LIBRARY-FOLDER COMMAND... */
bool gslice_is_run(char *const *operands, unsigned count);

/* What the operands of `run` mean, as if they had been said in options; what would be said is written on stderr. */
int gslice_read_run(const struct cli_arguments *given, struct cli_arguments *meant, struct error *error);

/* The same of `run-existing`: SESSION PRELOAD FOLDER COMMAND... */
int gslice_read_run_existing(const struct cli_arguments *given, struct cli_arguments *meant,
                             struct error *error);

/* The same of `allocate`: [BYTES [SECONDS]] */
int gslice_read_allocate(const struct cli_arguments *given, struct cli_arguments *meant, struct error *error);
