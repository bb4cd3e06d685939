#include "daemon/process/attach.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/gpu/sampler.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/connection_closer.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/listener.h"
#include "daemon/loop/log.h"
#include "daemon/loop/peer.h"
#include "daemon/process/context_cost.h"
#include "daemon/process/enter.h"
#include "daemon/process/reaper.h"
#include "daemon/session/own_socket.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/users/descriptor_bounds.h"
#include "daemon/users/user_time.h"

#define HELLO_TIMEOUT_USEC UINT64_C(10000000)
/* The loop takes RATE_MESSAGES of a connection's messages in RATE_USEC; more wait in its socket. Interceptors send a
 * notice every 20 ms at most. */
#define RATE_MESSAGES 20u
#define RATE_USEC UINT64_C(200000)

/* One client of attach.sock. */
#define LAST_MESSAGES 64u /* the most that are taken up of a dead process */

struct connection {
    TAILQ_ENTRY(connection) next_silent;
    bool is_silent; /* it has not sent HELLO or AGENT yet, and is in attach.silent */
    struct attach *attach;
    struct peer peer;
    char own_session[SESSION_ID_TEXT]; /* the session whose own socket it connected to; empty: attach.sock */
    int fd;
    sd_event_source *source, *timeout;
    struct paid_source paid;
    struct process *process; /* NULL before HELLO */
    uint32_t asked_gpu;      /* index in the policy; while the cost of a context there is measured */
    /* Of the wire protocol, known to both sides; 0 before HELLO, or when there is none. */
    uint16_t version;
};

struct attach {
    struct daemon *daemon;
    struct observer observer;
    struct listener *listener;
    void (*on_agent)(struct process *process, int fd);
    TAILQ_HEAD(silent, connection) silent; /* oldest first */
};

/* What to do with a connection after a message. */
enum outcome { STAY, HANG_UP };

/* The connection has sent its first message, or ends. */
static void break_silence(struct connection *connection)
{
    if (!connection->is_silent)
        return;
    connection->is_silent = false;
    TAILQ_REMOVE(&connection->attach->silent, connection, next_silent);
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
    user_time_forget(&connection->paid);
    sd_event_source_disable_unref(connection->source);
    sd_event_source_disable_unref(connection->timeout);
    if (connection->fd >= 0)
        connection_closer_close(connection->attach->daemon, connection->fd);
    free(connection);
}

/* Close the process's connection, if it has one. The process itself goes on. */
static void drop_connection(struct process *process)
{
    struct connection *connection = process->connection;
    context_cost_cancel(process);
    process->connection = NULL;
    if (connection)
        connection_free(connection);
}

/* Decide who answers for the connection's messages. Users of a container are not the machine's: there it is the
 * session's owner. */
static void name_payer(struct connection *connection, const struct session *session)
{
    uid_t uid = connection->own_session[0] && session ? session->owner : connection->peer.uid;
    user_time_watch(connection->attach->daemon, &connection->paid, connection->source,
                    SD_EVENT_PRIORITY_NORMAL, uid, session ? session->number : 0);
}

static void hang_up(struct connection *connection)
{
    struct process *process = connection->process;
    if (process) {
        drop_connection(process);
        reaper_hung_up(process);
    } else {
        connection_free(connection);
    }
}

/* --- Answers --------------------------------------------------------------------------------------- */

static struct wire_header header_to(const struct connection *connection, enum wire_type type)
{
    return (struct wire_header){.type = (uint16_t)type, .version = connection->version};
}

static enum outcome refuse(struct connection *connection, const struct refusal *refusal)
{
    struct wire_message answer = {.header.type = WIRE_REFUSED, .refused.reason = refusal->reason};
    memcpy(answer.refused.message, refusal->message, sizeof(answer.refused.message));
    wire_send(connection->fd, &answer, NULL, 0);
    if (!refusal->is_quiet) {
        connection->attach->daemon->refused_attaches++;
        log_info("refused process %d of uid %u: %s", (int)connection->peer.pid,
                 (unsigned)connection->peer.uid, refusal->message);
    }
    return HANG_UP;
}

