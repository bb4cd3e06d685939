/* http_connection.h - what answers need of the connection they are sent on; for http.c and http_answer.c. */
#pragma once

#include <stdbool.h>

#include "daemon/http/http.h"

/* Have libmicrohttpd leave the connection alone until it is resumed. */
void http_suspend(struct http_request *request);
/* Nothing if the connection is not suspended. */
void http_resume(struct http_request *request);

/* Suspend the connection until the request has its turn (http_turns.h). */
void http_wait_for_turn(struct http_request *request);
/* Whether the loop has been inside libmicrohttpd for so long that others should come first. */
bool http_has_run_long(const struct http_request *request);

/* The body that reports an error; the caller frees it. NULL without memory. */
char *http_error_text(const struct error *error);
