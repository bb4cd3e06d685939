#include "daemon/history/events.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/units.h"
#include "daemon/gpu/card.h"
#include "daemon/history/past.h"
#include "daemon/history/refusal.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/process.h"
#include "daemon/session/queue.h"
#include "daemon/session/session.h"
#include "daemon/session/session_show.h"

enum audience { OWNER, USER, ALL };

static const struct {
    enum audience audience;
    unsigned rate_seconds;
} kinds[CHANGE_KINDS] = {
#define CHANGE(name, event, audience, rate) [CHANGE_##name] = {audience, rate},
#include "daemon/loop/changes.def"
#undef CHANGE
};

/* How many events of one user are kept. */
struct holder {
    LIST_ENTRY(holder) next;
    uid_t uid;
    unsigned count;
};

struct event {
    STAILQ_ENTRY(event) next;
    uint64_t number; /* counts this daemon's events, from 1 */
    int64_t at_ms;   /* since 1970 */
    struct holder *holder;
    bool is_for_all;
    char text[]; /* as the stream sends it */
};

struct events {
    struct daemon *daemon;
    struct observer observer;
    STAILQ_HEAD(, event) kept; /* oldest first */
    unsigned count;
    uint64_t newest;
    LIST_HEAD(, holder) holders;
};

/* --- What must hold -------------------------------------------------------------------------------- */

static bool holders_are_valid(const struct events *events)
{
    unsigned sum = 0;
    const struct holder *holder;
    LIST_FOREACH (holder, &events->holders, next) {
        if (holder->count == 0)
            return false;
        sum += holder->count;
    }
    return sum == events->count;
}

bool events_are_valid(const struct events *events)
{
    unsigned count = 0;
    uint64_t last = 0;
    const struct event *event;
    STAILQ_FOREACH (event, &events->kept, next) {
        if (event->number <= last || !event->holder)
            return false;
        last = event->number;
        count++;
    }
    return count == events->count && count <= EVENTS_KEPT && last <= events->newest &&
           holders_are_valid(events);
}

/* --- Keeping --------------------------------------------------------------------------------------- */

static struct holder *find_holder(struct events *events, uid_t uid)
{
    struct holder *holder;
    LIST_FOREACH (holder, &events->holders, next)
        if (holder->uid == uid)
            return holder;
    holder = calloc(1, sizeof(*holder));
    if (!holder)
        return NULL;
    holder->uid = uid;
    LIST_INSERT_HEAD(&events->holders, holder, next);
    return holder;
}

static void drop_holder(struct holder *holder)
{
    LIST_REMOVE(holder, next);
    free(holder);
}

/* Drop the oldest event of the user who has the most. */
static void drop_one(struct events *events)
{
    const struct holder *most = LIST_FIRST(&events->holders), *at;
    LIST_FOREACH (at, &events->holders, next)
        if (at->count > most->count)
            most = at;
    struct event *event = STAILQ_FIRST(&events->kept);
    while (event->holder != most)
        event = STAILQ_NEXT(event, next);
    GS_CHECK(events->count > 0 && event->holder->count > 0);
    STAILQ_REMOVE(&events->kept, event, event, next);
    if (--event->holder->count == 0)
        drop_holder(event->holder);
    events->count--;
    free(event);
}

/* Have the history's file keep it too. */
static void keep_for_later(struct events *events, const struct event *event, const char *json)
{
    struct history_record *record = malloc(sizeof(*record) + strlen(json) + 1);
    if (!record)
        return;
    *record = (struct history_record){.kind = RECORD_EVENT,
                                      .epoch = events->daemon->epoch,
                                      .number = event->number,
                                      .at_ms = event->at_ms,
                                      .owner = event->holder->uid,
                                      .is_for_all = event->is_for_all};
    strcpy(record->text, json);
    past_keep(events->daemon, record);
}