static enum outcome welcome(struct connection *connection, struct process *process)
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
    drop_connection(process); /* a slot has one connection; we may not have seen the old one hang up yet */
    connection->process = process;
    process->connection = connection;
    break_silence(connection);
    name_payer(connection, session);
    connection->timeout = sd_event_source_disable_unref(connection->timeout);
    session->daemon->attaches++;
    log_info("session %s: process %d (%s) has slot %u", session->id, (int)process->pid, process->command,
             process->slot);
    return wire_send(connection->fd, &answer, fds, 2) < 0 ? HANG_UP : STAY;
}

static enum outcome answer_context_cost(struct connection *connection, uint64_t bytes)
{
    struct wire_message answer = {.header = header_to(connection, WIRE_CONTEXT_COST),
                                  .context_cost = {.gpu = connection->asked_gpu, .bytes = bytes}};
    return wire_send(connection->fd, &answer, NULL, 0) < 0 ? HANG_UP : STAY;
}

/* --- Messages -------------------------------------------------------------------------------------- */

static enum outcome on_hello(struct connection *connection, const struct wire_message *message)
{
    const struct wire_hello *hello = &message->hello;
    const struct enter_request request = {
        .socket = connection->fd,
        .own_session = connection->own_session,
        .session_id = hello->session_id,
        .token = hello->token,
        .version_oldest = hello->version_oldest,
        .version_newest = hello->version_newest,
        .layout_oldest = hello->layout_oldest,
        .layout_newest = hello->layout_newest,
        .slot = hello->slot,
        .generation = hello->generation,
    };
    struct process *process;
    struct refusal refusal;
    if (enter_session(connection->attach->daemon, &request, &connection->version, &process, &refusal) < 0)
        return refuse(connection, &refusal);
    return welcome(connection, process);
}

static enum outcome on_agent(struct connection *connection, const struct wire_message *message)
{
    const struct wire_agent *agent = &message->agent;
    const struct enter_request request = {
        .socket = connection->fd,
        .own_session = connection->own_session,
        .session_id = agent->session_id,
        .token = agent->token,
        .version_oldest = agent->version_oldest,
        .version_newest = agent->version_newest,
        .layout_oldest = LEDGER_LAYOUT,
        .layout_newest = LEDGER_LAYOUT,
        .slot = agent->slot,
        .generation = agent->generation,
    };
    struct process *process;
    struct refusal refusal;
    if (enter_as_agent(connection->attach->daemon, &request, &connection->version, &process, &refusal) < 0)
        return refuse(connection, &refusal);
    user_time_forget(&connection->paid);
    /* A descriptor can have only one source. */
    connection->source = sd_event_source_disable_unref(connection->source);
    connection->attach->on_agent(process, steal_fd(&connection->fd));
    return HANG_UP; /* the agent's room owns the connection now */
}

static void on_context_cost(void *argument, uint64_t bytes)
{
    struct connection *connection = argument;
    if (answer_context_cost(connection, bytes) == HANG_UP)
        hang_up(connection);
}

static enum outcome on_context_created(struct connection *connection, const struct wire_message *message)
{
    const struct wire_context_created *created = &message->context_created;
    struct process *process = connection->process;
    struct session *session = process->session;
    if (created->gpu >= session->gpu_count || process->measurement) {
        log_info("session %s: process %d broke the protocol", session->id, (int)process->pid);
        return HANG_UP;
    }
    connection->asked_gpu = created->gpu;
    int gpu = session->gpus[created->gpu].gpu;
    uint64_t known = gpu >= 0 ? session->daemon->gpus[gpu].context_bytes : 0;
    if (!known && gpu >= 0 && context_cost_measure(process, created->gpu, on_context_cost, connection))
        return STAY;
    return answer_context_cost(connection, known);
}

/* False: the program has broken the protocol. */
static bool take_refusal(struct process *process, const struct wire_refusal_told *told)
{
    struct session *session = process->session;
    if (told->gpu >= session->gpu_count || told->cause > WIRE_REFUSAL_BY_CARD) {
        log_info("session %s: process %d broke the protocol", session->id, (int)process->pid);
        return false;
    }
    if (told->cause == WIRE_REFUSAL_NONE)
        return true;
    session->refusal = (struct session_refusal){.pid = process->pid,
                                                .is_by_card = told->cause == WIRE_REFUSAL_BY_CARD,
                                                .gpu = told->gpu,
                                                .asked_bytes = told->asked_bytes,
                                                .used_bytes = told->used_bytes,
                                                .limit_bytes = told->limit_bytes};
    memcpy(session->refusal.command, process->command, sizeof(session->refusal.command));
    return true;
}

