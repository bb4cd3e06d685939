#include "daemon/schedule/agents.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "daemon/gpu/card.h"
#include "daemon/gpu/nvml.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/closer.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/user_time.h"
#include "daemon/schedule/turns.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "wire/wire.h"

#define TOUCHED_MAX 16u /* sessions; one call of the arbiter changes the leases of a few only */

/* At most so many messages of one agent are taken in so long; more wait in its socket. An agent that sends more for
 * long is cut off: a change is published, its gate opens, and its session is scheduled without it. */
#define RATE_MESSAGES 400u
#define RATE_USEC UINT64_C(100000)
#define FLOODS_MAX 20u
#define FLOOD_APART_NS UINT64_C(500000000)

/* One process's agent. */
struct agent {
    struct leases *leases;
    struct process *process;
    struct arbiter_process *gate; /* NULL while it is being added */
    int fd;
    sd_event_source *source;
    struct paid_source paid;
    struct agent *next_broken; /* agents to which a message could not be sent */
    bool is_broken;
    unsigned floods; /* moments in a row in which it sent too many messages */
    uint64_t flooded_ns;
};

struct leases {
    struct daemon *daemon;
    struct arbiter *arbiter;
    sd_event_source *timer;
    sd_event_source *later; /* drops the broken agents */
    struct agent *broken;
    struct observer observer;
    struct turns *turns;
    void (*take_memory)(struct process *process, const struct wire_message *message);
    /* Sessions whose lease may have changed in a call of the arbiter. */
    const struct session *touched[TOUCHED_MAX];
    unsigned touched_count;
};

_Static_assert(PRIORITY_COUNT == ARBITER_PRIORITIES && PRIORITY_NORMAL == ARBITER_PRIORITY_NORMAL,
               "the arbiter's priorities are the sessions'");

static void touch(struct leases *leases, const struct session *session)
{
    if (leases->touched_count < TOUCHED_MAX)
        leases->touched[leases->touched_count++] = session;
}

static void note_turn(struct leases *leases, const struct session *session, enum arbiter_lease lease)
{
    struct turn turn = {.session = session->number, .owner = session->owner, .lease = lease};
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (session->gpus[i].gpu >= 0)
            turn.gpus |= UINT64_C(1) << session->gpus[i].gpu;
    turn.asked_ns = arbiter_session_asked(session->arbitrated, &turn.steps);
    strcpy(turn.session_id, session->id);
    turns_note(leases->turns, &turn, monotonic_ns());
}

/* To be called after each call of the arbiter: notes turns that began or ended, and sets the timer. */
static void set_timer(struct leases *leases)
{
    while (leases->touched_count) {
        const struct session *session = leases->touched[--leases->touched_count];
        if (session->arbitrated)
            note_turn(leases, session, arbiter_session_lease(session->arbitrated));
    }
    uint64_t next = arbiter_next(leases->arbiter);
    if (next == UINT64_MAX) {
        sd_event_source_set_enabled(leases->timer, SD_EVENT_OFF);
        return;
    }
    sd_event_source_set_time(leases->timer, (next + 999) / 1000);
    sd_event_source_set_enabled(leases->timer, SD_EVENT_ONESHOT);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct leases *leases = userdata;
    arbiter_tick(leases->arbiter, monotonic_ns());
    set_timer(leases);
    return 0;
}

/* --- What the arbiter says ------------------------------------------------------------------------- */

/* The agent's socket is full, or its other end is gone. The arbiter is at work, so it hears of that later. */
static void break_later(struct agent *agent)
{
    agent->is_broken = true;
    agent->next_broken = agent->leases->broken;
    agent->leases->broken = agent;
    sd_event_source_set_enabled(agent->leases->later, SD_EVENT_ONESHOT);
}

