/* preload.h - make the dynamic loader load the interceptor into the program that this process becomes. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* Set LD_PRELOAD and LD_LIBRARY_PATH for a program in a session, on simulated or real GPUs. */
int preload_set(bool simulated, struct error *error);
