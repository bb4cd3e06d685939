/* lease.c - leases: what the agent does when the daemon grants one, and when it gives one back. */
#include <errno.h>
#include <poll.h>
#include <time.h>

#include "base/clock.h"
#include "intercept/agent/agent_state.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

/* How long a drain sleeps between two looks at the work in flight. The shortest sleep, and the shortest if nobody waits for
 * the end of the drain (calm): */
#define FIRST_NAP_NS UINT64_C(20000)
#define CALM_NAP_NS UINT64_C(400000)
/* The longest sleep if the work should have ended, or if STALLS is set in the lease; and otherwise; and if calm: */
#define LAST_NAP_NS UINT64_C(200000)
#define LONGEST_NAP_NS UINT64_C(500000)
#define LONGEST_CALM_NAP_NS UINT64_C(1000000)
/* A sleep leaves out a quarter of the time that the work should still take, as the work may take less. */
#define LEFT_OUT 4u
#define LATE_NAPS 4u /* this many sleeps are of one length before they get longer */
/* The work counts as stalled this long after it should have ended. The agent says so first in these intervals, and later,
 * if that does not help, in longer ones. */
#define STALLS_AFTER_NS UINT64_C(1000000)
#define STALLS_AGAIN_NS UINT64_C(200000)
#define STALLS_SELDOM_NS UINT64_C(1000000)
/* How long to wait for a thread to take a step; and for a thread that was seen at the gate, which may not run yet. */
#define STEP_PATIENCE_NS UINT64_C(1000000)
#define STEP_PATIENCE_MOST_NS UINT64_C(20000000)
/* How much longer a drain waits for code that is loaded or compiled. There is a bound, since the loading may itself wait for
 * work that waits for a thread at the gate. */
#define LOADING_PATIENCE_NS UINT64_C(1000000000)
/* How much work a stream may have before it where nothing but a move of the memory has to wait for it: that is much less than a
 * move waits for (moves_orders.c). */
#define MOVE_AHEAD_US 250000u
#define LONGEST_FADES 16 /* with each drain, `longest_ns` loses one part in so many */
#define IDLE_PATIENCE_NS UINT64_C(100000000)

/* Sleep. Messages of the daemon wait meanwhile, but if it hangs up, that is noticed at once. */
static void nap(struct gate *gate, uint64_t ns)
{
    struct timespec time = {.tv_nsec = (long)ns};
    struct pollfd hung_up = {.fd = agent.connection.open ? agent.connection.fd : -1};
    if (ppoll(&hung_up, 1, &time, NULL) > 0)
        agent_lose_connection(gate, "it was closed at the other end");
}

/* Send CLOSED: no thread submits any more, except one kernel of each thread that loads its code, and the work in flight
 * should still take so long. Returns whether that time is known. All streams are asked first: otherwise a stream whose work
 * was not measured would make the time unknown, even if that work was done long ago. */
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

/* Tell the daemon that the work in flight may be waiting for work that another process of the session has not submitted. */
static void tell_stalled(struct gate *gate)
{
    struct wire_message message = {.header.type = WIRE_CLOSED,
                                   .closed = {.lease = agent.lease, .left_ns = WIRE_LEFT_ENDLESS}};
    agent_tell(gate, &message);
}

/* How long to sleep until the next look at the work in flight: most of the time that it should still take. If it is late, or
 * that time is unknown, sleeps get longer and longer. `is_calm`: nobody waits for the end of the work. */
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
        /* An agent that gives its lease back by itself need not send CLOSED if RETURNED follows at once. */
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
    /* So one long piece of work does not lengthen the patience of all turns to come. */
    longest_ns = atomic_load_explicit(&gate->longest_ns, memory_order_relaxed);
    atomic_store_explicit(&gate->longest_ns, longest_ns - longest_ns / LONGEST_FADES, memory_order_relaxed);
    return looked_ns + (now_ns - looked_ns) / 2;
}

static void tell_waits(struct gate *gate)
{
    struct wire_message message = {.header.type = WIRE_WAITS};
    bool any = false;
    for (unsigned i = 0; i < WAITS_BUCKETS; i++) {
        message.waits.counts[i] = atomic_exchange_explicit(&gate->waits[i], 0, memory_order_relaxed);
        any |= message.waits.counts[i] != 0;
    }
    if (any)
        agent_tell(gate, &message);
}

