#include "daemon/session/ledger_room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/worker.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"

#define PARTS 4 /* of the file system */
#define ROUND_USEC UINT64_C(1000000)
#define LOOKS_AT_ONCE 256
/* What the loop takes back itself while a session waits for room: about what a ledger of eight GPUs takes. */
#define AT_ONCE_BYTES (UINT64_C(2) << 20)
#define STOP_SECONDS 1

struct ledger_room {
    struct daemon *daemon;
    struct worker *worker;
    sd_event_source *timer;
    uint64_t number; /* the session that was looked at last: its number, and its ID */
    char id[SESSION_ID_TEXT];
};

struct free_job {
    struct worker_job job;
    struct daemon *daemon;
    int fd;
    unsigned gpu_count;
    uint64_t number;
    char id[SESSION_ID_TEXT];
};

/* --- Taking back ----------------------------------------------------------------------------------- */

/* In the helper thread, because freeing gigabytes takes a while. */
static void free_all(struct worker_job *first, void *context)
{
    for (struct worker_job *at = first; at; at = at->next) {
        struct free_job *job = (struct free_job *)at;
        ledgers_free_excess(job->fd, job->gpu_count, 0);
        close(job->fd);
    }
}

static void on_freed(struct worker_job *worker_job)
{
    struct free_job *job = (struct free_job *)worker_job;
    struct session *session = session_find_id(job->daemon, job->id);
    if (session && session->number == job->number)
        session->ledger.is_being_freed = false;
    free(job);
}

static void give_back(struct session *session)
{
    struct ledger_room *room = session->daemon->ledger_room;
    if (!room || session->ledger.is_being_freed)
        return;
    struct free_job *job = calloc(1, sizeof(*job));
    int fd = job ? fcntl(session->ledger.usage_fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd < 0) {
        free(job);
        return;
    }
    *job = (struct free_job){.job.done = on_freed,
                             .daemon = session->daemon,
                             .fd = fd,
                             .gpu_count = session->gpu_count,
                             .number = session->number};
    strcpy(job->id, session->id);
    session->ledger.is_being_freed = true;
    log_info("session %s: a process wrote beyond its ledger; the daemon takes that room back", session->id);
    worker_submit(room->worker, &job->job);
}

void ledger_room_look(struct session *session)
{
    if (session->ledger.usage && ledgers_has_excess(&session->ledger, session->gpu_count))
        give_back(session);
}

static uint64_t blocks_of(const struct session *session)
{
    struct stat status = {0};
    fstat(session->ledger.usage_fd, &status);
    return (uint64_t)status.st_blocks;
}

bool ledger_room_make(struct daemon *daemon)
{
    bool is_being_made = false; /* the helper may have taken everything back since the caller found no room */
    for (struct session *session = daemon->sessions; session; session = session->next) {
        is_being_made |= session->ledger.is_being_freed;
        if (!session->ledger.usage || !ledgers_has_excess(&session->ledger, session->gpu_count))
            continue;
        uint64_t before = blocks_of(session);
        ledgers_free_excess(session->ledger.usage_fd, session->gpu_count, AT_ONCE_BYTES);
        bool is_less = blocks_of(session) < before;
        give_back(session);
        if (is_less)
            return true;
    }
    return is_being_made;
}

static int on_round(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct ledger_room *room = userdata;
    struct session *session = session_behind(room->daemon, room->id, room->number);
    room->number = 0;
    for (unsigned looks = 0; session && looks < LOOKS_AT_ONCE; looks++, session = session->next) {
        ledger_room_look(session);
        room->number = session->number;
        strcpy(room->id, session->id);
    }
    sd_event_source_set_time_relative(source, ROUND_USEC);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* --- Bounds ---------------------------------------------------------------------------------------- */

int ledger_room_check(const struct session *session, struct error *error)
{
    const struct daemon *daemon = session->daemon;
    struct statvfs file_system;
    if (session->owner == 0 || session->owner == geteuid() ||
        statvfs(daemon->paths.ledgers_dir, &file_system) < 0)
        return 0;
    uint64_t bytes = ledger_usage_touched_bytes(session->gpu_count);
    for (const struct session *at = daemon->sessions; at; at = at->next)
        if (at->owner == session->owner && at->ledger.usage)
            bytes += ledger_usage_touched_bytes(at->gpu_count);
    uint64_t all = (uint64_t)file_system.f_blocks * file_system.f_frsize;
    if (bytes <= all / PARTS)
        return 0;
    return error_set(error, EBUSY, "ERR_TOO_MANY",
                     "the sessions of uid %u in which programs run would take %llu bytes of the %llu in the "
                     "runtime folder's file system; expected at most a quarter; end some",
                     (unsigned)session->owner, (unsigned long long)bytes, (unsigned long long)all);
}

/* --- Start and end --------------------------------------------------------------------------------- */

int ledger_room_start(struct daemon *daemon, struct error *error)
{
    struct ledger_room *room = calloc(1, sizeof(*room));
    if (!room)
        return error_set_errno(error, ENOMEM, "cannot watch the ledgers' room");
    room->daemon = daemon;
    int result = worker_start(&room->worker, daemon->loop, "gpusliced-room", free_all, NULL, error);
    if (result == 0 && (result = sd_event_add_time_relative(daemon->loop, &room->timer, CLOCK_MONOTONIC,
                                                            ROUND_USEC, 0, on_round, room)) < 0)
        error_set_errno(error, -result, "cannot watch the ledgers' room");
    if (result < 0) {
        worker_stop(room->worker, STOP_SECONDS);
        free(room);
        return result;
    }
    daemon->ledger_room = room;
    return 0;
}

void ledger_room_stop(struct daemon *daemon)
{
    struct ledger_room *room = daemon->ledger_room;
    if (!room)
        return;
    sd_event_source_disable_unref(room->timer);
    worker_stop(room->worker, STOP_SECONDS);
    daemon->ledger_room = NULL;
    free(room);
}
