/* The decisions. Every call brings the accounts up to date, notes what happened, and then decides once from
 * the whole state who is to hold what. */
#include "daemon/arbiter.h"

#include <assert.h>
#include <stdlib.h>

#include "daemon/arbiter_state.h"

/* The longest piece of work that a process can have others wait for. */
#define LONGEST_BELIEVED_NS UINT64_C(2000000000)
/* Between tries to close a session that did not drain: doubled each time. */
#define RETRY_NS UINT64_C(100000000)
#define RETRY_MAX_NS UINT64_C(5000000000)
#define RETRY_UNDRAINABLE_NS UINT64_C(10000000000)
#define TRIES_UNDRAINABLE 3
/* A lease that nobody wants away is asked about from then on, and charged now and then. */
#define REPORT_AFTER_NS UINT64_C(1000000000)
#define CHARGE_EVERY_NS UINT64_C(100000000)
/* A capped session that has used up its bucket starts again with this much, or what it gets in this time. */
#define BUCKET_START_NS 20000000.0
#define BUCKET_START_PERIOD_NS 100000000.0
#define EXTENSION_MIN_NS UINT64_C(1000000)
/* A lease of which this part was busy is one of a program that always has work. Shorter ones tell nothing. */
#define DENSE_RATIO 0.9
#define JUDGED_NS 2000000.0
#define GAP_MAX_NS 5000000.0
#define NEVER UINT64_MAX

/* --- Gates ----------------------------------------------------------------------------------------- */

static bool is_held(const struct arbiter_session *session)
{
    return session->lease != LEASE_NONE && session->lease != LEASE_FREE;
}

/* From when on a lease that is being closed has so little left that the next may begin. */
static uint64_t leaves_at(const struct arbiter_session *session)
{
    uint64_t done_at = 0;
    if (!session->closing || session->lease != LEASE_EXCLUSIVE)
        return NEVER;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == GATE_CLOSING && at->done_at > done_at)
            done_at = at->done_at;
    return done_at == NEVER || done_at < ARBITER_LEAD_NS ? done_at : done_at - ARBITER_LEAD_NS;
}

/* Whether the lease keeps others off its GPUs. One that was free does so while it closes. */
static bool is_in_the_way(const struct arbiter_session *session)
{
    if (leaves_at(session) <= session->arbiter->now)
        return false;
    return session->lease == LEASE_EXCLUSIVE || session->lease == LEASE_OVERLAP ||
           (session->lease == LEASE_FREE && session->closing);
}

static bool has_waiting_process(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->wants && at->gate == GATE_CLOSED)
            return true;
    return false;
}

static bool is_waiting(const struct arbiter_session *session)
{
    return session->lease == LEASE_NONE && has_waiting_process(session);
}

static bool has_gate(const struct arbiter_session *session, enum gate_state gate)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == gate)
            return true;
    return false;
}

static void open_gate(struct arbiter_process *process)
{
    struct arbiter_session *session = process->session;
    struct arbiter *arbiter = session->arbiter;
    process->gate = GATE_OPEN;
    process->wants = false;
    process->reported_at = arbiter->now;
    process->lease = session->lease == LEASE_FREE ? 0 : ++arbiter->lease_number;
    arbiter->calls->grant(process->owner, process->lease, session->flags);
}

static void raise_flags(struct arbiter_session *session, uint32_t flags)
{
    if ((session->flags | flags) == session->flags)
        return;
    session->flags |= flags;
    for (struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == GATE_OPEN)
            session->arbiter->calls->grant(at->owner, at->lease, session->flags);
}

static void tell(const struct arbiter_session *session, enum arbiter_event event)
{
    const struct arbiter *arbiter = session->arbiter;
    uint64_t ns = session->closing ? arbiter->now - session->closing_at : 0;
    arbiter->calls->event(session->owner, event, ns);
}

/* --- Leases ---------------------------------------------------------------------------------------- */

