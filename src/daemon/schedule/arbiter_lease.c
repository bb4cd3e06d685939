/* Leases and gates: what is done when a lease is given, taken away or returned. */
#include "base/check.h"
#include "daemon/schedule/arbiter_state.h"

/* The longest piece of work that other sessions wait for. */
#define LONGEST_BELIEVED_NS UINT64_C(2000000000)
/* The time between tries to close a session that did not drain, doubled each time; and once it is undrainable. */
#define RETRY_NS UINT64_C(100000000)
#define RETRY_UNDRAINABLE_NS UINT64_C(10000000000)
/* For so long after a closing began, steps are taken; then it must come to an end. What agents take longer to
 * answer than ANSWER_NS does not count: a busy machine runs them late. */
#define STEPS_FOR_NS UINT64_C(50000000)
#define ANSWER_NS UINT64_C(1000000)
/* The card's time slice when it serves several processes, about. */
#define SLICE_NS UINT64_C(2000000)
/* For so many closings after a step was needed, processes are taken to wait for each other's work; each next time
 * for twice as many. */
#define ENTANGLED_CLOSINGS 16u
#define ENTANGLED_MOST 1024u
/* Work that is thought to wait for another process's work is late when it is this much over its time. */
#define LATE_NS UINT64_C(700000)
/* What a gate lets a process have before the GPU, apart from its longest piece, takes no longer than this, about. */
#define LEFT_MOST_NS UINT64_C(6000000)

/* --- Gates ----------------------------------------------------------------------------------------- */

/* Where processes of the session wait for each other's work, the next session has to wait for the end: otherwise
 * each step that they need would wait for a slice of that session's work. */
uint64_t arbiter_leaves_at(const struct arbiter_session *session)
{
    uint64_t done_at = 0;
    if (!session->closing || session->closes_alone || session->lease != LEASE_EXCLUSIVE ||
        (is_measuring(session) && !session->leaves))
        return NEVER;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == PROCESS_CLOSING && at->done_at > done_at)
            done_at = at->done_at;
    return done_at == NEVER || done_at < ARBITER_LEAD_NS ? done_at : done_at - ARBITER_LEAD_NS;
}

bool arbiter_is_in_the_way(const struct arbiter_session *session)
{
    if (session->has_left)
        return false;
    return session->lease == LEASE_EXCLUSIVE || (session->lease == LEASE_FREE && session->closing);
}

bool arbiter_process_is_waiting(const struct arbiter_process *process)
{
    return process->wants && !process->is_away && process->gate == PROCESS_CLOSED;
}

bool arbiter_has_waiting_process(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (arbiter_process_is_waiting(at))
            return true;
    return false;
}

bool arbiter_is_waiting(const struct arbiter_session *session)
{
    return session->lease == LEASE_NONE && arbiter_has_waiting_process(session);
}

bool arbiter_is_any_let_in(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (is_let_in(at))
            return true;
    return false;
}

void arbiter_open_gate(struct arbiter_process *process)
{
    struct arbiter_session *session = process->session;
    struct arbiter *arbiter = session->arbiter;
    process->gate = PROCESS_OPEN;
    process->wants = false;
    process->is_bursting = false;
    process->reported_at = process->afresh_at = arbiter->now;
    process->spare_ns = 0;
    if (!process->open_since)
        process->open_since = arbiter->now;
    process->lease = session->lease == LEASE_FREE ? 0 : ++arbiter->lease_number;
    arbiter->calls->grant(process->owner, process->lease, session->flags, session->ahead_ns);
}

void arbiter_set_flags(struct arbiter_session *session, uint32_t flags, uint64_t ahead_ns)
{
    if (session->flags == flags && session->ahead_ns == ahead_ns)
        return;
    bool is_to_measure = flags & ~session->flags & WIRE_LEASE_MEASURE;
    session->flags = flags;
    session->ahead_ns = ahead_ns;
    for (struct arbiter_process *at = session->processes; at; at = at->next) {
        if (at->gate != PROCESS_OPEN)
            continue;
        at->afresh_at = is_to_measure ? session->arbiter->now : at->afresh_at;
        session->arbiter->calls->grant(at->owner, at->lease, flags, ahead_ns);
    }
}

void arbiter_tell(const struct arbiter_session *session, enum arbiter_event event)
{
    const struct arbiter *arbiter = session->arbiter;
    uint64_t ns = session->closing ? arbiter->now - session->closing_at : 0;
    arbiter->calls->event(session->owner, event, ns);
}

/* --- Leases ---------------------------------------------------------------------------------------- */

