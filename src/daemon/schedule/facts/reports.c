/* What agents tell of their work, cut down to what can be true. */
#include <math.h>

#include "daemon/schedule/facts/facts.h"

#define OVERLAP_MOST_NS (2 * ARBITER_LEAD_NS)

/* The earliest time at which the first piece of work in a report may have begun: a piece is reported as a whole,
 * when it is done. */
static uint64_t began_at(const struct arbiter_process *process, uint64_t from)
{
    uint64_t longest = process->facts.longest_ns;
    if (!process->facts.open_since)
        return from;
    return from - process->facts.open_since < longest ? process->facts.open_since : from - longest;
}

/* Of the time with work that is told, the part in which the GPU had begun with it. */
static double begun_part(const struct wire_report *told)
{
    bool is_part = told->begun_ns && told->begun_ns < told->busy_ns;
    return is_part ? (double)told->begun_ns / (double)told->busy_ns : 1;
}

/* Whether a process's report on the time since `began` is about its own calls alone. Its agent takes calls that it
 * did not measure to be like its latest ones, and none of these may be from the time before its company left. */
static bool is_alone_since(const struct arbiter_process *process, uint64_t began)
{
    uint64_t company_at = process->session->facts.company_at;
    bool is_forgotten = process->facts.afresh_at + OVERLAP_MOST_NS >= company_at;
    return company_at <= began && (!is_on(alone_of_late) || is_forgotten || company_at + OF_LATE_NS <= began);
}

/* Time with work counts up to the time that passed since the process's gate opened, for a process cannot claim more. A
 * long piece of work is reported as a whole, when it is done. */
bool facts_take(struct arbiter_process *process, const struct wire_report *told, struct report *report)
{
    struct arbiter_session *session = process->session;
    uint64_t now = session->arbiter->now, from = process->facts.reported_at;
    uint64_t most = now - from + process->facts.spare_ns;
    uint64_t open = process->facts.open_since ? now - process->facts.open_since : 0;
    *report = (struct report){.from = from,
                              .passed_ns = (double)(now - session->facts.told_at),
                              .own_ns = (double)(now - from),
                              .busy_ns = (double)(told->busy_ns < most ? told->busy_ns : most),
                              .calls = (double)told->calls,
                              .measured = told->measured,
                              .least_ns = (double)told->least_ns};
    process->facts.reported_at = session->facts.told_at = now;
    process->facts.longest_ns = told->longest_ns < open ? told->longest_ns : open;
    session->facts.waited_ns += told->waited_ns;
    if (!is_held(session))
        return false;
    uint64_t began = began_at(process, from);
    report->is_alone = is_alone_since(process, began);
    report->is_single = report->is_alone && is_single_since(session, began);
    process->facts.spare_ns = told->busy_ns < most ? most - told->busy_ns : 0;
    session->facts.told_begun = begun_part(told);
    session->facts.calls += report->calls;
    return true;
}

double facts_most_untold(const struct arbiter_process *process)
{
    const struct arbiter_session *session = process->session;
    double passed = (double)(session->arbiter->now - process->facts.reported_at);
    bool gives_back = is_exclusive(session) &&
                      (session->facts.lease == LEASE_LOOSE || (session->facts.flags & WIRE_LEASE_WANTED));
    return gives_back ? passed : fmin(passed, (double)process->facts.longest_ns + UNTOLD_NS);
}

bool facts_is_current(const struct arbiter_process *process, uint64_t lease)
{
    return lease == process->facts.lease && is_let_in(process);
}

void facts_want(struct arbiter_process *process, uint64_t gpus)
{
    process->facts.gpus = gpus;
    if (process->facts.gate != PROCESS_OPEN)
        process->facts.wants = true;
}

void facts_want_again(struct arbiter_process *process)
{
    process->facts.wants = true;
}

void facts_enter(struct arbiter_process *process)
{
    struct arbiter_session *session = process->session;
    process->facts.reported_at = session->arbiter->now;
    if (!process->next)
        session->facts.came_at = session->arbiter->now;
}

void facts_set_share(struct arbiter_session *session, struct share share, unsigned priority)
{
    session->facts.share = share;
    session->facts.priority = priority;
}

void facts_set_away(struct arbiter_process *process, bool is_away)
{
    process->facts.is_away = is_away;
}

void facts_set_burst(struct arbiter_process *process, bool is_bursting)
{
    process->facts.is_bursting = is_bursting;
}

void facts_add_waited(struct arbiter_session *session, uint64_t waited_ns)
{
    session->facts.waited_ns += waited_ns;
}

void facts_add_waits(struct arbiter_session *session, const struct wire_waits *waits)
{
    for (unsigned i = 0; i < WAITS_BUCKETS; i++)
        session->facts.waits[i] += waits->counts[i];
}

void facts_returned(struct arbiter_process *process, uint64_t ended_ns, bool is_drained)
{
    struct session_facts *session = &process->session->facts;
    uint64_t now = process->session->arbiter->now;
    session->ended_at = now - session->since > ended_ns ? now - ended_ns : session->since;
    process->facts.is_bursting = false;
    process->facts.gate = PROCESS_CLOSED;
    if (is_drained)
        process->facts.open_since = 0;
}