static void begin_lease(struct arbiter_session *session, enum arbiter_lease lease)
{
    struct arbiter *arbiter = session->arbiter;
    session->lease = lease;
    session->closing = false;
    session->held = session->gpus;
    session->flags = lease == LEASE_FREE ? WIRE_LEASE_FREE : 0;
    session->since = session->charged_at = arbiter->now;
    session->turn_ends = arbiter->now + arbiter_quantum(arbiter);
    session->busy_ns = 0;
    FOR_GPUS (gpu, session->held) {
        session->use[gpu].open_ns = 0;
        if (lease != LEASE_EXCLUSIVE || arbiter->gpus[gpu].holder == session->serial)
            continue;
        arbiter->gpus[gpu].handovers += arbiter->gpus[gpu].holder != 0;
        arbiter->gpus[gpu].holder = session->serial;
    }
}

static void throttle(struct arbiter_session *session)
{
    session->is_throttled = is_capped(session) && session->tokens <= 0;
}

/* How busy an exclusive lease was says whether the session can share its turns, and what a change costs. */
static void judge(struct arbiter_session *session, double passed, double busy, bool gave_back)
{
    struct arbiter *arbiter = session->arbiter;
    if (gave_back) {
        session->is_sparse = true;
    } else if (passed >= JUDGED_NS) {
        session->is_sparse = busy < DENSE_RATIO;
        double gap = passed * (1 - busy);
        if (!session->is_sparse && gap < GAP_MAX_NS)
            arbiter->gap_ns = arbiter->gap_ns ? arbiter->gap_ns + (gap - arbiter->gap_ns) / 8 : gap;
    }
}

static void end_lease(struct arbiter_session *session, bool gave_back)
{
    struct arbiter *arbiter = session->arbiter;
    if (session->lease == LEASE_OVERLAP)
        arbiter_charge_overlaps(arbiter);
    double passed = (double)(arbiter->now - session->charged_at);
    double busy = arbiter_charge(session);
    if (session->lease == LEASE_EXCLUSIVE && busy >= 0)
        judge(session, passed, busy, gave_back);
    if (session->lease == LEASE_LOOSE) {
        session->tries = 0;
        tell(session, ARBITER_DRAINED);
    }
    session->lease = LEASE_NONE;
    session->closing = false;
    session->held = 0;
    throttle(session);
}

static void end_lease_if_returned(struct arbiter_session *session, bool gave_back)
{
    if (session->lease != LEASE_NONE && !has_gate(session, GATE_OPEN) && !has_gate(session, GATE_CLOSING))
        end_lease(session, gave_back);
}

static void begin_closing(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    uint64_t longest = 0;
    if (session->closing)
        return;
    session->closing = true;
    session->closing_at = arbiter->now;
    for (struct arbiter_process *at = session->processes; at; at = at->next) {
        if (at->gate != GATE_OPEN)
            continue;
        at->gate = GATE_CLOSING;
        at->done_at = NEVER;
        longest = at->longest_ns > longest ? at->longest_ns : longest;
        arbiter->calls->revoke(at->owner, at->lease, ARBITER_PATIENCE_NS);
    }
    longest = longest < LONGEST_BELIEVED_NS ? longest : LONGEST_BELIEVED_NS;
    session->closes_at = arbiter->now + longest + ARBITER_PATIENCE_NS + ARBITER_GRACE_NS;
    end_lease_if_returned(session, false);
}

/* The process's work did not drain and its gate is open again: so are the others', and the next in line runs
 * beside them, since what is on the GPU may wait for either. */
static void become_loose(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    if (session->lease == LEASE_OVERLAP)
        arbiter_charge_overlaps(arbiter);
    arbiter_charge(session);
    session->tries++;
    if (session->tries <= TRIES_UNDRAINABLE)
        tell(session, session->tries < TRIES_UNDRAINABLE ? ARBITER_UNDRAINED : ARBITER_UNDRAINABLE);
    session->overruns++;
    begin_lease(session, LEASE_LOOSE);
    session->flags = WIRE_LEASE_REPORT;
    uint64_t pause = RETRY_UNDRAINABLE_NS;
    if (session->tries < TRIES_UNDRAINABLE)
        pause = RETRY_NS << (session->tries - 1);
    session->retry_at =
        arbiter->now + (pause < RETRY_MAX_NS || session->tries >= TRIES_UNDRAINABLE ? pause : RETRY_MAX_NS);
    for (struct arbiter_process *at = session->processes; at; at = at->next)
        at->wants = true;
}

