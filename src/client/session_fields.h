/* session_fields.h - the fields of the daemon's answers about sessions, GPUs and processes (docs/api.md). Nothing
 * in an answer is trusted: a field that is missing or of another type is 0 or "". */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

uint64_t session_number(const json_t *object, const char *field);
const char *session_text(const json_t *object, const char *field);

/* Whether what can leave the card of a session has left it: it is away, or partly away, which is the second. */
bool session_is_away(const json_t *session);
bool session_is_partly_away(const json_t *session);

/* How much attention what it does (its `status`) asks for. */
enum session_tone { SESSION_CALM, SESSION_BUSY, SESSION_WAITS, SESSION_BAD };
enum session_tone session_tone(const json_t *session);

/* What of it stays on the card, contexts left out: "320MiB stay (256MiB exported to other processes, 64MiB arrays)"; "" where
 * there is nothing of the kind. */
#define SESSION_STAYS_TEXT 1024
const char *session_stays(const json_t *session, char text[static SESSION_STAYS_TEXT]);

/* Whether its limits allow more memory than host memory can ever take (`host_memory_most_bytes`): beyond that it stays. */
bool session_outgrows_host(const json_t *session);

/* The share of compute that a session was given, in the form of --compute. */
const char *session_share(const json_t *session, char text[static UNITS_SHARE_TEXT]);

/* A time, in seconds in the API, as milliseconds with `digits` digits, never with an exponent: "0.76", "35", "460". */
#define SESSION_MS_TEXT 24
const char *session_ms(const json_t *object, const char *field, int digits,
                       char text[static SESSION_MS_TEXT]);

/* "2026-01-31 12:00:00 UTC" for the API's "2026-01-31T12:00:00Z", with a fraction of the second if it has one. */
#define SESSION_TIME_TEXT 32
const char *session_time(const char *time, char text[static SESSION_TIME_TEXT]);
