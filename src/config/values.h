/* values.h - how flags, times and sizes are written in configuration files, options and the values of properties. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define VALUE_SECONDS_MAX INT32_MAX /* the most that requests and stored values may say */

/* Read `text`. On success set the value; otherwise return a negative errno and change nothing.
 * flag     yes or no, true or false, on or off, 1 or 0; -EINVAL
 * seconds  a time of whole seconds like "90s" or "2h", from 1 s to a year; -EINVAL
 * size     a number of bytes, 1 to INT64_MAX, like "4GiB"; -EINVAL, or -ERANGE beyond these bounds */
int value_parse_flag(const char *text, bool *flag, struct error *error);
int value_parse_seconds(const char *text, uint64_t *seconds, struct error *error);
int value_parse_size(const char *text, uint64_t *bytes, struct error *error);
