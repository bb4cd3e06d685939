#include "daemon/session/declared.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/gpu/gpu.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/session/admission.h"
#include "daemon/session/admit.h"
#include "daemon/session/queue.h"
#include "daemon/session/request.h"
#include "daemon/session/session.h"
#include "daemon/session/session_life.h"

struct declared {
    struct observer observer;
    struct config_sessions file;           /* its last good version */
    char problem[ERROR_MESSAGE_BYTES];     /* why the current file is not in force; "": it is in force */
    char (*problems)[ERROR_MESSAGE_BYTES]; /* one per session of the file; "": none */
};

/* --- From the file to a request ---------------------------------------------------------------------- */

static int find_gpus(const struct daemon *daemon, const char *list, struct session_request *request,
                     struct error *error)
{
    cleanup_free char *copy = strdup(list);
    char *rest;
    if (!copy)
        return error_set_errno(error, ENOMEM, "cannot read the GPUs");
    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        struct session_limit limit = {0};
        int result = gpu_find(daemon, word, &limit.gpu, error);
        if (result < 0)
            return result;
        for (unsigned i = 0; i < request->limit_count; i++)
            if (request->limits[i].gpu == limit.gpu)
                return error_set(error, EINVAL, NULL, "GPU %s is named twice; name each GPU once",
                                 daemon->gpus[limit.gpu].label);
        request->limits[request->limit_count++] = limit;
    }
    return 0;
}

/* A cap above what every GPU has is not a limit (that is how Gemini says so). */
static bool is_no_limit(const struct daemon *daemon, const struct config_session *wanted)
{
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        if (wanted->memory.bytes <= daemon->gpus[i].total_bytes)
            return false;
    return wanted->memory_is_cap;
}

static int make_request(const struct daemon *daemon, const struct config_session *wanted,
                        struct session_request *request, struct error *error)
{
    *request = (struct session_request){
        .name = wanted->name,
        .owner = wanted->owner,
        .has_bytes = wanted->memory.bytes || wanted->memory.part,
        .bytes = wanted->memory.bytes,
        .part = wanted->memory.part,
        .properties = wanted->properties,
        .wait = true,
        .run_pidfd = -1,
        .is_declared = true,
    };
    if (!daemon->options.system && wanted->owner != geteuid())
        return error_set(error, EPERM, NULL,
                         "its owner is user %u, but this daemon serves user %u alone; expected that user",
                         (unsigned)wanted->owner, (unsigned)geteuid());
    struct session_properties *properties = &request->properties;
    properties->when_full =
        properties->engine == LEDGER_ENGINE_PLAIN ? WHEN_FULL_WAIT : WHEN_FULL_OVERSUBSCRIBE;
    admit_apply_defaults(daemon, request);
    /* What the file no longer says must be undone. */
    if (properties->engine == LEDGER_ENGINE_SWAP)
        properties->given |= 1u << PROPERTY_HOST_MEMORY;
    if (properties->engine != LEDGER_ENGINE_PLAIN)
        properties->given |= 1u << PROPERTY_IDLE_SUSPEND;
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++)
        properties->given |= row->flags & IS_LABEL ? UINT32_C(1) << row->id : 0;
    if (is_no_limit(daemon, wanted))
        request->has_bytes = false;
    return wanted->gpus ? find_gpus(daemon, wanted->gpus, request, error) : 0;
}

/* --- From requests to sessions --------------------------------------------------------------------- */

static struct session *find(const struct daemon *daemon, const struct config_session *wanted)
{
    for (struct session *session = daemon->sessions; session; session = session->next)
        if (session->is_declared && session->owner == wanted->owner &&
            strcmp(session->name, wanted->name) == 0)
            return session;
    return NULL;
}

static bool is_wanted(const struct config_sessions *file, const struct session *session)
{
    for (size_t i = 0; i < file->count; i++)
        if (file->sessions[i].owner == session->owner && strcmp(file->sessions[i].name, session->name) == 0)
            return true;
    return false;
}

static int make(struct daemon *daemon, struct session_request *request, struct error *error)
{
    struct session *session;
    return admit_new(daemon, request, &session, error);
}

