/* The decisions: from the whole state, which session is to hold what, and when to decide again. */
#include <stdlib.h>

#include "base/check.h"
#include "daemon/schedule/arbiter_state.h"

/* How much work a stream may have before it where a program with gaps of its own takes turns, since its bursts
 * would each wait for what is left of another's work; and where a maximum is nearly reached. */
#define AHEAD_BOUND_NS UINT64_C(1500000)
#define EXTENSION_MIN_NS UINT64_C(1000000)
/* If nothing is heard for so long, the sessions are looked at while one holds still. */
#define STILL_LOOK_NS UINT64_C(120000000)

/* A holder that told nothing for so many reports counts as at work. */
#define SILENT_REPORTS 3

static void earlier(uint64_t *next, uint64_t at)
{
    if (at < *next)
        *next = at;
}

static uint64_t after(const struct arbiter *arbiter, double ns)
{
    return arbiter->now + (ns < 50000 ? UINT64_C(50000) : (uint64_t)ns + 1);
}

/* --- Taking leases away ---------------------------------------------------------------------------- */

/* Whether the holder's turn is taken away before its time is up: the holder is ahead, and a program with gaps that
 * is due waits. Otherwise its bursts would wait for whole turns. */
static bool is_cut_short(const struct arbiter_session *holder)
{
    for (const struct arbiter_session *at = holder->arbiter->sessions; at; at = at->next)
        if (arbiter_presses(at, holder) && !at->is_dense && at->is_due && !holder->is_due &&
            arbiter_owed(holder) < 0)
            return true;
    return false;
}

/* Whether the session is in a turn in which its processes' gates open one at a time, so that each is measured. */
static bool takes_one_by_one(const struct arbiter_session *session)
{
    return session->lease == LEASE_EXCLUSIVE && is_measuring(session) && arbiter_is_measured_singly(session);
}

/* Whether one of the session's own processes waits until the one that is measured makes way. */
static bool is_pressed_by_its_own(const struct arbiter_session *holder)
{
    return takes_one_by_one(holder) && arbiter_has_waiting_process(holder);
}

static bool is_pressed(const struct arbiter_session *holder)
{
    if (is_pressed_by_its_own(holder))
        return true;
    for (const struct arbiter_session *at = holder->arbiter->sessions; at; at = at->next)
        if (arbiter_presses(at, holder))
            return true;
    return false;
}

static bool is_waited_for(const struct arbiter_session *holder)
{
    if (is_pressed_by_its_own(holder))
        return true;
    for (const struct arbiter_session *at = holder->arbiter->sessions; at; at = at->next)
        if (arbiter_is_eligible(at) && (at->gpus & holder->held) && (at->takes_turns || is_measuring(holder)))
            return true;
    return false;
}

static void give_up_closing(struct arbiter_session *session)
{
    arbiter_tell(session, ARBITER_OVERRUN);
    session->overruns++;
    arbiter_doubt_cost(session);
    for (struct arbiter_process *at = session->processes; at; at = at->next) {
        if (at->gate != PROCESS_CLOSING)
            continue;
        at->gate = PROCESS_OVERDUE;
        session->busy_ns += (double)(session->arbiter->now - at->reported_at);
        session->spent_ns += (double)(session->arbiter->now - at->reported_at);
    }
    arbiter_end_lease_if_returned(session, false);
}

/* Whether another session's turn, or open gate, on the session's GPUs forbids it a turn now. What is left of a turn
 * that ends would keep a program of short kernels from the GPU, or spoil a measurement. */
static bool is_obstructed(const struct arbiter_session *session)
{
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at != session && (at->held & session->gpus) &&
            (arbiter_is_in_the_way(at) || (!session->is_dense && at->lease == LEASE_EXCLUSIVE) ||
             (is_measuring(session) && at->lease != LEASE_LOOSE)))
            return true;
    return false;
}

/* Change the leases of sessions whose role has changed: in place where nothing forbids it. */
static void change_roles(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        if (session->closing)
            continue;
        if (session->lease == LEASE_EXCLUSIVE && !session->takes_turns)
            arbiter_convert_lease(session, LEASE_GUEST);
        else if (session->lease == LEASE_GUEST && session->takes_turns && !is_obstructed(session) &&
                 !(is_measuring(session) && arbiter_is_measured_singly(session)))
            arbiter_convert_lease(session, LEASE_EXCLUSIVE);
        else if (session->lease == LEASE_GUEST && session->takes_turns)
            arbiter_begin_closing(session);
    }
}