/* --- Who competes ---------------------------------------------------------------------------------- */

static bool is_restricted(const struct arbiter_session *session)
{
    return session->share.min > 0 || is_capped(session) || session->priority != ARBITER_PRIORITY_NORMAL;
}

static uint64_t gpus_of(const struct arbiter_session *session)
{
    uint64_t gpus = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        gpus |= at->gpus;
    return gpus;
}

static void set_free(struct arbiter_session *session)
{
    if (session->lease == LEASE_FREE && !session->closing)
        return;
    if (session->lease == LEASE_OVERLAP)
        arbiter_charge_overlaps(session->arbiter);
    arbiter_charge(session);
    session->tries = 0;
    begin_lease(session, LEASE_FREE);
    for (struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == GATE_OPEN)
            open_gate(at);
}

/* The GPUs on which shares count now: a session leases them as a whole. */
static void set_gpus(struct arbiter_session *session, uint64_t gpus)
{
    uint64_t more = gpus & ~session->gpus;
    if (more)
        arbiter_come_back(session, more);
    session->gpus = gpus;
    if (session->lease == LEASE_FREE) {
        session->held = gpus;
        begin_closing(session);
    } else if (is_held(session) && (gpus & ~session->held)) {
        begin_closing(session);
    } else if (is_held(session) && gpus != session->held) {
        arbiter_charge(session);
        session->held = gpus;
    }
}

static void find_modes(struct arbiter *arbiter)
{
    uint64_t shares = 0;
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (is_restricted(session))
            shares |= gpus_of(session);
    uint64_t changed = shares ^ arbiter->shares;
    arbiter->shares = shares;
    FOR_GPUS (gpu, changed)
        arbiter->calls->mode(arbiter->context, (unsigned)gpu, arbiter_mode(arbiter, (unsigned)gpu));
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        uint64_t gpus = gpus_of(session);
        if (!session->processes)
            session->gpus = 0;
        else if (gpus ? !(gpus & shares) : !is_restricted(session))
            set_free(session);
        else
            set_gpus(session, gpus & shares);
    }
}

static bool has_tokens(struct arbiter_session *session)
{
    if (!is_capped(session))
        return true;
    double start = (double)session->share.max / SHARE_WHOLE * BUCKET_START_PERIOD_NS;
    if (session->tokens >= (start < BUCKET_START_NS ? start : BUCKET_START_NS))
        session->is_throttled = false;
    return !session->is_throttled && session->tokens > 0;
}

/* Whether a session of a higher priority wants one of its GPUs. */
static bool is_outranked(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at->priority > session->priority && at->is_backlogged && (at->gpus & session->gpus))
            return true;
    return false;
}

/* A minimum is kept whatever comes first. */
static void find_due(struct arbiter_session *session)
{
    double owed = arbiter_owed(session);
    if (owed <= 0 || !is_outranked(session))
        session->is_due = false;
    else if (owed >= (double)arbiter_quantum(session->arbiter))
        session->is_due = true;
}

/* Who of those with different ones goes first. */
static unsigned standing(const struct arbiter_session *session)
{
    return session->priority + (session->is_due ? ARBITER_PRIORITIES : 0);
}

/* Notes who waits; those that neither waited nor held come back from idling. */
static void find_backlogged(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        bool was = session->is_backlogged;
        session->is_backlogged = is_held(session) || (is_waiting(session) && has_tokens(session));
        if (!session->is_backlogged || was)
            continue;
        session->waits_since = arbiter->now;
    }
    arbiter_weigh(arbiter);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (session->is_backlogged && session->waits_since == arbiter->now && is_waiting(session))
            arbiter_come_back(session, session->gpus);
    arbiter_advance_clocks(arbiter);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        session->lag = arbiter_lag(session);
        find_due(session);
    }
}

