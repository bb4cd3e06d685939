/* help.h - the texts of --help. */
#pragma once

#include "cli/cli.h"

void help_print_verb(const struct cli_verb *verb);
void help_print_overview(void);