static void post(struct agent *agent, struct wire_message *message)
{
    if (!agent->is_broken && wire_post(agent->fd, message) < 0)
        break_later(agent);
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

static void on_grant(void *owner, uint64_t lease, uint32_t flags, uint64_t ahead_ns)
{
    struct wire_message message = {
        .header.type = WIRE_GRANT,
        .grant = {.lease = lease, .flags = flags, .ahead_us = (uint32_t)(ahead_ns / 1000)}};
    const struct agent *agent = owner;
    touch(agent->leases, agent->process->session);
    post(owner, &message);
}

static void on_revoke(void *owner, uint64_t lease, uint64_t patience_ns)
{
    struct wire_message message = {.header.type = WIRE_REVOKE,
                                   .revoke = {.lease = lease, .patience_ns = patience_ns}};
    const struct agent *agent = owner;
    touch(agent->leases, agent->process->session);
    post(owner, &message);
}

static void on_event(void *owner, enum arbiter_event event, uint64_t ns)
{
    static const struct {
        enum change_kind kind;
        const char *text;
    } events[] = {
        [ARBITER_OVERRUN] = {CHANGE_LEASE_OVERRUN,
                             "a process did not give the GPU back in time; others go on without it"},
        [ARBITER_UNDRAINED] = {CHANGE_LEASE_UNDRAINED,
                               "work on the GPU did not end in time; it runs beside the others'"},
        [ARBITER_UNDRAINABLE] = {CHANGE_LEASE_UNDRAINABLE,
                                 "its work does not drain; it runs beside the others' until it does"},
        [ARBITER_UNDERSTATED] = {CHANGE_USE_UNDERSTATED,
                                 "NVML shows its programs much busier than they say; from now on it "
                                 "is charged by what is seen"},
        [ARBITER_DRAINED] = {CHANGE_LEASE_DRAINED, "its work has drained again"},
    };
    struct session *session = owner;
    log_info("session %s: %s (%llu ms)", session->id, events[event].text, (unsigned long long)ns / 1000000);
    change_publish(session->daemon,
                   &(struct change){events[event].kind, .session = session, .seconds = (double)ns / 1e9},
                   "%s", events[event].text);
}

static void on_mode(void *context, unsigned gpu, enum arbiter_mode mode)
{
    const struct leases *leases = context;
    log_info("GPU %u: %s", leases->daemon->gpus[gpu].index,
             mode == ARBITER_MODE_FREE ? "it is free to all now" : "shares count now");
}

static const struct arbiter_calls calls = {
    .grant = on_grant,
    .revoke = on_revoke,
    .event = on_event,
    .mode = on_mode,
};

/* --- What agents say ------------------------------------------------------------------------------- */

static void agents_drop(struct agent *agent)
{
    struct leases *leases = agent->leases;
    struct agent **at = &leases->broken;
    while (*at && *at != agent)
        at = &(*at)->next_broken;
    if (*at)
        *at = agent->next_broken;
    agent->process->agent = NULL;
    user_time_forget(&agent->paid);
    sd_event_source_disable_unref(agent->source);
    closer_close(leases->daemon, agent->fd);
    if (agent->gate)
        arbiter_process_remove(agent->gate, monotonic_ns());
    touch(leases, agent->process->session);
    if (leases->take_memory)
        leases->take_memory(agent->process, NULL);
    free(agent);
    set_timer(leases);
}

static int on_later(sd_event_source *source, void *userdata)
{
    struct leases *leases = userdata;
    while (leases->broken) {
        const struct process *process = leases->broken->process;
        log_info("session %s: the agent of process %d could not be told of its lease", process->session->id,
                 (int)process->pid);
        agents_drop(leases->broken);
    }
    return 0;
}

/* The policy's GPUs by the daemon's numbers. GPUs that are not there now, or never were, count for nothing. */
static uint64_t card_set(const struct session *session, uint64_t policy_set)
{
    uint64_t cards = 0;
    for (unsigned i = 0; i < session->gpu_count; i++)
        if ((policy_set >> i & 1) && session->gpus[i].gpu >= 0)
            cards |= UINT64_C(1) << session->gpus[i].gpu;
    return cards;
}

static bool take_message(struct agent *agent, const struct wire_message *message)
{
    const struct leases *leases = agent->leases;
    uint64_t now = monotonic_ns();
    switch (message->header.type) {
    case WIRE_WANT:
        arbiter_want(agent->gate, card_set(agent->process->session, message->want.gpus), now);
        return true;
    case WIRE_RETURNED:
        if (message->returned.outcome < WIRE_OUTCOME_DRAINED ||
            message->returned.outcome > WIRE_OUTCOME_UNDRAINED)
            return false;
        arbiter_returned(agent->gate, &message->returned, now);
        return true;
    case WIRE_CLOSED:
        arbiter_closed(agent->gate, &message->closed, now);
        return true;
    case WIRE_REPORT:
        arbiter_report(agent->gate, &message->report, now);
        return true;
    case WIRE_PROGRESS:
        arbiter_progress(agent->gate, &message->progress, now);
        return true;
    case WIRE_WORK:
        arbiter_work(agent->gate, &message->work, now);
        return true;
    case WIRE_WAITS:
        arbiter_waits(agent->gate, &message->waits);
        return true;
    case WIRE_BURST:
        arbiter_burst(agent->gate, &message->burst, now);
        return true;
    case WIRE_MOVED:
    case WIRE_NEED:
        if (leases->take_memory)
            leases->take_memory(agent->process, message);
        return true;
    default:
        return false;
    }
}

static int on_message(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct agent *agent = userdata;
    struct leases *leases = agent->leases;
    struct wire_message message;
    if (!user_time_begin(leases->daemon, &agent->paid))
        return 0;
    int result = wire_receive_plain(fd, &message);
    if (result == -EAGAIN)
        return 0;
    if (result == 0 && take_message(agent, &message)) {
        touch(leases, agent->process->session);
        set_timer(leases);
        return 0;
    }
    if (result == 0 || result == -EPROTO)
        log_info("session %s: the agent of process %d sent something that is not a message here",
                 agent->process->session->id, (int)agent->process->pid);
    agents_drop(agent);
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
                   "process %d sends more about the GPU's time than anybody needs, and is cut off",
                   (int)agent->process->pid);
    log_warning("session %s: the agent of process %d floods and is cut off", session->id,
                (int)agent->process->pid);
    agents_drop(agent);
    return 0;
}

