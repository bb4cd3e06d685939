/* connection.c - the agent's connection to the daemon: made, used and lost. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "intercept/agent/agent_state.h"
#include "intercept/resolve/report.h"
#include "intercept/session/attach.h"
#include "intercept/session/session.h"
#include "intercept/submit/gate.h"

#define ANSWER_MS 1000

void agent_open_gate(struct gate *gate, enum gate_state state)
{
    if (!agent.move.is_away)
        gate_open(gate, state);
}

static void let_go(const char *why)
{
    if (agent.connection.open)
        report_debug("the agent has lost its connection: %s", why);
    attach_let_go(&agent.connection);
    agent.held = agent.wanted = false;
    agent.told_need = 0;
    agent.flags = 0;
}

void agent_lose_daemon(struct gate *gate, const char *why)
{
    if ((agent.connection.open || agent.lost_ns) && agent.move.is_away)
        report_line("this program's GPU memory is in host memory, and gpusliced has gone: it waits until "
                    "there is one again");
    let_go(why);
    agent.lost_ns = 0;
    agent_open_gate(gate, GATE_FREE);
}

static void close_gate(struct gate *gate)
{
    if (atomic_load_explicit(&gate->word, memory_order_relaxed) < GATE_DRAINING)
        gate_close(gate);
    if (atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_DRAINING)
        gate_drained(gate);
}

void agent_lose_connection(struct gate *gate, const char *why)
{
    if (!agent.connection.open)
        return;
    let_go(why);
    agent.lost_ns = monotonic_ns();
    close_gate(gate);
}

void agent_tell(struct gate *gate, struct wire_message *message)
{
    message->header.version = agent.version;
    int result = attach_is_ours(&agent.connection) ? wire_post(agent.connection.fd, message) : -EBADF;
    if (result < 0)
        agent_lose_connection(gate, strerror(-result));
}

void agent_tell_want(struct gate *gate)
{
    uint64_t gpus = atomic_load_explicit(&gate->gpus, memory_order_relaxed);
    struct wire_message message = {.header.type = WIRE_WANT, .want.gpus = gpus};
    agent.told_gpus = gpus;
    agent_tell(gate, &message);
}

int agent_reach_daemon(void)
{
    struct error error = {0};
    if (session_mode() != SESSION_INSIDE) /* session_mode() attaches again if the daemon was restarted */
        return -ENOTCONN;
    const struct session_settings *settings = session_settings();
    const struct ledger_slot *slot = session_slot();
    struct wire_message message = {
        .header.type = WIRE_AGENT,
        .agent = {.version_oldest = WIRE_VERSION_OLDEST,
                  .version_newest = WIRE_VERSION,
                  .slot = slot->index,
                  .generation = slot->generation},
    };
    memcpy(message.agent.session_id, settings->session_id, sizeof(message.agent.session_id));
    memcpy(message.agent.token, settings->token, sizeof(message.agent.token));
    int fd = attach_connect(settings, ANSWER_MS, &error);
    if (fd < 0)
        return fd;
    int result = wire_send(fd, &message, NULL, 0);
    if (result < 0) {
        close(fd);
        return result;
    }
    attach_keep(&agent.connection, fd);
    agent.version = WIRE_VERSION;
    return 0;
}
