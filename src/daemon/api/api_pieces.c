#include "daemon/api/api_pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "daemon/http/http.h"

#define DUMP_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(12))

struct pieces {
    const struct http_request *request;
    enum pieces_next (*write)(void *context, FILE *out);
    void *context;
    enum pieces_next next;
    char *text; /* the piece that is being sent; NULL: none */
    size_t length, sent;
};

static bool write_piece(struct pieces *pieces)
{
    FILE *out = open_memstream(&pieces->text, &pieces->length);
    if (!out)
        return false;
    pieces->next = pieces->write(pieces->context, out);
    pieces->sent = 0;
    return fclose(out) == 0 && pieces->next != PIECES_FAILED;
}

/* Copy what is left of the piece, as far as there is room. */
static size_t take_bytes(struct pieces *pieces, char *bytes, size_t room)
{
    size_t count = pieces->length - pieces->sent;
    if (count > room)
        count = room;
    memcpy(bytes, pieces->text + pieces->sent, count);
    pieces->sent += count;
    if (pieces->sent == pieces->length) {
        free(pieces->text);
        pieces->text = NULL;
    }
    return count;
}

static ssize_t on_read(void *context, char *bytes, size_t room)
{
    struct pieces *pieces = context;
    size_t count = 0;
    while (count == 0) {
        if (!pieces->text && pieces->next == PIECES_END)
            return HTTP_STREAM_END;
        /* What the rest of the answer would be about has gone when the daemon ends. */
        if (!pieces->text && (http_is_stopping(pieces->request) || !write_piece(pieces)))
            return HTTP_STREAM_FAILED;
        count = take_bytes(pieces, bytes, room);
    }
    return (ssize_t)count;
}

static void on_gone(void *context)
{
    struct pieces *pieces = context;
    free(pieces->text);
    free(pieces->context);
    free(pieces);
}

void api_reply_pieces(struct http_request *request, unsigned status, const char *type,
                      enum pieces_next (*write)(void *context, FILE *out), void *context)
{
    struct error error;
    struct pieces *pieces = context ? calloc(1, sizeof(*pieces)) : NULL;
    if (!pieces) {
        free(context);
        error_set_errno(&error, ENOMEM, "cannot answer");
        http_reply_error(request, &error);
        return;
    }
    *pieces = (struct pieces){.request = request, .write = write, .context = context, .next = PIECES_MORE};
    http_reply_stream(request, status, type, on_read, on_gone, pieces);
}

bool api_dump(json_t *json, FILE *out)
{
    bool is_dumped = json && json_dumpf(json, out, DUMP_FLAGS) == 0;
    json_decref(json);
    return is_dumped;
}

bool api_dump_open(json_t *json, const char *list, FILE *out)
{
    char *text = json ? json_dumps(json, DUMP_FLAGS) : NULL;
    json_decref(json);
    if (text)
        fprintf(out, "%.*s,\"%s\":[", (int)strlen(text) - 1, text, list);
    free(text);
    return text;
}