void agents_enter(struct process *process, int fd)
{
    struct session *session = process->session;
    struct leases *leases = session->daemon->leases;
    if (process->agent)
        agents_drop(process->agent);
    if (!session->arbitrated)
        session->arbitrated = arbiter_session_add(leases->arbiter, session, session->owner, session->compute,
                                                  session->priority);
    struct agent *agent = session->arbitrated ? calloc(1, sizeof(*agent)) : NULL;
    if (!agent || sd_event_add_io(leases->daemon->loop, &agent->source, fd, EPOLLIN, on_message, agent) < 0) {
        log_error("session %s: cannot serve the agent of process %d", session->id, (int)process->pid);
        free(agent);
        closer_close(leases->daemon, fd);
        return;
    }
    sd_event_source_set_ratelimit(agent->source, RATE_USEC, RATE_MESSAGES);
    sd_event_source_set_ratelimit_expire_callback(agent->source, on_flood);
    *agent = (struct agent){.leases = leases, .process = process, .fd = fd, .source = agent->source};
    /* A GPU may be idle until the agent's message is taken. */
    user_time_watch(leases->daemon, &agent->paid, agent->source, SD_EVENT_PRIORITY_IMPORTANT, process->uid,
                    session->number);
    process->agent = agent;
    agent->gate = arbiter_process_add(session->arbitrated, agent, monotonic_ns());
    if (agent->gate)
        set_timer(leases);
    else
        agents_drop(agent);
}

/* --- Sessions -------------------------------------------------------------------------------------- */

static void session_changed(struct session *session)
{
    if (!session->arbitrated)
        return;
    arbiter_session_set(session->arbitrated, session->compute, session->priority, monotonic_ns());
    set_timer(session->daemon->leases);
}

/* Tell the arbiter what NVML shows of sessions' processes, on GPUs where shares count. */
static void look_at_sessions(struct leases *leases)
{
    const struct daemon *daemon = leases->daemon;
    for (unsigned i = 0; i < daemon->gpu_count; i++) {
        const struct gpu *card = &daemon->gpus[i];
        if (agents_mode(daemon, i) == ARBITER_MODE_FREE)
            continue;
        for (unsigned j = 0; j < card->process_count; j++) {
            if (card->processes[j].busy_percent <= 0)
                continue;
            const struct session *session = process_session_of(daemon, card->processes[j].pid);
            if (session && session->arbitrated)
                arbiter_seen(session->arbitrated, i, card->processes[j].busy_percent / 100.0);
        }
    }
    arbiter_look_is_over(leases->arbiter, monotonic_ns());
    set_timer(leases);
}

