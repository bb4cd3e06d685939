#include "daemon/process/attach.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/gpu/gpu.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/descriptor_bounds.h"
#include "daemon/loop/listener.h"
#include "daemon/loop/log.h"
#include "daemon/process/own_socket.h"
#include "daemon/process/peer.h"
#include "daemon/process/reaper.h"
#include "daemon/schedule/agents.h"
#include "daemon/session/declared.h"
#include "daemon/session/session.h"
#include "daemon/store/store.h"
#include "wire/wire.h"

#define HELLO_TIMEOUT_USEC UINT64_C(10000000)

struct connection {
    struct connection *next, **at; /* of those that have not said HELLO */
    struct attach *attach;
    struct peer peer;
    char own_session[SESSION_ID_TEXT]; /* whose own socket it came by; empty: attach.sock */
    int fd;
    sd_event_source *source, *timeout;
    struct process *process; /* NULL before HELLO */
    uint32_t asked_gpu;      /* in the policy; while its context is measured */
    uint16_t version;        /* of the wire, that both sides know; 0 before HELLO, or when there is none */
};

struct attach {
    struct daemon *daemon;
    struct listener *listener;
    struct connection *silent;
};

/* It has said what it is about, or ends. */
static void break_silence(struct connection *connection)
{
    if (!connection->at)
        return;
    *connection->at = connection->next;
    if (connection->next)
        connection->next->at = connection->at;
    connection->at = NULL;
    if (!connection->own_session[0]) {
        user_remove(connection->attach->daemon, connection->peer.uid, USER_SILENT);
        return;
    }
    struct session *session = session_find_id(connection->attach->daemon, connection->own_session);
    if (session)
        own_socket_drop_silent(session);
}

static void connection_free(struct connection *connection)
{
    break_silence(connection);
    sd_event_source_disable_unref(connection->source);
    sd_event_source_disable_unref(connection->timeout);
    if (connection->fd >= 0)
        close(connection->fd);
    free(connection);
}

void attach_drop(struct connection *connection)
{
    connection_free(connection);
}

static void hang_up(struct connection *connection)
{
    struct process *process = connection->process;
    connection_free(connection);
    if (process) {
        if (process->measurement)
            gpu_measure_cancel(process->measurement);
        reaper_hung_up(process);
    }
}

/* --- HELLO ----------------------------------------------------------------------------------------- */

/* What an answer to HELLO or AGENT needs, gathered step by step. */
struct entry {
    struct connection *connection;
    const char *session_id, *token;
    uint16_t version_oldest, version_newest; /* of the wire */
    uint32_t slot;                           /* held before, or WIRE_NO_SLOT */
    uint64_t generation;
    bool is_by_rule; /* it named no session, and a rule names this one */
    struct session *session;
    struct peer peer;
    int pidfd;
    uint64_t start_ticks;
};

/* Who was told no session is not to take a refusal for there being no rule. */
static enum wire_refusal no_session(const struct entry *entry)
{
    return entry->is_by_rule ? WIRE_REFUSED_RULE : WIRE_REFUSED_NO_SESSION;
}

/* A client that has no version in common with us is answered in the oldest. */
static struct wire_header header_to(const struct connection *connection, enum wire_type type)
{
    return (struct wire_header){.type = (uint16_t)type,
                                .version = connection->version ? connection->version : WIRE_VERSION_OLDEST};
}

__attribute__((format(printf, 3, 4))) static void refuse(struct connection *connection,
                                                         enum wire_refusal reason, const char *format, ...)
{
    struct wire_message answer = {.header = header_to(connection, WIRE_REFUSED), .refused.reason = reason};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(answer.refused.message, sizeof(answer.refused.message), format, arguments);
    va_end(arguments);
    wire_send(connection->fd, &answer, NULL, 0);
    connection->attach->daemon->refused_attaches++;
    log_info("process %d of uid %u was refused: %s", (int)connection->peer.pid,
             (unsigned)connection->peer.uid, answer.refused.message);
    hang_up(connection);
}

static bool identify(struct entry *entry)
{
    struct connection *connection = entry->connection;
    int result = peer_identity(connection->fd, &entry->peer, &entry->pidfd, &entry->start_ticks);
    if (result < 0)
        refuse(connection, WIRE_REFUSED_INTERNAL,
               "gpusliced cannot see the process (%s); is it in another pid namespace?", strerror(-result));
    return result >= 0;
}

