/* stays.h - what of a session's memory stays on the card when the rest leaves, and how people are told. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "wire/wire.h"

/* Room for the longest stays_text(). */
#define STAYS_TEXT 1024

/* The reasons that there are, that with the most bytes first. Returns how many. */
unsigned stays_order(const uint64_t bytes[static WIRE_STAYS_COUNT],
                     enum wire_stays order[static WIRE_STAYS_COUNT]);

/* What a user would have expected to leave: all that stays but contexts, which each program has. */
uint64_t stays_against_wish(const uint64_t bytes[static WIRE_STAYS_COUNT]);

/* What stays against the user's wish, for people, the largest part first (units_format_stays()); "" where nothing does. Returns
 * `text`. */
const char *stays_text(const uint64_t bytes[static WIRE_STAYS_COUNT], char *text, size_t size);
