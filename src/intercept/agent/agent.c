/* agent.c - the agent's thread: how it starts, listens to the daemon, serves the rest of the agent, and ends. */
#include "intercept/agent/agent.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/least.h"
#include "base/process.h"
#include "base/units.h"
#include "intercept/agent/agent_state.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/report.h"
#include "intercept/session/session.h"
#include "intercept/session/standalone.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

#define STACK_BYTES (512u << 10) /* the driver's functions run on it too */
/* How often to try to reach the daemon. */
#define TRY_AGAIN_NS UINT64_C(1000000000)
/* How often an agent wakes that nobody can wake; and how often at most an agent checks its descriptors. */
#define CHECK_BLIND_NS UINT64_C(10000000)
#define CHECK_BUSY_NS UINT64_C(10000000)

static struct gate *gate_area(void)
{
    return gate_in(atomic_load_explicit(&private_area, memory_order_acquire));
}

/* Wake the agent: something has changed that it should know, as when a thread waits at the gate or submits after a rest. */
static void poke(void)
{
    if (attach_is_ours(&agent.pokes[1]))
        send(agent.pokes[1].fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static bool has_message(void)
{
    struct pollfd ready = {.fd = agent.connection.fd, .events = POLLIN};
    return poll(&ready, 1, 0) > 0;
}

/* Receive and obey all that the daemon sent. Called when at least one message is there. */
static void listen_to_daemon(struct gate *gate)
{
    while (attach_is_ours(&agent.connection)) {
        struct wire_message message;
        int fds[WIRE_FDS_MAX];
        unsigned count;
        int result = wire_receive(agent.connection.fd, &message, fds, &count);
        if (result == 0 && message.header.type == WIRE_ARENA && count == 1)
            agent_take_chunk(gate, &message.arena, fds[0]);
        while (count)
            close(fds[--count]);
        if (result < 0) {
            agent_lose_connection(gate, strerror(-result));
            return;
        }
        agent.version = message.header.version;
        switch (message.header.type) {
        case WIRE_GRANT:
            agent_grant(gate, &message.grant);
            break;
        case WIRE_REVOKE:
            agent_give_back(gate, message.revoke.lease, message.revoke.patience_ns, WIRE_OUTCOME_DRAINED);
            break;
        case WIRE_KEEP:
            agent_keep(&message.keep);
            break;
        case WIRE_EVICT:
            agent_evict(gate, &message.evict);
            break;
        case WIRE_RESTORE_PART:
            agent_restore_part(gate, &message.restore_part);
            break;
        case WIRE_RESTORE:
            agent_restore(gate, &message.restore);
            break;
        case WIRE_ROOM:
            agent_take_room(&message.room);
            break;
        case WIRE_TELL:
            report_line("%.*s", WIRE_TELL_BYTES - 1, message.tell.text);
            break;
        case WIRE_REFUSED:
            if (message.refused.reason == WIRE_REFUSED_NO_SESSION)
                session_doubt();
            agent_lose_daemon(gate, message.refused.message);
            return;
        default:
            break; /* not for agents */
        }
        if (!agent.connection.open || !has_message())
            return;
    }
    agent_lose_connection(gate, "its descriptor was closed");
}

/* Check whether the program has closed or replaced our descriptors. Reads and writes check that anyway, but an agent that
 * only waits for a descriptor that is now the program's would never wake. */
static void check_descriptors(struct gate *gate)
{
    uint64_t now_ns = monotonic_ns();
    if (agent.checked_ns && now_ns - agent.checked_ns < CHECK_BUSY_NS)
        return;
    agent.checked_ns = now_ns;
    agent.is_deaf = !attach_is_ours(&agent.pokes[0]) || !attach_is_ours(&agent.pokes[1]);
    if (agent.connection.open && !attach_is_ours(&agent.connection))
        agent_lose_connection(gate, "its descriptor was closed");
}

static uint64_t most_pause_ns(void)
{
    return agent.is_deaf ? CHECK_BLIND_NS : AGENT_CHECK_NS;
}

static uint64_t pause_ns(struct gate *gate)
{
    uint64_t most_ns = most_pause_ns();
    if (!agent.connection.open)
        return agent.lost_ns ? CHECK_BLIND_NS : TRY_AGAIN_NS;
    uint64_t ns = agent_is_paced() ? agent_lease_pause_ns(gate) : most_ns, move_ns = agent_move_pause_ns();
    return least(least(ns, move_ns), most_ns);
}

/* Read all pokes at once, since one wake-up is enough for them. */
static void take_pokes(void)
{
    char bytes[64];
    if (!attach_is_ours(&agent.pokes[0]) || recv(agent.pokes[0].fd, bytes, sizeof(bytes), MSG_DONTWAIT) == 0)
        agent.is_deaf = true;
}

/* Sleep up to `ns`. Returns whether the daemon has sent something. If a descriptor is the program's by now, waiting for it
 * does no harm. */
static bool pause_until_something(uint64_t ns)
{
    struct timespec time = {.tv_sec = (time_t)(ns / UINT64_C(1000000000)),
                            .tv_nsec = (long)(ns % UINT64_C(1000000000))};
    struct pollfd ready[2] = {
        {.fd = agent.is_deaf ? -1 : agent.pokes[0].fd, .events = POLLIN},
        {.fd = agent.connection.open ? agent.connection.fd : -1, .events = POLLIN},
    };
    if (ppoll(ready, 2, &time, NULL) <= 0)
        return false;
    if (ready[0].revents)
        take_pokes();
    return ready[1].revents != 0;
}

static void *agent_main(void *unused)
{
    struct gate *gate = gate_area();
    uint64_t next_try_ns = 0;
    (void)unused;
    prctl(PR_SET_NAME, "gpuslice-agent");
    process_ask_for_short_slices();
    prctl(PR_SET_TIMERSLACK, 1000UL); /* in ns; the naps of a drain are short */
    while (agent.alone) {
        check_descriptors(gate);
        pause_until_something(least(agent_serve_alone(gate), most_pause_ns()));
    }
    for (;;) {
        agent_serve_lost(gate);
        if (!agent.connection.open && !agent.lost_ns && monotonic_ns() >= next_try_ns) {
            int result = agent_reach_daemon();
            if (result < 0)
                report_debug("cannot reach the daemon that shares the GPUs' time: %s", strerror(-result));
            else
                agent_move_met(gate);
            next_try_ns = monotonic_ns() + TRY_AGAIN_NS;
        }
        agent_serve_room(gate);
        if (agent.connection.open) {
            agent_serve(gate);
            agent_serve_memory(gate);
            agent_serve_spare(gate);
            agent_serve_arena(gate);
        }
        check_descriptors(gate);
        uint64_t watch_ns = agent_watch_daemon(gate);
        if (pause_until_something(least(watch_ns, pause_ns(gate))))
            listen_to_daemon(gate);
    }
    return NULL;
}

int __cxa_atexit(void (*function)(void *), void *argument, void *library);

/* exit() runs this before the driver's own handlers, which were registered earlier. After those, even a query may crash. */
static void end_agent(void *unused)
{
    struct gate *gate = gate_of();
    if (!gate) /* a forked child has none */
        return;
    agent_move_end();
    gate_end(gate);
}

static bool make_pokes(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return false;
    attach_keep(&agent.pokes[0], pair[0]);
    attach_keep(&agent.pokes[1], pair[1]);
    return true;
}

/* In a forked child, which has no agent. */
static void forget_parent(void)
{
    attach_let_go(&agent.connection);
    attach_let_go(&agent.pokes[0]);
    attach_let_go(&agent.pokes[1]);
    memset(&agent, 0, sizeof(agent));
}

static bool start(struct gate *gate, bool alone)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    static bool ends_with_us; /* a forked child inherits it, and the handler too */
    if (!ends_with_us)
        ends_with_us = __cxa_atexit(end_agent, NULL, NULL) == 0;
    private_at_fork(forget_parent);
    if (!make_pokes() || !gate_make(gate, poke) || pthread_attr_init(&attributes) != 0)
        return false;
    agent.alone = alone;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&thread, &attributes, agent_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (result != 0)
        gate_end(gate); /* so that no thread waits for room that nobody would answer */
    return result == 0;
}

/* Start the agent. If it runs already and the caller `has_news`, wake it, so that it looks at its GPUs again. A process on
 * its own needs an agent only where it has a cap, or moves to serve. */
static void start_or_poke(struct gate *gate, bool has_news)
{
    const struct attachment *attachment =
        atomic_load_explicit(&private_get()->attachment, memory_order_acquire);
    uint64_t gpus = atomic_load_explicit(&gate->gpus, memory_order_relaxed);
    if (attachment->standalone && standalone_cap(gpus) == SHARE_WHOLE && !standalone_move_ns())
        return;
    int saved_errno = errno;
    if (atomic_exchange_explicit(&gate->started, true, memory_order_acq_rel)) {
        if (has_news)
            poke();
    } else if (!start(gate, attachment->standalone)) {
        report_debug("cannot start the agent: this process runs without its session's share");
    }
    errno = saved_errno;
}

void agent_meet(uint32_t gpu)
{
    struct gate *gate = gate_in(private_get());
    uint64_t bit = UINT64_C(1) << gpu;
    gate_context_changed();
    bool known = atomic_fetch_or_explicit(&gate->gpus, bit, memory_order_relaxed) & bit;
    start_or_poke(gate, !known);
}

void agent_part(uint32_t gpu)
{
    atomic_fetch_and_explicit(&gate_in(private_get())->gpus, ~(UINT64_C(1) << gpu), memory_order_relaxed);
    if (gate_of())
        poke();
}

bool agent_wait_for_room(uint32_t gpu, uint64_t bytes, bool is_charged, unsigned attempt)
{
    if (!agent_may_ask_for_room(&attempt))
        return false;
    start_or_poke(gate_in(private_get()), false); /* there may be no context yet */
    struct gate *gate = gate_of();
    return gate && !atomic_load_explicit(&gate->ended, memory_order_relaxed) &&
           agent_ask_for_room(gate, gpu, bytes, is_charged, attempt);
}

void agent_leave_context(CUcontext context)
{
    struct gate *gate = gate_of();
    gate_context_changed();
    if (!gate)
        return;
    in_flight_forget_context(gate, context);
    gate_forget_functions(gate);
}