static bool is_eligible(const struct arbiter_session *session)
{
    return session->is_backlogged && session->lease == LEASE_NONE;
}

static bool precedes(const struct arbiter_session *a, const struct arbiter_session *b)
{
    if (standing(a) != standing(b))
        return standing(a) > standing(b);
    if (a->lag != b->lag)
        return a->lag < b->lag;
    return a->waits_since != b->waits_since ? a->waits_since < b->waits_since : a->serial < b->serial;
}

/* Whether `waiter` may have `holder`'s lease taken away once its turn is over. Of sessions that overlap only
 * one that cannot join them does. */
static bool presses(const struct arbiter_session *waiter, const struct arbiter_session *holder)
{
    if (!is_eligible(waiter) || !(waiter->gpus & holder->held) || standing(waiter) < standing(holder))
        return false;
    if (holder->lease == LEASE_OVERLAP)
        return standing(waiter) > standing(holder) || !waiter->is_sparse;
    return precedes(waiter, holder);
}

/* --- Taking leases away ---------------------------------------------------------------------------- */

static bool is_pressed(const struct arbiter_session *holder)
{
    for (const struct arbiter_session *at = holder->arbiter->sessions; at; at = at->next)
        if (presses(at, holder))
            return true;
    return false;
}

static bool is_waited_for(const struct arbiter_session *holder)
{
    for (const struct arbiter_session *at = holder->arbiter->sessions; at; at = at->next)
        if (is_eligible(at) && (at->gpus & holder->held) &&
            (holder->lease != LEASE_OVERLAP || !at->is_sparse || at->priority != holder->priority))
            return true;
    return false;
}

static void give_up_closing(struct arbiter_session *session)
{
    tell(session, ARBITER_OVERRUN);
    session->overruns++;
    for (struct arbiter_process *at = session->processes; at; at = at->next) {
        if (at->gate != GATE_CLOSING)
            continue;
        at->gate = GATE_OVERDUE;
        session->busy_ns += (double)(session->arbiter->now - at->reported_at);
    }
    end_lease_if_returned(session, false);
}

/* Others than itself that overlap with it. */
static bool has_company(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at != session && at->lease == LEASE_OVERLAP && (at->held & session->held))
            return true;
    return false;
}

static void end_overlap(struct arbiter_session *session)
{
    for (struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at != session && at->lease == LEASE_OVERLAP && (at->held & session->held))
            begin_closing(at);
    begin_closing(session);
}

static void become_exclusive(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    session->lease = LEASE_EXCLUSIVE;
    session->charged_at = session->since = arbiter->now;
    session->turn_ends = arbiter->now + arbiter_quantum(arbiter);
    session->busy_ns = 0;
    FOR_GPUS (gpu, session->held)
        session->use[gpu].open_ns = 0;
}

static void balance_overlaps(struct arbiter *arbiter)
{
    bool has_overlap = false;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        has_overlap |= at->lease == LEASE_OVERLAP;
    if (!has_overlap || arbiter->now < arbiter->overlap_since + WIRE_REPORT_NS)
        return;
    uint64_t contended = arbiter_charge_overlaps(arbiter);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        session->lag = arbiter_lag(session);
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        if (session->lease != LEASE_OVERLAP || session->closing)
            continue;
        if (!has_company(session))
            become_exclusive(session);
        else if (!session->is_sparse)
            end_overlap(session);
        else if ((session->held & contended) &&
                 session->lag * session->weight > (double)arbiter_quantum(arbiter))
            begin_closing(session);
    }
}

