/* constants.h - constants.def as numbers: SIM_CONTEXT_BYTES and so on. */
#pragma once

#define SIM_SOURCE(text)
#define SIM_CONSTANT(name, value, check, figure) static const double SIM_##name = value;
#include "simgpu/device/constants.def"
#undef SIM_SOURCE
#undef SIM_CONSTANT
