#include "intercept/agent/agent.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/process.h"
#include "base/units.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/report.h"
#include "intercept/session/attach.h"
#include "intercept/session/standalone.h"
#include "intercept/submit/cap_bucket.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

#define STACK_BYTES (512u << 10) /* a driver's functions run on it */
#define ANSWER_MS 1000
#define TRY_AGAIN_NS UINT64_C(1000000000)
#define TICK_NS UINT64_C(1000000) /* how often a busy process is looked at, under a lease that can end */
#define IDLE_NS UINT64_C(1000000) /* so long without work gives an unwanted lease back */
#define REPORT_NS UINT64_C(20000000)
#define CHECK_NS UINT64_C(5000000000)     /* that our descriptors are still there */
#define CHECK_BLIND_NS UINT64_C(10000000) /* and where nobody can poke us */
#define FIRST_NAP_NS UINT64_C(20000)      /* of a drain */
#define SOON_NAPS 100u                    /* of the first length: by then paced work is done */
#define LAST_NAP_NS UINT64_C(200000)
#define IDLE_PATIENCE_NS UINT64_C(100000000)
#define ALONE_PATIENCE_NS UINT64_C(100000000)

/* The agent's own, but for `pokes`. In a forked child, nobody's. */
static struct {
    struct attach_descriptor connection;
    struct attach_descriptor pokes[2]; /* threads write into the second one */
    uint16_t version;
    bool held;   /* GRANT came, and has not been answered by RETURNED */
    bool wanted; /* WANT was sent for what waits at the gate now */
    uint64_t lease;
    uint32_t flags;     /* of the lease */
    uint64_t told_gpus; /* by the last WANT */
    uint64_t next_report_ns;
    /* How long there was work, since GRANT or the last REPORT. */
    uint64_t busy_ns, busy_from_ns, idle_from_ns; /* one of the last two is 0 */
    uint64_t submitted;
    bool alone; /* no daemon: a cap of the environment's is all there is to keep */
    struct cap_bucket duty;
    uint64_t drain_again_ns; /* alone: the last drain failed, and is not tried again before */
} agent;

static struct gate *gate_area(void)
{
    return &atomic_load_explicit(&private_area, memory_order_acquire)->gate;
}