/* A turn goes on until the holder is ahead of one that waits, at most for another quantum. */
static uint64_t until_overtaken(const struct arbiter_session *holder)
{
    double ns = (double)arbiter_quantum(holder->arbiter);
    for (const struct arbiter_session *at = holder->arbiter->sessions; at; at = at->next)
        if (is_eligible(at) && (at->gpus & holder->held) && at->priority == holder->priority &&
            (at->lag - holder->lag) * holder->weight < ns)
            ns = (at->lag - holder->lag) * holder->weight;
    return ns < (double)EXTENSION_MIN_NS ? EXTENSION_MIN_NS : (uint64_t)ns;
}

static void take_away(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        if (session->closing) {
            if (arbiter->now >= session->closes_at)
                give_up_closing(session);
            continue;
        }
        if (session->lease == LEASE_LOOSE) {
            if (arbiter->now >= session->retry_at)
                begin_closing(session);
            continue;
        }
        if (!is_in_the_way(session))
            continue;
        double left = session->tokens - (session->lease == LEASE_EXCLUSIVE ? arbiter_uncharged(session) : 0);
        if (is_capped(session) && left <= 0) {
            session->is_throttled = true;
            begin_closing(session);
        } else if (arbiter->now >= session->turn_ends) {
            if (is_pressed(session))
                begin_closing(session);
            else if (session->lease == LEASE_EXCLUSIVE)
                session->turn_ends = arbiter->now + until_overtaken(session);
        }
    }
}

/* --- Giving leases --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const struct arbiter_session *const *left = a, *const *right = b;
    return precedes(*left, *right) ? -1 : precedes(*right, *left);
}

/* Whether it may run beside all that hold its GPUs: neither side keeps them busy, nobody else waits who
 * does, and it is not ahead of them. */
static bool may_overlap(const struct arbiter_session *session)
{
    const struct arbiter *arbiter = session->arbiter;
    if (!session->is_sparse || session->lag * session->weight > (double)arbiter_quantum(arbiter) / 2)
        return false;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        if (is_in_the_way(at) && (at->held & session->gpus) &&
            (at->lease == LEASE_FREE || at->closing || !at->is_sparse || at->priority != session->priority))
            return false;
        if (is_eligible(at) && (at->gpus & session->gpus) && !at->is_sparse &&
            at->priority >= session->priority)
            return false;
    }
    return true;
}

static void overlap(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    arbiter_charge_overlaps(arbiter);
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        if (at->lease != LEASE_EXCLUSIVE || at->closing || !(at->held & session->gpus))
            continue;
        arbiter_charge(at);
        arbiter_begin_overlap(at);
    }
    begin_lease(session, LEASE_OVERLAP);
    arbiter_begin_overlap(session);
}

/* A session that waits for several GPUs, of which some stand idle: they are kept for it, if those who hold
 * the others are to give way to it anyway, and those do so now. Else the idle ones go to somebody else
 * meanwhile. All sessions stand in one order, so two that wait for each other's GPUs cannot both keep one. */
static bool keep_for(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (is_in_the_way(at) && (at->held & session->gpus) && !at->closing && !precedes(session, at))
            return false;
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (is_in_the_way(at) && (at->held & session->gpus))
            begin_closing(at);
    return true;
}

static uint64_t gpus_in_the_way(const struct arbiter *arbiter)
{
    uint64_t gpus = 0;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (is_in_the_way(at))
            gpus |= at->held;
    return gpus;
}

static void give(struct arbiter *arbiter)
{
    unsigned count = 0;
    uint64_t kept = 0;
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (is_eligible(at))
            arbiter->order[count++] = at;
    if (count > 1)
        qsort(arbiter->order, count, sizeof(struct arbiter_session *), compare);
    for (unsigned i = 0; i < count; i++) {
        struct arbiter_session *session = arbiter->order[i];
        uint64_t taken = gpus_in_the_way(arbiter);
        if (session->gpus & kept)
            continue;
        if (!(session->gpus & taken))
            begin_lease(session, LEASE_EXCLUSIVE);
        else if (may_overlap(session))
            overlap(session);
        else if ((session->gpus & ~taken) && keep_for(session))
            kept |= session->gpus;
    }
}

