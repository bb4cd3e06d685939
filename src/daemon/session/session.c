#include "daemon/session/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "daemon/gpu/driver_line.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/descriptor_bounds.h"
#include "daemon/loop/log.h"
#include "daemon/process/own_socket.h"
#include "daemon/process/peer.h"
#include "daemon/process/reaper.h"
#include "daemon/schedule/agents.h"
#include "daemon/session/admission.h"
#include "daemon/session/ceilings.h"
#include "daemon/session/queue.h"
#include "daemon/session/release.h"
#include "daemon/store/store.h"

/* How late a session may expire. */
#define EXPIRY_ACCURACY_USEC 1000

/* --- Finding --------------------------------------------------------------------------------------- */

bool session_is_visible(const struct session *session, uid_t uid)
{
    return uid == 0 || (uid == session->owner && uid != UID_OVERFLOW);
}

/* FNV-1a. */
static unsigned chain_of(const char *id)
{
    uint32_t hash = 2166136261u;
    for (; *id; id++)
        hash = (hash ^ (unsigned char)*id) * 16777619u;
    return hash % DAEMON_ID_CHAINS;
}

struct session *session_find_id(const struct daemon *daemon, const char *id)
{
    for (struct session *session = daemon->sessions_by_id[chain_of(id)]; session;
         session = session->next_of_chain)
        if (strcmp(session->id, id) == 0)
            return session;
    return NULL;
}

/* By name: the caller's own first; root may name another's if only one has that name. */
static int find_by_name(const struct daemon *daemon, uid_t uid, const char *name, struct session **found,
                        struct error *error)
{
    unsigned count = 0;
    for (struct session *session = daemon->sessions; session; session = session->next) {
        if (!session_is_visible(session, uid) || strcmp(session->name, name) != 0)
            continue;
        *found = session;
        if (session->owner == uid)
            return 0;
        count++;
    }
    if (count > 1)
        return error_set(error, EBUSY, "ERR_AMBIGUOUS",
                         "%u sessions of different owners are called '%s'; give an ID", count, name);
    return count ? 0 : -ENOENT;
}

int session_find(const struct daemon *daemon, uid_t uid, const char *text, struct session **session_out,
                 struct error *error)
{
    struct session *found = session_find_id(daemon, text);
    if (found && !session_is_visible(found, uid))
        return error_set(error, EACCES, "ERR_FORBIDDEN", "session %s is another user's", text);
    int result = found ? 0 : find_by_name(daemon, uid, text, &found, error);
    if (result == -ENOENT) {
        unsigned count = 0;
        for (struct session *session = daemon->sessions; session && *text; session = session->next) {
            if (!session_is_visible(session, uid) || strncmp(session->id, text, strlen(text)) != 0)
                continue;
            found = session;
            count++;
        }
        if (count > 1)
            return error_set(error, EBUSY, "ERR_AMBIGUOUS",
                             "the IDs of %u sessions begin with '%s'; give more of it", count, text);
        result = count ? 0 : -ENOENT;
    }
    if (result == -ENOENT)
        return error_set(error, ENOENT, "ERR_SESSION_NOT_FOUND",
                         "no session has the ID or name '%s'; GET /v1/sessions lists them", text);
    if (result == 0)
        *session_out = found;
    return result;
}

/* --- Making ---------------------------------------------------------------------------------------- */

/* An ID has 48 random bits. `self` may keep its own name. */
static int check_name(const struct daemon *daemon, uid_t owner, const char *name, const struct session *self,
                      struct error *error)
{
    if (!identity_is_valid(name))
        return error_set(error, EINVAL, "ERR_BAD_REQUEST",
                         "'%.80s' is no session name; expected 1 to 63 of A-Z a-z 0-9 . _ -", name);
    for (const struct session *session = daemon->sessions; session; session = session->next)
        if (session != self && session->owner == owner && strcmp(session->name, name) == 0)
            return error_set(error, EEXIST, "ERR_NAME_TAKEN",
                             "session %s is called '%s' already; choose another name or release it",
                             session->id, name);
    return 0;
}

