/* The list of all sessions. There may be thousands of them, so it is written a few at a time, as the client
 * reads, and others are served in between. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/api.h"
#include "daemon/http/http.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"

struct listing {
    const struct daemon *daemon;
    uid_t uid;
    char id[SESSION_ID_TEXT]; /* what is written, and its session.number */
    uint64_t at;
    bool as_gslice;
    uint64_t last; /* the number of the newest session as the request came */
    bool is_begun, is_ended;
    char *text; /* what of it waits to be sent; NULL: nothing */
    size_t length, sent;
};

/* The session that was written last may have ended since: then by number, from the first on. */
static const struct session *next_session(const struct listing *listing)
{
    const struct session *session = session_find_id(listing->daemon, listing->id);
    if (!session || session->number != listing->at)
        session = listing->daemon->sessions;
    while (session && (session->number <= listing->at || !session_is_visible(session, listing->uid)))
        session = session->next;
    return session && session->number <= listing->last ? session : NULL;
}

static bool write_next(struct listing *listing)
{
    const struct session *session = next_session(listing);
    const char *before = !listing->is_begun ? "[\n" : session ? ",\n" : "\n]\n";
    json_t *json = !session             ? NULL
                   : listing->as_gslice ? api_gslice_session_json(session)
                                        : api_session_json(session);
    char *body = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(json);
    if (session && !body)
        return false;
    if (!session && !listing->is_begun)
        before = "[]\n";
    size_t before_length = strlen(before), body_length = body ? strlen(body) : 0;
    listing->text = malloc(before_length + body_length + 1);
    if (listing->text) {
        memcpy(listing->text, before, before_length);
        memcpy(listing->text + before_length, body ? body : "", body_length + 1);
    }
    free(body);
    listing->length = before_length + body_length;
    listing->sent = 0;
    listing->is_begun = true;
    listing->is_ended = !session;
    if (session) {
        listing->at = session->number;
        strcpy(listing->id, session->id);
    }
    return listing->text != NULL;
}

static ssize_t on_read(void *context, char *bytes, size_t room)
{
    struct listing *listing = context;
    size_t count = 0;
    while (count < room) {
        if (!listing->text && (listing->is_ended || !write_next(listing)))
            break;
        size_t part = listing->length - listing->sent;
        if (part > room - count)
            part = room - count;
        memcpy(bytes + count, listing->text + listing->sent, part);
        count += part;
        listing->sent += part;
        if (listing->sent < listing->length)
            break;
        free(listing->text);
        listing->text = NULL;
    }
    if (count == 0)
        return listing->is_ended ? HTTP_STREAM_END : HTTP_STREAM_FAILED;
    return (ssize_t)count;
}

static void on_gone(void *context)
{
    struct listing *listing = context;
    free(listing->text);
    free(listing);
}

void api_list_sessions(struct http_request *request, const char *id)
{
    const struct daemon *daemon = request->daemon;
    struct error error;
    struct listing *listing = calloc(1, sizeof(*listing));
    if (!listing) {
        error_set_errno(&error, ENOMEM, "cannot list the sessions");
        http_reply_error(request, &error);
        return;
    }
    *listing = (struct listing){
        .daemon = daemon,
        .uid = request->peer.uid,
        .as_gslice = request->as_gslice,
        .last = daemon->last_session ? daemon->last_session->number : 0,
    };
    http_reply_stream(request, "application/json", on_read, on_gone, listing);
}
