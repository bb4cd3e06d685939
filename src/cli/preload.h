/* preload.h - what the dynamic loader needs to put the interceptor into the programs that this one becomes. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* Set LD_PRELOAD and LD_LIBRARY_PATH for a program in a session: of simulated GPUs, or of real ones. */
int preload_set(bool simulated, struct error *error);
