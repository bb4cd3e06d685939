#include "daemon/history/ended.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/saturating.h"
#include "daemon/history/events.h"
#include "daemon/history/past.h"
#include "daemon/history/samples.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_show.h"

/* How many of the refusals that events told of are kept: the latest. */
#define REFUSALS_KEPT 8
#define NS_PER_SECOND 1e9

/* Of one session. */
struct session_totals {
    uint64_t peak_bytes; /* the most at any moment that was looked at, on all its GPUs */
    uint64_t gpu_ns, nvml_ns;
    uint64_t gate_wait_ns; /* of all threads, for turns */
    uint64_t room_wait_ns; /* for room on the card */
    uint64_t refused;
    uint64_t processes;
    uint64_t queued_usec; /* by the loop's clock: when it began to wait in the queue; 0: it did not */
    uint64_t queue_wait_usec;
    char command[16];      /* of its first process; "": none has attached */
    json_t *refusals;      /* texts; NULL: none */
    json_t *released_by;   /* requester_json(); NULL: nobody released it */
    bool is_changed;       /* since they were written last */
    uint64_t written_usec; /* by the loop's clock */
};

/* What an earlier daemon left of a session that had not ended. */
struct saved {
    char session_id[SESSION_ID_TEXT];
    json_t *totals;
};

struct ended {
    struct daemon *daemon;
    struct observer observer;
    struct saved *saved; /* sorted */
    size_t saved_count;
};

/* --- Totals as JSON -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
} numbers[] = {
    {"peak_bytes", offsetof(struct session_totals, peak_bytes)},
    {"gpu_ns", offsetof(struct session_totals, gpu_ns)},
    {"nvml_ns", offsetof(struct session_totals, nvml_ns)},
    {"gate_wait_ns", offsetof(struct session_totals, gate_wait_ns)},
    {"room_wait_ns", offsetof(struct session_totals, room_wait_ns)},
    {"refused", offsetof(struct session_totals, refused)},
    {"processes", offsetof(struct session_totals, processes)},
    {"queue_wait_usec", offsetof(struct session_totals, queue_wait_usec)},
};
#define NUMBER_COUNT (sizeof(numbers) / sizeof(numbers[0]))

static json_t *number_json(uint64_t number)
{
    return json_integer(number > INT64_MAX ? INT64_MAX : (json_int_t)number);
}

static json_t *totals_json(const struct session_totals *totals)
{
    json_t *json = json_object();
    for (size_t i = 0; i < NUMBER_COUNT; i++)
        json_object_set_new(json, numbers[i].name,
                            number_json(*(const uint64_t *)((const char *)totals + numbers[i].offset)));
    json_object_set_new(json, "command", json_string(totals->command));
    if (totals->refusals)
        json_object_set(json, "refusals", totals->refusals);
    return json;
}

/* The file may have been written by anybody who could: what is not as it should be counts as 0. */
static void totals_read(const json_t *json, struct session_totals *totals)
{
    for (size_t i = 0; i < NUMBER_COUNT; i++) {
        json_int_t number = json_integer_value(json_object_get(json, numbers[i].name));
        *(uint64_t *)((char *)totals + numbers[i].offset) = number > 0 ? (uint64_t)number : 0;
    }
    const char *command = json_string_value(json_object_get(json, "command"));
    if (command)
        strncat(totals->command, command, sizeof(totals->command) - 1);
    json_t *refusals = json_object_get(json, "refusals");
    totals->refusals = json_is_array(refusals) ? json_deep_copy(refusals) : NULL;
}

static int compare_saved(const void *id, const void *saved)
{
    return strcmp(id, ((const struct saved *)saved)->session_id);
}

/* NULL where no history is kept, and without memory. */
static struct session_totals *totals_of(struct session *session)
{
    const struct ended *ended = session->daemon->ended;
    if (session->totals || !ended)
        return session->totals;
    session->totals = calloc(1, sizeof(*session->totals));
    const struct saved *saved =
        session->totals && ended->saved
            ? bsearch(session->id, ended->saved, ended->saved_count, sizeof(*ended->saved), compare_saved)
            : NULL;
    if (saved)
        totals_read(saved->totals, session->totals);
    return session->totals;
}

/* --- Adding up ------------------------------------------------------------------------------------- */

void ended_add_sample(struct session *session, const struct sample *sample)
{
    struct session_totals *totals = totals_of(session);
    if (!totals || !(sample->gpu_ns || sample->nvml_ns || sample->waited_ns || sample->refused))
        return;
    totals->gpu_ns = saturating_add(totals->gpu_ns, sample->gpu_ns);
    totals->nvml_ns = saturating_add(totals->nvml_ns, sample->nvml_ns);
    totals->gate_wait_ns = saturating_add(totals->gate_wait_ns, sample->waited_ns);
    totals->refused = saturating_add(totals->refused, sample->refused);
    totals->is_changed = true;
}

