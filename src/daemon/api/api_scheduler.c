/* /v1/scheduler: how the GPUs' time is shared. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/units.h"
#include "daemon/api/api.h"
#include "daemon/api/api_pieces.h"
#include "daemon/gpu/card.h"
#include "daemon/http/http.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/residency/moves.h"
#include "daemon/schedule/schedule.h"
#include "daemon/schedule/standing.h"
#include "daemon/schedule/turns.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"

#define NS_PER_SECOND 1e9
/* How many sessions are looked at for one piece of the answer. */
#define SESSIONS_AT_ONCE 16

static json_t *standing_json(const struct session *session, unsigned policy_gpu)
{
    json_t *json =
        json_pack("{s:s,s:s,s:f,s:f,s:s,s:f,s:f,s:f}", "session_id", session->id, "name", session->name,
                  "compute_min_ratio", (double)session->properties.compute.min / SHARE_WHOLE,
                  "compute_max_ratio", (double)session->properties.compute.max / SHARE_WHOLE, "priority",
                  session_priority_name(session->properties.priority), "compute_achieved_ratio",
                  standing_achieved_ratio(session, policy_gpu), "gpu_seconds",
                  (double)standing_used_ns(session, policy_gpu) / NS_PER_SECOND, "gpu_held_seconds",
                  (double)standing_held_ns(session, policy_gpu) / NS_PER_SECOND);
    json_object_update_new(json, api_status_json(session));
    json_object_update_new(json, api_lease_json(session));
    return json;
}

/* How far the answer has been written. What ends meanwhile is left out. */
struct scheduler_text {
    const struct daemon *daemon;
    uid_t uid;
    unsigned gpu;
    bool is_begun, is_in_gpu, has_session;
    /* The session that was looked at last; 0: none. */
    uint64_t number;
    char id[SESSION_ID_TEXT];
};

/* A session that holds no lease and waits for none is not shown. */
static bool write_standing(struct scheduler_text *text, const struct session *session, FILE *out)
{
    struct standing standing = standing_of(session);
    if ((standing.lease == LEASE_NONE && !standing.waits) || !session_is_visible(session, text->uid))
        return true;
    for (unsigned i = 0; i < session->gpu_count; i++) {
        if (session->gpus[i].gpu != (int)text->gpu)
            continue;
        if (text->has_session)
            fputc(',', out);
        text->has_session = true;
        if (!api_dump(standing_json(session, i), out))
            return false;
    }
    return true;
}

static enum pieces_next write_standings(struct scheduler_text *text, FILE *out)
{
    const struct session *session = session_behind(text->daemon, text->id, text->number);
    for (unsigned count = 0; session && count < SESSIONS_AT_ONCE; session = session->next, count++) {
        if (!write_standing(text, session, out))
            return PIECES_FAILED;
        text->number = session->number;
        strcpy(text->id, session->id);
    }
    return session ? PIECES_MORE : PIECES_END;
}

static json_t *settings_json(const struct daemon *daemon)
{
    const struct arbiter *arbiter = schedule_arbiter(daemon);
    uint64_t turn_ns = moves_turns_ns(daemon);
    return json_pack("{s:o,s:s,s:b,s:f,s:f}", "memory_quantum_seconds",
                     turn_ns ? json_real((double)turn_ns / NS_PER_SECOND) : json_null(), "anti_thrash",
                     moves_anti_thrash_name(moves_anti_thrash(daemon)), "quantum_auto",
                     arbiter_quantum_is_auto(arbiter), "quantum_seconds",
                     (double)arbiter_quantum(arbiter) / NS_PER_SECOND, "handover_gap_seconds",
                     (double)arbiter_gap(arbiter) / NS_PER_SECOND);
}

static json_t *gpu_json(const struct daemon *daemon, unsigned gpu)
{
    return json_pack(
        "{s:i,s:s,s:s,s:I}", "index", (int)daemon->gpus[gpu].index, "uuid", daemon->gpus[gpu].uuid_text,
        "mode", moves_takes_turns(daemon, gpu) ? "turns" : standing_mode_name(schedule_mode(daemon, gpu)),
        "handovers", (json_int_t)arbiter_handovers(schedule_arbiter(daemon), gpu));
}

static enum pieces_next write_scheduler(void *context, FILE *out)
{
    struct scheduler_text *text = context;
    if (!text->is_begun && !api_dump_open(settings_json(text->daemon), "gpus", out))
        return PIECES_FAILED;
    text->is_begun = true;
    if (text->gpu == text->daemon->gpu_count) {
        fputs("]}\n", out);
        return PIECES_END;
    }
    if (!text->is_in_gpu) {
        if (text->gpu > 0)
            fputc(',', out);
        if (!api_dump_open(gpu_json(text->daemon, text->gpu), "sessions", out))
            return PIECES_FAILED;
        text->is_in_gpu = true;
        text->has_session = false;
        text->number = 0;
    }
    enum pieces_next next = write_standings(text, out);
    if (next == PIECES_END) {
        fputs("]}", out);
        text->is_in_gpu = false;
        text->gpu++;
    }
    return next == PIECES_FAILED ? PIECES_FAILED : PIECES_MORE;
}

void api_show_scheduler(struct http_request *request, const char *id)
{
    struct scheduler_text *text = malloc(sizeof(*text));
    if (text)
        *text = (struct scheduler_text){.daemon = request->daemon, .uid = request->peer.uid};
    api_reply_pieces(request, 200, "application/json", write_scheduler, text);
}

