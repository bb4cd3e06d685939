/* GET /v1/events: what has happened, and then what happens. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <systemd/sd-event.h>
#include <time.h>

#include "base/units.h"
#include "daemon/api/api.h"
#include "daemon/history/events.h"
#include "daemon/history/past_questions.h"
#include "daemon/http/http.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"

/* Send something to a follower this often: on a silent connection we would not see that it has gone. */
#define BEAT_USEC UINT64_C(15000000)
/* How many followers one user may have at a time; all users share 512 connections. */
#define FOLLOWERS_MAX 32

/* How many events of earlier daemons are read at a time. */
#define PAST_EVENTS 500

/* A client that follows events. What it is too slow to take is not kept for it. One that asked for what happened since some time
 * is sent what the history's file has, a part at a time, and then what this daemon has seen beyond that. */
struct follower {
    LIST_ENTRY(follower) next;
    struct followers *followers;
    struct http_request *request;
    uid_t uid;
    uint64_t last;   /* the number of this daemon's last event that was sent to it */
    int64_t from_ms; /* what happened before is not sent; since 1970 */
    bool follows;    /* it wants new events too */
    bool has_beat;
    /* Of what the file has: */
    struct history_events_ask past;
    bool reads_past; /* there may be more of it */
    bool is_asking;  /* the file is being read */
    bool has_gone;   /* meanwhile; freed with the answer */
    char *text;      /* the event that is being sent */
    size_t length, sent;
};

struct followers {
    struct daemon *daemon;
    struct observer observer;
    LIST_HEAD(, follower) list;
    sd_event_source *beat;
    bool has_ended;
};

/* --- One follower ---------------------------------------------------------------------------------- */

static void send_next(struct follower *follower, char *text)
{
    free(follower->text);
    follower->text = text;
    follower->length = text ? strlen(text) : 0;
    follower->sent = 0;
}

static void on_past(void *argument, const struct past_events *events, const struct error *error)
{
    struct follower *follower = argument;
    follower->is_asking = false;
    if (follower->has_gone) {
        free(follower);
        return;
    }
    follower->reads_past = error->status == 0 && events->may_be_more;
    follower->past.epoch = events->epoch;
    follower->past.number = events->number;
    if (events->epoch == follower->followers->daemon->epoch)
        follower->last = events->number;
    send_next(follower, *events->text ? strdup(events->text) : NULL);
    http_stream_wake(follower->request);
}

/* Whether the file is being read for it. */
static bool ask_past(struct follower *follower)
{
    if (follower->reads_past && !follower->is_asking)
        follower->is_asking = follower->reads_past =
            past_ask_events(follower->followers->daemon, &follower->past, on_past, follower, NULL) == 0;
    return follower->is_asking;
}

static bool take_next(struct follower *follower)
{
    const char *text =
        events_next(follower->followers->daemon, follower->uid, follower->from_ms, &follower->last);
    if (!text && follower->has_beat)
        text = ":\n\n";
    send_next(follower, text ? strdup(text) : NULL);
    follower->has_beat = false;
    return follower->text;
}

static ssize_t on_read(void *context, char *bytes, size_t room)
{
    struct follower *follower = context;
    bool is_over = follower->sent == follower->length;
    if (is_over && !follower->followers->has_ended && ask_past(follower))
        return 0;
    if (is_over && !take_next(follower))
        return follower->follows && !follower->followers->has_ended ? 0 : HTTP_STREAM_END;
    size_t count = follower->length - follower->sent;
    if (count > room)
        count = room;
    memcpy(bytes, follower->text + follower->sent, count);
    follower->sent += count;
    return (ssize_t)count;
}

static void on_gone(void *context)
{
    struct follower *follower = context;
    LIST_REMOVE(follower, next);
    send_next(follower, NULL);
    follower->has_gone = true;
    if (!follower->is_asking)
        free(follower);
}

/* --- The request ----------------------------------------------------------------------------------- */

/* Go on after that event; an earlier daemon's numbers mean nothing here, so after one of those, from the start. */
static int parse_last_id(const struct daemon *daemon, const char *text, uint64_t *last, struct error *error)
{
    uint64_t epoch, number;
    char behind;
    if (sscanf(text, "%" SCNu64 "-%" SCNu64 "%c", &epoch, &number, &behind) != 2)
        return error_set(error, EINVAL, "ERR_BAD_REQUEST",
                         "Last-Event-ID is '%.40s'; expected an event's id, like 3-17", text);
    *last = epoch == daemon->epoch ? number : 0;
    return 0;
}

