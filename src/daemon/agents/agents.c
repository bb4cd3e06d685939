#include "daemon/agents/agents.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/connection_closer.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/users/user_time.h"
#include "wire/wire.h"

/* At most so many messages of one agent are taken in so long; more wait in its socket. An agent that sends more for
 * long is cut off: a change is published, its gate opens, and its session is scheduled without it. */
#define RATE_MESSAGES 400u
#define RATE_USEC UINT64_C(100000)
#define FLOODS_MAX 20u
#define FLOOD_APART_NS UINT64_C(500000000)

/* One process's agent. */
struct agent {
    struct agents *agents;
    struct process *process;
    int fd;
    sd_event_source *source;
    struct paid_source paid;
    struct agent *next_broken; /* agents to which a message could not be sent */
    bool is_broken;
    bool has_come;   /* listeners were told */
    unsigned floods; /* moments in a row in which it sent too many messages */
    uint64_t flooded_ns;
};

struct agents {
    struct daemon *daemon;
    sd_event_source *later; /* drops the broken agents */
    struct agent *broken;
    struct observer observer;
    const struct agent_listener *listeners[AGENT_SUBJECTS];
};

/* --- Sending --------------------------------------------------------------------------------------- */

/* The agent's socket is full, or its other end is gone. Whoever sends is in the middle of something, so listeners hear of
 * that later. */
static void break_later(struct agent *agent)
{
    agent->is_broken = true;
    agent->next_broken = agent->agents->broken;
    agent->agents->broken = agent;
    sd_event_source_set_enabled(agent->agents->later, SD_EVENT_ONESHOT);
}

bool agents_send(struct process *process, struct wire_message *message, int fd)
{
    struct agent *agent = process->agent;
    if (!agent || agent->is_broken)
        return false;
    int result = fd >= 0 ? wire_post_descriptor(agent->fd, message, fd) : wire_post(agent->fd, message);
    if (result < 0)
        break_later(agent);
    return result == 0;
}

/* --- Coming and going ------------------------------------------------------------------------------ */

static void drop(struct agent *agent)
{
    struct agents *agents = agent->agents;
    struct process *process = agent->process;
    struct agent **at = &agents->broken;
    while (*at && *at != agent)
        at = &(*at)->next_broken;
    if (*at)
        *at = agent->next_broken;
    process->agent = NULL;
    user_time_forget(&agent->paid);
    sd_event_source_disable_unref(agent->source);
    connection_closer_close(agents->daemon, agent->fd);
    bool had_come = agent->has_come;
    free(agent);
    for (unsigned i = 0; had_come && i < AGENT_SUBJECTS; i++)
        if (agents->listeners[i])
            agents->listeners[i]->gone(process);
}

static int on_later(sd_event_source *source, void *userdata)
{
    struct agents *agents = userdata;
    while (agents->broken) {
        const struct process *process = agents->broken->process;
        log_info("session %s: cannot tell the agent of process %d about its lease", process->session->id,
                 (int)process->pid);
        drop(agents->broken);
    }
    return 0;
}

static bool take_message(struct agent *agent, const struct wire_message *message)
{
    bool is_memory = message->header.type == WIRE_MOVED || message->header.type == WIRE_NEED;
    const struct agent_listener *listener = agent->agents->listeners[is_memory ? AGENTS_MEMORY : AGENTS_TIME];
    return listener && listener->take(agent->process, message);
}

static int on_message(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct agent *agent = userdata;
    struct wire_message message;
    if (!user_time_begin(agent->agents->daemon, &agent->paid))
        return 0;
    int result = wire_receive_plain(fd, &message);
    if (result == -EAGAIN || (result == 0 && take_message(agent, &message)))
        return 0;
    if (result == 0 || result == -EPROTO)
        log_info("session %s: the agent of process %d sent an invalid message", agent->process->session->id,
                 (int)agent->process->pid);
    drop(agent);
    return 0;
}

/* The agent's messages waited for a moment, since there were too many. */
static int on_flood(sd_event_source *source, void *userdata)
{
    struct agent *agent = userdata;
    struct session *session = agent->process->session;
    uint64_t now = monotonic_ns();
    agent->floods = now - agent->flooded_ns < FLOOD_APART_NS ? agent->floods + 1 : 1;
    agent->flooded_ns = now;
    if (agent->floods < FLOODS_MAX)
        return 0;
    change_publish(session->daemon, &(struct change){CHANGE_AGENT_FLOODS, .session = session},
                   "process %d sends too many messages about the GPU's time; its connection is closed",
                   (int)agent->process->pid);
    log_warning("session %s: the agent of process %d sends too many messages; its connection is closed",
                session->id, (int)agent->process->pid);
    drop(agent);
    return 0;
}

static bool tell_of_new(struct agent *agent)
{
    const struct agents *agents = agent->agents;
    for (unsigned i = 0; i < AGENT_SUBJECTS; i++)
        if (agents->listeners[i] && agents->listeners[i]->come && !agents->listeners[i]->come(agent->process))
            return false;
    return true;
}

void agents_enter(struct process *process, int fd)
{
    struct session *session = process->session;
    struct agents *agents = session->daemon->agents;
    if (process->agent)
        drop(process->agent);
    struct agent *agent = calloc(1, sizeof(*agent));
    if (!agent || sd_event_add_io(agents->daemon->loop, &agent->source, fd, EPOLLIN, on_message, agent) < 0) {
        log_error("session %s: cannot serve the agent of process %d", session->id, (int)process->pid);
        free(agent);
        connection_closer_close(agents->daemon, fd);
        return;
    }
    sd_event_source_set_ratelimit(agent->source, RATE_USEC, RATE_MESSAGES);
    sd_event_source_set_ratelimit_expire_callback(agent->source, on_flood);
    *agent = (struct agent){.agents = agents, .process = process, .fd = fd, .source = agent->source};
    /* A GPU may be idle until the agent's message is taken. */
    user_time_watch(agents->daemon, &agent->paid, agent->source, SD_EVENT_PRIORITY_IMPORTANT, process->uid,
                    session->number);
    process->agent = agent;
    agent->has_come = tell_of_new(agent);
    if (agent->has_come)
        return;
    log_error("session %s: cannot serve the agent of process %d", session->id, (int)process->pid);
    drop(agent);
}

/* --- Start and end --------------------------------------------------------------------------------- */

void agents_listen(struct daemon *daemon, enum agent_subject subject, const struct agent_listener *listener)
{
    daemon->agents->listeners[subject] = listener;
}

static void take_change(void *context, const struct change *change)
{
    if (change->kind == CHANGE_PROCESS_GONE && change->process->agent)
        drop(change->process->agent);
}

int agents_start(struct daemon *daemon, struct error *error)
{
    struct agents *agents = calloc(1, sizeof(*agents));
    if (!agents)
        return error_set_errno(error, ENOMEM, "cannot serve agents");
    agents->daemon = daemon;
    agents->observer = (struct observer){.take = take_change, .context = agents};
    change_observe(daemon, &agents->observer);
    daemon->agents = agents;
    int result = sd_event_add_defer(daemon->loop, &agents->later, on_later, agents);
    if (result >= 0)
        result = sd_event_source_set_enabled(agents->later, SD_EVENT_OFF);
    return result < 0 ? error_set_errno(error, -result, "cannot serve agents") : 0;
}

void agents_stop(struct daemon *daemon)
{
    struct agents *agents = daemon->agents;
    if (!agents)
        return;
    change_observe_no_more(daemon, &agents->observer);
    sd_event_source_disable_unref(agents->later);
    free(agents);
    daemon->agents = NULL;
}
