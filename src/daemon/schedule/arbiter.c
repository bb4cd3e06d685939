/* arbiter.h's calls: what the arbiter is told. Each of them brings the accounts up to date, notes what happened,
 * and then decides once from the whole state which session is to hold what. */
#include "daemon/schedule/arbiter.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "daemon/schedule/arbiter_state.h"

/* A turn is charged this often while it goes on. */
#define CHARGE_EVERY_NS UINT64_C(100000000)
/* A GPU on which no session waited for this long is open to all. */
#define OPEN_AFTER_NS UINT64_C(1000000000)

void arbiter_tick(struct arbiter *arbiter, uint64_t now)
{
    arbiter_settle(arbiter, now);
    arbiter_decide(arbiter);
}

uint64_t arbiter_next(const struct arbiter *arbiter)
{
    return arbiter->next;
}

/* A process that reported nothing for this long has no work. */
#define SILENT_NS UINT64_C(100000000)
/* Two reports: the most that a process can have worked without a report, beyond its longest piece. */
#define UNTOLD_NS (2.0 * WIRE_REPORT_NS)
#define BUSY_SMOOTH_NS 100000000.0
#define MOST_OF_PART 0.85
/* How long an agent remembers what calls took, unless it is told to forget. Company that it had for less than
 * OVERLAP_MOST_NS after it was told to forget, because the turn before had not ended, does not count. */
#define OF_LATE_NS UINT64_C(500000000)
#define OVERLAP_MOST_NS (2 * ARBITER_LEAD_NS)

static void note_busy_part(struct arbiter_process *process, double busy, double passed)
{
    if (passed <= 0)
        return;
    double part = busy < passed ? busy / passed : 1;
    process->busy_part +=
        (part - process->busy_part) * weight_in_average(&process->busy_told_ns, passed, BUSY_SMOOTH_NS);
}

/* Each process of a session reports how long it had work, and several have work at the same time. Returns which
 * part of all their reports is the session's time, for the processes whose gates were open since `from`, if none
 * keeps step with another. A process that never reported is taken to be like the teller. */
static double part_of_session(const struct arbiter_process *teller, uint64_t from)
{
    const struct arbiter_session *session = teller->session;
    double sum = 0, idle = 1;
    unsigned count = 0;
    for (const struct arbiter_process *at = session->processes; at; at = at->next) {
        if ((!is_let_in(at) && at->reported_at <= from) ||
            session->arbiter->now - at->reported_at > SILENT_NS)
            continue;
        double part = at->busy_told_ns > 0 ? at->busy_part : teller->busy_part;
        sum += part;
        idle *= 1 - part;
        count++;
    }
    return count > 1 && sum > 0 ? (1 - idle) / sum : 1;
}

/* Of the time that a process reports, the part that is not also the time of other processes of its session. Where
 * that is little more than the least time that its calls can have taken, or less, that least time counts. Then all
 * its calls take about that long, and the rest is how the processes keep step with each other. */
static double own_part(const struct arbiter_process *process, uint64_t from, double busy, double calls)
{
    double part = busy * part_of_session(process, from), least = calls * least_of(&process->least);
    if (!has_several_processes(process->session))
        return busy;
    return least < part * MOST_OF_PART ? part : least < busy ? least : busy;
}

/* The earliest time at which the first piece of work in a report may have begun: a piece is reported as a whole,
 * when it is done. */
static uint64_t began_at(const struct arbiter_process *process, uint64_t from)
{
    uint64_t longest = process->longest_ns;
    if (!process->open_since)
        return from;
    return from - process->open_since < longest ? process->open_since : from - longest;
}

/* Of the time with work that is told, the part in which the GPU had begun with it. */
static double begun_part(const struct wire_work *work)
{
    uint64_t busy_ns = work->progress.busy_ns;
    return work->begun_ns && work->begun_ns < busy_ns ? (double)work->begun_ns / (double)busy_ns : 1;
}

static void note_measured(struct stretch *stretch, const struct wire_work *work)
{
    double least = (double)work->least_ns;
    if (!work->measured)
        return;
    stretch->is_measured = true;
    if (least > 0 && (stretch->least_ns <= 0 || least < stretch->least_ns))
        stretch->least_ns = least;
}

/* Whether a process's report on the time since `began` is about its own calls alone. Its agent takes calls that it
 * did not measure to be like its latest ones, and none of these may be from the time before its company left. */
static bool is_alone_since(const struct arbiter_process *process, uint64_t began)
{
    uint64_t company_at = process->session->company_at;
    bool is_forgotten = process->afresh_at + OVERLAP_MOST_NS >= company_at;
    return company_at <= began && (is_forgotten || company_at + OF_LATE_NS <= began);
}

