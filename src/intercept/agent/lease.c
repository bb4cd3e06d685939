/* Leases: what the process does when it is given one, and when it gives one back. */
#include <errno.h>
#include <poll.h>
#include <time.h>

#include "base/clock.h"
#include "intercept/agent/agent_state.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

/* Of a drain: how long to look away, at least, and where nobody waits for its end; at most, where the work should have ended or others
 * step beside it, and where it is known how long that takes, from which a part is left out, as the work may take less. */
#define FIRST_NAP_NS UINT64_C(20000)
#define CALM_NAP_NS UINT64_C(400000)
#define LAST_NAP_NS UINT64_C(200000)
#define LONGEST_NAP_NS UINT64_C(500000)
#define LONGEST_CALM_NAP_NS UINT64_C(1000000)
#define LEFT_OUT 4u
#define LATE_NAPS 4u                      /* of one length */
#define STALLS_AFTER_NS UINT64_C(1000000) /* what was in flight should have ended */
#define STALLS_AGAIN_NS UINT64_C(200000)
#define STALLS_SELDOM_NS UINT64_C(1000000) /* where that does not help */
/* For a thread to take a step; and for one that is seen to wait, which was woken and is not run yet. */
#define STEP_PATIENCE_NS UINT64_C(1000000)
#define STEP_PATIENCE_MOST_NS UINT64_C(20000000)
/* More, for code that is loaded or compiled: it may itself wait for work that waits for what the gate holds. */
#define LOADING_PATIENCE_NS UINT64_C(1000000000)
#define LONGEST_FADES 16 /* by so small a part with each drain */
#define IDLE_PATIENCE_NS UINT64_C(100000000)

/* What the daemon sends meanwhile waits; that it hangs up does not. */
static void nap(struct gate *gate, uint64_t ns)
{
    struct timespec time = {.tv_nsec = (long)ns};
    struct pollfd hung_up = {.fd = agent.connection.open ? agent.connection.fd : -1};
    if (ppoll(&hung_up, 1, &time, NULL) > 0)
        agent_lose_daemon(gate, "it closed the connection");
}

/* Nobody submits any more, but for one kernel of each thread that loads its code: how long it takes until nothing is in
 * flight. Returns whether that is known. All streams are asked before, since nobody knows for how long a stream has work of which
 * nothing was measured, though that work was done long ago. */
static bool tell_closed(struct gate *gate)
{
    uint32_t computing;
    in_flight_streams(gate, UINT32_MAX, &computing);
    uint64_t left_ns = in_flight_left_ns(gate);
    struct wire_message message = {.header.type = WIRE_CLOSED,
                                   .closed = {.lease = agent.lease, .left_ns = left_ns}};
    if (left_ns != UINT64_MAX)
        agent_tell(gate, &message);
    return left_ns != UINT64_MAX;
}

/* What is in flight may wait for what another process of the session has not submitted. */
static void tell_stalled(struct gate *gate)
{
    struct wire_message message = {.header.type = WIRE_CLOSED,
                                   .closed = {.lease = agent.lease, .left_ns = WIRE_LEFT_ENDLESS}};
    agent_tell(gate, &message);
}

/* Until it is worth looking again at what is in flight: most of the time that it should still take; and where it is late, or
 * nobody knows, longer from nap to nap. `is_calm`: nobody waits for its end. */
static uint64_t drain_nap_ns(struct gate *gate, bool is_calm, unsigned *late_naps)
{
    uint64_t left_ns = in_flight_left_ns(gate), nap_ns = left_ns - left_ns / LEFT_OUT;
    bool is_late = left_ns == UINT64_MAX || nap_ns < FIRST_NAP_NS;
    if (is_calm)
        return is_late || nap_ns < CALM_NAP_NS ? CALM_NAP_NS
               : nap_ns < LONGEST_CALM_NAP_NS  ? nap_ns
                                               : LONGEST_CALM_NAP_NS;
    if (is_late)
        nap_ns = FIRST_NAP_NS * (1 + (*late_naps)++ / LATE_NAPS);
    uint64_t most_ns = is_late || (agent.flags & WIRE_LEASE_STALLS) ? LAST_NAP_NS : LONGEST_NAP_NS;
    return nap_ns < most_ns ? nap_ns : most_ns;
}

