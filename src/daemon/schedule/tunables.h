/* tunables.h - the scheduler's numbers, from tunables.def. */
#pragma once

#include <stdint.h>

#include "wire/wire.h"

#define TUNABLE(type, name, value, unit, source, text) static const type name = value;
#include "daemon/schedule/tunables.def"
#undef TUNABLE