/* Enter a process's report in the accounts. Time with work counts up to the time that passed since the process's
 * gate opened, for a process cannot claim more. A long piece of work is reported as a whole, when it is done. */
static void take_measure(struct arbiter_process *process, const struct wire_work *work)
{
    const struct wire_progress *told = &work->progress;
    struct arbiter_session *session = process->session;
    uint64_t now = session->arbiter->now, from = process->reported_at;
    uint64_t most = now - from + process->spare_ns;
    uint64_t open = process->open_since ? now - process->open_since : 0;
    double passed = (double)(now - session->told_at);
    process->reported_at = session->told_at = now;
    process->longest_ns = told->longest_ns < open ? told->longest_ns : open;
    session->waited_ns += told->waited_ns;
    if (!is_held(session))
        return;
    uint64_t began = began_at(process, from);
    bool is_alone = is_alone_since(process, began);
    bool is_single = is_alone && is_single_since(session, began);
    if (is_alone)
        least_note(&process->least, work->measured, (double)work->least_ns);
    double busy = (double)(told->busy_ns < most ? told->busy_ns : most);
    process->spare_ns = told->busy_ns < most ? most - told->busy_ns : 0;
    note_busy_part(process, busy, (double)(now - from));
    process->told_busy_ns += busy;
    process->told_used_ns += fmax(fmin(arbiter_cost(process, (double)told->calls), busy), 0);
    double whole = busy;
    if (is_single)
        arbiter_learn_singly(process, (struct cost_stretch){(double)(now - from), busy, (double)told->calls,
                                                            !work->measured, (double)work->least_ns});
    else
        busy = own_part(process, from, busy, (double)told->calls);
    session->busy_ns += busy;
    session->said_ns += busy;
    note_measured(&session->stretch, work);
    session->told_begun = begun_part(work);
    arbiter_learn(process, is_alone, passed, whole, busy, (double)told->calls);
}

/* The most time with work that the process can have had since its last report, since it reports every 20 ms what is
 * done. In a turn that others want, that may be all of the time: it would have given an idle turn back. */
static double most_untold(const struct arbiter_process *process)
{
    const struct arbiter_session *session = process->session;
    double passed = (double)(session->arbiter->now - process->reported_at);
    bool gives_back =
        is_exclusive(session) && (session->lease == LEASE_LOOSE || (session->flags & WIRE_LEASE_WANTED));
    return gives_back ? passed : fmin(passed, (double)process->longest_ns + UNTOLD_NS);
}

/* The process has gone without a last report. In a turn, it is charged for all the work that it can have had; as a
 * guest, for the part of it in which it had work lately. */
static void take_last_measure(struct arbiter_process *process)
{
    double part = process->session->lease == LEASE_GUEST ? process->busy_part : 1;
    take_measure(process, &(struct wire_work){.progress = {.busy_ns = (uint64_t)(most_untold(process) * part),
                                                           .longest_ns = process->longest_ns}});
}

void arbiter_want(struct arbiter_process *process, uint64_t gpus, uint64_t now)
{
    arbiter_settle(process->session->arbiter, now);
    process->gpus = gpus;
    if (process->gate != PROCESS_OPEN)
        process->wants = true;
    arbiter_decide(process->session->arbiter);
}

void arbiter_set_away(struct arbiter_process *process, bool is_away, uint64_t now)
{
    if (process->is_away == is_away)
        return;
    arbiter_settle(process->session->arbiter, now);
    process->is_away = is_away;
    arbiter_decide(process->session->arbiter);
}

void arbiter_closed(struct arbiter_process *process, const struct wire_closed *closed, uint64_t now)
{
    struct arbiter *arbiter = process->session->arbiter;
    arbiter_settle(arbiter, now);
    if (process->gate == PROCESS_OPEN && closed->lease == process->lease)
        arbiter_leave(process);
    if (process->gate == PROCESS_CLOSING && closed->lease == process->lease) {
        arbiter_note_answer(process);
        /* The processes of a session have the GPU one after the other. */
        uint64_t begins_at = now;
        for (const struct arbiter_process *at = process->session->processes; at; at = at->next)
            if (at->gate == PROCESS_CLOSING && at->done_at != NEVER && at->done_at > begins_at)
                begins_at = at->done_at;
        if (closed->left_ns == WIRE_LEFT_ENDLESS) {
            process->stalls = now >= process->stalls_at;
        } else {
            uint64_t left_ns = arbiter_believed_left(process, closed->left_ns);
            process->done_at = left_ns < NEVER - begins_at ? begins_at + left_ns : NEVER;
            arbiter_expect_drained(process, left_ns);
        }
        arbiter_step(process->session);
    }
    arbiter_decide(arbiter);
}