/* How long a turn goes on after its time is up, if no session may take it away: until the holder is ahead of one
 * that waits, at most for another quantum. */
static uint64_t until_overtaken(const struct arbiter_session *holder)
{
    double ns = (double)arbiter_turn_ns(holder->arbiter);
    for (const struct arbiter_session *at = holder->arbiter->sessions; at; at = at->next)
        if (arbiter_is_eligible(at) && at->takes_turns && (at->gpus & holder->held) &&
            at->priority == holder->priority && (at->lag - holder->lag) * holder->weight < ns)
            ns = (at->lag - holder->lag) * holder->weight;
    return ns < (double)EXTENSION_MIN_NS ? EXTENSION_MIN_NS : (uint64_t)ns;
}

/* When the holder of a turn will have told nothing for so long that it must be at work: it would have given an idle
 * turn back. */
static uint64_t silent_at(const struct arbiter_session *holder)
{
    return holder->told_at + SILENT_REPORTS * WIRE_REPORT_NS;
}

/* Whether the holder keeps its turn through its gaps until it has caught up, or is silent: it is a program with
 * gaps of its own that is due. Otherwise it would wait for a long piece of another session's work after each gap. */
static bool keeps_its_gaps(const struct arbiter_session *holder)
{
    return holder->is_due && holder->is_known && !holder->is_dense &&
           holder->arbiter->now < silent_at(holder);
}

/* The part of its turn that the holder uses, as far as known. */
static double expected_density(const struct arbiter_session *holder)
{
    bool is_silent = holder->arbiter->now >= silent_at(holder);
    return is_silent || holder->understates ? 1 : holder->density;
}

/* What the session's turn has used so far and is not charged for yet. */
static double expected_use(const struct arbiter_session *session)
{
    return session->lease == LEASE_EXCLUSIVE ? arbiter_uncharged(session) * expected_density(session) : 0;
}

/* When the holder of a turn will have used up what its maximum leaves it. */
static uint64_t until_throttled(const struct arbiter_session *holder)
{
    double gains = (double)holder->share.max / SHARE_WHOLE, density = expected_density(holder);
    uint64_t silent = silent_at(holder), next = silent > holder->arbiter->now ? silent : NEVER;
    if (density > gains)
        earlier(&next, after(holder->arbiter, (holder->tokens - expected_use(holder)) / (density - gains)));
    return next;
}

static void take_steps(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (session->closes_alone)
            arbiter_step(session);
}

static void take_away(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        if (session->closing) {
            session->has_left |= arbiter_leaves_at(session) <= arbiter->now;
            if (arbiter->now >= session->closes_at)
                give_up_closing(session);
            continue;
        }
        if (session->lease == LEASE_LOOSE) {
            if (arbiter->now >= session->retry_at)
                arbiter_begin_closing(session);
            continue;
        }
        if (session->lease != LEASE_GUEST && !arbiter_is_in_the_way(session))
            continue;
        double left = session->tokens - expected_use(session);
        if (is_capped(session) && left <= 0) {
            session->is_throttled = true;
            arbiter_begin_closing(session);
        } else if (session->lease == LEASE_EXCLUSIVE && is_cut_short(session)) {
            arbiter_begin_closing(session);
        } else if (session->lease == LEASE_EXCLUSIVE && arbiter->now >= session->turn_ends) {
            if (is_pressed(session))
                arbiter_begin_closing(session);
            else
                session->turn_ends = arbiter->now + until_overtaken(session);
        }
    }
}

/* --- Giving leases --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const struct arbiter_session *const *left = a, *const *right = b;
    return arbiter_precedes(*left, *right) ? -1 : arbiter_precedes(*right, *left);
}

/* `session` waits for several GPUs, of which some are idle. They are kept for it if all sessions that hold the
 * others have to yield to it anyway, and those are told to close now. Otherwise the idle GPUs go to another session
 * meanwhile. All sessions stand in one order, so two that wait for each other's GPUs cannot both keep one. */
static bool keep_for(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (arbiter_is_in_the_way(at) && (at->held & session->gpus) && !at->closing &&
            !arbiter_precedes(session, at))
            return false;
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (arbiter_is_in_the_way(at) && (at->held & session->gpus))
            arbiter_begin_closing(at);
    return true;
}

