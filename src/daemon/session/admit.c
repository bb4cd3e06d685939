#include "daemon/session/admit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/host_memory.h"
#include "base/priority.h"
#include "base/units.h"
#include "daemon/gpu/traits.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/peer.h"
#include "daemon/session/admission.h"
#include "daemon/session/policy.h"
#include "daemon/session/promises.h"
#include "daemon/session/queue.h"
#include "daemon/session/request.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_life.h"
#include "daemon/session/session_show.h"
#include "daemon/session/session_valid.h"
#include "daemon/users/descriptor_bounds.h"

/* --- Defaults -------------------------------------------------------------------------------------- */

/* Where the ceiling on memory is less than a GPU that `request` may be placed on: the limit that each of its GPUs then
 * gets. Else 0: all that the GPU has. */
static uint64_t memory_under(const struct daemon *daemon, const struct session_request *request,
                             uint64_t ceiling_bytes)
{
    uint64_t each = ceiling_bytes / (request->limit_count ? request->limit_count : 1);
    for (unsigned i = 0; i < request->limit_count; i++)
        if (each < daemon->gpus[request->limits[i].gpu].total_bytes)
            return each;
    for (unsigned i = 0; i < daemon->gpu_count && request->limit_count == 0; i++)
        if (each < daemon->gpus[i].total_bytes)
            return each;
    return 0;
}

