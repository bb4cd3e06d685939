#include "daemon/history/audit.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/loop/appended.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/worker.h"
#include "daemon/session/session.h"

#define STOP_SECONDS 2
/* What may wait while a disk hangs. */
#define WAITING_BYTES (1u << 20)
/* How many lines a user may cause at once, and how long it takes until there may be one more. */
#define LINES_AT_ONCE UINT64_C(1000)
#define LINE_USEC UINT64_C(1000000)

/* A user who caused lines: who asks for what is refused as fast as it goes would else fill the file, and push out what
 * it says of others. One for whom nothing is counted any more is not kept. */
struct causer {
    LIST_ENTRY(causer) next;
    uid_t uid;
    uint64_t room_usec; /* a line takes LINE_USEC of it */
    uint64_t seen_usec;
    uint64_t left_out; /* lines since the last one that was written */
};

/* Lines on their way to the file. Between submit and done they belong to the helper thread. */
struct batch {
    struct worker_job job;
    struct audit *audit;
    uint64_t bytes_max;
    char *text;
    size_t length;
    struct error error; /* status 0: it has been written */
};

struct audit {
    struct daemon *daemon;
    struct observer observer;
    struct worker *worker;
    LIST_HEAD(, causer) causers;
    struct batch *gathering; /* lines that no thread has yet; NULL: none */
    bool is_writing;         /* the thread has a batch */
    uint64_t lost;           /* lines that did not fit beside those that wait */
    bool has_failed;         /* the last batch could not be written, and that was logged */
    char path[PATH_MAX];     /* does not change */
};

/* What the file says of a kind of change; NULL: nothing. */
static const char *action_of(enum change_kind kind)
{
    switch (kind) {
    case CHANGE_SESSION_CREATED:
    case CHANGE_SESSION_ADMITTED:
        return "allocated";
    case CHANGE_SESSION_REFUSED:
    case CHANGE_MEMORY_REFUSED:
        return "denied";
    case CHANGE_SESSION_EXPIRED:
        return "expired";
    case CHANGE_SESSION_ENDED:
        return "ended";
    default:
        return NULL;
    }
}

static uint64_t limit_of(const struct session *session)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (__builtin_add_overflow(bytes, session->gpus[i].limit_bytes, &bytes))
            bytes = INT64_MAX;
    return bytes > INT64_MAX ? INT64_MAX : bytes;
}

static json_t *begin_line(const char *action, uid_t owner, const char *message)
{
    char when[40];
    time_t now = time(NULL);
    struct tm parts;
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    return json_pack("{s:s,s:s,s:I,s:s*}", "time", when, "action", action, "owner_uid", (json_int_t)owner,
                     "message", message);
}

static uid_t causer_of(const struct change *change)
{
    return change->session ? change->session->owner : change->uid;
}

static json_t *line_of(const struct change *change, const char *action)
{
    const struct session *session = change->session;
    json_t *line = begin_line(action, causer_of(change), change->message);
    if (line && session) {
        json_object_set_new(line, "session_id", json_string(session->id));
        json_object_set_new(line, "name", json_string(session->name));
        json_object_set_new(line, "vram_limit_bytes", json_integer((json_int_t)limit_of(session)));
    }
    return line;
}

static json_t *left_out_line(uid_t owner, const char *message, uint64_t lines)
{
    json_t *line = begin_line("left-out", owner, message);
    if (line)
        json_object_set_new(line, "lines", json_integer((json_int_t)lines));
    return line;
}

/* --- To the file ----------------------------------------------------------------------------------- */

static void free_batch(struct batch *batch)
{
    free(batch->text);
    free(batch);
}

/* In the helper thread. */
static void run_batches(struct worker_job *first, void *context)
{
    const struct audit *audit = context;
    for (struct worker_job *job = first; job; job = job->next) {
        struct batch *batch = (struct batch *)job;
        appended_add(audit->path, batch->bytes_max, batch->text, batch->length, &batch->error);
    }
}

static void on_written(struct worker_job *job);

static void submit(struct audit *audit)
{
    struct batch *batch = audit->gathering;
    if (!batch)
        return;
    batch->job.done = on_written;
    batch->bytes_max = audit->daemon->config.daemon.audit_file_bytes;
    audit->gathering = NULL;
    audit->is_writing = true;
    worker_submit(audit->worker, &batch->job);
}

/* Takes the line, which may be NULL. False: it is lost. */
static bool gather(struct audit *audit, json_t *line)
{
    cleanup_free char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    struct batch *batch = audit->gathering;
    size_t length = text ? strlen(text) : 0;
    if (!text || (!batch && !(batch = calloc(1, sizeof(*batch)))))
        return false;
    batch->audit = audit;
    audit->gathering = batch;
    char *longer =
        batch->length + length < WAITING_BYTES ? realloc(batch->text, batch->length + length + 1) : NULL;
    if (!longer)
        return false;
    memcpy(longer + batch->length, text, length);
    batch->text = longer;
    batch->length += length + 1;
    longer[batch->length - 1] = '\n';
    return true;
}