static void open_gates(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        if (session->lease == LEASE_NONE || session->closing)
            continue;
        if (is_held(session)) {
            uint32_t flags = 0;
            if (is_capped(session) || is_waited_for(session))
                flags |= WIRE_LEASE_WANTED;
            if (session->lease != LEASE_EXCLUSIVE || arbiter->now - session->since >= REPORT_AFTER_NS)
                flags |= WIRE_LEASE_REPORT;
            raise_flags(session, flags);
        }
        for (struct arbiter_process *at = session->processes; at; at = at->next)
            if (at->gate == GATE_CLOSED && (at->wants || session->lease == LEASE_FREE))
                open_gate(at);
    }
}

/* --- When next ------------------------------------------------------------------------------------- */

static void earlier(uint64_t *next, uint64_t at)
{
    if (at < *next)
        *next = at;
}

static uint64_t after(const struct arbiter *arbiter, double ns)
{
    return arbiter->now + (ns < 50000 ? UINT64_C(50000) : (uint64_t)ns + 1);
}

static uint64_t next_of(const struct arbiter_session *session)
{
    const struct arbiter *arbiter = session->arbiter;
    double rate = (double)session->share.max / SHARE_WHOLE;
    uint64_t next = NEVER;
    if (session->closing) {
        uint64_t leaves = leaves_at(session);
        return leaves > arbiter->now && leaves < session->closes_at ? leaves : session->closes_at;
    }
    if (session->lease == LEASE_LOOSE)
        return session->retry_at;
    if (session->lease == LEASE_OVERLAP)
        earlier(&next, arbiter->overlap_since + WIRE_REPORT_NS);
    if (session->lease == LEASE_EXCLUSIVE && !(session->flags & WIRE_LEASE_REPORT))
        earlier(&next, session->since + REPORT_AFTER_NS);
    if (session->lease == LEASE_EXCLUSIVE && is_capped(session))
        earlier(&next, after(arbiter, (session->tokens - arbiter_uncharged(session)) / (1 - rate)));
    if (is_in_the_way(session) && is_waited_for(session))
        earlier(&next, session->turn_ends > arbiter->now ? session->turn_ends
                                                         : arbiter->now + arbiter_quantum(arbiter));
    if (is_waiting(session) && session->is_throttled) {
        double start = rate * BUCKET_START_PERIOD_NS;
        start = start < BUCKET_START_NS ? start : BUCKET_START_NS;
        earlier(&next, after(arbiter, (start - session->tokens) / rate));
    }
    return next;
}

static void decide(struct arbiter *arbiter)
{
    find_modes(arbiter);
    find_backlogged(arbiter);
    balance_overlaps(arbiter);
    take_away(arbiter);
    give(arbiter);
    open_gates(arbiter);
    arbiter->next = NEVER;
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        earlier(&arbiter->next, next_of(session));
}

/* --- What happens ---------------------------------------------------------------------------------- */

void arbiter_tick(struct arbiter *arbiter, uint64_t now)
{
    arbiter_settle(arbiter, now);
    decide(arbiter);
}

uint64_t arbiter_next(const struct arbiter *arbiter)
{
    return arbiter->next;
}

/* Up to the time that passed since the last such number: a process can claim no more. */
static void take_busy(struct arbiter_process *process, uint64_t busy_ns, uint64_t longest_ns,
                      uint64_t waited_ns)
{
    struct arbiter_session *session = process->session;
    uint64_t now = session->arbiter->now;
    uint64_t most = now - process->reported_at;
    process->reported_at = now;
    process->longest_ns = longest_ns;
    session->waited_ns += waited_ns;
    if (is_held(session))
        session->busy_ns += (double)(busy_ns < most ? busy_ns : most);
}

void arbiter_want(struct arbiter_process *process, uint64_t gpus, uint64_t now)
{
    arbiter_settle(process->session->arbiter, now);
    process->gpus = gpus;
    if (process->gate != GATE_OPEN)
        process->wants = true;
    decide(process->session->arbiter);
}