/* What the default's part is on the largest GPU. */
static uint64_t largest_part(const struct daemon *daemon, uint32_t part)
{
    const struct session_request request = {.part = part};
    uint64_t largest = 0;
    for (unsigned i = 0; i < daemon->gpu_count; i++) {
        uint64_t bytes = admission_asked_bytes(&request, NULL, daemon->gpus[i].total_bytes);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

/* The default limit, or the ceiling where that is lower. */
static struct config_memory default_memory(const struct daemon *daemon, const struct session_request *request,
                                           const struct config_ceiling *ceiling)
{
    struct config_memory memory = daemon->config.defaults.memory;
    uint64_t bytes = memory.part ? largest_part(daemon, memory.part) : memory.bytes;
    uint64_t most = ceiling ? memory_under(daemon, request, ceiling->memory_bytes) : 0;
    return most && (!bytes || most < bytes) ? (struct config_memory){.bytes = most} : memory;
}

static struct share default_compute(const struct daemon *daemon, const struct config_ceiling *ceiling)
{
    struct share share = daemon->config.defaults.properties.compute;
    if (ceiling && ceiling->properties.compute.max < share.max)
        share.max = ceiling->properties.compute.max;
    if (share.min > share.max)
        share.min = share.max;
    return share;
}

static enum session_priority default_priority(const struct daemon *daemon,
                                              const struct config_ceiling *ceiling)
{
    enum session_priority priority = daemon->config.defaults.properties.priority;
    return ceiling && ceiling->properties.priority < priority ? ceiling->properties.priority : priority;
}

int admit_choose_when_full(const struct daemon *daemon, struct session_request *request, struct error *error)
{
    struct ceilings ceilings = {.config = &daemon->config};
    bool can_move = request->properties.engine != LEDGER_ENGINE_PLAIN,
         is_to_move = request->properties.when_full == WHEN_FULL_OVERSUBSCRIBE;
    if (property_is_given(&request->properties, PROPERTY_OVERSUBSCRIBE) &&
        property_is_given(&request->properties, PROPERTY_WHEN_FULL) && can_move != is_to_move)
        return error_set(
            error, EINVAL, "ERR_BAD_REQUEST",
            "the session's memory %s leave the card by --oversubscribe, and --when-full is %s; expected one "
            "of them, or both to say the same. To wait in the queue for a session whose memory can leave, "
            "use "
            "--oversubscribe --wait",
            can_move ? "can" : "cannot", when_full_name(request->properties.when_full));
    request->is_engine_default = !property_is_given(&request->properties, PROPERTY_WHEN_FULL) &&
                                 !property_is_given(&request->properties, PROPERTY_OVERSUBSCRIBE) &&
                                 !request->wait;
    if (request->is_engine_default) {
        ceilings_find(&daemon->config, request->owner, &ceilings);
        const struct config_ceiling *of = ceilings.of[PROPERTY_WHEN_FULL];
        request->properties.when_full =
            of ? of->properties.when_full : daemon->config.defaults.properties.when_full;
    }
    if (request->properties.engine != LEDGER_ENGINE_PLAIN)
        request->properties.when_full = WHEN_FULL_OVERSUBSCRIBE;
    else if (request->properties.when_full == WHEN_FULL_OVERSUBSCRIBE)
        request->properties.engine = LEDGER_ENGINE_SWAP;
    else if (request->properties.when_full == WHEN_FULL_UNSAID && request->wait)
        request->properties.when_full = WHEN_FULL_WAIT;
    request->wait = request->properties.when_full == WHEN_FULL_WAIT ||
                    (request->wait && request->properties.when_full != WHEN_FULL_REFUSE);
    return 0;
}

/* Defaults of sessions whose memory can leave the card. */
static void apply_move_defaults(const struct daemon *daemon, struct session_request *request)
{
    const struct config_defaults *defaults = &daemon->config.defaults;
    if (request->properties.engine == LEDGER_ENGINE_SWAP &&
        !property_is_given(&request->properties, PROPERTY_HOST_MEMORY))
        request->properties.host_memory_bytes = defaults->properties.host_memory_bytes;
    if (request->properties.engine != LEDGER_ENGINE_PLAIN &&
        !property_is_given(&request->properties, PROPERTY_IDLE_SUSPEND))
        request->properties.idle_suspend_seconds = defaults->properties.idle_suspend_seconds;
}

void admit_apply_defaults(const struct daemon *daemon, struct session_request *request)
{
    struct ceilings ceilings = {.config = &daemon->config};
    if (!request->is_declared)
        ceilings_find(&daemon->config, request->owner, &ceilings);
    struct config_memory memory = default_memory(daemon, request, ceilings.memory);
    if (!request->has_bytes && (memory.bytes || memory.part)) {
        request->has_bytes = true;
        request->bytes = memory.bytes;
        request->part = memory.part;
    }
    struct session_properties *properties = &request->properties;
    if (!property_is_given(properties, PROPERTY_COMPUTE))
        properties->compute = default_compute(daemon, ceilings.of[PROPERTY_COMPUTE]);
    if (!property_is_given(properties, PROPERTY_PRIORITY))
        properties->priority = default_priority(daemon, ceilings.of[PROPERTY_PRIORITY]);
    properties->given |= 1u << PROPERTY_COMPUTE | 1u << PROPERTY_PRIORITY;
    if (!property_is_given(properties, PROPERTY_TTL_ACTION) &&
        !request->is_declared) /* their time is never over */
        properties->ttl_action = daemon->config.defaults.properties.ttl_action;
    apply_move_defaults(daemon, request);
}

/* --- A new session --------------------------------------------------------------------------------- */

static int check_asker(struct daemon *daemon, const struct session_request *request, struct error *error)
{
    if (request->owner == UID_OVERFLOW)
        return error_set(error, EACCES, "ERR_FORBIDDEN",
                         "uid %d stands for users that this machine does not know, and cannot own sessions",
                         UID_OVERFLOW);
    int result = request->name ? session_check_name(daemon, request->owner, request->is_managed,
                                                    request->name, NULL, error)
                               : 0;
    if (result == 0 && request->run_pid)
        result = user_check(daemon, request->owner, USER_RUNNER, error);
    return result;
}

/* Check what the request says of memory that can leave the card. */
static int check_moves(const struct session_request *request, enum ledger_engine engine, struct error *error)
{
    if (request->properties.may_pass_card && engine != LEDGER_ENGINE_MANAGED)
        return error_set(error, EINVAL, "ERR_BAD_REQUEST",
                         "--single-oversubscribe needs memory that the driver pages; add "
                         "--oversubscribe=managed");
    if (engine == LEDGER_ENGINE_MANAGED && property_is_given(&request->properties, PROPERTY_HOST_MEMORY))
        return error_set(
            error, EBUSY, "ERR_NOT_MOVABLE",
            "the driver itself keeps memory of --oversubscribe=managed in host memory, without a "
            "bound; host memory is for --oversubscribe=swap");
    if (engine == LEDGER_ENGINE_SWAP && request->properties.host_memory_bytes)
        return host_memory_check_bound(request->properties.host_memory_bytes, error);
    if (engine != LEDGER_ENGINE_PLAIN || (!property_is_given(&request->properties, PROPERTY_HOST_MEMORY) &&
                                          !property_is_given(&request->properties, PROPERTY_IDLE_SUSPEND)))
        return 0;
    return error_set(
        error, EBUSY, "ERR_NOT_MOVABLE",
        "host memory and idle suspension are for sessions whose memory can leave the card; make one with "
        "--oversubscribe");
}

/* A GPU because of which the memory of the session could not leave the card; NULL: none. */
static const struct gpu *find_keeper(const struct daemon *daemon, const struct session_request *request)
{
    for (unsigned i = 0; i < request->limit_count; i++)
        if (gpu_why_stays(&daemon->gpus[request->limits[i].gpu], request->properties.engine))
            return &daemon->gpus[request->limits[i].gpu];
    for (unsigned i = 0; i < daemon->gpu_count && request->limit_count == 0; i++)
        if (!gpu_why_stays(&daemon->gpus[i], request->properties.engine))
            return NULL;
    return request->limit_count == 0 ? &daemon->gpus[0] : NULL;
}

/* Where a default alone says that the session's memory may leave, and its GPU keeps it, the session is made without.
 * `when_full` still says what was meant. */
static int check_gpus_let_go(const struct daemon *daemon, struct session_request *request,
                             struct error *error)
{
    const struct gpu *keeper =
        request->properties.engine == LEDGER_ENGINE_PLAIN ? NULL : find_keeper(daemon, request);
    if (!keeper)
        return 0;
    if (!request->is_engine_default || property_is_given(&request->properties, PROPERTY_HOST_MEMORY) ||
        property_is_given(&request->properties, PROPERTY_IDLE_SUSPEND))
        return error_set(error, EBUSY, "ERR_NOT_MOVABLE",
                         "memory cannot leave GPU %s: %s; make the session without --oversubscribe",
                         keeper->label, gpu_why_stays(keeper, request->properties.engine));
    request->properties.engine = LEDGER_ENGINE_PLAIN;
    request->properties.host_memory_bytes = request->properties.idle_suspend_seconds = 0;
    return 0;
}

static int plan_new(struct daemon *daemon, const struct session_request *request, struct admission *admission,
                    struct error *error)
{
    struct admission_state state;
    struct ceilings ceilings;
    promises_gather(daemon, NULL, &state);
    queue_count_waiting(daemon, request->owner, &state);
    if (!request->is_declared)
        promises_gather_ceilings(daemon, request->owner, NULL, &ceilings, &state);
    return admission_plan(&state, NULL, request, admission, error);
}

int admit_new(struct daemon *daemon, struct session_request *request, struct session **session_out,
              struct error *error)
{
    struct admission admission;
    struct session *session;
    int result = check_asker(daemon, request, error);
    if (result == 0)
        result = check_gpus_let_go(daemon, request, error);
    if (result == 0)
        result = check_moves(request, request->properties.engine, error);
    if (result == 0)
        result = plan_new(daemon, request, &admission, error);
    if (result == 0)
        result = session_make(daemon, request, &admission, &session, error);
    if (result < 0)
        return result;
    if (admission.waits && (result = queue_join(session, request, error)) < 0) {
        session_end(session, NULL);
        return result;
    }
    log_info("session %s '%s' created by uid %u%s", session->id, session->name, (unsigned)session->owner,
             admission.waits ? ", and waits in the queue" : "");
    char stays[SESSION_STAYS_TEXT];
    bool is_kept = !session_can_move(session) && session->properties.when_full == WHEN_FULL_OVERSUBSCRIBE &&
                   session_shown_stays(session, stays);
    if (is_kept)
        log_info("session %s: its memory stays on the card: %s", session->id, stays);
    change_publish(daemon,
                   &(struct change){admission.waits ? CHANGE_SESSION_QUEUED : CHANGE_SESSION_CREATED,
                                    .session = session},
                   "%s%s%s", admission.waits ? "waits in the queue" : "created",
                   is_kept ? "; its memory stays on the card: " : "", is_kept ? stays : "");
    *session_out = session;
    return 0;
}

unsigned admit_count(struct daemon *daemon, struct session_request *request, unsigned most, struct error *why)
{
    struct admission_state state;
    struct admission admission;
    unsigned count = 0;
    *why = (struct error){.status = 0};
    if (check_gpus_let_go(daemon, request, why) < 0 ||
        check_moves(request, request->properties.engine, why) < 0)
        return 0;
    request->wait = false;
    promises_gather(daemon, NULL, &state);
    queue_count_waiting(daemon, request->owner, &state);
    while (count < most && admission_plan(&state, NULL, request, &admission, why) == 0) {
        admission_promise(&state, &admission.allotment);
        count++;
    }
    return count;
}

/* --- A change -------------------------------------------------------------------------------------- */

static int check_gpus(const struct session *session, const struct session_request *request,
                      struct error *error)
{
    for (unsigned i = 0; i < request->limit_count; i++) {
        unsigned at = 0;
        while (at < session->gpu_count && session->gpus[at].gpu != (int)request->limits[i].gpu)
            at++;
        if (at == session->gpu_count)
            return error_set(error, EINVAL, "ERR_BAD_REQUEST",
                             "session %s does not have GPU %s; a session's GPUs are fixed when it is created",
                             session->id, session->daemon->gpus[request->limits[i].gpu].label);
    }
    return 0;
}

static int plan_change(struct session *session, const struct session_request *request,
                       struct admission *admission, struct error *error)
{
    struct admission_state state;
    struct ceilings ceilings;
    struct allotment held;
    promises_gather(session->daemon, session, &state);
    promises_to(session, &held);
    if (!session->is_declared)
        promises_gather_ceilings(session->daemon, session->owner, session, &ceilings, &state);
    return admission_plan(&state, &held, request, admission, error);
}

/* Take over what a change may say. */
static void take_properties(struct session *session, const struct session_request *request)
{
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++)
        if (property_is_given(&request->properties, row->id) && !(row->flags & IS_FIXED))
            property_copy(row, &session->properties, &request->properties);
}

/* Compute and priority are described with what they were; and when the time is over, with `expires_at_ms`. */
static void describe_properties(FILE *words, const struct session *session,
                                const struct session_request *request)
{
    static const uint32_t described = 1u << PROPERTY_COMPUTE | 1u << PROPERTY_PRIORITY | 1u << PROPERTY_TTL;
    char text[PROPERTY_TEXT];
    for (const struct property *row = session_properties; row < session_properties + PROPERTY_COUNT; row++)
        if (property_is_given(&request->properties, row->id) && !(described >> row->id & 1))
            fprintf(words, ", %s: %s", row->name, property_format(row, &session->properties, text));
}

/* Describe what a change made different: "memory 2GiB to 3GiB on GPU 0, share 25% to 50%". The caller frees it; NULL
 * without memory. */
static char *describe_change(const struct session *session, const struct allotment *before,
                             const char *name_before, const struct session_request *request)
{
    char *text = NULL, old[UNITS_BYTES_TEXT], new[UNITS_BYTES_TEXT];
    size_t length;
    FILE *words = open_memstream(&text, &length);
    if (!words)
        return NULL;
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (session->gpus[i].gpu >= 0 && session->gpus[i].limit_bytes != before->gpus[i].limit_bytes)
            fprintf(words, ", memory %s to %s on GPU %s",
                    units_format_bytes(before->gpus[i].limit_bytes, old),
                    units_format_bytes(session->gpus[i].limit_bytes, new),
                    session->daemon->gpus[session->gpus[i].gpu].label);
    if (session->properties.compute.min != before->compute.min ||
        session->properties.compute.max != before->compute.max)
        fprintf(words, ", share %s to %s", units_format_share(before->compute, old),
                units_format_share(session->properties.compute, new));
    if (session->properties.priority != before->priority)
        fprintf(words, ", priority %s to %s", session_priority_name(before->priority),
                session_priority_name(session->properties.priority));
    if (strcmp(session->name, name_before) != 0)
        fprintf(words, ", name '%s' to '%s'", name_before, session->name);
    if (property_is_given(&request->properties, PROPERTY_TTL))
        fprintf(words, ", %s", session->expires_at_ms ? "its time starts again" : "it never expires");
    describe_properties(words, session, request);
    fclose(words);
    return text;
}

int admit_change(struct session *session, const struct session_request *request, struct error *error)
{
    struct daemon *daemon = session->daemon;
    struct admission admission;
    if (session->state == SESSION_QUEUED)
        return error_set(error, EBUSY, "ERR_SESSION_QUEUED",
                         "session %s waits in the queue and cannot be changed; release it and create another",
                         session->id);
    if (session->state == SESSION_EXPIRED)
        return error_set(error, EBUSY, "ERR_SESSION_EXPIRED",
                         "session %s has expired and cannot be changed: it ends with its last process; make "
                         "another",
                         session->id);
    int result = request->name ? session_check_name(daemon, session->owner, session->is_managed,
                                                    request->name, session, error)
                               : 0;
    if (result == 0)
        result = check_moves(request, session->properties.engine, error);
    if (result == 0)
        result = check_gpus(session, request, error);
    if (result == 0)
        result = plan_change(session, request, &admission, error);
    if (result == 0 && request->own_socket)
        result = session_give_socket(session, error);
    if (result == 0 && property_is_given(&request->properties, PROPERTY_TTL))
        result = session_restart_expiry(session, request->properties.ttl_seconds, error);
    if (result < 0)
        return result;
    struct allotment before;
    promises_to(session, &before);
    char name_before[sizeof(session->name)];
    strcpy(name_before, session->name);
    take_properties(session, request);
    session_take_allotment(session, &admission.allotment);
    if (request->name)
        strcpy(session->name, request->name);
    session->updated_at = time(NULL);
    GS_CHECK(session_is_valid(session));
    policy_publish(session);
    cleanup_free char *what = describe_change(session, &before, name_before, request);
    change_publish(daemon, &(struct change){CHANGE_SESSION_CHANGED, .session = session}, "%s",
                   what && *what ? what + strlen(", ") : "nothing has changed");
    return 0;
}