static bool has_gpus(const struct session *session, const struct session_request *request)
{
    if (request->limit_count == 0)
        return true;
    if (request->limit_count != session->gpu_count)
        return false;
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (session->gpus[i].gpu != (int)request->limits[i].gpu)
            return false;
    return true;
}

/* A part of a GPU that is absent now is not known. */
static bool has_limit(const struct session *session, const struct session_gpu *gpu,
                      const struct session_request *request)
{
    if (request->part && gpu->gpu < 0)
        return gpu->reserved;
    uint64_t total = gpu->gpu < 0 ? 0 : session->daemon->gpus[gpu->gpu].total_bytes;
    return gpu->reserved && gpu->limit_bytes == admission_asked_bytes(request, NULL, total);
}

static bool differs(const struct session *session, const struct session_request *request)
{
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (request->has_bytes ? !has_limit(session, &session->gpus[i], request) : session->gpus[i].reserved)
            return true;
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++)
        if (property_is_given(&request->properties, row->id) && !(row->flags & IS_FIXED) &&
            !property_is_same(row, &session->properties, &request->properties))
            return true;
    return false;
}

static bool same_limits(const struct session_request *one, const struct session_request *other)
{
    if (one->limit_count != other->limit_count)
        return false;
    for (unsigned i = 0; i < one->limit_count; i++)
        if (one->limits[i].gpu != other->limits[i].gpu)
            return false;
    return one->has_bytes == other->has_bytes && one->bytes == other->bytes && one->part == other->part;
}

/* Whether two requests that make_request() made ask for the same, but for the name. */
static bool asks_the_same(const struct session_request *one, const struct session_request *other)
{
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++)
        if (!property_is_same(row, &one->properties, &other->properties))
            return false;
    return same_limits(one, other);
}

static int change(struct session *session, struct session_request *request, struct error *error)
{
    struct daemon *daemon = session->daemon;
    if (session->state == SESSION_QUEUED) {
        if (asks_the_same(queue_request(session), request))
            return 0;
        /* It goes to the end of the queue, because it asks for something else now. */
        session_end(session, NULL);
        return make(daemon, request, error);
    }
    if (!has_gpus(session, request))
        return error_set(
            error, EBUSY, NULL,
            "a session's GPUs are fixed while it lives; take the session out of the file, and put "
            "it back when it has ended");
    if (session->properties.engine != request->properties.engine ||
        session->properties.may_pass_card != request->properties.may_pass_card)
        return error_set(error, EBUSY, NULL,
                         "a session's 'oversubscribe' is fixed while it lives; take the session out of the "
                         "file, and put it back when it has ended");
    if (session->state == SESSION_EXPIRED)
        session_revive(session);
    if (!differs(session, request))
        return 0;
    request->name = NULL;
    request->drops_limits = !request->has_bytes;
    int result = admit_change(session, request, error);
    if (result == 0)
        log_info("session %s '%s' changed by the file", session->id, session->name);
    return result;
}

/* Expire the sessions that are not in the file any more; end those that wait. */
static void retire_others(struct daemon *daemon, const struct config_sessions *file)
{
    for (struct session *session = daemon->sessions, *next; session; session = next) {
        next = session->next;
        if (!session->is_declared || session->state == SESSION_EXPIRED || is_wanted(file, session))
            continue;
        if (session->state == SESSION_QUEUED)
            session_end(session, "its section of sessions.conf was removed");
        else
            session_expire(session, "removed from sessions.conf");
    }
}

static void apply(struct daemon *daemon)
{
    struct declared *declared = daemon->declared;
    retire_others(daemon, &declared->file);
    for (size_t i = 0; i < declared->file.count; i++) {
        const struct config_session *wanted = &declared->file.sessions[i];
        struct session *session = find(daemon, wanted);
        struct session_request request;
        struct error error;
        char *problem = declared->problems[i];
        problem[0] = '\0';
        int result = make_request(daemon, wanted, &request, &error);
        if (result == 0)
            result = session ? change(session, &request, &error) : make(daemon, &request, &error);
        if (result == 0)
            continue;
        snprintf(problem, ERROR_MESSAGE_BYTES, "%s", error.message);
        log_error("%s:%u: session '%s': %s", declared->file.path, wanted->line, wanted->name, problem);
    }
}

