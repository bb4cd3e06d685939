#include "daemon/http/http_connection.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/http/pages.h"
#include "daemon/loop/log.h"

#define STREAM_BLOCK_BYTES 16384 /* so that a browser can take a long list in pieces without effort */

unsigned http_status_of(const char *code)
{
    static const struct {
        const char *code;
        unsigned status;
    } codes[] = {
        {"ERR_BAD_REQUEST", 400},        {"ERR_UNAUTHORIZED", 401},   {"ERR_FORBIDDEN", 403},
        {"ERR_SESSION_NOT_FOUND", 404},  {"ERR_GPU_NOT_FOUND", 404},  {"ERR_NOT_FOUND", 404},
        {"ERR_METHOD_NOT_ALLOWED", 405}, {"ERR_AMBIGUOUS", 409},      {"ERR_NAME_TAKEN", 409},
        {"ERR_SESSION_BUSY", 409},       {"ERR_SESSION_QUEUED", 409}, {"ERR_SESSION_EXPIRED", 409},
        {"ERR_ADMISSION", 409},          {"ERR_CEILING", 403},        {"ERR_DECLARED", 409},
        {"ERR_TOO_LARGE", 413},          {"ERR_TOO_MANY", 429},       {"ERR_NOT_MOVABLE", 409},
        {"ERR_HOST_MEMORY", 409},
    };
    for (size_t i = 0; code && i < sizeof(codes) / sizeof(codes[0]); i++)
        if (strcmp(codes[i].code, code) == 0)
            return codes[i].status;
    return 500;
}

static void reply(struct http_request *request, unsigned status, const char *type, char *text)
{
    request->response = MHD_create_response_from_buffer(
        text ? strlen(text) : 0, text, text ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    request->status = status;
    if (text)
        MHD_add_response_header(request->response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    http_resume(request);
}

/* Takes over `json`. */
static char *json_text(json_t *json)
{
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    json_decref(json);
    char *line = text ? realloc(text, strlen(text) + 2) : NULL;
    return line ? strcat(line, "\n") : text;
}

static json_t *error_json(const struct error *error)
{
    return json_pack("{s:{s:s,s:s}}", "error", "code", error->code ? error->code : "ERR_INTERNAL", "message",
                     error->message);
}

char *http_error_text(const struct error *error)
{
    return json_text(error_json(error));
}

void http_reply_json(struct http_request *request, unsigned status, json_t *json)
{
    reply(request, status, "application/json", json ? json_text(json) : NULL);
}

void http_reply_text(struct http_request *request, unsigned status, const char *type, const char *text)
{
    reply(request, status, type, strdup(text));
}

/* Suspend the connection while there is nothing to send, and until its turn when this call of libmicrohttpd has run
 * long. */
static ssize_t on_stream(void *context, uint64_t position, char *bytes, size_t room)
{
    struct http_request *request = context;
    if (http_has_run_long(request)) {
        http_wait_for_turn(request);
        return 0;
    }
    ssize_t count = request->stream_read(request->stream_context, bytes, room);
    if (count == HTTP_STREAM_END)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (count == HTTP_STREAM_FAILED || (count == 0 && http_is_stopping(request)))
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (count == 0)
        http_suspend(request);
    return count;
}

void http_reply_stream(struct http_request *request, unsigned status, const char *type,
                       ssize_t (*read)(void *context, char *bytes, size_t room), void (*gone)(void *context),
                       void *context)
{
    request->stream_read = read;
    request->stream_gone = gone;
    request->stream_context = context;
    /* Answer HEAD without a stream: libmicrohttpd would send the body's last chunk after the header. */
    request->response = strcmp(request->method, "HEAD") == 0
                            ? MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT)
                            : MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES,
                                                                on_stream, request, NULL);
    request->status = status;
    MHD_add_response_header(request->response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(request->response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    http_resume(request);
}

void http_reply_page(struct http_request *request, const struct page *page)
{
    static const char *const headers[][2] = {
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
         "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache"},
    };
    const char *known = http_header(request, MHD_HTTP_HEADER_IF_NONE_MATCH);
    bool is_known = known && strcmp(known, page->tag) == 0;
    request->response = MHD_create_response_from_buffer(is_known ? 0 : page->length, (void *)page->bytes,
                                                        MHD_RESPMEM_PERSISTENT);
    request->status = is_known ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK;
    MHD_add_response_header(request->response, MHD_HTTP_HEADER_CONTENT_TYPE, page->type);
    MHD_add_response_header(request->response, MHD_HTTP_HEADER_ETAG, page->tag);
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
        MHD_add_response_header(request->response, headers[i][0], headers[i][1]);
    http_resume(request);
}

void http_stream_wake(struct http_request *request)
{
    http_resume(request);
}

void http_reply_error(struct http_request *request, const struct error *error)
{
    unsigned status = http_status_of(error->code);
    if (status == 500)
        log_error("%s", error->message);
    http_reply_json(request, status, error_json(error));
}

/* --- Questions about a request --------------------------------------------------------------------- */

const char *http_argument(const struct http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *http_header(const struct http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

const char *http_bearer_token(const struct http_request *request)
{
    static const char scheme[] = "Bearer ";
    const char *value = http_header(request, MHD_HTTP_HEADER_AUTHORIZATION);
    return value && strncasecmp(value, scheme, strlen(scheme)) == 0 ? value + strlen(scheme) : NULL;
}
