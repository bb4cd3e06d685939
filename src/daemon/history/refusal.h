/* refusal.h - what users are told of GPU memory that a session's program asked for and did not get. */
#pragma once

#include <jansson.h>
#include <stdint.h>

struct session;

#define REFUSAL_TEXT 400

/* Who was refused how much, and what was in the way; of all `count` requests that were refused since the last event. Sessions of
 * other users are not named. Returns `text`. */
const char *refusal_text(const struct session *session, uint64_t count, char text[static REFUSAL_TEXT]);

/* The same as fields of the event. NULL without memory. */
json_t *refusal_json(const struct session *session, uint64_t count);