static void begin(struct arbiter_session *session, enum arbiter_lease lease)
{
    struct arbiter *arbiter = session->arbiter;
    session->lease = lease;
    session->leaves = session->has_left = false;
    session->since = session->charged_at = session->told_at = arbiter->now;
    session->turn_ends = arbiter->now + arbiter_turn_ns(arbiter);
    session->ended_at = 0;
    session->busy_ns = session->spent_ns = session->unspent_ns = session->lease_busy_ns = 0;
    arbiter_watch(session);
    arbiter_begin_beside(session);
    session->beside.turns += lease == LEASE_EXCLUSIVE;
    FOR_GPUS (gpu, session->held) {
        session->use[gpu].open_ns = 0;
        session->use[gpu].guests_ns = arbiter->gpus[gpu].guests_ns;
        if (lease != LEASE_EXCLUSIVE || arbiter->gpus[gpu].holder == session->serial)
            continue;
        arbiter->gpus[gpu].handovers += arbiter->gpus[gpu].holder != 0;
        arbiter->gpus[gpu].holder = session->serial;
    }
}

void arbiter_begin_lease(struct arbiter_session *session, enum arbiter_lease lease)
{
    session->closing = false;
    session->held = session->gpus;
    session->flags = lease == LEASE_FREE ? WIRE_LEASE_FREE : 0;
    session->ahead_ns = 0;
    begin(session, lease);
}

void arbiter_convert_lease(struct arbiter_session *session, enum arbiter_lease lease)
{
    GS_CHECK(!session->closing);
    arbiter_charge(session);
    if (session->lease == LEASE_EXCLUSIVE)
        arbiter_learn_turn(session, false);
    begin(session, lease);
    /* What the session did as a guest and has not reported yet is charged with the turn. */
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == PROCESS_OPEN && at->reported_at < session->charged_at)
            session->charged_at = at->reported_at;
}

void arbiter_throttle(struct arbiter_session *session)
{
    session->is_throttled = is_capped(session) && session->tokens <= 0;
}

static void end_lease(struct arbiter_session *session, bool gave_back)
{
    arbiter_charge(session);
    if (session->lease == LEASE_EXCLUSIVE)
        arbiter_learn_turn(session, gave_back);
    if (session->lease == LEASE_LOOSE) {
        session->tries = 0;
        arbiter_tell(session, ARBITER_DRAINED);
    }
    session->lease = LEASE_NONE;
    session->closing = false;
    session->held = 0;
    arbiter_throttle(session);
}

void arbiter_end_lease_if_returned(struct arbiter_session *session, bool gave_back)
{
    if (session->lease != LEASE_NONE && !arbiter_is_any_let_in(session))
        end_lease(session, gave_back);
}

/* --- What agents answer ---------------------------------------------------------------------------- */

static bool all_have_answered(const struct arbiter_session *session)
{
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == PROCESS_CLOSING && !at->has_answered)
            return false;
    return true;
}

/* The process's agent is being told to close. */
static void ask_to_close(struct arbiter_process *process)
{
    struct arbiter_session *session = process->session;
    if (all_have_answered(session))
        session->unanswered_since = session->arbiter->now;
    process->gate = PROCESS_CLOSING;
    process->has_answered = false;
}

void arbiter_note_answer(struct arbiter_process *process)
{
    struct arbiter_session *session = process->session;
    if (process->gate != PROCESS_CLOSING || process->has_answered)
        return;
    process->has_answered = true;
    uint64_t took_ns = session->arbiter->now - session->unanswered_since;
    if (took_ns > ANSWER_NS && all_have_answered(session))
        session->steps_until += took_ns - ANSWER_NS;
}

void arbiter_begin_closing(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    uint64_t longest = 0;
    if (session->closing)
        return;
    session->closing = true;
    session->closing_at = arbiter->now;
    session->steps = 0;
    session->steps_until = arbiter->now + STEPS_FOR_NS;
    session->closes_alone = session->entangled > 0;
    session->entangled -= session->closes_alone;
    for (struct arbiter_process *at = session->processes; at; at = at->next) {
        if (at->gate != PROCESS_OPEN)
            continue;
        if (at->is_away && session->lease == LEASE_FREE) { /* it answers when its memory has moved */
            at->gate = PROCESS_OVERDUE;
            arbiter->calls->revoke(at->owner, at->lease, ARBITER_PATIENCE_NS);
            continue;
        }
        ask_to_close(at);
        at->done_at = NEVER;
        arbiter_expect_drained(at, ARBITER_LEAD_NS);
        longest = at->longest_ns > longest ? at->longest_ns : longest;
        arbiter->calls->revoke(at->owner, at->lease, ARBITER_PATIENCE_NS);
    }
    longest = longest < LONGEST_BELIEVED_NS ? longest : LONGEST_BELIEVED_NS;
    session->closes_at = arbiter->now + longest + ARBITER_PATIENCE_NS + ARBITER_GRACE_NS;
    arbiter_end_lease_if_returned(session, false);
}

void arbiter_leave(struct arbiter_process *process)
{
    struct arbiter_session *session = process->session;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at != process && at->gate == PROCESS_OPEN)
            return; /* the turn goes on for them */
    if (session->lease != LEASE_EXCLUSIVE || session->closing)
        return;
    process->gate = PROCESS_CLOSING;
    process->has_answered = true;
    process->done_at = NEVER;
    session->leaves = true;
    arbiter_begin_closing(session);
}

