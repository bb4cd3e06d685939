/* units.h - bytes, shares and durations as people write them. Allocates nothing, and uses no function newer than
 * glibc 2.17. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Parse `4GiB`, `512M`, `1.5g`, `17B`: a decimal number, which may have a fraction, and a unit: B, or one of K, M, G, T,
 * P, optionally with `i` and `B`, in any case. All units are powers of 1024. No sign, no exponent, no blanks. Without a
 * unit, 0 and numbers from 1 MiB on are bytes; less is refused, with what was likely meant. 0 is accepted; callers that
 * need more check for it. -EINVAL, or -ERANGE beyond 64 bits. */
int units_parse_bytes(const char *text, uint64_t *bytes, struct error *error);
/* The same for what programs write, like variables of the environment: any number without a unit is bytes. */
int units_parse_bare_bytes(const char *text, uint64_t *bytes, struct error *error);

/* Parse a plain decimal number of at most `max`. -EINVAL or -ERANGE. */
int units_parse_number(const char *text, uint64_t max, uint64_t *number, struct error *error);

/* A share of a GPU's time, in ten-thousandths: the session keeps `min` while others want the GPU too, and never
 * gets more than `max`. 0 <= min <= max, 0 < max <= SHARE_WHOLE. */
#define SHARE_WHOLE 10000u
struct share {
    uint32_t min, max;
};
#define SHARE_ANY ((struct share){0, SHARE_WHOLE}) /* no promise and no cap */

/* Parse `25%` (the same as 25%..25%) or `20%..60%`: percentages with up to two decimals. The sign may be left out
 * of 0 and of numbers from 1 on, which can only be percentages. -EINVAL, or -ERANGE unless 0 <= min <= max <= 100 %
 * and max is above 0. */
int units_parse_share(const char *text, struct share *share, struct error *error);

/* Write a share as units_parse_share() reads it: "25%", "20%..60%", "12.5%", "0%..100%". Returns `buffer`. */
#define UNITS_SHARE_TEXT 24
const char *units_format_share(struct share share, char buffer[static UNITS_SHARE_TEXT]);

/* Parse `500ms`, `30s`, `5m`, `2h`, `7d`: a whole number above 0 with its unit, at most a year. -EINVAL. */
int units_parse_duration(const char *text, uint64_t *usec, struct error *error);

/* Parse the length of turns on a GPU: a duration of 1 ms to 1 h, or `auto`, which is 0. -EINVAL. Lengths up to
 * UNITS_TIME_TURN_MOST_USEC are for turns of the GPU's time, lengths from there on for turns of its memory. */
#define UNITS_QUANTUM_LEAST_USEC UINT64_C(1000)
#define UNITS_TIME_TURN_MOST_USEC UINT64_C(1000000)
#define UNITS_QUANTUM_MOST_USEC UINT64_C(3600000000)
int units_parse_quantum(const char *text, uint64_t *usec, struct error *error);

/* Write `bytes` for people, in the largest unit in which it is 1 or more: "4GiB", "1.5GiB", "512MiB", "17B". At
 * most one decimal, rounded down. Returns `buffer`. */
#define UNITS_BYTES_TEXT 40
const char *units_format_bytes(uint64_t bytes, char buffer[static UNITS_BYTES_TEXT]);

/* One of several sizes that make up a sum, and what it is. */
struct units_part {
    uint64_t bytes;
    const char *text;
};

/* Write what stays of something, for people, in the order of the parts: "64MiB stay (arrays)", "320MiB stay (256MiB exported, 64MiB
 * arrays)"; "" without any part. Cut at `size`. Returns `text`. */
const char *units_format_stays(const struct units_part *parts, unsigned count, char *text, size_t size);