static void link_session(struct daemon *daemon, struct session *session)
{
    struct session **last = daemon->last_session ? &daemon->last_session->next : &daemon->sessions;
    session->next = NULL;
    session->previous = daemon->last_session;
    *last = session;
    daemon->last_session = session;
    struct session **chain = &daemon->sessions_by_id[chain_of(session->id)];
    session->next_of_chain = *chain;
    *chain = session;
    session->daemon = daemon;
    session->number = ++daemon->sessions_seen;
    daemon->session_count++;
}

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
    unwatch_runner(session);
    session_end_if_over(session);
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

void session_close_policy(struct session *session)
{
    if (session->ledger.policy)
        atomic_store_explicit(&session->ledger.policy->closed, 1,
                              memory_order_release); /* with ledger_reserve() */
}

static void expire(struct session *session, const char *why)
{
    session->state = SESSION_EXPIRED;
    session->updated_at = time(NULL);
    session_close_policy(session);
    log_info("session %s %s with %u process%s attached", session->id, why, session->process_count,
             session->process_count == 1 ? "" : "es");
    change_publish(session->daemon, &(struct change){CHANGE_SESSION_EXPIRED, .session = session},
                   "%s with %u process%s attached", why, session->process_count,
                   session->process_count == 1 ? "" : "es");
    store_put_session(session, NULL, NULL);
}

void session_expire(struct session *session, const char *why)
{
    expire(session, why);
    session_end_if_over(session);
}

