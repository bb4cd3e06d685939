/* scheduler_tunables.h - the numbers that the scheduler goes by (daemon/schedule/tunables.def), as a table or as JSON. */
#pragma once

#include <stdbool.h>

void scheduler_print_tunables(bool as_json);