/* Of an earlier connection of this process, say, that named no session. */
static bool is_admitted_by_rule(const struct entry *entry, const struct session *session)
{
    struct config_program program;
    if (!session->is_declared)
        return false;
    peer_program(entry->connection->fd, entry->peer.pid, &program);
    return declared_admits(session, &program);
}

/* The session that the connection's own socket says; false: it names another, and is told so. */
static bool find_by_socket(struct entry *entry)
{
    struct connection *connection = entry->connection;
    if (!connection->own_session[0])
        return true;
    if (*entry->session_id && strcmp(entry->session_id, connection->own_session) != 0) {
        refuse(connection, WIRE_REFUSED_NOT_OWNER,
               "this socket is of session %s alone; set GPUSLICE_SESSION to it", connection->own_session);
        return false;
    }
    entry->session_id = connection->own_session;
    return true;
}

/* By its user, its token, or a rule. False: it is told why not. */
static bool is_authorised(struct entry *entry, const struct session *session)
{
    struct connection *connection = entry->connection;
    const struct daemon *daemon = connection->attach->daemon;
    bool has_token = entry->token[0], is_owner = session_is_visible(session, entry->peer.uid);
    bool is_in_container = connection->own_session[0]; /* whose users are not the host's */
    bool is_admitted =
        entry->is_by_rule || ((!is_owner || !has_token) && is_admitted_by_rule(entry, session));
    if (!is_owner && !is_admitted && !is_in_container) {
        refuse(connection, WIRE_REFUSED_NOT_OWNER, "session %s is another user's", session->id);
        return false;
    }
    bool needs_token = daemon->config.daemon.ipc_token_required || (is_in_container && !is_owner);
    if ((has_token || (needs_token && !is_admitted)) &&
        !identity_token_matches(session->token, entry->token)) {
        refuse(connection, WIRE_REFUSED_TOKEN,
               "GPUSLICE_IPC_TOKEN is not the token of session %s; start the program with 'gpuslice run "
               "--session'",
               session->id);
        return false;
    }
    return true;
}

static bool may_enter(struct entry *entry, bool layout_is_known)
{
    struct connection *connection = entry->connection;
    struct daemon *daemon = connection->attach->daemon;
    connection->version = wire_common_version(entry->version_oldest, entry->version_newest);
    if (!connection->version || !layout_is_known) {
        refuse(connection, WIRE_REFUSED_VERSION,
               "the program's libgpuslice.so and gpusliced %s have no version in common; install both anew",
               GPUSLICE_VERSION);
        return false;
    }
    struct session *session = session_find_id(daemon, entry->session_id);
    if (!session) {
        refuse(connection, no_session(entry), "there is no session '%s'; it was released or has ended",
               identity_is_id(entry->session_id) ? entry->session_id : "?");
        return false;
    }
    if (!is_authorised(entry, session))
        return false;
    /* Who is attached already comes back under a new daemon for the policy that says so. */
    bool is_attached =
        reaper_find(session, entry->peer.pid, entry->start_ticks, entry->slot, entry->generation) != NULL;
    if ((session->state == SESSION_QUEUED || session->release) && !is_attached) {
        refuse(connection, no_session(entry), "session %s %s", session->id,
               session->release ? "is being released; create another"
                                : "waits to be admitted; try again when it is active");
        return false;
    }
    if (session->state == SESSION_EXPIRED && !is_attached) {
        refuse(connection, no_session(entry), "session %s has expired; create another", session->id);
        return false;
    }
    if (session_is_broken(session)) {
        refuse(connection, WIRE_REFUSED_BROKEN,
               "a process damaged the ledger of session %s; release it and create another", session->id);
        return false;
    }
    entry->session = session;
    return true;
}

/* The slot that the client held under an earlier connection or daemon, if it is still its. */
static struct process *find_held(const struct entry *entry)
{
    if (entry->slot == WIRE_NO_SLOT)
        return NULL;
    struct process *process =
        reaper_find(entry->session, entry->peer.pid, entry->start_ticks, entry->slot, entry->generation);
    if (process && process->connection) {
        /* One slot has one connection. The old one's hang-up may still be in the queue. */
        struct connection *old = process->connection;
        process->connection = NULL;
        if (process->measurement)
            gpu_measure_cancel(process->measurement);
        connection_free(old);
    }
    return process;
}

