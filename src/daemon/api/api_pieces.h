/* api_pieces.h - answers without a bound on their length: written piece by piece, as the client reads, while the loop
 * serves others in between. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct http_request;

/* What a writer returns: more follows, this was all, or it cannot go on. */
enum pieces_next { PIECES_MORE, PIECES_END, PIECES_FAILED };

/* Answer `request`. `write` is called for each piece; it must take less than a millisecond, and may write nothing.
 * `context` is given to free() at the end, or at once if the answer cannot be started. */
void api_reply_pieces(struct http_request *request, unsigned status, const char *type,
                      enum pieces_next (*write)(void *context, FILE *out), void *context);

/* Write a value; and write an object without its closing brace, followed by the start of a list in it. Both drop
 * `json`. False: out of memory. */
bool api_dump(json_t *json, FILE *out);
bool api_dump_open(json_t *json, const char *list, FILE *out);
