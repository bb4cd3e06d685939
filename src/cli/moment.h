/* moment.h - moments in the past as people write them. */
#pragma once

#include <stdint.h>
#include <time.h>

#include "base/error.h"

/* Parse how long before `now` a moment is: a duration (90m, 7d), or local time: 14:30 of today, 2026-01-31, or
 * 2026-01-31T14:30, each with seconds or without. What is longer ago than a year counts as a year. -EINVAL, also for a
 * moment after `now`. `*usec` is above 0. */
int moment_parse(const char *text, time_t now, uint64_t *usec, struct error *error);