static void keep(struct events *events, enum change_kind kind, uid_t owner, int64_t at_ms, const char *json)
{
    size_t bytes = strlen(json) + 64;
    struct holder *holder = find_holder(events, owner);
    struct event *event = holder ? malloc(sizeof(*event) + bytes) : NULL;
    if (!event) {
        if (holder && holder->count == 0)
            drop_holder(holder);
        return;
    }
    *event = (struct event){.number = ++events->newest,
                            .at_ms = at_ms,
                            .holder = holder,
                            .is_for_all = kinds[kind].audience == ALL};
    /* The JSON is one line, as the stream's format demands. */
    snprintf(event->text, bytes, "id: %" PRIu64 "-%" PRIu64 "\ndata: %s\n\n", events->daemon->epoch,
             event->number, json);
    STAILQ_INSERT_TAIL(&events->kept, event, next);
    holder->count++;
    keep_for_later(events, event, json);
    if (++events->count > EVENTS_KEPT)
        drop_one(events);
    GS_CHECK(events_are_valid(events));
}

/* --- From changes to events ------------------------------------------------------------------------ */

json_t *requester_json(const struct requester *asker)
{
    return json_pack("{s:I,s:o,s:o}", "uid", (json_int_t)asker->uid, "pid",
                     asker->pid ? json_integer(asker->pid) : json_null(), "command",
                     *asker->command ? json_string(asker->command) : json_null());
}

/* The fields that an event of this kind has beside the common ones. */
static json_t *details_of(const struct change *change)
{
    switch (change->kind) {
    case CHANGE_SESSION_QUEUED:
        return json_pack("{s:i}", "queue_position", (int)queue_position(change->session));
    case CHANGE_PROCESS_ATTACHED:
        return json_pack("{s:i,s:s*}", "pid", (int)change->pid, "command", change->command);
    case CHANGE_PROCESS_UNCOVERED:
    case CHANGE_PROCESS_WARNED:
    case CHANGE_PROCESS_STOPPED:
        return json_pack("{s:i,s:s*,s:I}", "pid", (int)change->pid, "command", change->command, "used_bytes",
                         (json_int_t)change->bytes);
    case CHANGE_FUNCTIONS_UNKNOWN:
        return json_pack("{s:i,s:s*,s:s}", "pid", (int)change->pid, "command", change->command, "functions",
                         change->process->unknown_functions);
    case CHANGE_PROCESS_ENDED:
        return json_pack("{s:i,s:s*,s:I}", "pid", (int)change->pid, "command", change->command,
                         "recovered_bytes", (json_int_t)change->bytes);
    case CHANGE_MEMORY_DENIED:
        return refusal_json(change->session, change->bytes);
    case CHANGE_SESSION_SUSPENDED:
        return json_pack("{s:f,s:I,s:I}", "seconds", change->seconds, "evicted_bytes",
                         (json_int_t)change->bytes, "stays_bytes", (json_int_t)change->stays_bytes);
    case CHANGE_SESSION_RESUMED:
    case CHANGE_SESSION_WAITS:
    case CHANGE_LOOP_HELD:
    case CHANGE_LEASE_OVERRUN:
    case CHANGE_LEASE_UNDRAINED:
    case CHANGE_LEASE_UNDRAINABLE:
    case CHANGE_LEASE_DRAINED:
        return json_pack("{s:f}", "seconds", change->seconds);
    case CHANGE_GPU_HEALTHY:
    case CHANGE_GPU_UNHEALTHY:
        return json_pack("{s:i,s:s}", "index", (int)change->gpu->index, "uuid", change->gpu->uuid_text);
    default:
        return NULL;
    }
}

/* Who asked for it, where somebody did. What a request brings about elsewhere is nobody's wish. */
static json_t *asker_of(const struct daemon *daemon, enum change_kind kind)
{
    bool is_asked = kind == CHANGE_SESSION_CREATED || kind == CHANGE_SESSION_QUEUED ||
                    kind == CHANGE_SESSION_CHANGED || kind == CHANGE_SESSION_RELEASED ||
                    kind == CHANGE_SUSPEND_ASKED || kind == CHANGE_RESUME_ASKED;
    return is_asked && daemon->asker ? requester_json(daemon->asker) : NULL;
}

static void add_labels(json_t *json, const struct session_properties *properties)
{
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++) {
        json_t *label = row->flags & IS_LABEL ? property_json(row, properties) : NULL;
        if (!json_is_null(label))
            json_object_set(json, row->json, label);
        json_decref(label);
    }
}