uint64_t agent_drain(struct gate *gate, uint64_t patience_ns, enum agent_drains why)
{
    uint64_t longest_ns = atomic_load_explicit(&gate->longest_ns, memory_order_relaxed);
    uint64_t deadline_ns = monotonic_ns() + patience_ns + longest_ns;
    uint64_t stalls_ns = UINT64_MAX, stalls_again_ns = STALLS_AGAIN_NS;
    bool told = false, left = false, overlaps = why == AGENT_ANSWERS && (agent.flags & WIRE_LEASE_OVERLAPS);
    unsigned late_naps = 0;
    gate_close(gate);
    uint64_t looked_ns = monotonic_ns(), now_ns = looked_ns;
    for (;; looked_ns = now_ns) {
        if (!left)
            left = gate_is_left(gate);
        /* Who leaves tells all there is to tell with what it returns, if that comes at once. */
        if (!told && why != AGENT_CLOSES && (left ? why == AGENT_ANSWERS : gate_is_left_but_for_loads(gate)))
            told = tell_closed(gate);
        if (!agent.alone && !agent.connection.open)
            return 0;
        now_ns = monotonic_ns();
        if (left && in_flight_is_finished(gate))
            break;
        if (left && stalls_ns == UINT64_MAX && why == AGENT_ANSWERS && (agent.flags & WIRE_LEASE_STALLS)) {
            uint64_t left_ns = in_flight_left_ns(gate);
            stalls_ns = now_ns + STALLS_AFTER_NS + (left_ns == UINT64_MAX ? 0 : left_ns);
        } else if (now_ns >= stalls_ns) {
            tell_stalled(gate);
            stalls_ns = now_ns + stalls_again_ns;
            if (stalls_again_ns < STALLS_SELDOM_NS)
                stalls_again_ns += stalls_again_ns / 4;
        }
        if (now_ns > deadline_ns && !(now_ns < deadline_ns + LOADING_PATIENCE_NS && gate_is_loading(gate))) {
            atomic_store_explicit(&gate->stalled_ns, now_ns, memory_order_relaxed);
            gate_open(gate, GATE_PACED);
            return 0;
        }
        nap(gate, drain_nap_ns(gate, told && overlaps, &late_naps));
    }
    gate_drained(gate);
    /* One long piece is not waited for in all turns to come. */
    longest_ns = atomic_load_explicit(&gate->longest_ns, memory_order_relaxed);
    atomic_store_explicit(&gate->longest_ns, longest_ns - longest_ns / LONGEST_FADES, memory_order_relaxed);
    return looked_ns + (now_ns - looked_ns) / 2;
}

static void tell_waits(struct gate *gate)
{
    struct wire_message message = {.header.type = WIRE_WAITS};
    bool any = false;
    if (!(agent.flags & WIRE_LEASE_WAITS))
        return;
    for (unsigned i = 0; i < WAITS_BUCKETS; i++) {
        message.waits.counts[i] = atomic_exchange_explicit(&gate->waits[i], 0, memory_order_relaxed);
        any |= message.waits.counts[i] != 0;
    }
    if (any)
        agent_tell(gate, &message);
}

/* What is behind: by WORK, PROGRESS or REPORT. `returned` takes what they do not tell. */
static void tell_measure(struct gate *gate, uint64_t now_ns, struct wire_returned *returned)
{
    struct agent_measure measure = agent_measure(gate, now_ns);
    if (!returned && !measure.calls)
        return;
    tell_waits(gate);
    uint64_t longest_ns = atomic_load_explicit(&gate->longest_ns, memory_order_relaxed);
    uint64_t waited_ns = atomic_exchange_explicit(&gate->waited_ns, 0, memory_order_relaxed);
    struct wire_message message = {.header.type = WIRE_REPORT,
                                   .report = {agent.lease, measure.busy_ns, longest_ns, waited_ns}};
    struct wire_progress progress = {agent.lease, measure.busy_ns, longest_ns, waited_ns, measure.calls};
    bool tells_calls = agent.flags & (WIRE_LEASE_PROGRESS | WIRE_LEASE_WORK);
    if (agent.flags & WIRE_LEASE_WORK)
        message = (struct wire_message){.header.type = WIRE_WORK,
                                        .work = {progress, measure.least_ns, measure.measured}};
    else if (tells_calls)
        message = (struct wire_message){.header.type = WIRE_PROGRESS, .progress = progress};
    else if (returned)
        *returned = (struct wire_returned){.busy_ns = measure.busy_ns, .waited_ns = waited_ns};
    if (!returned || tells_calls)
        agent_tell(gate, &message);
}