void agent_poke(void)
{
    if (attach_is_ours(&agent.pokes[1]))
        send(agent.pokes[1].fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* --- The daemon ------------------------------------------------------------------------------------ */

static void lose_daemon(struct gate *gate, const char *why)
{
    if (agent.connection.open)
        report_debug("the agent goes on without the daemon: %s", why);
    attach_let_go(&agent.connection);
    agent.held = agent.wanted = false;
    agent.flags = 0;
    gate_open(gate, GATE_FREE);
}

static void tell(struct gate *gate, struct wire_message *message)
{
    message->header.version = agent.version;
    int result = attach_is_ours(&agent.connection) ? wire_post(agent.connection.fd, message) : -EBADF;
    if (result < 0)
        lose_daemon(gate, strerror(-result));
}

static void tell_want(struct gate *gate)
{
    uint64_t gpus = atomic_load_explicit(&gate->gpus, memory_order_relaxed);
    struct wire_message message = {.header.type = WIRE_WANT, .want.gpus = gpus};
    agent.told_gpus = gpus;
    tell(gate, &message);
}

/* 0, or a negative errno. */
static int meet_daemon(void)
{
    struct error error = {0};
    if (session_mode() != SESSION_INSIDE) /* attaches anew to a daemon that was restarted */
        return -ENOTCONN;
    const struct attachment *attachment =
        atomic_load_explicit(&private_get()->attachment, memory_order_acquire);
    if (attachment->version < WIRE_VERSION_AGENT)
        return -EPROTONOSUPPORT;
    const struct session_settings *settings = session_settings();
    const struct ledger_slot *slot = session_slot();
    struct wire_message message = {
        .header = {.type = WIRE_AGENT, .version = WIRE_VERSION_OLDEST},
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

/* --- How busy the process is ----------------------------------------------------------------------- */

static void count_from(struct gate *gate, uint64_t now_ns, bool busy)
{
    agent.busy_ns = 0;
    agent.busy_from_ns = busy ? now_ns : 0;
    agent.idle_from_ns = busy ? 0 : now_ns;
    agent.submitted = in_flight_submitted(gate);
}

static void see_idle(uint64_t now_ns)
{
    if (agent.busy_from_ns)
        agent.busy_ns += now_ns - agent.busy_from_ns;
    if (!agent.idle_from_ns)
        agent.idle_from_ns = now_ns;
    agent.busy_from_ns = 0;
}

static void see_busy(struct gate *gate, uint64_t now_ns)
{
    if (!agent.busy_from_ns) {
        uint64_t resumed_ns = atomic_exchange_explicit(&gate->resumed_ns, 0, memory_order_acquire);
        agent.busy_from_ns = resumed_ns > agent.idle_from_ns && resumed_ns < now_ns ? resumed_ns : now_ns;
    }
    agent.idle_from_ns = 0;
}

static uint64_t busy_until(uint64_t now_ns)
{
    uint64_t busy_ns = agent.busy_ns;
    if (agent.busy_from_ns && now_ns > agent.busy_from_ns) {
        busy_ns += now_ns - agent.busy_from_ns;
        agent.busy_from_ns = now_ns;
    }
    agent.busy_ns = 0;
    return busy_ns;
}

/* Under a lease: is there work, submitted since the last look or not done yet? */
static void look(struct gate *gate)
{
    uint64_t submitted = in_flight_submitted(gate);
    bool busy = submitted != agent.submitted || atomic_load_explicit(&gate->held, memory_order_relaxed) ||
                !in_flight_is_finished(gate);
    agent.submitted = submitted;
    if (busy) {
        see_busy(gate, monotonic_ns());
        return;
    }
    if (!atomic_load_explicit(&gate->resting, memory_order_relaxed)) {
        /* Either the next thread sees it, or this one sees what that submitted. */
        atomic_store_explicit(&gate->resting, true, memory_order_seq_cst);
        gate_barrier(gate);
        if (in_flight_submitted(gate) != submitted) {
            see_busy(gate, monotonic_ns());
            return;
        }
    }
    see_idle(monotonic_ns());
}

/* --- Leases ---------------------------------------------------------------------------------------- */

static void nap(struct gate *gate, uint64_t ns)
{
    char byte;
    struct timespec time = {.tv_nsec = (long)ns};
    nanosleep(&time, NULL);
    if (!agent.alone && recv(agent.connection.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        lose_daemon(gate, "it closed the connection");
}

/* Nobody submits any more: how long it takes until nothing is in flight. */
static void tell_closed(struct gate *gate)
{
    uint64_t left_ns = in_flight_left_ns(gate);
    struct wire_message message = {.header.type = WIRE_CLOSED,
                                   .closed = {.lease = agent.lease, .left_ns = left_ns}};
    if (left_ns != UINT64_MAX)
        tell(gate, &message);
}

/* Close the gate and wait for what was submitted. False: it did not end in time, or there is no daemon any
 * more; the gate is open. */
static bool drain(struct gate *gate, uint64_t patience_ns)
{
    uint64_t longest_ns = atomic_load_explicit(&gate->longest_ns, memory_order_relaxed);
    uint64_t deadline_ns = monotonic_ns() + patience_ns + longest_ns;
    bool left = false;
    gate_close(gate);
    for (unsigned naps = 0;; naps++) {
        if (!left && gate_is_left(gate)) {
            left = true;
            if (!agent.alone)
                tell_closed(gate);
        }
        if (!agent.alone && !agent.connection.open)
            return false;
        if (left && in_flight_is_finished(gate))
            break;
        if (monotonic_ns() > deadline_ns) {
            gate_open(gate, GATE_PACED);
            return false;
        }
        nap(gate, naps < SOON_NAPS ? FIRST_NAP_NS : LAST_NAP_NS);
    }
    gate_drained(gate);
    return true;
}

static void give_back(struct gate *gate, uint64_t lease, uint64_t patience_ns, enum wire_outcome outcome)
{
    bool was_closed = atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_CLOSED;
    bool was_free = atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_FREE;
    if (!was_closed && !drain(gate, patience_ns)) {
        if (!agent.connection.open)
            return;
        outcome = WIRE_OUTCOME_UNDRAINED;
    }
    uint64_t now_ns = monotonic_ns();
    struct wire_message message = {
        .header.type = WIRE_RETURNED,
        .returned = {.lease = lease,
                     .busy_ns = was_closed || was_free ? 0 : busy_until(now_ns),
                     .longest_ns = atomic_load_explicit(&gate->longest_ns, memory_order_relaxed),
                     .outcome = outcome,
                     .waited_ns = atomic_exchange_explicit(&gate->waited_ns, 0, memory_order_relaxed)},
    };
    count_from(gate, now_ns, outcome == WIRE_OUTCOME_UNDRAINED);
    agent.held = outcome == WIRE_OUTCOME_UNDRAINED;
    agent.flags = 0;
    agent.wanted = false;
    tell(gate, &message);
}

static void grant(struct gate *gate, const struct wire_grant *grant)
{
    uint64_t now_ns = monotonic_ns();
    bool another = !agent.held || agent.lease != grant->lease;
    agent.held = true;
    agent.wanted = false;
    agent.lease = grant->lease;
    agent.flags = grant->flags;
    if (another) {
        atomic_store_explicit(&gate->resting, false, memory_order_relaxed);
        count_from(gate, now_ns, atomic_load_explicit(&gate->waiters, memory_order_relaxed) > 0);
        agent.next_report_ns = now_ns + REPORT_NS;
    }
    gate_open(gate, grant->flags & WIRE_LEASE_FREE ? GATE_FREE : GATE_PACED);
}

static void report(struct gate *gate, uint64_t now_ns)
{
    struct wire_message message = {
        .header.type = WIRE_REPORT,
        .report = {.lease = agent.lease,
                   .busy_ns = busy_until(now_ns),
                   .longest_ns = atomic_load_explicit(&gate->longest_ns, memory_order_relaxed),
                   .waited_ns = atomic_exchange_explicit(&gate->waited_ns, 0, memory_order_relaxed)},
    };
    agent.next_report_ns = now_ns + REPORT_NS;
    tell(gate, &message);
}

static bool is_paced(void)
{
    return agent.held && !(agent.flags & WIRE_LEASE_FREE);
}

/* What there is to say of itself. */
static void serve(struct gate *gate)
{
    if (is_paced()) {
        look(gate);
        uint64_t now_ns = monotonic_ns();
        if ((agent.flags & WIRE_LEASE_REPORT) && now_ns >= agent.next_report_ns)
            report(gate, now_ns);
        if (is_paced() && (agent.flags & WIRE_LEASE_WANTED) && agent.idle_from_ns &&
            now_ns - agent.idle_from_ns >= IDLE_NS)
            give_back(gate, agent.lease, IDLE_PATIENCE_NS, WIRE_OUTCOME_IDLE);
    }
    bool waits = !agent.held && !agent.wanted &&
                 atomic_load_explicit(&gate->waiters, memory_order_seq_cst) > 0 &&
                 atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_CLOSED;
    bool elsewhere = agent.held && agent.told_gpus != atomic_load_explicit(&gate->gpus, memory_order_relaxed);
    if (!agent.connection.open || (!waits && !elsewhere))
        return;
    agent.wanted = waits;
    tell_want(gate);
}

/* Take what the daemon sent. */
static void listen_to_daemon(struct gate *gate)
{
    while (attach_is_ours(&agent.connection)) {
        struct wire_message message;
        struct pollfd ready = {.fd = agent.connection.fd, .events = POLLIN};
        int fds[WIRE_FDS_MAX];
        unsigned count;
        if (poll(&ready, 1, 0) <= 0)
            return;
        int result = wire_receive(agent.connection.fd, &message, fds, &count);
        while (count)
            close(fds[--count]);
        if (result < 0) {
            lose_daemon(gate, strerror(-result));
            return;
        }
        agent.version = message.header.version;
        switch (message.header.type) {
        case WIRE_GRANT:
            grant(gate, &message.grant);
            break;
        case WIRE_REVOKE:
            give_back(gate, message.revoke.lease, message.revoke.patience_ns, WIRE_OUTCOME_DRAINED);
            break;
        case WIRE_REFUSED:
            lose_daemon(gate, message.refused.message);
            return;
        default:
            break; /* of a daemon that knows more */
        }
    }
    lose_daemon(gate, "its descriptor was closed");
}

/* --- Alone ----------------------------------------------------------------------------------------- */

/* Keep the environment's cap. Returns how long until it should be looked at again. */
static uint64_t serve_alone(struct gate *gate)
{
    uint64_t now_ns = monotonic_ns();
    uint32_t cap = standalone_cap(atomic_load_explicit(&gate->gpus, memory_order_relaxed));
    if (!agent.duty.at_ns)
        cap_bucket_begin(&agent.duty, cap, now_ns);
    cap_bucket_advance(&agent.duty, cap, now_ns);
    if (cap == SHARE_WHOLE) {
        gate_open(gate, GATE_FREE);
        return CHECK_NS;
    }
    if (atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_CLOSED) {
        uint64_t wait_ns = cap_bucket_wait_ns(&agent.duty);
        if (wait_ns == 0) {
            count_from(gate, now_ns, atomic_load_explicit(&gate->waiters, memory_order_relaxed) > 0);
            gate_open(gate, GATE_PACED);
        }
        return wait_ns ? wait_ns : TICK_NS;
    }
    gate_open(gate, GATE_PACED);
    look(gate);
    cap_bucket_charge(&agent.duty, busy_until(monotonic_ns()));
    if (!cap_bucket_is_spent(&agent.duty) || now_ns < agent.drain_again_ns)
        return atomic_load_explicit(&gate->resting, memory_order_relaxed) ? CHECK_NS : TICK_NS;
    if (!drain(gate, ALONE_PATIENCE_NS))
        agent.drain_again_ns = monotonic_ns() + ALONE_PATIENCE_NS;
    cap_bucket_charge(&agent.duty, busy_until(monotonic_ns()));
    return 0;
}

/* --- The thread ------------------------------------------------------------------------------------ */

static uint64_t pause_ns(struct gate *gate)
{
    uint64_t now_ns = monotonic_ns(), most_ns = attach_is_ours(&agent.pokes[0]) ? CHECK_NS : CHECK_BLIND_NS;
    if (!agent.connection.open)
        return TRY_AGAIN_NS;
    if (!is_paced())
        return most_ns;
    if (!atomic_load_explicit(&gate->resting, memory_order_relaxed) ||
        ((agent.flags & WIRE_LEASE_WANTED) && agent.idle_from_ns))
        return TICK_NS;
    if (agent.flags & WIRE_LEASE_REPORT)
        return agent.next_report_ns > now_ns ? agent.next_report_ns - now_ns : 0;
    return most_ns;
}

static void pause_until_something(uint64_t ns)
{
    struct timespec time = {.tv_sec = (time_t)(ns / UINT64_C(1000000000)),
                            .tv_nsec = (long)(ns % UINT64_C(1000000000))};
    struct pollfd ready[2] = {
        {.fd = attach_is_ours(&agent.pokes[0]) ? agent.pokes[0].fd : -1, .events = POLLIN},
        {.fd = attach_is_ours(&agent.connection) ? agent.connection.fd : -1, .events = POLLIN},
    };
    char bytes[64];
    ppoll(ready, 2, &time, NULL);
    if (ready[0].revents)
        while (recv(agent.pokes[0].fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
            ;
}

static void *agent_main(void *unused)
{
    struct gate *gate = gate_area();
    uint64_t next_try_ns = 0;
    (void)unused;
    prctl(PR_SET_NAME, "gpuslice-agent");
    process_ask_for_short_slices();
    prctl(PR_SET_TIMERSLACK, 1000UL); /* ns: a drain's naps are short */
    while (agent.alone)
        pause_until_something(serve_alone(gate));
    for (;;) {
        if (!agent.connection.open && monotonic_ns() >= next_try_ns) {
            int result = meet_daemon();
            if (result < 0)
                report_debug("no word with the daemon about the GPUs' time: %s", strerror(-result));
            next_try_ns = monotonic_ns() + TRY_AGAIN_NS;
        }
        if (agent.connection.open) {
            listen_to_daemon(gate);
            serve(gate);
        }
        pause_until_something(pause_ns(gate));
    }
    return NULL;
}

static bool make_pokes(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
        return false;
    attach_keep(&agent.pokes[0], pair[0]);
    attach_keep(&agent.pokes[1], pair[1]);
    return true;
}

static bool start(struct gate *gate, bool alone)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (!make_pokes() || !gate_make(gate) || pthread_attr_init(&attributes) != 0)
        return false;
    agent.alone = alone;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&thread, &attributes, agent_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return result == 0;
}

/* Start it or, where it runs, have it look at its GPUs if `poke`. Not for a daemon that has no word with
 * agents. */
static void start_or_poke(struct gate *gate, bool poke)
{
    const struct attachment *attachment =
        atomic_load_explicit(&private_get()->attachment, memory_order_acquire);
    uint64_t gpus = atomic_load_explicit(&gate->gpus, memory_order_relaxed);
    bool capped = attachment->standalone && standalone_cap(gpus) < SHARE_WHOLE;
    if (attachment->version < WIRE_VERSION_AGENT && !capped)
        return;
    int saved_errno = errno;
    if (atomic_exchange_explicit(&gate->started, true, memory_order_acq_rel)) {
        if (poke)
            agent_poke();
    } else if (!start(gate, attachment->standalone)) {
        report_debug("cannot start the agent: this process runs outside its shares");
    }
    errno = saved_errno;
}

void agent_meet(uint32_t gpu)
{
    struct gate *gate = &private_get()->gate;
    uint64_t bit = UINT64_C(1) << gpu;
    gate_context_changed();
    bool known = atomic_fetch_or_explicit(&gate->gpus, bit, memory_order_relaxed) & bit;
    start_or_poke(gate, !known);
}

void agent_meet_daemon(void)
{
    struct gate *gate = &private_get()->gate;
    if (atomic_load_explicit(&gate->gpus, memory_order_relaxed))
        start_or_poke(gate, false);
}

void agent_part(uint32_t gpu)
{
    atomic_fetch_and_explicit(&private_get()->gate.gpus, ~(UINT64_C(1) << gpu), memory_order_relaxed);
    if (gate_of())
        agent_poke();
}

void agent_leave_context(CUcontext context)
{
    struct gate *gate = gate_of();
    gate_context_changed();
    if (gate)
        in_flight_forget_context(gate, context);
}

void agent_forget_parent(void)
{
    attach_let_go(&agent.connection);
    attach_let_go(&agent.pokes[0]);
    attach_let_go(&agent.pokes[1]);
    memset(&agent, 0, sizeof(agent));
}