/* Slots that this very process had before it exec'd are free now. If it still maps the ledger, it has not,
 * and runs a second copy of us. The session may end by it. */
static void free_execed_slots(const struct entry *entry)
{
    struct process *process = reaper_find_other(entry->session, entry->peer.pid, entry->start_ticks, NULL);
    while (process) {
        struct process *next =
            reaper_find_other(entry->session, entry->peer.pid, entry->start_ticks, process);
        if (!reaper_remove_if_execed(process))
            return;
        process = next;
    }
}

static struct process *take_slot(struct entry *entry)
{
    struct session *session = entry->session;
    char id[SESSION_ID_TEXT];
    strcpy(id, session->id);
    free_execed_slots(entry);
    if (session_find_id(entry->connection->attach->daemon, id) != session) {
        refuse(entry->connection, no_session(entry), "session %s has just ended", id);
        return NULL;
    }

    uint64_t generation;
    struct process *process;
    struct error error;
    if (session_open_ledger(session, &error) < 0) {
        refuse(entry->connection, WIRE_REFUSED_INTERNAL, "%s", error.message);
        return NULL;
    }
    struct ledger_owner owner = {.pid = entry->peer.pid, .start_ticks = entry->start_ticks};
    int slot = ledger_slot_claim(session->ledger.usage, owner, &generation);
    for (const struct process *at = session->processes; at && slot >= 0; at = at->next)
        if (at->slot == (uint32_t)slot)
            session->ledger.broken = true; /* a process wrote over who owns what */
    if (session_is_broken(session)) {
        refuse(entry->connection, WIRE_REFUSED_BROKEN,
               "a process damaged the ledger of session %s; release it and create another", session->id);
        return NULL;
    }
    if (slot < 0) {
        refuse(entry->connection, WIRE_REFUSED_FULL,
               "all %u places of session %s are taken; wait for a process to end, or create another session",
               LEDGER_SLOTS, session->id);
        return NULL;
    }
    if (entry->connection->own_session[0])
        entry->peer.uid = session->owner; /* which is charged for it */
    int result = user_check(session->daemon, entry->peer.uid, USER_PROCESS, &error);
    if (result == 0)
        result = reaper_add(session, &entry->peer, entry->start_ticks, steal_fd(&entry->pidfd),
                            (uint32_t)slot, generation, &process, &error);
    if (result < 0) {
        ledger_slot_clear(session->ledger.usage, (uint32_t)slot, NULL);
        refuse(entry->connection, WIRE_REFUSED_INTERNAL, "%s", error.message);
        return NULL;
    }
    change_publish(session->daemon,
                   &(struct change){CHANGE_PROCESS_ATTACHED, .session = session, .process = process,
                                    .pid = process->pid, .command = process->command},
                   "process %d attached", (int)process->pid);
    return process;
}

static void welcome(struct connection *connection, struct process *process)
{
    struct session *session = process->session;
    struct wire_message answer = {
        .header = header_to(connection, WIRE_WELCOME),
        .welcome =
            {
                .slot = process->slot,
                .layout = LEDGER_LAYOUT,
                .generation = process->generation,
                .epoch = session->ledger.policy->epoch,
                .policy_bytes = LEDGER_POLICY_BYTES,
                .usage_bytes = ledger_usage_bytes(),
            },
    };
    const int fds[] = {session->ledger.policy_fd, session->ledger.usage_fd};
    connection->process = process;
    process->connection = connection;
    if (process->wire_version != connection->version) {
        process->wire_version = connection->version;
        store_put_process(process);
    }
    break_silence(connection);
    connection->timeout = sd_event_source_disable_unref(connection->timeout);
    session->daemon->attaches++;
    log_info("session %s: process %d (%s) has slot %u", session->id, (int)process->pid, process->command,
             process->slot);
    if (wire_send(connection->fd, &answer, fds, 2) < 0)
        hang_up(connection);
}

