/* Handlers of /v1/sessions, and of gslice's /sessions. */
#include "daemon/api/api.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/http/http.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/peer.h"
#include "daemon/process/release.h"
#include "daemon/residency/moves.h"
#include "daemon/session/admit.h"
#include "daemon/session/declared.h"
#include "daemon/session/process.h"
#include "daemon/session/queue.h"
#include "daemon/session/request.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_life.h"

#define WAIT_SECONDS_MAX 20 /* below http.c's idle time */

static void internal_error(struct http_request *request, const char *what, const char *message)
{
    struct error error;
    error_set(&error, EIO, "ERR_INTERNAL", "%s: %s", what, message);
    http_reply_error(request, &error);
}

_Static_assert(SESSION_ID_TEXT <= HTTP_SUBJECT_TEXT, "requests are about sessions by ID");

/* Find the session that a stored change was about. It may have ended meanwhile: then answer, and return NULL. */
static struct session *find_changed(struct http_request *request)
{
    struct session *session = session_find_id(request->daemon, request->subject);
    struct error error;
    if (session)
        return session;
    error_set(&error, ENOENT, "ERR_SESSION_NOT_FOUND", "session %s has just ended", request->subject);
    http_reply_error(request, &error);
    return NULL;
}

static void answer_when_stored(struct http_request *request, const struct session *session,
                               change_done answer)
{
    strcpy(request->subject, session->id);
    change_await(request->daemon, session->id, answer, request);
}

static void on_created(void *argument, int result, const char *message)
{
    struct http_request *request = argument;
    if (result < 0) {
        internal_error(request, "cannot store the session; it was not made", message);
        return;
    }
    const struct session *session = find_changed(request);
    if (!session)
        return;
    json_t *json = api_session_json(session);
    if (api_is_gslice(request))
        api_write_as_gslice(json);
    json_object_set_new(json, "environment", api_environment_json(session));
    http_reply_json(request, api_is_gslice(request) ? 200 : 201, json);
}

static void reply_created(struct http_request *request, const struct session *session)
{
    if (session->state == SESSION_QUEUED)
        http_reply_json(request, 202, api_session_json(session));
    else
        answer_when_stored(request, session, on_created);
}

static void create(struct http_request *request, struct session_request *wanted)
{
    struct error error;
    struct session *session;
    if (wanted->has_owner && wanted->owner != request->peer.uid && request->peer.uid != 0) {
        error_set(&error, EACCES, "ERR_FORBIDDEN",
                  "only root makes sessions of other users; leave owner_uid out");
        http_reply_error(request, &error);
        return;
    }
    if (wanted->is_managed && request->peer.uid != 0) {
        error_set(&error, EACCES, "ERR_FORBIDDEN",
                  "only root makes sessions that their owners cannot change; leave 'managed' out");
        http_reply_error(request, &error);
        return;
    }
    if (!wanted->has_owner)
        wanted->owner = request->peer.uid;
    /* Who asks again had no answer: the daemon died after it had stored the session. */
    if (wanted->key && (session = session_find_key(request->daemon, wanted->owner, wanted->key))) {
        reply_created(request, session);
        return;
    }
    admit_apply_defaults(request->daemon, wanted);
    if (!property_is_given(&wanted->properties, PROPERTY_TTL))
        wanted->properties.ttl_seconds = request->daemon->config.defaults.properties.ttl_seconds;
    int result = admit_new(request->daemon, wanted, &session, &error);
    if (result < 0) {
        change_publish(request->daemon, &(struct change){CHANGE_SESSION_REFUSED, .uid = wanted->owner}, "%s",
                       error.message);
        http_reply_error(request, &error);
        return;
    }
    reply_created(request, session);
}

/* Find the process for which the session is made: it runs in the session, or waits in the queue. */
static int find_waiter(const struct http_request *request, struct session_request *wanted,
                       struct error *error)
{
    struct peer peer;
    int socket = http_socket(request), result;
    result = wanted->run_parent ? peer_parent(socket, &peer, &wanted->run_pidfd, &wanted->run_start_ticks)
                                : peer_identity(socket, &peer, &wanted->run_pidfd, &wanted->run_start_ticks);
    wanted->run_pid = peer.pid;
    return result == 0 ? 0
                       : error_set(error, -result, "ERR_BAD_REQUEST",
                                   "'run' or 'wait' is true, or 'when_full' is wait, but the daemon cannot "
                                   "see the process that asks: %s",
                                   strerror(-result));
}