void ended_see_bytes(struct session *session, uint64_t bytes)
{
    struct session_totals *totals = totals_of(session);
    if (!totals || bytes <= totals->peak_bytes)
        return;
    totals->peak_bytes = bytes;
    totals->is_changed = true;
}

void ended_add_room_wait(struct session *session, uint64_t ns)
{
    struct session_totals *totals = totals_of(session);
    if (!totals || !ns)
        return;
    totals->room_wait_ns = saturating_add(totals->room_wait_ns, ns);
    totals->is_changed = true;
}

/* What it holds when a process dies, whose memory no later look finds. */
static void see_all_bytes(struct session *session)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < session->gpu_count; i++)
        bytes = saturating_add(bytes, session_used(session, i));
    ended_see_bytes(session, bytes);
}

static void see_process(struct session *session, const char *command)
{
    struct session_totals *totals = totals_of(session);
    if (!totals)
        return;
    if (!totals->processes && command)
        strncat(totals->command, command, sizeof(totals->command) - 1);
    totals->processes++;
    totals->is_changed = true;
}

static void see_refusal(struct session *session, const char *message)
{
    struct session_totals *totals = totals_of(session);
    if (!totals || (!totals->refusals && !(totals->refusals = json_array())))
        return;
    if (json_array_size(totals->refusals) == REFUSALS_KEPT)
        json_array_remove(totals->refusals, 0);
    json_array_append_new(totals->refusals, json_string(message));
    totals->is_changed = true;
}

static void see_queue(struct session *session, bool waits)
{
    struct session_totals *totals = totals_of(session);
    if (!totals)
        return;
    if (waits)
        totals->queued_usec = daemon_now_usec();
    else if (totals->queued_usec)
        totals->queue_wait_usec = daemon_now_usec() - totals->queued_usec;
}

static void see_release(struct session *session)
{
    struct session_totals *totals = totals_of(session);
    const struct requester *asker = session->daemon->asker;
    if (totals && asker && !totals->released_by)
        totals->released_by = requester_json(asker);
}

/* --- The record of one that has ended ---------------------------------------------------------------- */

static json_t *time_json(int64_t seconds)
{
    char text[TIME_TEXT];
    return json_string(identity_format_time(seconds, text));
}

/* How the process ended that the session was made for: null where it was made for none, or the kernel does not tell. */
static json_t *exit_json(const struct session_runner *runner)
{
    if (!runner->has_status)
        return json_null();
    return WIFSIGNALED(runner->status) ? json_pack("{s:i}", "signal", WTERMSIG(runner->status))
                                       : json_pack("{s:i}", "code", WEXITSTATUS(runner->status));
}

static json_t *limits_json(const struct session *session)
{
    json_t *gpus = json_array();
    for (unsigned i = 0; i < session->gpu_count; i++) {
        char uuid[GPU_UUID_TEXT];
        json_array_append_new(gpus,
                              json_pack("{s:s,s:o,s:b}", "uuid", session_gpu_uuid(&session->gpus[i], uuid),
                                        "limit_bytes", number_json(session->gpus[i].limit_bytes), "reserved",
                                        session->gpus[i].reserved));
    }
    return gpus;
}

static uint64_t limit_of(const struct session *session)
{
    uint64_t bytes = session->state == SESSION_QUEUED ? session->queued_bytes : 0;
    for (unsigned i = 0; i < session->gpu_count; i++)
        bytes = saturating_add(bytes, session->gpus[i].limit_bytes);
    return bytes;
}

static void add_totals(json_t *json, const struct session_totals *totals)
{
    json_object_set_new(json, "command", *totals->command ? json_string(totals->command) : json_null());
    json_object_set_new(json, "processes", number_json(totals->processes));
    json_object_set_new(json, "peak_bytes", number_json(totals->peak_bytes));
    json_object_set_new(json, "gpu_seconds",
                        json_real(((double)totals->gpu_ns + (double)totals->nvml_ns) / NS_PER_SECOND));
    json_object_set_new(json, "gpu_seconds_by_nvml", json_real((double)totals->nvml_ns / NS_PER_SECOND));
    json_object_set_new(json, "queue_wait_seconds", json_real((double)totals->queue_wait_usec / 1e6));
    json_object_set_new(json, "room_wait_seconds", json_real((double)totals->room_wait_ns / NS_PER_SECOND));
    json_object_set_new(json, "gate_wait_seconds", json_real((double)totals->gate_wait_ns / NS_PER_SECOND));
    json_object_set_new(json, "denied_allocations", number_json(totals->refused));
    json_object_set_new(json, "refusals", totals->refusals ? json_incref(totals->refusals) : json_array());
    json_object_set_new(json, "released_by",
                        totals->released_by ? json_incref(totals->released_by) : json_null());
}