/* The driver has changed the process's memory, or memory was refused. */
static enum outcome on_notice(struct connection *connection, const struct wire_message *message)
{
    struct process *process = connection->process;
    const struct wire_refusal_told *refusal = &message->notice.refusal;
    if (message->notice.kind == WIRE_NOTICE_DENIED && !take_refusal(process, refusal))
        return HANG_UP;
    process->unknown_pointers = message->notice.unknown_pointers;
    gpu_sample_soon(process->session->daemon); /* the parts that observe samples will look */
    return STAY;
}

static bool is_list_of_names(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ ";
    return text[strspn(text, letters)] == '\0';
}

/* Each message repeats the names of those before it, so there are no more changes than names in the longest message. */
static enum outcome on_unknown(struct connection *connection, const struct wire_message *message)
{
    struct process *process = connection->process;
    const char *known = process->unknown_functions ? process->unknown_functions : "";
    const char *names = message->unknown.names;
    if (!is_list_of_names(names)) {
        log_info("session %s: process %d broke the protocol", process->session->id, (int)process->pid);
        return HANG_UP;
    }
    if (strlen(names) <= strlen(known) || strncmp(names, known, strlen(known)) != 0)
        return STAY;
    char *kept = strdup(names);
    if (!kept)
        return STAY;
    free(process->unknown_functions);
    process->unknown_functions = kept;
    change_publish(process->session->daemon,
                   &(struct change){CHANGE_FUNCTIONS_UNKNOWN, .session = process->session, .process = process,
                                    .pid = process->pid, .command = process->command},
                   "process %d (%s) asked the driver for functions that this GPU Slice does not know: %s",
                   (int)process->pid, process->command, names);
    return STAY;
}

/* The messages that a client may send, before it has a slot and after. */
static const struct {
    enum wire_type type;
    bool is_attached;
    enum outcome (*take)(struct connection *connection, const struct wire_message *message);
} messages[] = {
    {WIRE_HELLO, false, on_hello},
    {WIRE_AGENT, false, on_agent},
    {WIRE_CONTEXT_CREATED, true, on_context_created},
    {WIRE_NOTICE, true, on_notice},
    {WIRE_UNKNOWN, true, on_unknown},
};

static enum outcome take_message(struct connection *connection, const struct wire_message *message)
{
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
        if (messages[i].type == message->header.type && messages[i].is_attached == !!connection->process)
            return messages[i].take(connection, message);
    log_info("process %d of uid %u sent an invalid message", (int)connection->peer.pid,
             (unsigned)connection->peer.uid);
    return HANG_UP;
}

/* Take up the connection's next message, after which the connection may be gone. False: there is none. */
static bool hear(struct connection *connection)
{
    struct wire_message message;
    int result = wire_receive_plain(connection->fd, &message);
    if (result == -EAGAIN)
        return false;
    if (result == -EPROTO)
        log_info("process %d of uid %u sent an invalid message", (int)connection->peer.pid,
                 (unsigned)connection->peer.uid);
    if (result < 0 || take_message(connection, &message) == HANG_UP)
        hang_up(connection);
    return true;
}

/* The process is dead. Of what it has sent, only what was refused still matters to anybody. */
static void hear_last_refusals(struct connection *connection)
{
    struct wire_message message;
    for (unsigned i = 0; i < LAST_MESSAGES && wire_receive_plain(connection->fd, &message) == 0; i++)
        if (message.header.type == WIRE_NOTICE && message.notice.kind == WIRE_NOTICE_DENIED)
            take_refusal(connection->process, &message.notice.refusal);
}

static int on_message(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct connection *connection = userdata;
    if (user_time_begin(connection->attach->daemon, &connection->paid))
        hear(connection);
    return 0;
}

/* --- Connections ----------------------------------------------------------------------------------- */

/* The oldest silent connection of the session's own socket, or of the user who has the most, makes room for
 * `connection`. It goes if it has said nothing; but in a crowd its message may only not have been taken up yet. */