void api_create_session(struct http_request *request, const char *id)
{
    struct session_request wanted = {.run_pidfd = -1};
    struct error error;
    json_t *document;
    int result = api_parse_session(request->daemon, request->body, request->body_bytes, true, &document,
                                   &wanted, &error);
    if (result < 0) {
        http_reply_error(request, &error);
        return;
    }
    if (!wanted.has_owner)
        wanted.owner = request->peer.uid;
    bool is_said = wanted.run || wanted.wait || property_is_given(&wanted.properties, PROPERTY_WHEN_FULL);
    result = admit_choose_when_full(request->daemon, &wanted, &error);
    if (result == 0 && (wanted.run || wanted.wait) && (result = find_waiter(request, &wanted, &error)) < 0 &&
        !is_said) {
        /* The configuration asks to wait, but no process can: the request is refused if there is no room. */
        wanted.wait = false;
        result = 0;
    }
    if (result < 0)
        http_reply_error(request, &error);
    else
        create(request, &wanted);
    if (wanted.run_pidfd >= 0)
        close(wanted.run_pidfd);
    json_decref(document);
}

void api_create_gslice_session(struct http_request *request, const char *id)
{
    struct session_request wanted = {.run_pidfd = -1};
    struct error error;
    if (api_parse_gslice(request->body, request->body_bytes, &wanted, &error) < 0)
        http_reply_error(request, &error);
    else
        create(request, &wanted);
}

/* The session in the path; NULL: the request has been answered. */
static struct session *find_session(struct http_request *request, const char *id)
{
    struct session *session;
    struct error error;
    if (session_find(request->daemon, request->peer.uid, id, &session, &error) == 0)
        return session;
    http_reply_error(request, &error);
    return NULL;
}

/* The session that is about to be told of, when what makes it known to the next daemon is stored; without that, it has
 * ended. Then answer, and return NULL. */
static const struct session *find_stored(struct http_request *request, int result, const char *message)
{
    if (result == 0 || session_find_id(request->daemon, request->subject))
        return find_changed(request);
    internal_error(request, "cannot store the session; it has ended", message);
    return NULL;
}

static void on_admitted(void *argument, int result, const char *message)
{
    const struct session *session = find_stored(argument, result, message);
    if (session)
        api_reply_session(argument, 200, session);
}

/* A session that has left the queue is told of when its admission is stored: then a program may begin in it. */
static void reply_place(struct http_request *request, const struct session *session)
{
    if (session->state == SESSION_QUEUED)
        api_reply_session(request, 200, session);
    else
        answer_when_stored(request, session, on_admitted);
}

void api_show_session(struct http_request *request, const char *id)
{
    const struct session *session = find_session(request, id);
    const char *position = http_argument(request, "queue_position"),
               *wait = http_argument(request, "wait_seconds");
    uint64_t place, seconds;
    struct error error, cause;
    if (!session)
        return;
    if (!position && !wait) {
        api_reply_session(request, 200, session);
        return;
    }
    if (!position || !wait || units_parse_number(position, UINT32_MAX, &place, &cause) < 0 ||
        units_parse_number(wait, WAIT_SECONDS_MAX, &seconds, &cause) < 0) {
        error_set(&error, EINVAL, "ERR_BAD_REQUEST",
                  "the query is wrong; expected queue_position and wait_seconds, with wait_seconds up to %d",
                  WAIT_SECONDS_MAX);
        http_reply_error(request, &error);
        return;
    }
    strcpy(request->subject, session->id);
    api_await_place(request, (unsigned)place, (unsigned)seconds, reply_place);
}

static void on_may_enter(void *argument, int result, const char *message)
{
    const struct session *session = find_stored(argument, result, message);
    if (session)
        http_reply_json(argument, 200, api_environment_json(session));
}

void api_show_environment(struct http_request *request, const char *id)
{
    const struct session *session = find_session(request, id);
    struct error error;
    if (session && session->state == SESSION_QUEUED) {
        error_set(&error, EBUSY, "ERR_SESSION_QUEUED", "session %s waits in the queue, at place %u",
                  session->id, queue_position(session));
        http_reply_error(request, &error);
    } else if (session && session->state == SESSION_EXPIRED) {
        error_set(&error, EBUSY, "ERR_SESSION_EXPIRED",
                  "session %s has expired and takes no new program; create another", session->id);
        http_reply_error(request, &error);
    } else if (session) {
        answer_when_stored(request, session, on_may_enter);
    }
}

static void on_changed(void *argument, int result, const char *message)
{
    struct http_request *request = argument;
    if (result < 0) {
        internal_error(request,
                       "the change is in force, but the daemon cannot store it: it ends with this daemon",
                       message);
        return;
    }
    const struct session *session = find_changed(request);
    if (session)
        api_reply_session(request, 200, session);
}