/* The session that the rules name for a process that named none. False: there is none, and it is told so. */
static bool find_by_rule(struct entry *entry)
{
    struct connection *connection = entry->connection;
    struct config_program program;
    struct session *session;
    peer_program(connection->fd, entry->peer.pid, &program);
    const struct config_session *rule = declared_match(connection->attach->daemon, &program, &session);
    if (!rule) {
        struct wire_message answer = {.header = header_to(connection, WIRE_REFUSED),
                                      .refused = {.reason = WIRE_REFUSED_NO_SESSION,
                                                  .message = "no rule names a session for this process"}};
        wire_send(connection->fd, &answer, NULL, 0);
        hang_up(connection);
        return false;
    }
    if (!session) {
        refuse(connection, WIRE_REFUSED_RULE,
               "by sessions.conf this process belongs into session '%s', which could not be made; 'gpuslice "
               "config' says why",
               rule->name);
        return false;
    }
    entry->session_id = session->id;
    entry->is_by_rule = true;
    return true;
}

static void on_hello(struct connection *connection, const struct wire_hello *hello)
{
    struct entry entry = {
        .connection = connection,
        .session_id = hello->session_id,
        .token = hello->token,
        .version_oldest = hello->version_oldest,
        .version_newest = hello->version_newest,
        .slot = hello->slot,
        .generation = hello->generation,
        .pidfd = -1,
    };
    bool layout_is_known = hello->layout_oldest <= LEDGER_LAYOUT && hello->layout_newest >= LEDGER_LAYOUT;
    if (!identify(&entry))
        return;
    if (find_by_socket(&entry) && (*entry.session_id || find_by_rule(&entry)) &&
        may_enter(&entry, layout_is_known)) {
        struct process *process = find_held(&entry);
        if (!process)
            process = take_slot(&entry);
        if (process)
            welcome(connection, process);
    }
    if (entry.pidfd >= 0)
        close(entry.pidfd);
}

/* --- AGENT ----------------------------------------------------------------------------------------- */

/* The connection is the lease's from then on. */
static void on_agent(struct connection *connection, const struct wire_agent *agent)
{
    struct entry entry = {
        .connection = connection,
        .session_id = agent->session_id,
        .token = agent->token,
        .version_oldest = agent->version_oldest,
        .version_newest = agent->version_newest,
        .slot = agent->slot,
        .generation = agent->generation,
        .pidfd = -1,
    };
    if (!identify(&entry))
        return;
    if (find_by_socket(&entry) && may_enter(&entry, true)) {
        struct process *process =
            reaper_find(entry.session, entry.peer.pid, entry.start_ticks, entry.slot, entry.generation);
        if (!process) {
            refuse(connection, WIRE_REFUSED_NO_SESSION, "the process has no such slot in session %s",
                   entry.session->id);
        } else if (connection->version < WIRE_VERSION_AGENT) {
            refuse(connection, WIRE_REFUSED_VERSION, "agents speak version %d of the wire and later",
                   WIRE_VERSION_AGENT);
        } else {
            int fd = connection->fd;
            connection->fd = -1;
            connection_free(connection);
            agents_enter(process, fd);
        }
    }
    if (entry.pidfd >= 0)
        close(entry.pidfd);
}

/* --- CONTEXT_CREATED ------------------------------------------------------------------------------- */

static void answer_context_cost(struct connection *connection, uint64_t bytes)
{
    struct wire_message answer = {.header = header_to(connection, WIRE_CONTEXT_COST),
                                  .context_cost = {.gpu = connection->asked_gpu, .bytes = bytes}};
    if (wire_send(connection->fd, &answer, NULL, 0) < 0)
        hang_up(connection);
}

static void on_context_cost(void *argument, uint64_t bytes)
{
    answer_context_cost(argument, bytes);
}

static void on_context_created(struct connection *connection, const struct wire_context_created *created)
{
    struct process *process = connection->process;
    struct session *session = process->session;
    if (created->gpu >= session->gpu_count || process->measurement) {
        log_info("session %s: process %d broke the protocol", session->id, (int)process->pid);
        hang_up(connection);
        return;
    }
    connection->asked_gpu = created->gpu;
    int gpu = session->gpus[created->gpu].gpu;
    uint64_t known = gpu >= 0 ? session->daemon->gpus[gpu].context_bytes : 0;
    if (known || gpu < 0 || !gpu_measure_context(process, created->gpu, on_context_cost, connection))
        answer_context_cost(connection, known);
}

