/* priority.h - which session goes first when several wait for a GPU. */
#pragma once

#include <stdbool.h>

/* Lowest first. The state file stores these numbers. */
enum session_priority { PRIORITY_LOW, PRIORITY_NORMAL, PRIORITY_HIGH, PRIORITY_CRITICAL, PRIORITY_COUNT };

/* By value; ends with NULL. */
extern const char *const session_priority_words[PRIORITY_COUNT + 1];

/* "low", "normal", "high", "critical"; false when `text` is none of them. */
bool session_priority_parse(const char *text, enum session_priority *priority);
const char *session_priority_name(enum session_priority priority);
