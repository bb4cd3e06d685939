#include "daemon/history/events.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>
#include <time.h>
#include <unistd.h>

#include "base/units.h"
#include "daemon/http/http.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/session.h"

/* A listener whose connection says nothing for long is not seen to have gone. */
#define BEAT_USEC UINT64_C(15000000)
#define MESSAGE_BYTES 512

enum audience { OWNER, ALL };

static const struct {
    const char *name;
    enum audience audience;
    unsigned rate_seconds;
} kinds[EVENT_KINDS] = {
#define EVENT(name, kind, audience, rate) [EVENT_##name] = {kind, audience, rate},
#include "daemon/history/events.def"
#undef EVENT
};

/* How many events are kept of one user's. */
struct holder {
    struct holder *next;
    uid_t uid;
    unsigned count;
};

struct event {
    struct event *next;
    uint64_t number; /* counts all of this daemon's, from 1 */
    struct holder *holder;
    bool is_for_all;
    char text[]; /* as the stream has it */
};

struct listener {
    struct listener *next;
    struct events *events;
    struct http_request *request;
    uid_t uid;
    uint64_t last; /* the number of the newest event it was told */
    bool follows;  /* wants those to come too */
    bool has_beat;
    char *text; /* being told */
    size_t length, sent;
};

struct events {
    struct daemon *daemon;
    struct event *oldest, **end;
    unsigned count;
    uint64_t newest;
    struct holder *holders;
    struct listener *listeners;
    sd_event_source *beat;
    bool has_ended;
};

const char *events_kind_name(enum event_kind kind)
{
    return kinds[kind].name;
}

/* --- Keeping --------------------------------------------------------------------------------------- */

static struct holder *find_holder(struct events *events, uid_t uid)
{
    struct holder *holder = events->holders;
    while (holder && holder->uid != uid)
        holder = holder->next;
    if (holder || !(holder = calloc(1, sizeof(*holder))))
        return holder;
    *holder = (struct holder){.next = events->holders, .uid = uid};
    events->holders = holder;
    return holder;
}

static void drop_holder(struct events *events, struct holder *holder)
{
    struct holder **at = &events->holders;
    while (*at != holder)
        at = &(*at)->next;
    *at = holder->next;
    free(holder);
}

/* The oldest of the user who has most. */
static void drop_one(struct events *events)
{
    const struct holder *most = events->holders;
    for (const struct holder *at = most->next; at; at = at->next)
        if (at->count > most->count)
            most = at;
    struct event **at = &events->oldest;
    while ((*at)->holder != most)
        at = &(*at)->next;
    struct event *event = *at;
    *at = event->next;
    if (events->end == &event->next)
        events->end = at;
    if (--event->holder->count == 0)
        drop_holder(events, event->holder);
    events->count--;
    free(event);
}

static void keep(struct events *events, enum event_kind kind, uid_t owner, const char *json)
{
    size_t bytes = strlen(json) + 64;
    struct holder *holder = find_holder(events, owner);
    struct event *event = holder ? malloc(sizeof(*event) + bytes) : NULL;
    if (!event) {
        if (holder && holder->count == 0)
            drop_holder(events, holder);
        return;
    }
    *event = (struct event){
        .number = ++events->newest, .holder = holder, .is_for_all = kinds[kind].audience == ALL};
    /* The JSON is one line, as the form of the stream wants it. */
    snprintf(event->text, bytes, "id: %" PRIu64 "-%" PRIu64 "\ndata: %s\n\n", events->daemon->epoch,
             event->number, json);
    *events->end = event;
    events->end = &event->next;
    holder->count++;
    if (++events->count > EVENTS_KEPT)
        drop_one(events);
}

/* --- Telling --------------------------------------------------------------------------------------- */

static char *event_json(const struct daemon *daemon, enum event_kind kind, const struct session *session,
                        json_t *details, const char *message)
{
    struct timespec now;
    struct tm parts;
    char when[40], id[48];
    size_t length;
    clock_gettime(CLOCK_REALTIME, &now);
    length = strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &parts));
    snprintf(when + length, sizeof(when) - length, ".%03dZ", (int)(now.tv_nsec / 1000000));
    snprintf(id, sizeof(id), "%" PRIu64 "-%" PRIu64, daemon->epoch, daemon->events->newest + 1);
    json_t *json =
        json_pack("{s:s,s:s,s:s,s:s*,s:s*,s:o*,s:s*}", "id", id, "time", when, "kind", kinds[kind].name,
                  "session_id", session ? session->id : NULL, "name", session ? session->name : NULL,
                  "owner_uid", session ? json_integer((json_int_t)session->owner) : NULL, "message", message);
    if (json && details)
        json_object_update_missing(json, details);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

bool events_tell(struct daemon *daemon, enum event_kind kind, struct session *session, json_t *details,
                 const char *format, ...)
{
    struct events *events = daemon->events;
    char message[MESSAGE_BYTES];
    va_list arguments;
    uint64_t now = daemon_now_usec(), rate = kinds[kind].rate_seconds * UINT64_C(1000000);
    uint64_t *told = session ? &session->told_usec[kind] : NULL;
    bool is_held_back = rate && told && *told && now - *told < rate;
    if (!events || events->has_ended || is_held_back) {
        json_decref(details);
        return false;
    }
    if (told)
        *told = now;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    char *text = event_json(daemon, kind, session, details, message);
    json_decref(details);
    if (text)
        keep(events, kind, session ? session->owner : geteuid(), text);
    free(text);
    for (struct listener *listener = events->listeners; listener; listener = listener->next)
        http_stream_wake(listener->request);
    return true;
}

