#include "daemon/session/session_life.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/process.h"
#include "daemon/gpu/gpu.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/clocks.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/peer.h"
#include "daemon/loop/round.h"
#include "daemon/session/admission.h"
#include "daemon/session/own_socket.h"
#include "daemon/session/policy.h"
#include "daemon/session/process.h"
#include "daemon/session/request.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_ledger.h"
#include "daemon/session/session_valid.h"
#include "daemon/users/descriptor_bounds.h"

/* How late a session may expire. */
#define EXPIRY_ACCURACY_USEC 1000

/* --- The process it was made for, and its time ----------------------------------------------------- */

static void unwatch_runner(struct session *session)
{
    if (session->runner.pidfd < 0)
        return;
    session->runner.source = sd_event_source_disable_unref(session->runner.source);
    close(session->runner.pidfd);
    session->runner.pidfd = -1;
    user_remove(session->daemon, session->owner, USER_RUNNER);
}

static int on_runner_gone(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct session *session = userdata;
    struct session_runner *runner = &session->runner;
    runner->has_status = process_exit_status(runner->pidfd, runner->pid, &runner->status);
    unwatch_runner(session);
    session_end_when_over(session);
    return 0;
}

static int watch_runner(struct session *session, int pidfd, struct error *error)
{
    int result = sd_event_add_io(session->daemon->loop, &session->runner.source, pidfd, EPOLLIN,
                                 on_runner_gone, session);
    if (result < 0)
        return error_set_errno(error, -result, "cannot watch process %d", (int)session->runner.pid);
    session->runner.pidfd = pidfd;
    user_add(session->daemon, session->owner, USER_RUNNER);
    return 0;
}

static void expire(struct session *session, const char *why)
{
    session->state = SESSION_EXPIRED;
    session->updated_at = time(NULL);
    policy_close(session);
    log_info("session %s %s with %u process%s attached", session->id, why, session->process_count,
             session->process_count == 1 ? "" : "es");
    change_publish(session->daemon, &(struct change){CHANGE_SESSION_EXPIRED, .session = session},
                   "%s with %u process%s attached", why, session->process_count,
                   session->process_count == 1 ? "" : "es");
}

void session_expire(struct session *session, const char *why)
{
    GS_CHECK(session_is_valid(session) && session->state != SESSION_QUEUED);
    expire(session, why);
    session_end_when_over(session);
}

static int on_expiry(sd_event_source *source, uint64_t usec, void *userdata)
{
    session_expire(userdata, "expired");
    return 0;
}

/* From admission on, a session's time is the time that passes, also while the machine sleeps, whatever the wall clock
 * is set to. */
static int watch_expiry(struct session *session, struct error *error)
{
    if (!session->expires_at_ms || session->state == SESSION_EXPIRED)
        return 0;
    int64_t left_ms = session->expires_at_ms - clock_machine_ms();
    int result = sd_event_add_time_relative(session->daemon->loop, &session->expiry, CLOCK_BOOTTIME,
                                            left_ms > 0 ? (uint64_t)left_ms * 1000 : 0, EXPIRY_ACCURACY_USEC,
                                            on_expiry, session);
    return result < 0 ? error_set_errno(error, -result, "cannot watch the time") : 0;
}

/* --- Making ---------------------------------------------------------------------------------------- */

/* The time of an admitted session starts now. */
static int start_session(struct session *session, struct error *error)
{
    if (session->properties.ttl_seconds)
        session->expires_at_ms = clock_machine_ms() + (int64_t)session->properties.ttl_seconds * 1000;
    int result = session->has_own_socket ? own_socket_open(session, error) : 0;
    return result < 0 ? result : watch_expiry(session, error);
}

int session_give_socket(struct session *session, struct error *error)
{
    if (session->state == SESSION_QUEUED)
        return error_set(error, EBUSY, "ERR_SESSION_QUEUED",
                         "session %s waits in the queue, and has no socket yet", session->id);
    int result = own_socket_open(session, error);
    if (result < 0)
        return result;
    session->has_own_socket = true;
    change_publish(session->daemon, &(struct change){CHANGE_SESSION_SOCKET, .session = session},
                   "has a socket of its own");
    return 0;
}