void agent_give_back(struct gate *gate, uint64_t lease, uint64_t patience_ns, enum wire_outcome outcome)
{
    bool was_closed = atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_CLOSED;
    bool was_free = atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_FREE;
    struct wire_message message = {.header.type = WIRE_RETURNED};
    enum agent_drains why = outcome == WIRE_OUTCOME_IDLE ? AGENT_LEAVES : AGENT_ANSWERS;
    uint64_t now_ns = was_closed ? monotonic_ns() : agent_drain(gate, patience_ns, why);
    if (!now_ns) {
        if (!agent.connection.open)
            return;
        outcome = WIRE_OUTCOME_UNDRAINED;
        now_ns = monotonic_ns();
    }
    if (agent.held && !was_closed && !was_free)
        tell_measure(gate, now_ns, &message.returned);
    else
        message.returned.waited_ns = atomic_exchange_explicit(&gate->waited_ns, 0, memory_order_relaxed);
    message.returned.lease = lease;
    message.returned.longest_ns = atomic_load_explicit(&gate->longest_ns, memory_order_relaxed);
    message.returned.outcome = outcome;
    agent_count_from(gate, now_ns);
    message.returned.ended_us = (uint32_t)((monotonic_ns() - now_ns) / 1000);
    agent.held = outcome == WIRE_OUTCOME_UNDRAINED;
    agent.flags = 0;
    agent.wanted = false;
    agent_tell(gate, &message);
}

static void set_ahead(struct gate *gate, uint32_t ahead_us)
{
    uint64_t least_ns = (uint64_t)ahead_us * 1000;
    if (atomic_exchange_explicit(&gate->ahead_least_ns, least_ns, memory_order_relaxed) != least_ns)
        atomic_store_explicit(&gate->ahead_ns, least_ns, memory_order_relaxed);
}

/* The number of a lease is void once it was given back: this GRANT, of other flags, crossed with RETURNED. */
static bool is_void(const struct wire_grant *grant)
{
    return grant->lease && !agent.held && grant->lease == agent.lease;
}

/* The REVOKE behind it has it waited for. */
static void step(struct gate *gate)
{
    uint64_t from_ns = monotonic_ns(), passed_ns = 0;
    bool is_over = false;
    gate_begin_step(gate);
    while (!gate_end_step(gate, is_over)) {
        nap(gate, passed_ns < STEP_PATIENCE_NS ? FIRST_NAP_NS : LAST_NAP_NS);
        passed_ns = monotonic_ns() - from_ns;
        bool is_awaited = atomic_load_explicit(&gate->waiters, memory_order_relaxed) > 0;
        is_over =
            !agent.connection.open || passed_ns > (is_awaited ? STEP_PATIENCE_MOST_NS : STEP_PATIENCE_NS);
    }
}

void agent_grant(struct gate *gate, const struct wire_grant *grant)
{
    if (is_void(grant))
        return;
    bool another = !agent.held || agent.lease != grant->lease;
    bool is_to_measure = grant->flags & ~agent.flags & WIRE_LEASE_MEASURE;
    agent.held = true;
    agent.wanted = false;
    agent.lease = grant->lease;
    agent.flags = grant->flags;
    set_ahead(gate, grant->ahead_us);
    atomic_store_explicit(&gate->measures, grant->flags & WIRE_LEASE_MEASURE, memory_order_relaxed);
    atomic_store_explicit(&gate->has_company, grant->flags & WIRE_LEASE_COMPANY, memory_order_relaxed);
    if (another) {
        uint64_t now_ns = monotonic_ns();
        atomic_store_explicit(&gate->resting, false, memory_order_relaxed);
        agent_count_from(gate, now_ns);
        agent.measure.by_looks = 0;
        agent.told_burst = false;
        agent.next_report_ns = now_ns + WIRE_REPORT_NS;
    }
    if (another || is_to_measure)
        in_flight_forget_late(gate);
    if (agent.move.is_away) {
        if (agent_is_paced()) /* nobody waits for it */
            agent_give_back(gate, grant->lease, 0, WIRE_OUTCOME_IDLE);
        return;
    }
    if (grant->flags & WIRE_LEASE_STEP)
        step(gate);
    else if (grant->flags & WIRE_LEASE_STILL)
        gate_close(gate);
    else
        gate_open(gate, grant->flags & WIRE_LEASE_FREE ? GATE_FREE : GATE_PACED);
}

bool agent_is_paced(void)
{
    return agent.held && !(agent.flags & WIRE_LEASE_FREE);
}