void arbiter_closed(struct arbiter_process *process, const struct wire_closed *closed, uint64_t now)
{
    struct arbiter *arbiter = process->session->arbiter;
    arbiter_settle(arbiter, now);
    if (process->gate == GATE_CLOSING && closed->lease == process->lease) {
        /* The processes of a session have the GPU one after the other. */
        uint64_t begins_at = now;
        for (const struct arbiter_process *at = process->session->processes; at; at = at->next)
            if (at->gate == GATE_CLOSING && at->done_at != NEVER && at->done_at > begins_at)
                begins_at = at->done_at;
        process->done_at = closed->left_ns < NEVER - begins_at ? begins_at + closed->left_ns : NEVER;
    }
    decide(arbiter);
}

void arbiter_returned(struct arbiter_process *process, const struct wire_returned *returned, uint64_t now)
{
    struct arbiter_session *session = process->session;
    arbiter_settle(session->arbiter, now);
    /* A process that gave a lease back by itself answers a REVOKE that crossed with it once more. */
    if (process->gate == GATE_CLOSED || returned->lease != process->lease) {
        session->waited_ns += returned->waited_ns;
        decide(session->arbiter);
        return;
    }
    bool was_counted = process->gate != GATE_OVERDUE;
    take_busy(process, was_counted ? returned->busy_ns : 0, returned->longest_ns, returned->waited_ns);
    process->gate = GATE_CLOSED;
    if (returned->outcome == WIRE_OUTCOME_UNDRAINED)
        become_loose(session);
    else if (session->lease == LEASE_LOOSE && !session->closing && returned->outcome == WIRE_OUTCOME_DRAINED)
        process->wants = true; /* it did close, but another process of its session could not */
    if (session->lease != LEASE_LOOSE || session->closing || !has_waiting_process(session))
        end_lease_if_returned(session, returned->outcome == WIRE_OUTCOME_IDLE && !session->closing);
    decide(session->arbiter);
}

void arbiter_report(struct arbiter_process *process, const struct wire_report *report, uint64_t now)
{
    struct arbiter_session *session = process->session;
    arbiter_settle(session->arbiter, now);
    if (report->lease != process->lease || (process->gate != GATE_OPEN && process->gate != GATE_CLOSING))
        return;
    take_busy(process, report->busy_ns, report->longest_ns, report->waited_ns);
    if (is_exclusive(session) && now - session->charged_at >= CHARGE_EVERY_NS)
        arbiter_charge(session);
    decide(session->arbiter);
}

/* --- Coming and going ------------------------------------------------------------------------------ */

struct arbiter *arbiter_new(const struct arbiter_calls *calls, void *context, uint64_t now)
{
    struct arbiter *arbiter = calloc(1, sizeof(*arbiter));
    if (arbiter)
        *arbiter = (struct arbiter){.calls = calls, .context = context, .now = now, .next = NEVER};
    return arbiter;
}

void arbiter_free(struct arbiter *arbiter)
{
    assert(!arbiter->sessions);
    free(arbiter->order);
    free(arbiter);
}

struct arbiter_session *arbiter_session_add(struct arbiter *arbiter, void *owner, struct share share,
                                            unsigned priority)
{
    struct arbiter_session *session = calloc(1, sizeof(*session));
    struct arbiter_session **order =
        realloc(arbiter->order, (arbiter->session_count + 1) * sizeof(struct arbiter_session *));
    if (order)
        arbiter->order = order;
    if (!session || !order) {
        free(session);
        return NULL;
    }
    session->arbiter = arbiter;
    session->owner = owner;
    session->serial = ++arbiter->serial;
    session->share = share;
    session->priority = priority;
    session->weight = 1;
    session->tokens = BUCKET_NS;
    session->next = arbiter->sessions;
    arbiter->sessions = session;
    arbiter->session_count++;
    return session;
}