static void declared_apply(struct daemon *daemon)
{
    struct config_sessions next;
    struct error error;
    struct declared *declared = daemon->declared;
    int result = config_sessions_load(&next, daemon->paths.config_dir, &error);
    void *problems = result == 0 ? calloc(next.count + 1, sizeof(*declared->problems)) : NULL;
    if (result == 0 && !problems) {
        config_sessions_free(&next);
        result = error_set_errno(&error, ENOMEM, "cannot read %s", next.path);
    }
    daemon->are_sessions_refused = result < 0;
    if (result < 0) {
        log_error("the declared sessions did not change: %s", error.message);
        snprintf(declared->problem, sizeof(declared->problem), "%s", error.message);
        change_publish(daemon, &(struct change){CHANGE_CONFIG_REFUSED}, "%s", error.message);
        return;
    }
    declared->problem[0] = '\0';
    config_sessions_free(&declared->file);
    free(declared->problems);
    declared->file = next;
    declared->problems = problems;
    apply(daemon);
}

/* --- Rules ------------------------------------------------------------------------------------------- */

const struct config_session *declared_match(const struct daemon *daemon, const struct config_program *program,
                                            struct session **session)
{
    const struct declared *declared = daemon->declared;
    for (size_t i = 0; i < declared->file.count; i++) {
        const struct config_session *wanted = &declared->file.sessions[i];
        if (!config_match_is(&wanted->match, program))
            continue;
        *session = find(daemon, wanted);
        return wanted;
    }
    return NULL;
}

bool declared_admits(const struct session *session, const struct config_program *program)
{
    const struct declared *declared = session->daemon->declared;
    for (size_t i = 0; session->is_declared && i < declared->file.count; i++) {
        const struct config_session *wanted = &declared->file.sessions[i];
        if (wanted->owner == session->owner && strcmp(wanted->name, session->name) == 0)
            return config_match_is(&wanted->match, program);
    }
    return false;
}

/* --- Telling --------------------------------------------------------------------------------------- */

int declared_check_free(const struct session *session, struct error *error)
{
    if (!session->is_declared)
        return 0;
    return error_set(error, EPERM, "ERR_DECLARED",
                     "session '%s' is declared in %s/" CONFIG_SESSIONS_FILE "; change or remove it there",
                     session->name, session->daemon->paths.config_dir);
}

const struct config_sessions *declared_file(const struct daemon *daemon, const char **problem)
{
    const struct declared *declared = daemon->declared;
    *problem = declared->problem[0] ? declared->problem : NULL;
    return &declared->file;
}

const struct session *declared_session(const struct daemon *daemon, size_t at, const char **problem)
{
    const struct declared *declared = daemon->declared;
    *problem = declared->problems[at][0] ? declared->problems[at] : NULL;
    return find(daemon, &declared->file.sessions[at]);
}

/* --- Start and end --------------------------------------------------------------------------------- */

static void on_change(void *context, const struct change *change)
{
    if (change->kind == CHANGE_SETTINGS_READ)
        declared_apply(context);
}

int declared_start(struct daemon *daemon, struct error *error)
{
    daemon->declared = calloc(1, sizeof(*daemon->declared));
    if (!daemon->declared)
        return error_set_errno(error, ENOMEM, "cannot declare sessions");
    daemon->declared->observer = (struct observer){.take = on_change, .context = daemon};
    change_observe(daemon, &daemon->declared->observer);
    declared_apply(daemon);
    return 0;
}

void declared_stop(struct daemon *daemon)
{
    if (!daemon->declared)
        return;
    change_observe_no_more(daemon, &daemon->declared->observer);
    config_sessions_free(&daemon->declared->file);
    free(daemon->declared->problems);
    free(daemon->declared);
    daemon->declared = NULL;
}