/* --- Connections ----------------------------------------------------------------------------------- */

/* Of memory that changed behind our back, or was refused. */
static void on_notice(struct process *process, const struct wire_notice *notice)
{
    struct session *session = process->session;
    process->unknown_pointers = notice->unknown_pointers;
    change_publish(session->daemon,
                   &(struct change){CHANGE_PROCESS_NOTICED, .session = session, .process = process},
                   "process %d gave notice", (int)process->pid);
    gpu_sample_soon(session->daemon);
}

static int on_message(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct connection *connection = userdata;
    struct wire_message message;
    int fds[WIRE_FDS_MAX];
    unsigned fd_count;
    int result = wire_receive(fd, &message, fds, &fd_count);
    if (result == -EAGAIN)
        return 0;
    for (unsigned i = 0; i < fd_count; i++) /* clients have none to send */
        close(fds[i]);
    if (result == 0 && message.header.type == WIRE_HELLO && !connection->process)
        on_hello(connection, &message.hello);
    else if (result == 0 && message.header.type == WIRE_AGENT && !connection->process)
        on_agent(connection, &message.agent);
    else if (result == 0 && message.header.type == WIRE_CONTEXT_CREATED && connection->process)
        on_context_created(connection, &message.context_created);
    else if (result == 0 && message.header.type == WIRE_NOTICE && connection->process)
        on_notice(connection->process, &message.notice);
    else {
        if (result == 0 || result == -EPROTO)
            log_info("process %d of uid %u sent what is no message here", (int)connection->peer.pid,
                     (unsigned)connection->peer.uid);
        hang_up(connection);
    }
    return 0;
}

static int on_hello_timeout(sd_event_source *source, uint64_t usec, void *userdata)
{
    hang_up(userdata);
    return 0;
}

/* One more of which nothing is known yet; false: there are too many. */
static bool begin_silence(struct attach *attach, struct connection *connection, struct session *session)
{
    if (session) {
        if (!own_socket_take_silent(session))
            return false;
        strcpy(connection->own_session, session->id);
    } else {
        if (user_check(attach->daemon, connection->peer.uid, USER_SILENT, NULL) < 0)
            return false;
        user_add(attach->daemon, connection->peer.uid, USER_SILENT);
    }
    connection->next = attach->silent;
    connection->at = &attach->silent;
    if (connection->next)
        connection->next->at = &connection->next;
    attach->silent = connection;
    return true;
}

void attach_enter(struct attach *attach, int fd, struct session *session)
{
    struct connection *connection = calloc(1, sizeof(*connection));
    if (!connection || peer_credentials(fd, &connection->peer) < 0 ||
        !begin_silence(attach, connection, session)) {
        free(connection);
        close(fd);
        return;
    }
    connection->attach = attach;
    connection->fd = fd;
    if (sd_event_add_io(attach->daemon->loop, &connection->source, fd, EPOLLIN, on_message, connection) < 0 ||
        sd_event_add_time_relative(attach->daemon->loop, &connection->timeout, CLOCK_MONOTONIC,
                                   HELLO_TIMEOUT_USEC, 0, on_hello_timeout, connection) < 0)
        connection_free(connection);
}

static void begin_connection(void *context, int fd)
{
    attach_enter(context, fd, NULL);
}

int attach_start(struct daemon *daemon, int fd, struct error *error)
{
    struct attach *attach = calloc(1, sizeof(*attach));
    if (!attach)
        return error_set_errno(error, ENOMEM, "cannot serve attach.sock");
    attach->daemon = daemon;
    int result = listener_open(daemon, fd, "attach.sock", begin_connection, attach, &attach->listener, error);
    if (result < 0) {
        free(attach);
        return result;
    }
    daemon->attach = attach;
    return own_sockets_start(daemon, error);
}

void attach_stop(struct daemon *daemon)
{
    struct attach *attach = daemon->attach;
    if (!attach)
        return;
    while (attach->silent)
        connection_free(attach->silent);
    listener_close(attach->listener);
    free(attach);
    daemon->attach = NULL;
}
