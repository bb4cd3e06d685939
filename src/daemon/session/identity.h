/* identity.h - IDs, names and secrets of sessions, and times as the API writes them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SESSION_ID_DIGITS 12
#define SESSION_ID_TEXT (SESSION_ID_DIGITS + 1)
#define SESSION_NAME_TEXT 64
#define SESSION_TOKEN_TEXT 65
#define SESSION_KEY_TEXT 33
#define TIME_TEXT 24

/* `digits` random hex digits from the kernel, and a terminating zero. */
void identity_random_hex(char *text, size_t digits);

bool identity_is_id(const char *text);    /* 12 lower-case hex digits */
bool identity_is_token(const char *text); /* 64 lower-case hex digits */
bool identity_is_key(const char *text);   /* 32 lower-case hex digits */
bool identity_is_valid(const char *name); /* [A-Za-z0-9._-]{1,63} */
/* Valid, and without a special meaning in a path or on a command line: not "." or "..", and no "-" at its start. */
bool identity_may_be_given(const char *name);

/* Compare secrets; how long it takes depends on the length of `given` alone. */
bool identity_token_matches(const char *expected, const char *given);

/* "2026-01-31T12:00:00Z" from seconds since 1970. Returns `text`. */
const char *identity_format_time(int64_t seconds, char text[static TIME_TEXT]);
