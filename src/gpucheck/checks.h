/* checks.h - the functions of checks.def and parts.def. */
#pragma once

#include "gpucheck/check.h"

#define CHECK(name, function, place, deadline, claim) void function(const struct check *check);
#include "gpucheck/checks.def"
#undef CHECK
#define PART(name, function) void function(const char *argument);
#include "gpucheck/parts.def"
#undef PART
