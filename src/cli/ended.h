/* ended.h - what people are shown of a session that has ended, as /v1/history/sessions has it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* How long it lasted, in seconds. */
double ended_seconds(const json_t *session);

/* How its program ended: "0", "1", "signal 9"; "-" where nobody knows. Returns `text`. */
#define ENDED_EXIT_TEXT 24
const char *ended_exit(const json_t *session, char text[static ENDED_EXIT_TEXT]);

/* All that it waited, in seconds: in the queue, for room on the card, for turns. */
double ended_waited(const json_t *session);

/* Print it on a page. */
void ended_print(const json_t *session, bool colour);