static int parse_quantum(const json_t *value, struct scheduler_wish *wish, struct error *error)
{
    uint64_t usec;
    struct error cause;
    if (!json_is_string(value))
        return error_set(error, EINVAL, "ERR_BAD_REQUEST",
                         "'quantum' is wrong; expected \"auto\", or a duration of 1ms to 1h");
    if (units_parse_quantum(json_string_value(value), &usec, &cause) < 0)
        return error_set(error, EINVAL, "ERR_BAD_REQUEST", "'quantum': %s", cause.message);
    wish->has_quantum = true;
    wish->quantum_ns = usec * 1000;
    return 0;
}

static int parse_anti_thrash(const json_t *value, struct scheduler_wish *wish, struct error *error)
{
    const char *text = json_string_value(value);
    wish->has_anti_thrash = true;
    if (text && moves_anti_thrash_parse(text, &wish->anti_thrash))
        return 0;
    return error_set(error, EINVAL, "ERR_BAD_REQUEST",
                     "'anti_thrash' is wrong; expected \"on\", \"off\" or \"auto\"");
}

int api_parse_scheduler(const char *body, size_t bytes, struct scheduler_wish *wish, struct error *error)
{
    json_t *document;
    *wish = (struct scheduler_wish){0};
    int result = api_parse_body(body, bytes, &document, error);
    if (result < 0)
        return result;
    const json_t *quantum = json_object_get(document, "quantum"),
                 *anti_thrash = json_object_get(document, "anti_thrash");
    if (json_object_size(document) == 0 ||
        json_object_size(document) != (size_t)(quantum != NULL) + (size_t)(anti_thrash != NULL))
        result =
            error_set(error, EINVAL, "ERR_BAD_REQUEST",
                      "the body is wrong; expected {\"quantum\": \"auto\"} or a duration of 1ms to 1h, or "
                      "{\"anti_thrash\": \"on\"}, \"off\" or \"auto\", or both");
    if (result == 0 && quantum)
        result = parse_quantum(quantum, wish, error);
    if (result == 0 && anti_thrash)
        result = parse_anti_thrash(anti_thrash, wish, error);
    json_decref(document);
    return result;
}

/* A length applies to the turns that can be that long: those of the GPU's time, those of its memory, or both. */
static void set_quantum(struct daemon *daemon, uint64_t ns)
{
    if (ns <= UNITS_TIME_TURN_MOST_USEC * 1000)
        schedule_set_quantum(daemon, ns);
    if (ns == 0 || ns >= UNITS_TIME_TURN_MOST_USEC * 1000)
        moves_set_turns(daemon, ns);
}

void api_change_scheduler(struct http_request *request, const char *id)
{
    struct error error;
    struct scheduler_wish wish;
    unsigned uid = (unsigned)request->peer.uid;
    int result = 0;
    if (request->daemon->options.system && uid != 0)
        result = error_set(&error, EACCES, "ERR_FORBIDDEN",
                           "the setting concerns all users; only root may change it");
    else
        result = api_parse_scheduler(request->body, request->body_bytes, &wish, &error);
    if (result < 0) {
        http_reply_error(request, &error);
        return;
    }
    if (wish.has_quantum) {
        set_quantum(request->daemon, wish.quantum_ns);
        log_info("the quantum was set to %llu ms (0: automatic) by uid %u",
                 (unsigned long long)wish.quantum_ns / 1000000, uid);
    }
    if (wish.has_anti_thrash) {
        moves_set_anti_thrash(request->daemon, wish.anti_thrash);
        log_info("anti-thrash was set to %s by uid %u", moves_anti_thrash_name(wish.anti_thrash), uid);
    }
    api_show_scheduler(request, id);
}

/* --- Turns ----------------------------------------------------------------------------------------- */

struct turn_list {
    const struct http_request *request;
    json_t *turns;
};

static json_t *time_or_null(uint64_t ns)
{
    return ns ? json_real((double)ns / NS_PER_SECOND) : json_null();
}

static void add_turn(const struct turn *turn, void *context)
{
    struct turn_list *list = context;
    uid_t uid = list->request->peer.uid;
    bool is_visible = uid == 0 || uid == turn->owner;
    for (unsigned i = 0; i < list->request->daemon->gpu_count; i++)
        if (turn->gpus >> i & 1)
            json_array_append_new(list->turns,
                                  json_pack("{s:s,s:s?,s:s,s:f,s:o,s:o,s:I}", "uuid",
                                            list->request->daemon->gpus[i].uuid_text, "session_id",
                                            is_visible ? turn->session_id : NULL, "lease",
                                            standing_lease_name(turn->lease), "begin_seconds",
                                            (double)turn->begin_ns / NS_PER_SECOND, "asked_seconds",
                                            time_or_null(turn->asked_ns), "end_seconds",
                                            time_or_null(turn->end_ns), "steps", (json_int_t)turn->steps));
}

void api_show_turns(struct http_request *request, const char *id)
{
    const char *since = http_argument(request, "since_seconds");
    char *end = NULL;
    struct error error;
    struct turn_list list = {.request = request};
    double seconds = since ? strtod(since, &end) : 0;
    if (since && (end == since || *end || !(seconds >= 0 && seconds < 1e9))) {
        error_set(&error, EINVAL, "ERR_BAD_REQUEST",
                  "since_seconds is '%.40s'; expected the 'now_seconds' of an earlier answer", since);
        http_reply_error(request, &error);
        return;
    }
    list.turns = json_array();
    turns_list(schedule_turns(request->daemon), (uint64_t)(seconds * NS_PER_SECOND), add_turn, &list);
    http_reply_json(
        request, 200,
        json_pack("{s:f,s:o}", "now_seconds", (double)monotonic_ns() / NS_PER_SECOND, "turns", list.turns));
}
