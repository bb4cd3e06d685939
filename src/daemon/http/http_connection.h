/* http_connection.h - what answers need of the connection they go out on; for http.c and http_answer.c. */
#pragma once

#include <stdbool.h>

#include "daemon/http/http.h"

/* Whether the daemon ends. Then no connection may be suspended any more: libmicrohttpd aborts where it is stopped with one. */
bool http_is_stopping(const struct http_request *request);
/* libmicrohttpd leaves the connection alone until it is resumed. */
void http_suspend(struct http_request *request);
/* Nothing if it is not suspended. */
void http_resume(struct http_request *request);

/* Suspended until the request's user is next (http_turns.h). */
void http_wait_for_turn(struct http_request *request);
/* Whether the loop has been with libmicrohttpd for so long that others should come first. */
bool http_has_run_long(const struct http_request *request);

/* The body that tells an error, to be freed. NULL without memory. */
char *http_error_text(const struct error *error);