/* How many other processes may have work before the process's GPUs: of its own session (`own`), or of others. */
static uint64_t neighbours(const struct arbiter_process *process, bool own)
{
    uint64_t count = 0;
    for (const struct arbiter_session *session = process->session->arbiter->sessions; session;
         session = session->next) {
        if ((session == process->session) != own)
            continue;
        for (const struct arbiter_process *at = session->processes; at; at = at->next)
            count += at != process && (at->gpus & process->gpus) && at->gate != PROCESS_CLOSED;
    }
    return count;
}

uint64_t arbiter_believed_left(const struct arbiter_process *process, uint64_t left_ns)
{
    uint64_t longest = process->longest_ns < LONGEST_BELIEVED_NS ? process->longest_ns : LONGEST_BELIEVED_NS;
    uint64_t most_ns = longest + LEFT_MOST_NS;
    return process->session->closes_alone && left_ns > most_ns ? most_ns : left_ns;
}

/* For a session that closes alone. The GPU does by turns what its processes have in flight, so none of that is late
 * before all of it should be done. */
static void expect_all_drained(struct arbiter_process *process, uint64_t left_ns)
{
    uint64_t now = process->session->arbiter->now, done_at = now + left_ns;
    if (process->done_at != NEVER && process->done_at > done_at)
        done_at = process->done_at;
    process->stalls_at = done_at + (neighbours(process, false) ? SLICE_NS : LATE_NS);
    for (struct arbiter_process *at = process->session->processes; at; at = at->next)
        if (at->gate == PROCESS_CLOSING && at->stalls_at > now && at->stalls_at < process->stalls_at)
            at->stalls_at = process->stalls_at;
}

void arbiter_expect_drained(struct arbiter_process *process, uint64_t left_ns)
{
    uint64_t others = neighbours(process, false) + neighbours(process, true);
    process->stalls = false;
    if (process->session->closes_alone)
        expect_all_drained(process, left_ns);
    else
        process->stalls_at = process->session->arbiter->now + (others + 1) * (left_ns + SLICE_NS);
}

/* Whether the process told how much work it has left, and its session, having needed steps lately, does not wait
 * until it says that it stalls. */
static bool told_left(const struct arbiter_process *process)
{
    return process->session->closes_alone && process->done_at != NEVER;
}

static bool any_stalls(const struct arbiter_session *session)
{
    uint64_t now = session->arbiter->now;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == PROCESS_CLOSING && (at->stalls || (told_left(at) && now >= at->stalls_at)))
            return true;
    return false;
}

static bool may_step(const struct arbiter_session *session)
{
    return session->closing && session->arbiter->now <= session->steps_until &&
           arbiter_has_waiting_process(session);
}

uint64_t arbiter_steps_at(const struct arbiter_session *session)
{
    uint64_t next = NEVER;
    if (!may_step(session))
        return NEVER;
    for (const struct arbiter_process *at = session->processes; at; at = at->next)
        if (at->gate == PROCESS_CLOSING && told_left(at) && at->stalls_at < next)
            next = at->stalls_at;
    return next;
}

static void note_entangled(struct arbiter_session *session)
{
    if (!session->entangled_for)
        session->entangled_for = ENTANGLED_CLOSINGS;
    session->entangled = session->entangled_for;
    if (session->entangled_for < ENTANGLED_MOST)
        session->entangled_for *= 2;
}

void arbiter_step(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    if (!may_step(session) || !any_stalls(session))
        return;
    if (!session->closes_alone) /* if it does, steps are taken too early to tell anything */
        note_entangled(session);
    for (struct arbiter_process *at = session->processes; at; at = at->next) {
        at->stalls = false;
        if (!arbiter_process_is_waiting(at))
            continue;
        session->steps++;
        ask_to_close(at);
        at->wants = false;
        at->done_at = arbiter->now; /* so little that the next session does not wait for it */
        at->reported_at = arbiter->now;
        arbiter_expect_drained(at, ARBITER_LEAD_NS);
        at->lease = ++arbiter->lease_number;
        uint32_t flags =
            (session->flags & (WIRE_LEASE_PROGRESS | WIRE_LEASE_WORK)) | WIRE_LEASE_STALLS | WIRE_LEASE_STEP;
        arbiter->calls->grant(at->owner, at->lease, flags, session->ahead_ns);
        arbiter->calls->revoke(at->owner, at->lease, ARBITER_PATIENCE_NS);
    }
}

void arbiter_become_loose(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    arbiter_charge(session);
    session->tries++;
    if (session->tries <= TRIES_UNDRAINABLE)
        arbiter_tell(session, session->tries < TRIES_UNDRAINABLE ? ARBITER_UNDRAINED : ARBITER_UNDRAINABLE);
    session->overruns++;
    arbiter_begin_lease(session, LEASE_LOOSE);
    session->flags = WIRE_LEASE_REPORT;
    uint64_t pause = RETRY_UNDRAINABLE_NS;
    if (session->tries < TRIES_UNDRAINABLE)
        pause = RETRY_NS << (session->tries - 1);
    session->retry_at = arbiter->now + pause;
    for (struct arbiter_process *at = session->processes; at; at = at->next)
        at->wants = true;
}
