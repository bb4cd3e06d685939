/* /v1/scheduler: how the GPUs' time is being shared. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/units.h"
#include "daemon/api/api.h"
#include "daemon/gpu/card.h"
#include "daemon/http/http.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/schedule/agents.h"
#include "daemon/schedule/turns.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"

#define NS_PER_SECOND 1e9

static json_t *standing_json(const struct session *session, unsigned policy_gpu)
{
    json_t *json = json_pack("{s:s,s:s,s:f,s:f,s:s,s:f,s:f,s:f}", "session_id", session->id, "name",
                             session->name, "compute_min_ratio", (double)session->compute.min / SHARE_WHOLE,
                             "compute_max_ratio", (double)session->compute.max / SHARE_WHOLE, "priority",
                             session_priority_name(session->priority), "compute_achieved_ratio",
                             agents_achieved_ratio(session, policy_gpu), "gpu_seconds",
                             (double)agents_used_ns(session, policy_gpu) / NS_PER_SECOND, "gpu_held_seconds",
                             (double)agents_held_ns(session, policy_gpu) / NS_PER_SECOND);
    json_object_update_new(json, api_lease_json(session));
    return json;
}

static json_t *leases_json(const struct http_request *request, unsigned gpu)
{
    json_t *leases = json_array();
    for (const struct session *at = request->daemon->sessions; at; at = at->next) {
        struct agents_standing standing = agents_standing(at);
        if ((standing.lease == LEASE_NONE && !standing.waits) || !session_is_visible(at, request->peer.uid))
            continue;
        for (unsigned i = 0; i < at->gpu_count; i++)
            if (at->gpus[i].gpu == (int)gpu)
                json_array_append_new(leases, standing_json(at, i));
    }
    return leases;
}

void api_show_scheduler(struct http_request *request, const char *id)
{
    const struct daemon *daemon = request->daemon;
    const struct arbiter *arbiter = agents_arbiter(daemon);
    json_t *gpus = json_array();
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        json_array_append_new(gpus, json_pack("{s:i,s:s,s:s,s:I,s:o}", "index", (int)daemon->gpus[i].index,
                                              "uuid", daemon->gpus[i].uuid_text, "mode",
                                              agents_mode_name(agents_mode(daemon, i)), "handovers",
                                              (json_int_t)arbiter_handovers(arbiter, i), "sessions",
                                              leases_json(request, i)));
    http_reply_json(request, 200,
                    json_pack("{s:b,s:f,s:f,s:o}", "quantum_auto", arbiter_quantum_is_auto(arbiter),
                              "quantum_seconds", (double)arbiter_quantum(arbiter) / NS_PER_SECOND,
                              "handover_gap_seconds", (double)arbiter_gap(arbiter) / NS_PER_SECOND, "gpus",
                              gpus));
}

int api_parse_scheduler(const char *body, size_t bytes, uint64_t *quantum_ns, struct error *error)
{
    json_t *document = json_loadb(body ? body : "", bytes, JSON_REJECT_DUPLICATES, NULL);
    const char *text = json_string_value(json_object_get(document, "quantum"));
    uint64_t usec;
    struct error cause;
    int result = 0;
    if (!text || json_object_size(document) != 1)
        result = error_set(error, EINVAL, "ERR_BAD_REQUEST",
                           "the body is wrong; expected {\"quantum\": \"auto\"} or a duration of 1ms to 1s");
    else if (units_parse_quantum(text, &usec, &cause) < 0)
        result = error_set(error, EINVAL, "ERR_BAD_REQUEST", "'quantum': %s", cause.message);
    else
        *quantum_ns = usec * 1000;
    json_decref(document);
    return result;
}

void api_change_scheduler(struct http_request *request, const char *id)
{
    struct error error;
    uint64_t quantum_ns;
    int result = 0;
    if (request->daemon->options.system && request->peer.uid != 0)
        result = error_set(&error, EACCES, "ERR_FORBIDDEN",
                           "how GPUs' time is shared concerns all users; only root may change it");
    else
        result = api_parse_scheduler(request->body, request->body_bytes, &quantum_ns, &error);
    if (result < 0) {
        http_reply_error(request, &error);
        return;
    }
    agents_set_quantum(request->daemon, quantum_ns);
    log_info("the quantum was set to %llu ms (0: automatic) by uid %u",
             (unsigned long long)quantum_ns / 1000000, (unsigned)request->peer.uid);
    api_show_scheduler(request, id);
}

/* --- Turns ----------------------------------------------------------------------------------------- */

struct turn_list {
    const struct http_request *request;
    json_t *turns;
};

static void add_turn(const struct turn *turn, void *context)
{
    struct turn_list *list = context;
    uid_t uid = list->request->peer.uid;
    bool is_visible = uid == 0 || uid == turn->owner;
    for (unsigned i = 0; i < list->request->daemon->gpu_count; i++)
        if (turn->gpus >> i & 1)
            json_array_append_new(
                list->turns,
                json_pack("{s:s,s:s?,s:s,s:f,s:o}", "uuid", list->request->daemon->gpus[i].uuid_text,
                          "session_id", is_visible ? turn->session_id : NULL, "lease",
                          agents_lease_name(turn->lease), "begin_seconds",
                          (double)turn->begin_ns / NS_PER_SECOND, "end_seconds",
                          turn->end_ns ? json_real((double)turn->end_ns / NS_PER_SECOND) : json_null()));
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
                  "since_seconds is '%.40s'; expected a 'now_seconds' of before", since);
        http_reply_error(request, &error);
        return;
    }
    list.turns = json_array();
    turns_list(agents_turns(request->daemon), (uint64_t)(seconds * NS_PER_SECOND), add_turn, &list);
    http_reply_json(
        request, 200,
        json_pack("{s:f,s:o}", "now_seconds", (double)monotonic_ns() / NS_PER_SECOND, "turns", list.turns));
}