/* Report what was done since the last measure. If no call has ended, there is something to say only before RETURNED. */
static void tell_measure(struct gate *gate, uint64_t now_ns, bool is_last)
{
    struct agent_measure measure = agent_measure(gate, now_ns);
    if (!is_last && !measure.calls)
        return;
    tell_waits(gate);
    struct wire_message message = {
        .header.type = WIRE_REPORT,
        .report = {.lease = agent.lease,
                   .busy_ns = measure.busy_ns,
                   .longest_ns = atomic_load_explicit(&gate->longest_ns, memory_order_relaxed),
                   .waited_ns = atomic_exchange_explicit(&gate->waited_ns, 0, memory_order_relaxed),
                   .calls = measure.calls,
                   .begun_ns = measure.begun_ns,
                   .least_ns = measure.least_ns,
                   .measured = measure.measured}};
    agent_tell(gate, &message);
}

void agent_give_back(struct gate *gate, uint64_t lease, uint64_t patience_ns, enum wire_outcome outcome)
{
    bool was_closed = atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_CLOSED;
    bool was_paced = agent_is_paced();
    struct wire_message message = {.header.type = WIRE_RETURNED};
    enum agent_drains why = outcome == WIRE_OUTCOME_IDLE ? AGENT_LEAVES : AGENT_ANSWERS;
    uint64_t now_ns = was_closed ? monotonic_ns() : agent_drain(gate, patience_ns, why);
    if (!now_ns) {
        if (!agent.connection.open)
            return;
        outcome = WIRE_OUTCOME_UNDRAINED;
        now_ns = monotonic_ns();
    }
    if (was_paced && !was_closed)
        tell_measure(gate, now_ns, true);
    message.returned.lease = lease;
    message.returned.waited_ns = atomic_exchange_explicit(&gate->waited_ns, 0, memory_order_relaxed);
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

/* Whether this GRANT is for a lease that the agent has given back: it changed the lease's flags, and crossed with
 * RETURNED. */
static bool is_void(const struct wire_grant *grant)
{
    return grant->lease && !agent.held && grant->lease == agent.lease;
}

/* Let one call pass. The REVOKE that follows has the agent wait for its work. */
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
    bool has_new_company = (grant->flags ^ agent.flags) & WIRE_LEASE_COMPANY; /* or has lost it */
    agent.held = true;
    agent.wanted = false;
    agent.lease = grant->lease;
    agent.flags = grant->flags;
    set_ahead(gate, agent_is_paced() || !agent_has_mover() ? grant->ahead_us : MOVE_AHEAD_US);
    atomic_store_explicit(&gate->only_bounds, !agent_is_paced(), memory_order_relaxed);
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
    if (another || is_to_measure || has_new_company)
        in_flight_forget_late(gate);
    if (agent.move.is_away) {
        if (agent_is_paced()) /* the process cannot use it */
            agent_give_back(gate, grant->lease, 0, WIRE_OUTCOME_IDLE);
        return;
    }
    if (grant->flags & WIRE_LEASE_STEP)
        step(gate);
    else if (grant->flags & WIRE_LEASE_STILL)
        gate_close(gate);
    else
        gate_open(gate, agent_is_paced() ? GATE_PACED : agent_free_state());
}

enum gate_state agent_free_state(void)
{
    return agent_has_mover() ? GATE_PACED : GATE_FREE;
}

bool agent_is_paced(void)
{
    return agent.held && !(agent.flags & WIRE_LEASE_FREE);
}

/* Whether the daemon has to know soon when work begins or ends. */
static bool is_watched(void)
{
    return agent.flags & (WIRE_LEASE_WANTED | WIRE_LEASE_BURSTS);
}

/* Whether the daemon has to know soon that a program without work rests. */
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
    /* If the daemon need not know at once whether there is work, the agent looks only when it reports. */
    if (!was_resting && !is_watched() && !agent_counts_looks() && !agent.idle_from_ns &&
        now_ns < agent.next_report_ns)
        return;
    bool busy = agent_look(gate, has_rest_to_tell() ? agent_rest_ns() : 0);
    now_ns = monotonic_ns();
    if ((agent.flags & WIRE_LEASE_BURSTS) && busy && !agent.told_burst)
        tell_burst(gate, true);
    /* If the next look at a moment chosen by chance comes after the report is due, the agent reports now. */
    uint64_t next_wake_ns = agent_counts_looks() ? agent.measure.look_at_ns : now_ns;
    if ((agent.flags & WIRE_LEASE_REPORT) && next_wake_ns >= agent.next_report_ns && !was_resting) {
        agent.next_report_ns =
            WIRE_REPORT_NS + (now_ns > agent.next_report_ns ? now_ns : agent.next_report_ns);
        tell_measure(gate, now_ns, false);
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
    /* The agent also looks when it reports, so it leaves out a look shortly before. It does not leave out looks at moments
     * chosen by chance, nor one that finds out whether the program rests. */
    bool is_left_out = !agent_counts_looks() && !agent.idle_from_ns && look_ns + look_ns / 2 >= report_ns;
    return is_left_out || look_ns > report_ns ? report_ns : look_ns;
}

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