static void add_line(struct audit *audit, json_t *line)
{
    if (audit->lost &&
        gather(audit,
               left_out_line(geteuid(), "lines came faster than the file could be written", audit->lost)))
        audit->lost = 0;
    audit->lost += !gather(audit, line);
    if (!audit->is_writing)
        submit(audit);
}

static void on_written(struct worker_job *job)
{
    struct batch *batch = (struct batch *)job;
    struct audit *audit = batch->audit;
    const bool failed = batch->error.status != 0;
    if (failed && !audit->has_failed)
        log_error("cannot write the audit file: %s", batch->error.message);
    audit->daemon->failed_writes += failed;
    audit->has_failed = failed;
    audit->is_writing = false;
    free_batch(batch);
    submit(audit);
}

/* --- By user --------------------------------------------------------------------------------------- */

static void fill(struct causer *causer, uint64_t now)
{
    uint64_t room = causer->room_usec + (now - causer->seen_usec);
    causer->room_usec = room < LINES_AT_ONCE * LINE_USEC ? room : LINES_AT_ONCE * LINE_USEC;
    causer->seen_usec = now;
}

static void tell_left_out(struct audit *audit, struct causer *causer)
{
    if (causer->left_out)
        add_line(audit,
                 left_out_line(causer->uid, "the user caused more than one line a second", causer->left_out));
    causer->left_out = 0;
}

/* The user's count up to now. Tells what was left out of those who have room again, and drops who has all of it. */
static struct causer *find_causer(struct audit *audit, uid_t uid)
{
    struct causer *found = NULL, *next;
    uint64_t now = daemon_now_usec();
    for (struct causer *at = LIST_FIRST(&audit->causers); at; at = next) {
        next = LIST_NEXT(at, next);
        fill(at, now);
        if (at->room_usec >= LINE_USEC)
            tell_left_out(audit, at);
        if (at->uid == uid) {
            found = at;
        } else if (at->room_usec == LINES_AT_ONCE * LINE_USEC) {
            LIST_REMOVE(at, next);
            free(at);
        }
    }
    if (!found && (found = calloc(1, sizeof(*found)))) {
        *found = (struct causer){.uid = uid, .room_usec = LINES_AT_ONCE * LINE_USEC, .seen_usec = now};
        LIST_INSERT_HEAD(&audit->causers, found, next);
    }
    return found;
}

/* Root, and the daemon's user, make sessions for others. */
static bool may_add(struct audit *audit, uid_t uid)
{
    struct causer *causer = find_causer(audit, uid);
    if (!causer || uid == 0 || uid == geteuid())
        return true;
    if (causer->room_usec < LINE_USEC) {
        causer->left_out++;
        return false;
    }
    causer->room_usec -= LINE_USEC;
    return true;
}

static void on_change(void *context, const struct change *change)
{
    struct audit *audit = context;
    const char *action = action_of(change->kind);
    if (!action || (change->kind == CHANGE_SESSION_CREATED && change->session->state == SESSION_QUEUED))
        return;
    if (may_add(audit, causer_of(change)))
        add_line(audit, line_of(change, action));
}

/* --- Start and end --------------------------------------------------------------------------------- */

/* An audit that cannot be kept is told at the start. */
static int look_at_file(const char *path, struct error *error)
{
    struct error why;
    off_t bytes;
    cleanup_close int fd = appended_open(path, &bytes, &why);
    return fd < 0 ? error_set(error, why.status, NULL, "the audit file: %s", why.message) : 0;
}

int audit_start(struct daemon *daemon, struct error *error)
{
    const char *path = daemon->config.daemon.audit_file;
    if (!*path)
        return 0;
    int result = look_at_file(path, error);
    if (result < 0)
        return result;
    struct audit *audit = calloc(1, sizeof(*audit));
    if (!audit)
        return error_set_errno(error, ENOMEM, "cannot write an audit file");
    audit->daemon = daemon;
    strcpy(audit->path, path);
    LIST_INIT(&audit->causers);
    result = worker_start(&audit->worker, daemon->loop, "gpusliced-audit", run_batches, audit, error);
    if (result < 0) {
        free(audit);
        return result;
    }
    audit->observer = (struct observer){.take = on_change, .context = audit};
    change_observe(daemon, &audit->observer);
    daemon->audit = audit;
    return 0;
}

void audit_stop(struct daemon *daemon)
{
    struct audit *audit = daemon->audit;
    if (!audit)
        return;
    daemon->audit = NULL;
    change_observe_no_more(daemon, &audit->observer);
    for (struct causer *causer; (causer = LIST_FIRST(&audit->causers)); free(causer)) {
        tell_left_out(audit, causer);
        LIST_REMOVE(causer, next);
    }
    submit(audit);
    if (worker_stop(audit->worker, STOP_SECONDS))
        free(audit);
    else
        log_warning("the audit file could not be written for %d s; its last lines may be lost", STOP_SECONDS);
}
