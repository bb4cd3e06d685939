/* undrainable.h - ends the programs of sessions whose work on the GPU does not drain, where gpuslice.conf says so.
 *
 * Nothing takes a kernel that never ends off a GPU but the end of its program. Until then it runs beside the others' turns,
 * whatever the session's maximum is. */
#pragma once

#include "base/error.h"

struct daemon;

int undrainable_start(struct daemon *daemon, struct error *error);
void undrainable_stop(struct daemon *daemon);
