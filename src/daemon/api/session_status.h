/* session_status.h - what a session does at the moment, in one word for all who show sessions (statuses.def). */
#pragma once

struct session;

enum session_status {
#define STATUS(name, word, tone, text) STATUS_##name,
#include "daemon/api/statuses.def"
#undef STATUS
};

/* The first row that holds, from the session's life over its memory to its programs. */
enum session_status session_status(const struct session *session);

/* The row's columns: "needs room", "waits", and a sentence without its end. */
const char *session_status_word(enum session_status status);
const char *session_status_tone(enum session_status status);
const char *session_status_text(enum session_status status);
