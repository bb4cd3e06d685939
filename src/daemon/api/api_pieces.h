/* api_pieces.h - answers that are as long as somebody made them: written a piece at a time, as the client reads, while
 * others are served in between. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct http_request;

/* What a writer says: that more follows, that this was all, or that it cannot go on. */
enum pieces_next { PIECES_MORE, PIECES_END, PIECES_FAILED };

/* Answer `request`. `write` is called for each piece, which takes less than a millisecond; it may
 * write nothing. `context` is given to free() at the end, or, if the answer cannot be begun, at once. */
void api_reply_pieces(struct http_request *request, unsigned status, const char *type,
                      enum pieces_next (*write)(void *context, FILE *out), void *context);

/* Write a value, which is let go; and an object without its end, and the begin of a list in it. False: out of memory. */
bool api_dump(json_t *json, FILE *out);
bool api_dump_open(json_t *json, const char *list, FILE *out);