/* Whether somebody has to know soon that there is work, or none any more. */
static bool is_watched(void)
{
    return agent.flags & (WIRE_LEASE_WANTED | WIRE_LEASE_BURSTS);
}

/* Whether somebody has to know soon that a program without work rests. */
static bool has_rest_to_tell(void)
{
    return (agent.flags & WIRE_LEASE_WANTED) || ((agent.flags & WIRE_LEASE_BURSTS) && agent.told_burst);
}

static bool is_resting(const struct gate *gate)
{
    return agent.idle_from_ns && atomic_load_explicit(&gate->resting, memory_order_relaxed);
}

static void tell_burst(struct gate *gate, bool begins)
{
    struct wire_message message = {.header.type = WIRE_BURST,
                                   .burst = {.lease = agent.lease, .begins = begins}};
    agent.told_burst = begins;
    agent_tell(gate, &message);
}

static void serve_lease(struct gate *gate)
{
    bool was_resting = is_resting(gate);
    uint64_t now_ns = monotonic_ns();
    if (!(agent.flags & WIRE_LEASE_REPORT))
        agent.next_report_ns = now_ns + WIRE_REPORT_NS;
    /* Where nobody has to know at once whether there is work, the agent looks when it reports. */
    if (!was_resting && !is_watched() && !agent_counts_looks() && !agent.idle_from_ns &&
        now_ns < agent.next_report_ns)
        return;
    bool busy = agent_look(gate, has_rest_to_tell() ? agent_rest_ns() : 0);
    now_ns = monotonic_ns();
    if ((agent.flags & WIRE_LEASE_BURSTS) && busy && !agent.told_burst)
        tell_burst(gate, true);
    /* A look at a moment drawn by chance that is the last one before the report is due brings it along. */
    uint64_t next_wake_ns = agent_counts_looks() ? agent.measure.look_at_ns : now_ns;
    if ((agent.flags & WIRE_LEASE_REPORT) && next_wake_ns >= agent.next_report_ns && !was_resting) {
        agent.next_report_ns =
            WIRE_REPORT_NS + (now_ns > agent.next_report_ns ? now_ns : agent.next_report_ns);
        tell_measure(gate, now_ns, NULL);
    }
    if (!agent_is_paced() || !agent.measure.rests)
        return;
    if ((agent.flags & WIRE_LEASE_BURSTS) && agent.told_burst)
        tell_burst(gate, false);
    if (agent.flags & WIRE_LEASE_WANTED)
        agent_give_back(gate, agent.lease, IDLE_PATIENCE_NS, WIRE_OUTCOME_IDLE);
}

uint64_t agent_lease_pause_ns(struct gate *gate)
{
    uint64_t now_ns = monotonic_ns(), report_ns = UINT64_MAX;
    if (agent.flags & WIRE_LEASE_REPORT)
        report_ns = agent.next_report_ns > now_ns ? agent.next_report_ns - now_ns : 0;
    if (is_resting(gate)) {
        uint64_t rests_at_ns = agent.idle_from_ns + agent_rest_ns();
        if (!has_rest_to_tell())
            return AGENT_CHECK_NS;
        return rests_at_ns > now_ns ? rests_at_ns - now_ns : 0;
    }
    if (!is_watched() && !agent_counts_looks())
        return report_ns < AGENT_CHECK_NS ? report_ns : AGENT_CHECK_NS;
    uint64_t look_ns = agent_next_look_ns(gate, has_rest_to_tell());
    /* To report is to look: one shortly before is left out, but for those at moments drawn by chance, and for one that finds out
     * whether the program rests. */
    bool is_left_out = !agent_counts_looks() && !agent.idle_from_ns && look_ns + look_ns / 2 >= report_ns;
    return is_left_out || look_ns > report_ns ? report_ns : look_ns;
}

/* What there is to say of itself. */
void agent_serve(struct gate *gate)
{
    if (agent_is_paced())
        serve_lease(gate);
    bool waits = !agent.held && !agent.wanted && !agent.move.is_away &&
                 atomic_load_explicit(&gate->waiters, memory_order_seq_cst) > 0 &&
                 atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_CLOSED;
    bool elsewhere = agent.held && agent.told_gpus != atomic_load_explicit(&gate->gpus, memory_order_relaxed);
    if (!agent.connection.open || (!waits && !elsewhere))
        return;
    agent.wanted = waits;
    agent_tell_want(gate);
}
