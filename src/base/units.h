/* units.h - bytes as people write them. Allocates nothing, and uses no function newer than glibc 2.17. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Parse `4GiB`, `512M`, `1.5g`, `1048576`: a decimal number, optionally with a fraction, and a unit among
 * (none or B), K, M, G, T, P with optional `i` and `B`, in any case; all are powers of 1024. No sign, no
 * exponent, no blanks. 0 is accepted here; callers that need more say so. -EINVAL, or -ERANGE beyond 64 bits. */
int units_parse_bytes(const char *text, uint64_t *bytes, struct error *error);

/* Parse a plain decimal number of up to `max`. -EINVAL or -ERANGE. */
int units_parse_number(const char *text, uint64_t max, uint64_t *number, struct error *error);

/* Write `bytes` for people, in the largest unit that keeps it at 1 or more: "4GiB", "1.5GiB", "512MiB", "17B".
 * At most one decimal, rounded down. Returns `buffer`. */
#define UNITS_BYTES_TEXT 40
const char *units_format_bytes(uint64_t bytes, char buffer[static UNITS_BYTES_TEXT]);