static uint64_t gpus_in_the_way(const struct arbiter *arbiter)
{
    uint64_t gpus = 0;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (arbiter_is_in_the_way(at))
            gpus |= at->held;
    return gpus;
}

/* Close the guests of the GPUs on which `measured` is to be measured, since that begins once they have left. */
static void close_guests(struct arbiter_session *measured)
{
    for (struct arbiter_session *at = measured->arbiter->sessions; at; at = at->next)
        if (at->lease == LEASE_GUEST && !at->closing && (at->held & measured->gpus))
            arbiter_begin_closing(at);
}

static void give_turns(struct arbiter *arbiter, unsigned count)
{
    uint64_t kept = 0;
    for (unsigned i = 0; i < count; i++) {
        struct arbiter_session *session = arbiter->order[i];
        uint64_t taken = gpus_in_the_way(arbiter);
        if (!session->takes_turns || (session->gpus & kept))
            continue;
        if (!is_obstructed(session)) {
            arbiter_begin_lease(session, LEASE_EXCLUSIVE);
        } else if (!(session->gpus & taken)) {
            kept |= session->gpus;
            if (!is_measuring(session))
                continue;
            close_guests(session);
            arbiter->measured |= session->gpus;
        } else if ((session->gpus & ~taken) && keep_for(session)) {
            kept |= session->gpus;
        }
    }
}

static void give(struct arbiter *arbiter)
{
    unsigned count = 0;
    arbiter->measured = 0;
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        if (arbiter_is_eligible(at))
            arbiter->order[count++] = at;
    if (count > 1)
        qsort(arbiter->order, count, sizeof(struct arbiter_session *), compare);
    give_turns(arbiter, count);
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        if (at->lease != LEASE_EXCLUSIVE || !is_measuring(at))
            continue;
        arbiter->measured |= at->held;
        close_guests(at); /* there are guests if it held a turn before it was to be measured */
    }
    for (unsigned i = 0; i < count; i++)
        if (!arbiter->order[i]->takes_turns && !(arbiter->order[i]->gpus & arbiter->measured))
            arbiter_begin_lease(arbiter->order[i], LEASE_GUEST);
}

/* Whether every session that may come next can begin a little before this session's turn has ended
 * (arbiter_leaves_at()). */
static bool is_overlapped(const struct arbiter_session *session)
{
    if (session->lease != LEASE_EXCLUSIVE || is_measuring(session) || has_several_processes(session))
        return false;
    for (const struct arbiter_session *at = session->arbiter->sessions; at; at = at->next)
        if (at != session && (at->gpus & session->gpus) && at->takes_turns &&
            (!at->is_dense || is_measuring(at)))
            return false;
    return true;
}

static bool has_burst(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->is_bursting)
            return true;
    return false;
}

/* Whether others of lower priorities hold still for its bursts. */
static bool is_favoured(const struct arbiter_session *session)
{
    return session->arbiter->now >= session->favour.again_at;
}

/* The flags that a session's lease is granted with, which depend on the other sessions there; and in `ahead_ns` how
 * much work may be before a stream. */
static uint32_t flags_of(struct arbiter_session *session, uint64_t *ahead_ns)
{
    uint32_t flags = WIRE_LEASE_REPORT | WIRE_LEASE_PROGRESS | WIRE_LEASE_WORK | WIRE_LEASE_WAITS;
    *ahead_ns =
        is_capped(session) && session->tokens - expected_use(session) < BUCKET_NS / 2 ? AHEAD_BOUND_NS : 0;
    if (session->lease == LEASE_EXCLUSIVE && (is_capped(session) || is_waited_for(session)) &&
        !keeps_its_gaps(session))
        flags |= WIRE_LEASE_WANTED;
    if (session->processes && session->processes->next)
        flags |= WIRE_LEASE_STALLS;
    if (session->lease == LEASE_EXCLUSIVE && is_measuring(session))
        flags |= WIRE_LEASE_MEASURE;
    if (is_overlapped(session))
        flags |= WIRE_LEASE_OVERLAPS;
    for (struct arbiter_session *at = session->arbiter->sessions; at; at = at->next) {
        if (at == session || !(at->gpus & session->gpus))
            continue;
        flags |= session->lease == LEASE_GUEST || at->lease == LEASE_GUEST ? WIRE_LEASE_COMPANY : 0;
        if (at->takes_turns && at->is_known && !at->is_dense && !*ahead_ns)
            *ahead_ns = AHEAD_BOUND_NS;
        if (at->priority == session->priority)
            continue;
        if (at->priority < session->priority) {
            flags |= session->lease == LEASE_GUEST && is_favoured(session) ? WIRE_LEASE_BURSTS : 0;
            continue;
        }
        *ahead_ns = AHEAD_BELOW_NS;
        if (at->lease == LEASE_GUEST && !at->closing && has_burst(at) && !session->is_due &&
            is_favoured(at)) {
            flags |= WIRE_LEASE_STILL;
            at->favour.is_given = true;
        }
    }
    return flags;
}