static char *event_json(const struct events *events, const struct change *change, int64_t at_ms)
{
    const struct session *session = change->session;
    const time_t seconds = at_ms / 1000;
    struct tm parts;
    char when[40], id[48];
    size_t length = strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", gmtime_r(&seconds, &parts));
    snprintf(when + length, sizeof(when) - length, ".%03dZ", (int)(at_ms % 1000));
    snprintf(id, sizeof(id), "%" PRIu64 "-%" PRIu64, events->daemon->epoch, events->newest + 1);
    json_t *details = details_of(change);
    json_t *json = json_pack("{s:s,s:s,s:s,s:s*,s:s*,s:o*,s:s*,s:o*}", "id", id, "time", when, "kind",
                             change_event(change->kind), "session_id", session ? session->id : NULL, "name",
                             session ? session->name : NULL, "owner_uid",
                             session ? json_integer((json_int_t)session->owner) : NULL, "message",
                             change->message, "by", asker_of(events->daemon, change->kind));
    if (json && session)
        add_labels(json, &session->properties);
    if (json && details)
        json_object_update_missing(json, details);
    json_decref(details);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(json);
    return text;
}

/* Who may see it, beside root. */
static uid_t holder_of(const struct change *change)
{
    if (change->session)
        return change->session->owner;
    return kinds[change->kind].audience == USER ? change->uid : geteuid();
}

static int64_t wall_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Keep the change as an event. False: an event of this kind about this session was kept a moment ago, so this one is
 * not kept. */
static bool keep_event(struct events *events, const struct change *change)
{
    struct session *session = change->session;
    uint64_t now = daemon_now_usec(), rate = kinds[change->kind].rate_seconds * UINT64_C(1000000);
    uint64_t *told = session ? &session->told_usec[change->kind] : NULL;
    if (rate && told && *told && now - *told < rate)
        return false;
    if (told)
        *told = now;
    const int64_t at_ms = wall_clock_ms();
    char *text = event_json(events, change, at_ms);
    if (text)
        keep(events, change->kind, holder_of(change), at_ms, text);
    free(text);
    return true;
}

/* Tell of requests for memory that the session was refused since the last call. */
static void look_for_refusals(struct events *events, struct session *session)
{
    uint64_t refused = session_refused(session), told = session->refused_told;
    char message[REFUSAL_TEXT];
    refusal_text(session, refused - told, message);
    const struct change change = {CHANGE_MEMORY_DENIED, .session = session, .bytes = refused - told,
                                  .message = message};
    /* If the count has gone down, a program wrote it: programs can write their ledger. */
    if (refused > told && !keep_event(events, &change))
        return;
    if (refused > told)
        change_publish(events->daemon,
                       &(struct change){CHANGE_MEMORY_REFUSED, .session = session, .bytes = refused - told},
                       "%s", message);
    session->refused_told = refused;
    session->refusal.pid = 0;
}

static void on_change(void *context, const struct change *change)
{
    struct events *events = context;
    if (change->kind == CHANGE_PROCESS_ENDED)
        look_for_refusals(events, change->session);
    if (change->kind == CHANGE_GPUS_SAMPLED)
        for (struct session *at = events->daemon->sessions; at; at = at->next)
            look_for_refusals(events, at);
    if (change_event(change->kind))
        keep_event(events, change);
}

/* --- Reading --------------------------------------------------------------------------------------- */

const char *events_next(const struct daemon *daemon, uid_t uid, int64_t from_ms, uint64_t *last)
{
    const struct event *event;
    STAILQ_FOREACH (event, &daemon->events->kept, next) {
        if (event->number <= *last || event->at_ms < from_ms ||
            !(event->is_for_all || uid == 0 || uid == event->holder->uid))
            continue;
        *last = event->number;
        return event->text;
    }
    return NULL;
}

/* --- Start and end --------------------------------------------------------------------------------- */

int events_start(struct daemon *daemon, struct error *error)
{
    struct events *events = calloc(1, sizeof(*events));
    if (!events)
        return error_set_errno(error, ENOMEM, "cannot keep events");
    events->daemon = daemon;
    STAILQ_INIT(&events->kept);
    events->observer = (struct observer){.take = on_change, .context = events};
    change_observe(daemon, &events->observer);
    daemon->events = events;
    return 0;
}

void events_stop(struct daemon *daemon)
{
    if (daemon->events)
        change_observe_no_more(daemon, &daemon->events->observer);
}

void events_free(struct daemon *daemon)
{
    struct events *events = daemon->events;
    if (!events)
        return;
    while (events->count)
        drop_one(events);
    GS_CHECK(events_are_valid(events));
    free(events);
    daemon->events = NULL;
}
