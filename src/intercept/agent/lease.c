/* Leases: what the process does when it is given one, and when it gives one back. */
#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "intercept/agent/agent_state.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

#define FIRST_NAP_NS UINT64_C(20000) /* of a drain */
#define SOON_NAPS 100u               /* of the first length: by then paced work is done */
#define LAST_NAP_NS UINT64_C(200000)
#define IDLE_NS UINT64_C(1000000) /* so long without work gives an unwanted lease back */
#define IDLE_PATIENCE_NS UINT64_C(100000000)
#define REPORT_NS UINT64_C(20000000)

static void nap(struct gate *gate, uint64_t ns)
{
    char byte;
    struct timespec time = {.tv_nsec = (long)ns};
    nanosleep(&time, NULL);
    if (!agent.alone && recv(agent.connection.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        agent_lose_daemon(gate, "it closed the connection");
}

/* Nobody submits any more: how long it takes until nothing is in flight. */
static void tell_closed(struct gate *gate)
{
    uint64_t left_ns = in_flight_left_ns(gate);
    struct wire_message message = {.header.type = WIRE_CLOSED,
                                   .closed = {.lease = agent.lease, .left_ns = left_ns}};
    if (left_ns != UINT64_MAX)
        agent_tell(gate, &message);
}

/* Close the gate and wait for what was submitted. False: it did not end in time, or there is no daemon any
 * more; the gate is open. */
bool agent_drain(struct gate *gate, uint64_t patience_ns)
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

void agent_give_back(struct gate *gate, uint64_t lease, uint64_t patience_ns, enum wire_outcome outcome)
{
    bool was_closed = atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_CLOSED;
    bool was_free = atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_FREE;
    if (!was_closed && !agent_drain(gate, patience_ns)) {
        if (!agent.connection.open)
            return;
        outcome = WIRE_OUTCOME_UNDRAINED;
    }
    uint64_t now_ns = monotonic_ns();
    struct wire_message message = {
        .header.type = WIRE_RETURNED,
        .returned = {.lease = lease,
                     .busy_ns = was_closed || was_free ? 0 : agent_busy_until(now_ns),
                     .longest_ns = atomic_load_explicit(&gate->longest_ns, memory_order_relaxed),
                     .outcome = outcome,
                     .waited_ns = atomic_exchange_explicit(&gate->waited_ns, 0, memory_order_relaxed)},
    };
    agent_count_from(gate, now_ns, outcome == WIRE_OUTCOME_UNDRAINED);
    agent.held = outcome == WIRE_OUTCOME_UNDRAINED;
    agent.flags = 0;
    agent.wanted = false;
    agent_tell(gate, &message);
}

void agent_grant(struct gate *gate, const struct wire_grant *grant)
{
    uint64_t now_ns = monotonic_ns();
    bool another = !agent.held || agent.lease != grant->lease;
    agent.held = true;
    agent.wanted = false;
    agent.lease = grant->lease;
    agent.flags = grant->flags;
    if (another) {
        atomic_store_explicit(&gate->resting, false, memory_order_relaxed);
        agent_count_from(gate, now_ns, atomic_load_explicit(&gate->waiters, memory_order_relaxed) > 0);
        agent.next_report_ns = now_ns + REPORT_NS;
    }
    gate_open(gate, grant->flags & WIRE_LEASE_FREE ? GATE_FREE : GATE_PACED);
}

static void report(struct gate *gate, uint64_t now_ns)
{
    struct wire_message message = {
        .header.type = WIRE_REPORT,
        .report = {.lease = agent.lease,
                   .busy_ns = agent_busy_until(now_ns),
                   .longest_ns = atomic_load_explicit(&gate->longest_ns, memory_order_relaxed),
                   .waited_ns = atomic_exchange_explicit(&gate->waited_ns, 0, memory_order_relaxed)},
    };
    agent.next_report_ns = now_ns + REPORT_NS;
    agent_tell(gate, &message);
}

bool agent_is_paced(void)
{
    return agent.held && !(agent.flags & WIRE_LEASE_FREE);
}

/* What there is to say of itself. */
void agent_serve(struct gate *gate)
{
    if (agent_is_paced()) {
        agent_look(gate);
        uint64_t now_ns = monotonic_ns();
        if ((agent.flags & WIRE_LEASE_REPORT) && now_ns >= agent.next_report_ns)
            report(gate, now_ns);
        if (agent_is_paced() && (agent.flags & WIRE_LEASE_WANTED) && agent.idle_from_ns &&
            now_ns - agent.idle_from_ns >= IDLE_NS)
            agent_give_back(gate, agent.lease, IDLE_PATIENCE_NS, WIRE_OUTCOME_IDLE);
    }
    bool waits = !agent.held && !agent.wanted &&
                 atomic_load_explicit(&gate->waiters, memory_order_seq_cst) > 0 &&
                 atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_CLOSED;
    bool elsewhere = agent.held && agent.told_gpus != atomic_load_explicit(&gate->gpus, memory_order_relaxed);
    if (!agent.connection.open || (!waits && !elsewhere))
        return;
    agent.wanted = waits;
    agent_tell_want(gate);
}