static int on_expiry(sd_event_source *source, uint64_t usec, void *userdata)
{
    session_expire(userdata, "expired");
    return 0;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int watch_expiry(struct session *session, struct error *error)
{
    if (!session->expires_at_ms || session->state == SESSION_EXPIRED)
        return 0;
    int result =
        sd_event_add_time(session->daemon->loop, &session->expiry, CLOCK_REALTIME,
                          (uint64_t)session->expires_at_ms * 1000, EXPIRY_ACCURACY_USEC, on_expiry, session);
    return result < 0 ? error_set_errno(error, -result, "cannot watch the time") : 0;
}

/* Make the policy region say what the session's limits are. */
static void publish(struct session *session)
{
    struct ledger_policy *policy = session->ledger.policy;
    if (!policy)
        return;
    for (unsigned i = 0; i < session->gpu_count; i++) {
        struct session_gpu *gpu = &session->gpus[i];
        struct ledger_policy_gpu *published = &policy->gpus[i];
        const struct gpu *card = gpu->gpu >= 0 ? &session->daemon->gpus[gpu->gpu] : NULL;
        memcpy(published->uuid, gpu->uuid, sizeof(published->uuid));
        published->is_mig = gpu->is_mig;
        atomic_store_explicit(&published->total_bytes, card ? card->total_bytes : gpu->limit_bytes,
                              memory_order_relaxed);
        atomic_store_explicit(&published->context_bytes, card ? card->context_bytes : 0,
                              memory_order_relaxed);
        /* Pairs with the load in ledger_reserve(). */
        atomic_store_explicit(&published->limit_bytes, gpu->limit_bytes, memory_order_release);
    }
    policy->gpu_count = session->gpu_count;
    atomic_store_explicit(&policy->closed, session->state == SESSION_EXPIRED || session->ledger.broken,
                          memory_order_release);
}

static void close_ledger(struct session *session, bool remove)
{
    ledgers_close(&session->ledger, remove);
    if (session->ledger_counts)
        user_remove(session->daemon, session->owner, USER_LEDGER);
    session->ledger_counts = false;
}

static int open_ledger(struct session *session, bool existing, struct error *error)
{
    struct daemon *daemon = session->daemon;
    session->ledger_counts = true;
    user_add(daemon, session->owner, USER_LEDGER);
    int result = ledgers_policy_make(&session->ledger, session->id, daemon->epoch, error);
    if (result == 0)
        result = ledgers_usage_open(&session->ledger, daemon->paths.ledgers_dir, session->id,
                                    existing ? LEDGERS_EPOCH_KEPT : daemon->epoch, existing, error);
    if (result == 0 && !existing)
        result = ledgers_usage_reserve(&session->ledger, session->gpu_count, error);
    if (result == 0)
        publish(session);
    return result;
}

void session_announce_all(struct daemon *daemon)
{
    for (struct session *session = daemon->sessions; session; session = session->next)
        if (session->ledger.usage)
            ledger_epoch_set(session->ledger.usage, daemon->epoch);
}

int session_open_ledger(struct session *session, struct error *error)
{
    if (session->ledger.policy)
        return 0;
    int result = user_check(session->daemon, session->owner, USER_LEDGER, error);
    if (result == 0)
        result = open_ledger(session, false, error);
    if (result < 0) {
        close_ledger(session, true);
        /* To a full disk the first touch is a SIGBUS, as if a process had cut the file: there is none yet. */
        session->ledger.broken = false;
    }
    return result;
}

void session_drop_idle_ledger(struct session *session)
{
    if (!session->processes && !session->ledger.broken)
        close_ledger(session, true);
}

/* The time of an admitted session runs from now on. */
static int begin(struct session *session, struct error *error)
{
    if (session->ttl_seconds)
        session->expires_at_ms = now_ms() + (int64_t)session->ttl_seconds * 1000;
    int result = session->has_own_socket ? own_socket_open(session, error) : 0;
    return result < 0 ? result : watch_expiry(session, error);
}

int session_give_socket(struct session *session, struct error *error)
{
    if (session->state == SESSION_QUEUED)
        return error_set(error, EBUSY, "ERR_SESSION_QUEUED",
                         "session %s waits to be admitted, and has no socket yet", session->id);
    int result = own_socket_open(session, error);
    if (result == 0)
        session->has_own_socket = true;
    return result;
}

/* Take over what `labels` say. */
static void set_labels(struct session *session, const struct session_labels *labels)
{
    if (labels->namespace[0])
        strcpy(session->labels.namespace, labels->namespace);
    if (labels->pod[0])
        strcpy(session->labels.pod, labels->pod);
    if (labels->container[0])
        strcpy(session->labels.container, labels->container);
}

int session_create(struct daemon *daemon, struct session_request *request, struct session **session_out,
                   struct error *error)
{
    if (request->owner == UID_OVERFLOW)
        return error_set(error, EACCES, "ERR_FORBIDDEN",
                         "uid %d stands for users unknown here and can own nothing", UID_OVERFLOW);
    int result = request->name ? check_name(daemon, request->owner, request->name, NULL, error) : 0;
    if (result == 0 && request->run_pid)
        result = user_check(daemon, request->owner, USER_RUNNER, error);
    if (result < 0)
        return result;
    struct session *session = calloc(1, sizeof(*session));
    if (!session)
        return error_set_errno(error, ENOMEM, "cannot make a session");
    result = queue_admit(daemon, request, session, error);
    bool is_admitted = result == 0;
    if (result == -EBUSY && request->wait && queue_has_hope(daemon, request)) {
        queue_note_demand(daemon, request, session);
        result = 0;
    }
    session->daemon = daemon;
    session->owner = request->owner;
    session->state = is_admitted ? SESSION_ACTIVE : SESSION_QUEUED;
    if (result == 0 && !request->is_declared) {
        struct ceiling_ask ask = ceiling_ask_of(session);
        result = ceilings_check(session, &ask, NULL, error);
    }
    if (result < 0) {
        free(session);
        return result;
    }

    do
        identity_random_hex(session->id, SESSION_ID_DIGITS);
    while (session_find_id(daemon, session->id));
    identity_random_hex(session->token, SESSION_TOKEN_TEXT - 1);
    strcpy(session->name, request->name ? request->name : session->id);
    session->created_at = session->updated_at = time(NULL);
    session->is_declared = request->is_declared;
    session->ttl_seconds = request->ttl_seconds;
    session->has_own_socket = request->own_socket;
    session->labels = request->labels;
    session->runner_queues = !is_admitted && !request->run;
    session->runner = (struct session_runner){
        .pid = request->run_pid, .start_ticks = request->run_start_ticks, .pidfd = -1};
    link_session(daemon, session);
    result = is_admitted ? begin(session, error) : queue_join(session, request, error);
    if (result == 0 && request->run_pid) {
        result = watch_runner(session, request->run_pidfd, error);
        if (result == 0)
            request->run_pidfd = -1;
    }
    if (result < 0) {
        session_end(session, NULL);
        return result;
    }
    log_info("session %s '%s' created by uid %u%s", session->id, session->name, (unsigned)session->owner,
             is_admitted ? "" : ", and waits to be admitted");
    if (is_admitted)
        change_publish(daemon, &(struct change){CHANGE_SESSION_CREATED, .session = session}, "created");
    else
        change_publish(daemon, &(struct change){CHANGE_SESSION_QUEUED, .session = session},
                       "waits to be admitted");
    *session_out = session;
    return 0;
}

int session_activate(struct session *session, struct error *error)
{
    int result = begin(session, error);
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
    session->state = SESSION_ACTIVE;
    session->updated_at = time(NULL);
    publish(session);
    log_info("session %s '%s' is declared again", session->id, session->name);
    store_put_session(session, NULL, NULL);
}

const char *session_gpu_uuid(const struct session_gpu *gpu, char text[static GPU_UUID_TEXT])
{
    gpu_uuid_format(gpu->uuid, text);
    return gpu->is_mig ? gpu_uuid_set_mig(text) : text;
}

static int find_policy_gpu(const struct session *session, unsigned gpu)
{
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (session->gpus[i].gpu == (int)gpu)
            return (int)i;
    return -1;
}

static int check_ceilings(const struct session *session, const struct session_request *request,
                          const bool *is_asked, const uint64_t *bytes, struct error *error)
{
    struct ceiling_ask old = ceiling_ask_of(session), ask = old;
    ask.memory_bytes = 0;
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (__builtin_add_overflow(ask.memory_bytes, is_asked[i] ? bytes[i] : session->gpus[i].limit_bytes,
                                   &ask.memory_bytes))
            ask.memory_bytes = UINT64_MAX;
    if (request->has_compute)
        ask.compute = request->compute.max;
    if (request->has_priority)
        ask.priority = request->priority;
    return ceilings_check(session, &ask, &old, error);
}

/* The session's time runs from now on, for `ttl_seconds`; 0: without end. */
static int restart_expiry(struct session *session, uint64_t ttl_seconds, struct error *error)
{
    sd_event_source *old = session->expiry;
    int64_t old_ms = session->expires_at_ms;
    session->expiry = NULL;
    session->expires_at_ms = ttl_seconds ? now_ms() + (int64_t)ttl_seconds * 1000 : 0;
    int result = watch_expiry(session, error);
    if (result < 0) {
        session->expiry = old;
        session->expires_at_ms = old_ms;
        return result;
    }
    sd_event_source_disable_unref(old);
    session->ttl_seconds = ttl_seconds;
    return 0;
}

int session_change(struct session *session, const struct session_request *request, struct error *error)
{
    struct daemon *daemon = session->daemon;
    if (session->state == SESSION_QUEUED)
        return error_set(error, EBUSY, "ERR_SESSION_QUEUED",
                         "session %s waits to be admitted and cannot be changed; release it and make another",
                         session->id);
    if (session->state == SESSION_EXPIRED)
        return error_set(error, EBUSY, "ERR_SESSION_EXPIRED",
                         "session %s has expired and cannot be changed: it ends with its last process; make "
                         "another",
                         session->id);
    bool is_asked[LEDGER_GPUS] = {false};
    uint64_t bytes[LEDGER_GPUS];
    int result = request->name ? check_name(daemon, session->owner, request->name, session, error) : 0;
    for (unsigned i = 0; i < session->gpu_count && request->has_bytes; i++) {
        is_asked[i] = true;
        bytes[i] = request->bytes;
    }
    for (unsigned i = 0; i < request->limit_count && result == 0; i++) {
        int at = find_policy_gpu(session, request->limits[i].gpu);
        if (at < 0)
            return error_set(error, EINVAL, "ERR_BAD_REQUEST",
                             "session %s does not have GPU %s; a session's GPUs are fixed when it is created",
                             session->id, daemon->gpus[request->limits[i].gpu].label);
        if (request->limits[i].has_bytes) {
            is_asked[at] = true;
            bytes[at] = request->limits[i].bytes;
        }
    }
    for (unsigned i = 0; i < session->gpu_count && result == 0; i++) {
        const struct session_gpu *gpu = &session->gpus[i];
        bool is_lower = gpu->reserved && is_asked[i] && bytes[i] <= gpu->limit_bytes;
        if (!is_asked[i] || gpu->gpu < 0 || is_lower)
            continue;
        const struct gpu *card = &daemon->gpus[gpu->gpu];
        result =
            admission_check(card->label, card->total_bytes, gpu_reserved(daemon, (unsigned)gpu->gpu, session),
                            gpu_held_by_others(daemon, (unsigned)gpu->gpu), bytes[i], error);
    }
    if (result == 0 && request->has_compute && request->compute.min > session->compute.min)
        result = queue_admit_share(session, request->compute, error);
    if (result == 0 && !session->is_declared)
        result = check_ceilings(session, request, is_asked, bytes, error);
    if (result == 0 && request->has_ttl)
        result = restart_expiry(session, request->ttl_seconds, error);
    if (result < 0)
        return result;

    if (request->own_socket && (result = session_give_socket(session, error)) < 0)
        return result;
    set_labels(session, &request->labels);
    if (request->has_compute)
        session->compute = request->compute;
    if (request->has_priority)
        session->priority = request->priority;
    if (request->name)
        strcpy(session->name, request->name);
    for (unsigned i = 0; i < session->gpu_count; i++) {
        if (!is_asked[i])
            continue;
        session->gpus[i].limit_bytes = bytes[i];
        session->gpus[i].reserved = true;
    }
    session->updated_at = time(NULL);
    publish(session);
    agents_session_changed(session);
    queue_advance_soon(daemon);
    change_publish(daemon, &(struct change){CHANGE_SESSION_CHANGED, .session = session},
                   "its limits, share, priority, time or name changed");
    return 0;
}

int session_restore(struct daemon *daemon, struct session *session, struct error *error)
{
    link_session(daemon, session);
    session->runner.pidfd = -1;
    for (unsigned i = 0; i < session->gpu_count; i++)
        session->gpus[i].gpu = gpu_find_uuid(daemon, session->gpus[i].uuid);
    int result =
        ledgers_usage_exists(daemon->paths.ledgers_dir, session->id) ? open_ledger(session, true, error) : 0;
    if (result < 0)
        return result;
    if (session->runner.pid) {
        int pidfd = peer_open(session->runner.pid, session->runner.start_ticks);
        if (error_is_scarcity(pidfd))
            return error_set_errno(error, -pidfd, "cannot watch process %d", (int)session->runner.pid);
        if (pidfd >= 0 && watch_runner(session, pidfd, error) < 0)
            close(pidfd);
    }
    /* Before a program can attach. */
    if (session->state == SESSION_ACTIVE && session->expires_at_ms && session->expires_at_ms <= now_ms())
        expire(session, "expired");
    return watch_expiry(session, error);
}

/* --- Ending ---------------------------------------------------------------------------------------- */

static void free_session(struct session *session, bool remove)
{
    struct daemon *daemon = session->daemon;
    *(session->previous ? &session->previous->next : &daemon->sessions) = session->next;
    *(session->next ? &session->next->previous : &daemon->last_session) = session->previous;
    struct session **at = &daemon->sessions_by_id[chain_of(session->id)];
    while (*at != session)
        at = &(*at)->next_of_chain;
    *at = session->next_of_chain;
    daemon->session_count--;
    daemon->busy_usec = daemon_now_usec();
    sd_event_source_disable_unref(session->expiry);
    unwatch_runner(session);
    own_socket_close(session, remove);
    queue_leave(session);
    queue_advance_soon(daemon);
    release_forget(session);
    driver_line_forget(session);
    agents_forget(session);
    close_ledger(session, remove);
    free(session);
}

void session_end(struct session *session, const char *why)
{
    if (why)
        change_publish(session->daemon, &(struct change){CHANGE_SESSION_ENDED, .session = session}, "%s",
                       why);
    while (session->processes)
        reaper_forget(session->processes);
    free_session(session, true);
}

void session_end_stored(struct session *session, const char *why)
{
    log_info("session %s '%s' ended: %s", session->id, session->name, why);
    store_delete_session(session->daemon, session->id, NULL, NULL);
    session_end(session, why);
}

void session_end_if_over(struct session *session)
{
    if (session->processes)
        return;
    if (session->release)
        release_finish(session);
    else if (session->state == SESSION_EXPIRED)
        session_end_stored(session, "it has expired and nobody is attached");
    else if (session->runner.pid && session->runner.pidfd < 0)
        session_end_stored(session, "its program has gone");
}

void session_free_all(struct daemon *daemon)
{
    while (daemon->sessions) {
        while (daemon->sessions->processes)
            reaper_forget(daemon->sessions->processes);
        free_session(daemon->sessions, false);
    }
}

/* --- Telling --------------------------------------------------------------------------------------- */

const char *session_state_name(const struct session *session)
{
    static const char *const names[] = {
        [SESSION_QUEUED] = "queued", [SESSION_ACTIVE] = "active", [SESSION_EXPIRED] = "expired"};
    return names[session->state];
}

uint64_t session_used(const struct session *session, unsigned policy_gpu)
{
    uint64_t sum = session_charged(session, policy_gpu);
    if (__builtin_add_overflow(sum, driver_line_bytes(session, policy_gpu), &sum) ||
        __builtin_add_overflow(sum, driver_line_orphan_bytes(session, policy_gpu), &sum))
        return UINT64_MAX;
    return sum;
}

uint64_t session_charged(const struct session *session, unsigned policy_gpu)
{
    uint64_t sum = session->ledger.usage ? ledger_joint_total_bytes(session->ledger.usage, policy_gpu) : 0;
    for (const struct process *process = session->processes; process; process = process->next)
        if (__builtin_add_overflow(sum, ledger_slot_bytes(session->ledger.usage, process->slot, policy_gpu),
                                   &sum))
            return UINT64_MAX;
    return sum;
}

uint64_t session_refused(const struct session *session)
{
    uint64_t sum = session->refused_before;
    for (const struct process *process = session->processes; process; process = process->next)
        for (unsigned i = 0; i < session->gpu_count; i++)
            sum += ledger_slot_counts(session->ledger.usage, process->slot, i).refused;
    return sum;
}

bool session_is_broken(struct session *session)
{
    if (!session->ledger.broken || session->broken_is_logged)
        return session->ledger.broken;
    session->broken_is_logged = true;
    session->daemon->broken_ledgers++;
    session_close_policy(session);
    log_error("session %s: a process cut or damaged its ledger; it gets no new memory and no new process; "
              "release it",
              session->id);
    change_publish(
        session->daemon, &(struct change){CHANGE_LEDGER_BROKEN, .session = session},
        "a process cut or damaged its ledger; it gets no new memory and no new process; release it");
    return true;
}

void session_check_ledger_file(struct daemon *daemon, const char *name)
{
    struct session *session = session_find_id(daemon, name);
    if (session && session->ledger.usage && !ledgers_check_length(&session->ledger))
        session_is_broken(session);
}