static void note_waiting(struct arbiter *arbiter)
{
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        if (arbiter_is_waiting(session))
            FOR_GPUS (gpu, session->gpus)
                arbiter->gpus[gpu].waited_at = arbiter->now;
}

static void open_gates(struct arbiter *arbiter)
{
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        session->favour.is_given = false;
    for (struct arbiter_session *session = arbiter->sessions; session; session = session->next) {
        if (session->lease == LEASE_NONE || session->closing)
            continue;
        if (is_held(session)) {
            uint64_t ahead_ns;
            uint32_t flags = flags_of(session, &ahead_ns);
            arbiter_set_flags(session, flags, ahead_ns);
        }
        for (struct arbiter_process *at = session->processes; at; at = at->next)
            if ((arbiter_process_is_waiting(at) &&
                 (!takes_one_by_one(session) || arbiter_may_be_measured(at))) ||
                (at->gate == PROCESS_CLOSED && session->lease == LEASE_FREE))
                arbiter_open_gate(at);
    }
}

/* --- When next ------------------------------------------------------------------------------------- */

static uint64_t next_of(const struct arbiter_session *session)
{
    const struct arbiter *arbiter = session->arbiter;
    double rate = (double)session->share.max / SHARE_WHOLE;
    uint64_t next = NEVER;
    if (session->closing) {
        uint64_t leaves = session->has_left ? NEVER : arbiter_leaves_at(session);
        earlier(&leaves, arbiter_steps_at(session));
        return leaves < session->closes_at ? leaves : session->closes_at;
    }
    /* Nobody may have anything to say: whose burst it is may be stopped, or at work on one long kernel. */
    if (is_still(session))
        earlier(&next, arbiter->now + STILL_LOOK_NS);
    if (session->lease == LEASE_LOOSE)
        return session->retry_at;
    if (session->needy_until > arbiter->now)
        earlier(&next, session->needy_until);
    if (session->donor_until > arbiter->now)
        earlier(&next, session->donor_until);
    if (session->lease == LEASE_GUEST && !is_favoured(session))
        earlier(&next, session->favour.again_at);
    if (session->lease == LEASE_EXCLUSIVE && is_capped(session))
        earlier(&next, until_throttled(session));
    if (session->lease == LEASE_EXCLUSIVE && keeps_its_gaps(session))
        earlier(&next, silent_at(session));
    if (arbiter_is_in_the_way(session) && is_waited_for(session))
        earlier(&next, session->turn_ends > arbiter->now ? session->turn_ends
                                                         : arbiter->now + arbiter_turn_ns(arbiter));
    if (arbiter_is_waiting(session) && session->is_throttled)
        earlier(&next, after(arbiter, (bucket_start(session) - session->tokens) / rate));
    return next;
}

/* What holds between any two decisions. */
static void check(const struct arbiter *arbiter)
{
    uint64_t taken = 0;
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        GS_CHECK(at->lease != LEASE_NONE || (!at->held && !at->closing));
        /* A lease that ends keeps what it had: shares may have ceased to count on some of it meanwhile. */
        GS_CHECK(!(at->held & ~arbiter->shares) || at->lease == LEASE_FREE || at->closing);
        if (at->lease != LEASE_EXCLUSIVE || !arbiter_is_in_the_way(at))
            continue;
        GS_CHECK(!(at->held & taken));
        taken |= at->held;
    }
}

void arbiter_decide(struct arbiter *arbiter)
{
    arbiter_find_modes(arbiter);
    arbiter_find_backlogged(arbiter);
    arbiter_find_roles(arbiter);
    change_roles(arbiter);
    take_away(arbiter);
    take_steps(arbiter);
    give(arbiter);
    note_waiting(arbiter);
    open_gates(arbiter);
    check(arbiter);
    arbiter->next = NEVER;
    for (const struct arbiter_session *session = arbiter->sessions; session; session = session->next)
        earlier(&arbiter->next, next_of(session));
}