int session_restart_expiry(struct session *session, uint64_t ttl_seconds, struct error *error)
{
    sd_event_source *old = session->expiry;
    int64_t old_ms = session->expires_at_ms;
    session->expiry = NULL;
    session->expires_at_ms = ttl_seconds ? clock_machine_ms() + (int64_t)ttl_seconds * 1000 : 0;
    int result = watch_expiry(session, error);
    if (result < 0) {
        session->expiry = old;
        session->expires_at_ms = old_ms;
        return result;
    }
    sd_event_source_disable_unref(old);
    session->properties.ttl_seconds = ttl_seconds;
    return 0;
}

/* A GPU that is absent now keeps its UUID. */
void session_take_allotment(struct session *session, const struct allotment *allotment)
{
    session->properties.compute = allotment->compute;
    session->properties.priority = allotment->priority;
    session->gpu_count = allotment->gpu_count;
    for (unsigned i = 0; i < allotment->gpu_count; i++) {
        struct session_gpu *gpu = &session->gpus[i];
        gpu->gpu = allotment->gpus[i].gpu;
        gpu->limit_bytes = allotment->gpus[i].limit_bytes;
        gpu->reserved = allotment->gpus[i].reserved;
        if (gpu->gpu < 0)
            continue;
        const struct gpu *card = &session->daemon->gpus[gpu->gpu];
        memcpy(gpu->uuid, card->uuid, sizeof(gpu->uuid));
        gpu->is_mig = card->mig_index >= 0;
    }
}

static void name_session(struct session *session, const char *name, const char *token)
{
    do
        identity_random_hex(session->id, SESSION_ID_DIGITS);
    while (session_find_id(session->daemon, session->id));
    if (token)
        strcpy(session->token, token);
    else
        identity_random_hex(session->token, SESSION_TOKEN_TEXT - 1);
    strcpy(session->name, name ? name : session->id);
}

int session_make(struct daemon *daemon, struct session_request *request, const struct admission *admission,
                 struct session **session_out, struct error *error)
{
    struct session *session = calloc(1, sizeof(*session));
    if (!session)
        return error_set_errno(error, ENOMEM, "cannot make a session");
    session->daemon = daemon;
    session->owner = request->owner;
    session->state = admission->waits ? SESSION_QUEUED : SESSION_ACTIVE;
    session->queued_bytes = admission->queued_bytes;
    session->properties = request->properties;
    session_take_allotment(session, &admission->allotment);
    name_session(session, request->name, request->token);
    session->created_at = session->updated_at = time(NULL);
    if (request->key)
        strcpy(session->key, request->key);
    session->is_declared = request->is_declared;
    session->is_managed = request->is_managed;
    session->has_own_socket = request->own_socket;
    session->runner_queues = admission->waits && !request->run;
    session->runner = (struct session_runner){
        .pid = request->run_pid, .start_ticks = request->run_start_ticks, .pidfd = -1};
    session_link(daemon, session);
    int result = admission->waits ? 0 : start_session(session, error);
    if (result == 0 && request->run_pid) {
        result = watch_runner(session, request->run_pidfd, error);
        if (result == 0)
            request->run_pidfd = -1;
    }
    if (result < 0) {
        session_end(session, NULL);
        return result;
    }
    GS_CHECK(session_is_valid(session));
    *session_out = session;
    return 0;
}

int session_activate(struct session *session, struct error *error)
{
    GS_CHECK(session_is_valid(session) && session->state == SESSION_QUEUED && !session->queued);
    int result = start_session(session, error);
    if (result < 0)
        return result;
    session->state = SESSION_ACTIVE;
    session->updated_at = time(NULL);
    if (session->runner_queues) {
        unwatch_runner(session);
        session->runner = (struct session_runner){.pidfd = -1};
    }
    log_info("session %s '%s' is admitted", session->id, session->name);
    change_publish(session->daemon, &(struct change){CHANGE_SESSION_ADMITTED, .session = session},
                   "admitted");
    return 0;
}