void arbiter_session_set(struct arbiter_session *session, struct share share, unsigned priority, uint64_t now)
{
    struct arbiter *arbiter = session->arbiter;
    arbiter_settle(arbiter, now);
    if (priority != session->priority)
        FOR_GPUS (gpu, session->gpus)
            session->use[gpu].vt = arbiter->gpus[gpu].clock[priority];
    session->share = share;
    session->priority = priority;
    if (!is_capped(session))
        session->tokens = BUCKET_NS;
    throttle(session);
    decide(arbiter);
}

void arbiter_session_remove(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    struct arbiter_session **at = &arbiter->sessions;
    assert(!session->processes);
    while (*at != session)
        at = &(*at)->next;
    *at = session->next;
    arbiter->session_count--;
    free(session);
}

struct arbiter_process *arbiter_process_add(struct arbiter_session *session, void *owner, uint64_t now)
{
    struct arbiter *arbiter = session->arbiter;
    struct arbiter_process *process = calloc(1, sizeof(*process));
    if (!process)
        return NULL;
    arbiter_settle(arbiter, now);
    process->session = session;
    process->owner = owner;
    process->reported_at = now;
    process->next = session->processes;
    session->processes = process;
    decide(arbiter);
    if (process->gate == GATE_CLOSED) {
        /* Perhaps it was open until now, under an earlier daemon. Nobody waits for the answer. */
        process->gate = GATE_OVERDUE;
        arbiter->calls->revoke(owner, 0, ARBITER_PATIENCE_NS);
    }
    return process;
}

void arbiter_process_remove(struct arbiter_process *process, uint64_t now)
{
    struct arbiter_session *session = process->session;
    struct arbiter *arbiter = session->arbiter;
    arbiter_settle(arbiter, now);
    if (process->gate == GATE_OPEN || process->gate == GATE_CLOSING)
        take_busy(process, UINT64_MAX, process->longest_ns, 0);
    struct arbiter_process **at = &session->processes;
    while (*at != process)
        at = &(*at)->next;
    *at = process->next;
    free(process);
    end_lease_if_returned(session, false);
    decide(arbiter);
}

/* --- Telling --------------------------------------------------------------------------------------- */

void arbiter_set_quantum(struct arbiter *arbiter, uint64_t quantum_ns)
{
    arbiter->quantum_fixed_ns = quantum_ns;
}

uint64_t arbiter_quantum(const struct arbiter *arbiter)
{
    uint64_t quantum = (uint64_t)(arbiter->gap_ns * 100);
    if (arbiter->quantum_fixed_ns)
        return arbiter->quantum_fixed_ns;
    if (!arbiter->gap_ns)
        return QUANTUM_START_NS;
    if (quantum < QUANTUM_AUTO_MIN_NS)
        return QUANTUM_AUTO_MIN_NS;
    return quantum < QUANTUM_AUTO_MAX_NS ? quantum : QUANTUM_AUTO_MAX_NS;
}

bool arbiter_quantum_is_auto(const struct arbiter *arbiter)
{
    return !arbiter->quantum_fixed_ns;
}

uint64_t arbiter_gap(const struct arbiter *arbiter)
{
    return (uint64_t)arbiter->gap_ns;
}

enum arbiter_mode arbiter_mode(const struct arbiter *arbiter, unsigned gpu)
{
    return arbiter->shares >> gpu & 1 ? ARBITER_MODE_SHARES : ARBITER_MODE_FREE;
}

uint64_t arbiter_handovers(const struct arbiter *arbiter, unsigned gpu)
{
    return arbiter->gpus[gpu].handovers;
}

enum arbiter_lease arbiter_session_lease(const struct arbiter_session *session)
{
    return session->lease;
}

bool arbiter_session_waits(const struct arbiter_session *session)
{
    return is_waiting(session);
}

bool arbiter_session_is_undrainable(const struct arbiter_session *session)
{
    return session->tries >= TRIES_UNDRAINABLE;
}

uint64_t arbiter_session_waited(const struct arbiter_session *session)
{
    return session->waited_ns;
}

uint64_t arbiter_session_overruns(const struct arbiter_session *session)
{
    return session->overruns;
}