void arbiter_returned(struct arbiter_process *process, const struct wire_returned *returned, uint64_t now)
{
    struct arbiter_session *session = process->session;
    arbiter_settle(session->arbiter, now);
    /* A process that gave a lease back by itself also answers a REVOKE that crossed with that. */
    if (process->gate == PROCESS_CLOSED || returned->lease != process->lease) {
        session->waited_ns += returned->waited_ns;
        arbiter_decide(session->arbiter);
        return;
    }
    arbiter_note_answer(process);
    bool was_counted = process->gate != PROCESS_OVERDUE;
    if (!was_counted) /* the process is new, or was stopped */
        arbiter_doubt_cost(session);
    take_measure(process, &(struct wire_work){.progress = {.busy_ns = was_counted ? returned->busy_ns : 0,
                                                           .longest_ns = returned->longest_ns,
                                                           .waited_ns = returned->waited_ns}});
    uint64_t ended_ns = returned->ended_us * UINT64_C(1000);
    session->ended_at = now - session->since > ended_ns ? now - ended_ns : session->since;
    process->is_bursting = false;
    process->gate = PROCESS_CLOSED;
    if (returned->outcome != WIRE_OUTCOME_UNDRAINED)
        process->open_since = 0;
    if (returned->outcome == WIRE_OUTCOME_UNDRAINED)
        arbiter_become_loose(session);
    else if (session->lease == LEASE_LOOSE && !session->closing && returned->outcome == WIRE_OUTCOME_DRAINED)
        process->wants = true; /* its gate did close, but another process of its session could not drain */
    if (session->lease != LEASE_LOOSE || session->closing || !arbiter_has_waiting_process(session))
        arbiter_end_lease_if_returned(session, returned->outcome == WIRE_OUTCOME_IDLE &&
                                                   (!session->closing || session->leaves));
    arbiter_decide(session->arbiter);
}

/* Whether a message is about the process's present lease: reports under a lease that is over do not count. */
static bool is_current(const struct arbiter_process *process, uint64_t lease)
{
    return lease == process->lease && is_let_in(process);
}

void arbiter_work(struct arbiter_process *process, const struct wire_work *work, uint64_t now)
{
    struct arbiter_session *session = process->session;
    arbiter_settle(session->arbiter, now);
    if (!is_current(process, work->progress.lease))
        return;
    take_measure(process, work);
    if (is_exclusive(session) && now - session->charged_at >= CHARGE_EVERY_NS)
        arbiter_charge(session);
    arbiter_decide(session->arbiter);
}

void arbiter_report(struct arbiter_process *process, const struct wire_report *report, uint64_t now)
{
    struct wire_progress progress = {report->lease, report->busy_ns, report->longest_ns, report->waited_ns,
                                     0};
    arbiter_progress(process, &progress, now);
}

void arbiter_progress(struct arbiter_process *process, const struct wire_progress *progress, uint64_t now)
{
    /* PROGRESS does not say how many calls were measured: the agent is of an older version. */
    arbiter_work(process, &(struct wire_work){.progress = *progress, .measured = progress->calls}, now);
}

void arbiter_burst(struct arbiter_process *process, const struct wire_burst *burst, uint64_t now)
{
    arbiter_settle(process->session->arbiter, now);
    if (!is_current(process, burst->lease))
        return;
    process->is_bursting = burst->begins != 0;
    arbiter_decide(process->session->arbiter);
}

void arbiter_waits(struct arbiter_process *process, const struct wire_waits *waits)
{
    for (unsigned i = 0; i < WAITS_BUCKETS; i++)
        process->session->waits[i] += waits->counts[i];
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
    GS_CHECK(!arbiter->sessions);
    arbiter_users_free(arbiter);
    free(arbiter->order);
    free(arbiter);
}

struct arbiter_session *arbiter_session_add(struct arbiter *arbiter, void *owner, uint64_t user,
                                            struct share share, unsigned priority)
{
    struct arbiter_session *session = calloc(1, sizeof(*session));
    struct arbiter_session **order =
        realloc(arbiter->order, (arbiter->session_count + 1) * sizeof(struct arbiter_session *));
    if (order)
        arbiter->order = order;
    if (session && order)
        session->user = arbiter_user_enter(arbiter, user);
    if (!session || !session->user) {
        free(session);
        return NULL;
    }
    session->arbiter = arbiter;
    session->owner = owner;
    session->serial = ++arbiter->serial;
    session->share = share;
    session->priority = priority;
    session->weight = 1;
    session->tokens = is_capped(session) ? bucket_start(session) - arbiter_overdraft(session) : BUCKET_NS;
    arbiter_throttle(session);
    arbiter_forget(session);
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
        FOR_GPUS (gpu, session->gpus) {
            double ahead = session->use[gpu].vt - arbiter->gpus[gpu].clock[session->priority];
            session->use[gpu].vt = arbiter->gpus[gpu].clock[priority] + (ahead > 0 ? ahead : 0);
        }
    session->share = share;
    session->priority = priority;
    arbiter_forget_need(session);
    if (!is_capped(session))
        session->tokens = BUCKET_NS;
    arbiter_throttle(session);
    arbiter_decide(arbiter);
}