static json_t *session_json(const struct session *session, const struct session_totals *totals, int64_t now,
                            const char *why)
{
    json_t *json = json_pack("{s:s,s:s,s:I,s:s,s:o,s:o,s:s,s:o,s:f,s:f,s:o,s:o}", "session_id", session->id,
                             "name", session->name, "owner_uid", (json_int_t)session->owner, "state", "ended",
                             "created_at", time_json(session->created_at), "ended_at", time_json(now),
                             "end_reason", why, "exit", exit_json(&session->runner), "compute_min_ratio",
                             (double)session->properties.compute.min / SHARE_WHOLE, "compute_max_ratio",
                             (double)session->properties.compute.max / SHARE_WHOLE, "vram_limit_bytes",
                             number_json(limit_of(session)), "gpus", limits_json(session));
    json_object_set_new(json, "was_admitted", json_boolean(session->state != SESSION_QUEUED));
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++)
        if (row->answer)
            json_object_set_new(json, row->answer, property_json(row, &session->properties));
    add_totals(json, totals);
    return json;
}

static void keep(const struct session *session, enum history_record_kind kind, int64_t at_ms, json_t *json)
{
    cleanup_free char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    struct history_record *record = text ? malloc(sizeof(*record) + strlen(text) + 1) : NULL;
    json_decref(json);
    if (!record)
        return;
    *record = (struct history_record){.kind = kind, .at_ms = at_ms, .owner = session->owner};
    strcpy(record->session_id, session->id);
    strcpy(record->name, session->name);
    strcpy(record->text, text);
    past_keep(session->daemon, record);
}

static void keep_ended(struct session *session, const char *why)
{
    struct session_totals *totals = totals_of(session);
    struct timespec now;
    if (!totals)
        return;
    if (session->state == SESSION_QUEUED)
        see_queue(session, false);
    clock_gettime(CLOCK_REALTIME, &now);
    keep(session, RECORD_ENDED, (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000,
         session_json(session, totals, now.tv_sec, why));
}

void ended_keep_totals(struct session *session, bool in_any_case)
{
    struct session_totals *totals = session->totals;
    uint64_t now = daemon_now_usec();
    if (!totals || !totals->is_changed ||
        (!in_any_case && now - totals->written_usec < ENDED_TOTALS_SECONDS * UINT64_C(1000000)))
        return;
    totals->is_changed = false;
    totals->written_usec = now;
    keep(session, RECORD_TOTALS, 0, totals_json(totals));
}

static void free_totals(struct session *session)
{
    if (!session->totals)
        return;
    json_decref(session->totals->refusals);
    json_decref(session->totals->released_by);
    free(session->totals);
    session->totals = NULL;
}

/* --- Following the core ---------------------------------------------------------------------------- */

static void on_change(void *context, const struct change *change)
{
    switch (change->kind) {
    case CHANGE_SESSION_QUEUED:
    case CHANGE_SESSION_ADMITTED:
        see_queue(change->session, change->kind == CHANGE_SESSION_QUEUED);
        break;
    case CHANGE_PROCESS_ATTACHED:
        see_process(change->session, change->command);
        break;
    case CHANGE_PROCESS_DIED:
        see_all_bytes(change->session);
        ended_keep_totals(change->session, true);
        break;
    case CHANGE_MEMORY_REFUSED:
        see_refusal(change->session, change->message);
        break;
    case CHANGE_SESSION_RELEASED:
        see_release(change->session);
        break;
    case CHANGE_SESSION_ENDED:
        keep_ended(change->session, change->message);
        break;
    case CHANGE_SESSION_GONE:
        free_totals(change->session);
        break;
    default:
        break;
    }
}

/* --- Start and end --------------------------------------------------------------------------------- */

static void take_saved(const char *session_id, const char *text, void *context)
{
    struct ended *ended = context;
    json_t *totals = identity_is_id(session_id) ? json_loads(text, 0, NULL) : NULL;
    struct saved *saved = totals ? reallocarray(ended->saved, ended->saved_count + 1, sizeof(*saved)) : NULL;
    if (!saved) {
        json_decref(totals);
        return;
    }
    ended->saved = saved;
    strcpy(saved[ended->saved_count].session_id, session_id);
    saved[ended->saved_count++].totals = totals;
}

int ended_start(struct daemon *daemon, struct error *error)
{
    if (!past_is_kept(daemon))
        return 0;
    struct ended *ended = calloc(1, sizeof(*ended));
    if (!ended)
        return error_set_errno(error, ENOMEM, "cannot keep a history");
    past_read_totals(daemon, take_saved, ended);
    ended->daemon = daemon;
    ended->observer = (struct observer){.take = on_change, .context = ended};
    change_observe(daemon, &ended->observer);
    daemon->ended = ended;
    return 0;
}

void ended_stop(struct daemon *daemon)
{
    struct ended *ended = daemon->ended;
    if (!ended)
        return;
    change_observe_no_more(daemon, &ended->observer);
    for (struct session *session = daemon->sessions; session; session = session->next)
        free_totals(session);
    for (size_t i = 0; i < ended->saved_count; i++)
        json_decref(ended->saved[i].totals);
    free(ended->saved);
    free(ended);
    daemon->ended = NULL;
}