void events_look_for_refusals(struct session *session)
{
    uint64_t refused = session_refused(session), told = session->refused_told;
    /* A count that has gone down was written by a program: the ledger's are its. */
    if (refused > told &&
        !events_tell(session->daemon, EVENT_MEMORY_DENIED, session,
                     json_pack("{s:I}", "denied_allocations", (json_int_t)(refused - told)),
                     "%" PRIu64
                     " requests for GPU memory were refused; 'gpuslice set' gives the session more",
                     refused - told))
        return;
    session->refused_told = refused;
}

/* --- Listeners ------------------------------------------------------------------------------------- */

static const struct event *next_of(const struct listener *listener)
{
    const struct event *event = listener->events->oldest;
    while (event && (event->number <= listener->last ||
                     !(event->is_for_all || listener->uid == 0 || listener->uid == event->holder->uid)))
        event = event->next;
    return event;
}

static bool take_next(struct listener *listener)
{
    const struct event *event = next_of(listener);
    const char *text = event ? event->text : listener->has_beat ? ":\n\n" : NULL;
    free(listener->text);
    listener->text = text ? strdup(text) : NULL;
    listener->length = listener->text ? strlen(listener->text) : 0;
    listener->sent = 0;
    listener->has_beat = false;
    if (event)
        listener->last = event->number;
    return listener->text;
}

static ssize_t on_read(void *context, char *bytes, size_t room)
{
    struct listener *listener = context;
    if (listener->sent == listener->length && !take_next(listener))
        return listener->follows && !listener->events->has_ended ? 0 : HTTP_STREAM_END;
    size_t count = listener->length - listener->sent;
    if (count > room)
        count = room;
    memcpy(bytes, listener->text + listener->sent, count);
    listener->sent += count;
    return (ssize_t)count;
}

static void on_gone(void *context)
{
    struct listener *listener = context, **at = &listener->events->listeners;
    while (*at != listener)
        at = &(*at)->next;
    *at = listener->next;
    free(listener->text);
    free(listener);
}

/* At its place in the stream: what was told by an earlier daemon says nothing of ours. */
static int parse_last_id(const struct events *events, const char *text, uint64_t *last, struct error *error)
{
    uint64_t epoch, number;
    char behind;
    if (sscanf(text, "%" SCNu64 "-%" SCNu64 "%c", &epoch, &number, &behind) != 2)
        return error_set(error, EINVAL, "ERR_BAD_REQUEST",
                         "Last-Event-ID is '%.40s'; expected an event's id, like 3-17", text);
    *last = epoch == events->daemon->epoch ? number : 0;
    return 0;
}

static unsigned count_listeners(const struct events *events, uid_t uid)
{
    unsigned count = 0;
    for (const struct listener *at = events->listeners; at; at = at->next)
        count += at->uid == uid;
    return count;
}

void events_answer(struct http_request *request, const char *id)
{
    struct events *events = request->daemon->events;
    const char *last_id = http_header(request, "Last-Event-ID"), *follow = http_argument(request, "follow");
    struct error error;
    uint64_t last = 0;
    int result = last_id ? parse_last_id(events, last_id, &last, &error) : 0;
    if (result == 0 && follow && strcmp(follow, "true") != 0 && strcmp(follow, "false") != 0)
        result =
            error_set(&error, EINVAL, "ERR_BAD_REQUEST", "follow is '%.40s'; expected true or false", follow);
    if (result == 0 && count_listeners(events, request->peer.uid) >= EVENTS_LISTENERS_MAX)
        result = error_set(&error, EBUSY, "ERR_TOO_MANY",
                           "uid %u listens to events %u times already; end one of them",
                           (unsigned)request->peer.uid, EVENTS_LISTENERS_MAX);
    struct listener *listener = result == 0 ? calloc(1, sizeof(*listener)) : NULL;
    if (result == 0 && !listener)
        result = error_set_errno(&error, ENOMEM, "cannot tell of events");
    if (result < 0) {
        http_reply_error(request, &error);
        return;
    }
    *listener = (struct listener){
        .next = events->listeners,
        .events = events,
        .request = request,
        .uid = request->peer.uid,
        .last = last,
        .follows = !follow || strcmp(follow, "true") == 0,
    };
    events->listeners = listener;
    http_reply_stream(request, "text/event-stream", on_read, on_gone, listener);
}

/* --- Start and end --------------------------------------------------------------------------------- */

static int on_beat(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct events *events = userdata;
    for (struct listener *listener = events->listeners; listener; listener = listener->next) {
        listener->has_beat = true;
        http_stream_wake(listener->request);
    }
    sd_event_source_set_time(source, usec + BEAT_USEC);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

int events_start(struct daemon *daemon, struct error *error)
{
    struct events *events = calloc(1, sizeof(*events));
    if (!events)
        return error_set_errno(error, ENOMEM, "cannot tell of events");
    events->daemon = daemon;
    events->end = &events->oldest;
    int result = sd_event_add_time_relative(daemon->loop, &events->beat, CLOCK_MONOTONIC, BEAT_USEC, 0,
                                            on_beat, events);
    if (result < 0) {
        free(events);
        return error_set_errno(error, -result, "cannot tell of events");
    }
    daemon->events = events;
    return 0;
}

void events_stop(struct daemon *daemon)
{
    if (!daemon->events)
        return;
    daemon->events->has_ended = true;
    for (struct listener *listener = daemon->events->listeners; listener; listener = listener->next)
        http_stream_wake(listener->request);
}

void events_free(struct daemon *daemon)
{
    struct events *events = daemon->events;
    if (!events)
        return;
    sd_event_source_disable_unref(events->beat);
    while (events->count)
        drop_one(events);
    free(events);
    daemon->events = NULL;
}