void arbiter_session_remove(struct arbiter_session *session)
{
    struct arbiter *arbiter = session->arbiter;
    struct arbiter_session **at = &arbiter->sessions;
    GS_CHECK(!session->processes);
    if (session->takes_turns)
        arbiter_leave_turns(session);
    arbiter_note_overdraft(session);
    session->user->sessions--;
    while (*at != session)
        at = &(*at)->next;
    *at = session->next;
    arbiter->session_count--;
    free(session);
    for (struct arbiter_session *other = arbiter->sessions; other; other = other->next)
        arbiter_begin_beside(other); /* the session's use does not count in what others used any more */
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
    process->reported_at = process->watched_at = now;
    if (!session->processes)
        session->came_at = now;
    process->next = session->processes;
    session->processes = process;
    arbiter_begin_costs(process);
    arbiter_decide(arbiter);
    if (process->gate == PROCESS_CLOSED) {
        /* The gate may have been open until now, under an earlier daemon. The arbiter does not wait for the answer. */
        process->gate = PROCESS_OVERDUE;
        arbiter->calls->revoke(owner, 0, ARBITER_PATIENCE_NS);
    }
    return process;
}

void arbiter_process_remove(struct arbiter_process *process, uint64_t now)
{
    struct arbiter_session *session = process->session;
    struct arbiter *arbiter = session->arbiter;
    arbiter_settle(arbiter, now);
    if (is_let_in(process))
        take_last_measure(process);
    struct arbiter_process **at = &session->processes;
    while (*at != process)
        at = &(*at)->next;
    *at = process->next;
    free(process);
    arbiter_end_costs(session);
    if (session->processes)
        arbiter_doubt_cost(session);
    else
        arbiter_try_open(session);
    arbiter_end_lease_if_returned(session, false);
    arbiter_decide(arbiter);
}

/* --- Telling --------------------------------------------------------------------------------------- */

void arbiter_set_quantum(struct arbiter *arbiter, uint64_t quantum_ns)
{
    arbiter->quantum_fixed_ns = quantum_ns;
}

uint64_t arbiter_quantum(const struct arbiter *arbiter)
{
    return arbiter_turn_ns(arbiter);
}

bool arbiter_quantum_is_auto(const struct arbiter *arbiter)
{
    return !arbiter->quantum_fixed_ns;
}

uint64_t arbiter_gap(const struct arbiter *arbiter)
{
    return (uint64_t)arbiter->gap_ns;
}

enum arbiter_mode arbiter_mode(const struct arbiter *arbiter, unsigned gpu, uint64_t now)
{
    if (!(arbiter->shares >> gpu & 1))
        return ARBITER_MODE_FREE;
    uint64_t waited_at = arbiter->gpus[gpu].waited_at;
    return waited_at && now < waited_at + OPEN_AFTER_NS ? ARBITER_MODE_SHARES : ARBITER_MODE_OPEN;
}

uint64_t arbiter_handovers(const struct arbiter *arbiter, unsigned gpu)
{
    return arbiter->gpus[gpu].handovers;
}

enum arbiter_lease arbiter_session_lease(const struct arbiter_session *session)
{
    return session->lease;
}

uint64_t arbiter_session_asked(const struct arbiter_session *session, unsigned *steps)
{
    *steps = session->closing ? session->steps : 0;
    return session->closing ? session->closing_at : 0;
}

bool arbiter_session_waits(const struct arbiter_session *session)
{
    return arbiter_is_waiting(session);
}

bool arbiter_session_is_undrainable(const struct arbiter_session *session)
{
    return session->tries >= TRIES_UNDRAINABLE;
}

uint64_t arbiter_session_waited(const struct arbiter_session *session)
{
    return session->waited_ns;
}

const uint64_t *arbiter_session_waits_by_length(const struct arbiter_session *session)
{
    return session->waits;
}

bool arbiter_session_understates(const struct arbiter_session *session)
{
    return session->understates;
}

bool arbiter_session_takes_turns(const struct arbiter_session *session)
{
    return session->takes_turns;
}

uint64_t arbiter_session_overruns(const struct arbiter_session *session)
{
    return session->overruns;
}