/* `since` is a duration. */
static int parse_since(const char *text, int64_t *from_ms, struct error *error)
{
    uint64_t usec;
    struct error cause;
    if (units_parse_duration(text, &usec, &cause) < 0)
        return error_set(error, EINVAL, "ERR_BAD_REQUEST", "'since': %s", cause.message);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *from_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 - (int64_t)(usec / 1000);
    return 0;
}

static unsigned count_followers(const struct followers *followers, uid_t uid)
{
    unsigned count = 0;
    const struct follower *at;
    LIST_FOREACH (at, &followers->list, next)
        count += at->uid == uid;
    return count;
}

void api_follow_events(struct http_request *request, const char *id)
{
    struct followers *followers = request->daemon->followers;
    const char *last_id = http_header(request, "Last-Event-ID"), *follow = http_argument(request, "follow"),
               *since = http_argument(request, "since");
    struct error error;
    uint64_t last = 0;
    int64_t from_ms = INT64_MIN;
    int result = last_id ? parse_last_id(request->daemon, last_id, &last, &error) : 0;
    if (result == 0 && since)
        result = parse_since(since, &from_ms, &error);
    if (result == 0 && follow && strcmp(follow, "true") != 0 && strcmp(follow, "false") != 0)
        result =
            error_set(&error, EINVAL, "ERR_BAD_REQUEST", "follow is '%.40s'; expected true or false", follow);
    if (result == 0 && count_followers(followers, request->peer.uid) >= FOLLOWERS_MAX)
        result = error_set(&error, EBUSY, "ERR_TOO_MANY",
                           "uid %u has %u connections for events already; end one of them",
                           (unsigned)request->peer.uid, FOLLOWERS_MAX);
    struct follower *follower = result == 0 ? calloc(1, sizeof(*follower)) : NULL;
    if (result == 0 && !follower)
        result = error_set_errno(&error, ENOMEM, "cannot send events");
    if (result < 0) {
        http_reply_error(request, &error);
        return;
    }
    *follower = (struct follower){
        .followers = followers,
        .request = request,
        .uid = request->peer.uid,
        .last = last,
        .from_ms = from_ms,
        .past = {.uid = request->peer.uid, .from_ms = from_ms, .most = PAST_EVENTS},
        .reads_past = since && !last,
        .follows = !follow || strcmp(follow, "true") == 0,
    };
    LIST_INSERT_HEAD(&followers->list, follower, next);
    http_reply_stream(request, 200, "text/event-stream", on_read, on_gone, follower);
}

/* --- Start and end --------------------------------------------------------------------------------- */

static void wake_all(struct followers *followers)
{
    struct follower *follower;
    LIST_FOREACH (follower, &followers->list, next)
        http_stream_wake(follower->request);
}

/* Followers read in the loop's next round: by then history has kept the change as an event. */
static void on_change(void *context, const struct change *change)
{
    if (change_event(change->kind) || change->kind == CHANGE_GPUS_SAMPLED)
        wake_all(context);
}

static int on_beat(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct followers *followers = userdata;
    struct follower *follower;
    LIST_FOREACH (follower, &followers->list, next)
        follower->has_beat = true;
    wake_all(followers);
    sd_event_source_set_time(source, usec + BEAT_USEC);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

int api_follow_start(struct daemon *daemon, struct error *error)
{
    struct followers *followers = calloc(1, sizeof(*followers));
    if (!followers)
        return error_set_errno(error, ENOMEM, "cannot send events");
    int result = sd_event_add_time_relative(daemon->loop, &followers->beat, CLOCK_MONOTONIC, BEAT_USEC, 0,
                                            on_beat, followers);
    if (result < 0) {
        free(followers);
        return error_set_errno(error, -result, "cannot send events");
    }
    followers->daemon = daemon;
    followers->observer = (struct observer){.take = on_change, .context = followers};
    change_observe(daemon, &followers->observer);
    daemon->followers = followers;
    return 0;
}

void api_follow_stop(struct daemon *daemon)
{
    if (!daemon->followers)
        return;
    daemon->followers->has_ended = true;
    wake_all(daemon->followers);
}

void api_follow_free(struct daemon *daemon)
{
    if (!daemon->followers)
        return;
    change_observe_no_more(daemon, &daemon->followers->observer);
    sd_event_source_disable_unref(daemon->followers->beat);
    free(daemon->followers);
    daemon->followers = NULL;
}