/* Whether who asks may change and release the session. */
static int check_free(const struct http_request *request, const struct session *session, struct error *error)
{
    if (session->is_managed && request->peer.uid != 0)
        return error_set(error, EPERM, "ERR_FORBIDDEN",
                         "session '%s' was made by root for its owner's use; only root changes or releases "
                         "it, as the epilog of a Slurm job does",
                         session->name);
    return declared_check_free(session, error);
}

void api_change_session(struct http_request *request, const char *id)
{
    struct session *session = find_session(request, id);
    struct session_request wanted = {.run_pidfd = -1};
    struct error error;
    json_t *document;
    if (!session)
        return;
    int result = check_free(request, session, &error);
    if (result == 0)
        result = api_parse_session(request->daemon, request->body, request->body_bytes, false, &document,
                                   &wanted, &error);
    if (result == 0) {
        result = admit_change(session, &wanted, &error);
        json_decref(document);
    }
    if (result < 0) {
        http_reply_error(request, &error);
        return;
    }
    log_info("session %s '%s' changed by uid %u", session->id, session->name, (unsigned)request->peer.uid);
    answer_when_stored(request, session, on_changed);
}

/* Works for declared sessions too: it changes nothing that the file says. */
void api_give_socket(struct http_request *request, const char *id)
{
    struct session *session = find_session(request, id);
    struct error error;
    if (!session)
        return;
    if (session_give_socket(session, &error) < 0) {
        http_reply_error(request, &error);
        return;
    }
    answer_when_stored(request, session, on_changed);
}

/* The session has left, or is on its way. */
static void on_suspended(void *argument, int result, const char *message)
{
    struct http_request *request = argument;
    const struct session *session = find_changed(request);
    if (!session)
        return;
    enum move_state state = moves_standing(session).state;
    bool is_under_way = state == MOVE_LEAVING || state == MOVE_COMING;
    if (result < 0)
        internal_error(
            request,
            session->checkpoint && !is_under_way
                ? "the session stays where it is, because the daemon cannot store the order"
                : "the order is in force, but the daemon cannot store it: it ends with this daemon",
            message);
    else
        api_reply_session(request, is_under_way ? 202 : 200, session);
}

static void order_move(struct http_request *request, const char *id,
                       int (*order)(struct session *session, struct error *error), enum change_kind kind,
                       const char *asked)
{
    struct session *session = find_session(request, id);
    struct error error;
    if (!session)
        return;
    if (order(session, &error) < 0) {
        http_reply_error(request, &error);
        return;
    }
    change_publish(request->daemon, &(struct change){kind, .session = session}, "%s", asked);
    answer_when_stored(request, session, on_suspended);
}

void api_suspend_session(struct http_request *request, const char *id)
{
    order_move(request, id, moves_suspend, CHANGE_SUSPEND_ASKED, "to leave the card");
}

void api_resume_session(struct http_request *request, const char *id)
{
    order_move(request, id, moves_resume, CHANGE_RESUME_ASKED, "to come back to the card");
}

static void on_released(void *argument, int result, const char *message)
{
    if (result < 0)
        internal_error(argument,
                       "the session is released, but the daemon cannot remove it from the state file: it "
                       "returns with the next daemon",
                       message);
    else
        http_reply_json(argument, 204, NULL);
}

static void on_processes_ended(void *argument, const struct error *why)
{
    struct http_request *request = argument;
    if (why)
        http_reply_error(request, why);
    else
        change_await(request->daemon, request->subject, on_released, request);
}

void api_release_session(struct http_request *request, const char *id)
{
    struct session *session = find_session(request, id);
    struct error error;
    if (!session)
        return;
    if (check_free(request, session, &error) < 0) {
        http_reply_error(request, &error);
        return;
    }
    const char *kill = http_argument(request, "kill");
    if (session->processes && kill && strcmp(kill, "true") == 0) {
        log_info("session %s '%s': uid %u ends its processes, %u", session->id, session->name,
                 (unsigned)request->peer.uid, session->process_count);
        strcpy(request->subject, session->id);
        if (release_begin(session, on_processes_ended, request, &error) < 0)
            http_reply_error(request, &error);
        return;
    }
    if (session->processes) {
        error_set(&error, EBUSY, "ERR_SESSION_BUSY",
                  "%u process%s attached to session %s, the newest is %d (%s); end them first, or "
                  "release it with --kill",
                  session->process_count, session->process_count == 1 ? " is" : "es are", session->id,
                  (int)session->processes->pid, session->processes->command);
        http_reply_error(request, &error);
        return;
    }
    log_info("session %s '%s' released by uid %u", session->id, session->name, (unsigned)request->peer.uid);
    strcpy(request->subject, session->id);
    change_publish(request->daemon, &(struct change){CHANGE_SESSION_RELEASED, .session = session},
                   "released");
    session_end(session, "released");
    change_await(request->daemon, request->subject, on_released, request);
}
