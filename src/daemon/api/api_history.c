/* GET /v1/history and /v1/usage: what was used over time, and in all; and GET /v1/history/sessions: what sessions that have ended
 * were. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/units.h"
#include "daemon/api/api.h"
#include "daemon/history/history.h"
#include "daemon/history/past_questions.h"
#include "daemon/http/http.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"

#define USEC_PER_SECOND 1000000
#define SINCE_STANDARD_SECONDS 3600
/* Of sessions that have ended. */
#define ENDED_SINCE_SECONDS 86400
#define ENDED_STANDARD 1000
#define ENDED_MOST 10000
#define POINTS_STANDARD 300
#define SESSIONS_STANDARD 20

/* A duration: how long ago the period that is asked for began, or ended. */
static int parse_ago(const struct http_request *request, const char *name, int64_t standard, int64_t *seconds,
                     struct error *error)
{
    const char *text = http_argument(request, name);
    uint64_t usec;
    struct error cause;
    *seconds = standard;
    if (!text)
        return 0;
    if (units_parse_duration(text, &usec, &cause) < 0)
        return error_set(error, EINVAL, "ERR_BAD_REQUEST", "'%s': %s", name, cause.message);
    *seconds = (int64_t)((usec + USEC_PER_SECOND - 1) / USEC_PER_SECOND);
    return 0;
}

static int parse_count(const struct http_request *request, const char *name, unsigned most, unsigned *count,
                       struct error *error)
{
    const char *text = http_argument(request, name);
    uint64_t number;
    if (!text)
        return 0;
    if (units_parse_number(text, most, &number, NULL) < 0 || number == 0)
        return error_set(error, EINVAL, "ERR_BAD_REQUEST", "%s is '%.40s'; expected a number of 1 to %u",
                         name, text, most);
    *count = (unsigned)number;
    return 0;
}

static int parse_by(const struct http_request *request, enum history_by *by, struct error *error)
{
    static const char *const names[] = {
        [HISTORY_BY_SESSION] = "session", [HISTORY_BY_USER] = "user", [HISTORY_BY_GPU] = "gpu"};
    const char *text = http_argument(request, "by");
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!text || strcmp(text, names[i]) == 0) {
            *by = (enum history_by)i;
            return 0;
        }
    return error_set(error, EINVAL, "ERR_BAD_REQUEST", "by is '%.40s'; expected session, user or gpu", text);
}

/* A session that has ended has a history too; its records say who may see it. */
static int parse_session(const struct http_request *request, struct history_ask *ask, struct error *error)
{
    const char *text = http_argument(request, "session");
    struct session *session;
    struct error cause;
    if (!text)
        return 0;
    if (session_find(request->daemon, request->peer.uid, text, &session, &cause) == 0)
        text = session->id;
    else if (!identity_is_id(text)) {
        *error = cause;
        return -cause.status;
    }
    strcpy(ask->session_id, text);
    return 0;
}

static void send_answer(void *argument, const char *answer, const struct error *error)
{
    struct http_request *request = argument;
    if (error->status)
        http_reply_error(request, error);
    else
        http_reply_text(request, 200, "application/json", answer);
}

static void ask_history(struct http_request *request, enum history_question question)
{
    struct history_ask ask = {
        .uid = request->peer.uid, .points = POINTS_STANDARD, .sessions = SESSIONS_STANDARD};
    int64_t since_seconds;
    struct error error;
    int result = parse_ago(request, "since", SINCE_STANDARD_SECONDS, &since_seconds, &error);
    if (result == 0)
        result = parse_count(request, "points", HISTORY_POINTS_MAX, &ask.points, &error);
    if (result == 0)
        result = parse_count(request, "sessions", HISTORY_SESSIONS_MAX, &ask.sessions, &error);
    if (result == 0)
        result = parse_by(request, &ask.by, &error);
    if (result == 0)
        result = parse_session(request, &ask, &error);
    if (result == 0)
        result = history_ask(request->daemon, question, &ask, since_seconds, send_answer, request, &error);
    if (result < 0)
        http_reply_error(request, &error);
}

void api_show_history(struct http_request *request, const char *id)
{
    ask_history(request, HISTORY_PLOT);
}

void api_show_usage(struct http_request *request, const char *id)
{
    ask_history(request, HISTORY_USAGE);
}

/* --- Sessions that have ended ---------------------------------------------------------------------- */

static int parse_owner(const struct http_request *request, struct history_ended_ask *ask, struct error *error)
{
    const char *text = http_argument(request, "owner_uid");
    uint64_t uid;
    if (!text)
        return 0;
    if (units_parse_number(text, UINT32_MAX - 1, &uid, NULL) < 0)
        return error_set(error, EINVAL, "ERR_BAD_REQUEST", "owner_uid is '%.40s'; expected a user's number",
                         text);
    ask->has_owner = true;
    ask->owner = (uid_t)uid;
    return 0;
}

static int parse_ended_session(const struct http_request *request, struct history_ended_ask *ask,
                               struct error *error)
{
    const char *text = http_argument(request, "session");
    if (!text)
        return 0;
    if (!identity_is_valid(text))
        return error_set(error, EINVAL, "ERR_BAD_REQUEST",
                         "session is '%.80s'; expected a name, or the beginning of an ID", text);
    strcpy(ask->session, text);
    return 0;
}

void api_list_ended(struct http_request *request, const char *id)
{
    struct history_ended_ask ask = {.uid = request->peer.uid, .most = ENDED_STANDARD};
    int64_t since_seconds, until_seconds;
    struct error error;
    int result = parse_ago(request, "since", ENDED_SINCE_SECONDS, &since_seconds, &error);
    if (result == 0)
        result = parse_ago(request, "until", 0, &until_seconds, &error);
    if (result == 0)
        result = parse_count(request, "most", ENDED_MOST, &ask.most, &error);
    if (result == 0)
        result = parse_owner(request, &ask, &error);
    if (result == 0)
        result = parse_ended_session(request, &ask, &error);
    if (result == 0) {
        const int64_t now = time(NULL);
        ask.from_ms = (now - since_seconds) * 1000;
        ask.to_ms = until_seconds ? (now - until_seconds) * 1000 : INT64_MAX;
        result = past_ask_ended(request->daemon, &ask, send_answer, request, &error);
    }
    if (result < 0)
        http_reply_error(request, &error);
}