void session_revive(struct session *session)
{
    GS_CHECK(session_is_valid(session) && session->is_declared && session->state == SESSION_EXPIRED);
    session->state = SESSION_ACTIVE;
    session->updated_at = time(NULL);
    policy_publish(session);
    log_info("session %s '%s' is declared again", session->id, session->name);
    change_publish(session->daemon, &(struct change){CHANGE_SESSION_REVIVED, .session = session},
                   "declared again");
}

int session_restore(struct daemon *daemon, struct session *session, struct error *error)
{
    session_link(daemon, session);
    session->runner.pidfd = -1;
    for (unsigned i = 0; i < session->gpu_count; i++)
        session->gpus[i].gpu = gpu_find_uuid(daemon, session->gpus[i].uuid);
    int result = session_ledger_restore(session, error);
    if (result < 0)
        return result;
    if (session->runner.pid) {
        int pidfd = peer_open(session->runner.pid, session->runner.start_ticks);
        if (error_is_scarcity(pidfd))
            return error_set_errno(error, -pidfd, "cannot watch process %d", (int)session->runner.pid);
        if (pidfd >= 0 && (result = watch_runner(session, pidfd, error)) < 0) {
            close(pidfd);
            return result;
        }
    }
    /* Expire it before a program can attach. */
    if (session->state == SESSION_ACTIVE && session->expires_at_ms &&
        session->expires_at_ms <= clock_machine_ms())
        expire(session, "expired");
    return watch_expiry(session, error);
}

/* --- Ending ---------------------------------------------------------------------------------------- */

static void bury(struct session *session, bool remove)
{
    struct daemon *daemon = session->daemon;
    GS_CHECK(!session->has_ended);
    while (session->processes)
        process_forget(session->processes);
    change_publish(daemon, &(struct change){CHANGE_SESSION_GONE, .session = session}, "gone");
    GS_CHECK(!session->arbitrated && !session->release && LIST_EMPTY(&session->orphans));
    session_unlink(session);
    sd_event_source_disable_unref(session->expiry);
    unwatch_runner(session);
    own_socket_close(session, remove);
    session_ledger_close(session, remove);
    session->has_ended = true;
    round_at_end(daemon, &session->burial, free, session);
}

void session_end(struct session *session, const char *why)
{
    GS_CHECK(session_is_valid(session));
    if (why)
        change_publish(session->daemon, &(struct change){CHANGE_SESSION_ENDED, .session = session}, "%s",
                       why);
    bury(session, true);
}

bool session_is_removed(const struct session *session)
{
    return session->state == SESSION_EXPIRED && session->is_declared && !session->expires_at_ms;
}

/* Why it should end by itself; NULL: it should not. */
static const char *find_end(const struct session *session)
{
    if (session->has_ended || session->processes)
        return NULL;
    if (session_is_removed(session))
        return "its section of sessions.conf was removed, and no process is attached";
    if (session->release)
        return session->state == SESSION_EXPIRED ? "it has expired, and its processes were ended"
                                                 : "released, and its processes were ended";
    if (session->state == SESSION_EXPIRED)
        return "it has expired, and no process is attached";
    return session->runner.pid && session->runner.pidfd < 0 ? "its program has ended" : NULL;
}

static void end_if_over(void *argument)
{
    struct session *session = argument;
    const char *why = find_end(session);
    if (!why)
        return;
    log_info("session %s '%s' ended: %s", session->id, session->name, why);
    session_end(session, why);
}

void session_end_when_over(struct session *session)
{
    if (find_end(session))
        round_at_end(session->daemon, &session->look, end_if_over, session);
}

void session_free_all(struct daemon *daemon)
{
    while (daemon->sessions)
        bury(daemon->sessions, false);
}