static void take(void *context, const struct change *change)
{
    switch (change->kind) {
    case CHANGE_SESSION_CHANGED:
        session_changed(change->session);
        break;
    case CHANGE_GPUS_SAMPLED:
        look_at_sessions(context);
        break;
    case CHANGE_PROCESS_GONE:
        if (change->process->agent)
            agents_drop(change->process->agent);
        break;
    case CHANGE_SESSION_GONE: /* its processes have gone */
        if (change->session->arbitrated) {
            note_turn(change->session->daemon->leases, change->session, LEASE_NONE);
            arbiter_session_remove(change->session->arbitrated);
        }
        change->session->arbitrated = NULL;
        break;
    default:
        break;
    }
}

enum arbiter_mode agents_mode(const struct daemon *daemon, unsigned gpu)
{
    return daemon->leases ? arbiter_mode(daemon->leases->arbiter, gpu, monotonic_ns()) : ARBITER_MODE_FREE;
}

const struct arbiter *agents_arbiter(const struct daemon *daemon)
{
    return daemon->leases ? daemon->leases->arbiter : NULL;
}

const struct turns *agents_turns(const struct daemon *daemon)
{
    return daemon->leases ? daemon->leases->turns : NULL;
}

void agents_tell_memory(struct daemon *daemon,
                        void (*take_memory)(struct process *process, const struct wire_message *message))
{
    daemon->leases->take_memory = take_memory;
}

void agents_set_away(struct process *process, bool is_away)
{
    struct agent *agent = process->agent;
    if (!agent || !agent->gate)
        return;
    arbiter_set_away(agent->gate, is_away, monotonic_ns());
    touch(agent->leases, process->session);
    set_timer(agent->leases);
}

void agents_set_quantum(struct daemon *daemon, uint64_t quantum_ns)
{
    arbiter_set_quantum(daemon->leases->arbiter, quantum_ns);
}

/* --- Start and end --------------------------------------------------------------------------------- */

int agents_start(struct daemon *daemon, struct error *error)
{
    process_ask_for_short_slices();
    struct leases *leases = calloc(1, sizeof(*leases));
    struct arbiter *arbiter = leases ? arbiter_new(&calls, leases, monotonic_ns()) : NULL;
    if (arbiter)
        leases->turns = turns_new();
    if (!arbiter || !leases->turns) {
        if (arbiter)
            arbiter_free(arbiter);
        free(leases);
        return error_set_errno(error, ENOMEM, "cannot share the GPUs' time");
    }
    leases->daemon = daemon;
    leases->arbiter = arbiter;
    leases->observer = (struct observer){.take = take, .context = leases};
    change_observe(daemon, &leases->observer);
    daemon->leases = leases;
    /* Accurate to 1 us: the default is a quarter of a second. */
    int result = sd_event_add_time(daemon->loop, &leases->timer, CLOCK_MONOTONIC, 0, 1, on_timer, leases);
    if (result >= 0)
        result = sd_event_source_set_enabled(leases->timer, SD_EVENT_OFF);
    if (result >= 0)
        result = sd_event_source_set_priority(leases->timer, SD_EVENT_PRIORITY_IMPORTANT);
    if (result >= 0)
        result = sd_event_add_defer(daemon->loop, &leases->later, on_later, leases);
    if (result >= 0)
        result = sd_event_source_set_enabled(leases->later, SD_EVENT_OFF);
    return result < 0 ? error_set_errno(error, -result, "cannot share the GPUs' time") : 0;
}

void agents_stop(struct daemon *daemon)
{
    struct leases *leases = daemon->leases;
    if (!leases)
        return;
    change_observe_no_more(daemon, &leases->observer);
    sd_event_source_disable_unref(leases->timer);
    sd_event_source_disable_unref(leases->later);
    arbiter_free(leases->arbiter);
    turns_free(leases->turns);
    free(leases);
    daemon->leases = NULL;
}
