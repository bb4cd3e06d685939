/* constant_names.h - the names of the rows of constants.def. */
#pragma once

enum sim_constant {
#define SIM_CONSTANT(name, scope, standard, h100, t4, a10, l4, b200, rtx5090, figure, source) SIM_##name,
#include "simgpu/device/constants.def"
#undef SIM_CONSTANT
    SIM_CONSTANTS
};