static void end_a_silence(const struct connection *connection)
{
    struct attach *attach = connection->attach;
    const char *session = connection->own_session;
    uid_t most = user_with_most(attach->daemon, connection->peer.uid, USER_SILENT);
    struct connection *at;
    TAILQ_FOREACH (at, &attach->silent, next_silent)
        if (strcmp(at->own_session, session) == 0 &&
            (session[0] || user_is_counted_as(attach->daemon, at->peer.uid, most)))
            break;
    if (!at)
        return;
    user_time_begin(attach->daemon, &at->paid); /* whether it is behind or not: it has waited the longest */
    if (!hear(at))
        connection_free(at);
}

/* Count one more silent connection; false: there are too many. */
static bool count_silence(const struct connection *connection)
{
    struct daemon *daemon = connection->attach->daemon;
    if (connection->own_session[0]) {
        struct session *session = session_find_id(daemon, connection->own_session);
        return session && own_socket_take_silent(session);
    }
    if (user_check(daemon, connection->peer.uid, USER_SILENT, NULL) < 0)
        return false;
    user_add(daemon, connection->peer.uid, USER_SILENT);
    return true;
}

static bool begin_silence(struct connection *connection)
{
    connection->is_silent = count_silence(connection);
    if (!connection->is_silent) {
        end_a_silence(connection); /* the session may end with it */
        connection->is_silent = count_silence(connection);
    }
    if (connection->is_silent)
        TAILQ_INSERT_TAIL(&connection->attach->silent, connection, next_silent);
    return connection->is_silent;
}

static int on_hello_timeout(sd_event_source *source, uint64_t usec, void *userdata)
{
    hang_up(userdata);
    return 0;
}

/* A new connection on attach.sock (`own_session` is empty), or on a session's own socket. */
static void begin_connection(struct attach *attach, int fd, const char *own_session)
{
    struct connection *connection = calloc(1, sizeof(*connection));
    if (connection) {
        connection->attach = attach;
        connection->fd = fd;
        strcpy(connection->own_session, own_session);
    }
    if (!connection || peer_credentials(fd, &connection->peer) < 0 || !begin_silence(connection)) {
        free(connection);
        connection_closer_close(attach->daemon, fd);
        return;
    }
    if (sd_event_add_io(attach->daemon->loop, &connection->source, fd, EPOLLIN, on_message, connection) < 0 ||
        sd_event_source_set_ratelimit(connection->source, RATE_USEC, RATE_MESSAGES) < 0 ||
        sd_event_add_time_relative(attach->daemon->loop, &connection->timeout, CLOCK_MONOTONIC,
                                   HELLO_TIMEOUT_USEC, 0, on_hello_timeout, connection) < 0)
        connection_free(connection);
    else
        name_payer(connection, session_find_id(attach->daemon, connection->own_session));
}

static void on_connect(void *context, int fd)
{
    begin_connection(context, fd, "");
}

static void on_own_socket(struct daemon *daemon, int fd, const char *session_id)
{
    begin_connection(daemon->attach, fd, session_id);
}

static void on_change(void *context, const struct change *change)
{
    if (change->kind == CHANGE_PROCESS_DIED && change->process->connection)
        hear_last_refusals(change->process->connection);
    if (change->kind == CHANGE_PROCESS_GONE)
        drop_connection(change->process);
}

int attach_start(struct daemon *daemon, int fd, void (*on_agent_come)(struct process *process, int fd),
                 struct error *error)
{
    struct attach *attach = calloc(1, sizeof(*attach));
    if (!attach)
        return error_set_errno(error, ENOMEM, "cannot serve attach.sock");
    attach->daemon = daemon;
    TAILQ_INIT(&attach->silent);
    attach->on_agent = on_agent_come;
    int result = listener_open(daemon, fd, "attach.sock", on_connect, attach, &attach->listener, error);
    if (result < 0) {
        free(attach);
        return result;
    }
    attach->observer = (struct observer){.take = on_change, .context = attach};
    change_observe(daemon, &attach->observer);
    daemon->attach = attach;
    return own_sockets_start(daemon, on_own_socket, error);
}

int attach_replace_socket(struct daemon *daemon, int fd)
{
    return listener_replace(daemon->attach->listener, fd);
}

void attach_stop(struct daemon *daemon)
{
    struct attach *attach = daemon->attach;
    if (!attach)
        return;
    while (!TAILQ_EMPTY(&attach->silent))
        connection_free(TAILQ_FIRST(&attach->silent));
    listener_close(attach->listener);
    change_observe_no_more(daemon, &attach->observer);
    free(attach);
    daemon->attach = NULL;
}
