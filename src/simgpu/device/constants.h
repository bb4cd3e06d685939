/* constants.h - the rows of constants.def as numbers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "simgpu/device/constant_names.h"

/* The value in this process; valid after device_attach(). */
double constant(enum sim_constant name);
static inline uint64_t constant_whole(enum sim_constant name)
{
    return (uint64_t)constant(name);
}

/* The same, before that too: then this process's environment alone decides. */
double constant_early(enum sim_constant name);

/* Whether no call costs any time in this process, so that nobody need ask more. Written before the device is attached. */
extern bool constants_are_free;

/* For the first process on the machine: the values of scope MACHINE go into `values`, as the environment and the
 * profile of number `profile` (profile.h) have them. -EINVAL for what is not a number. */
int constants_decide(unsigned profile, double values[static SIM_CONSTANTS], struct error *error);

/* For each process that attaches: take over what the first decided, and read what each decides for itself. */
int constants_attach(unsigned profile, const double values[static SIM_CONSTANTS], struct error *error);
