/* estimate/estimate.h - what sessions' work costs and what they used, each with how much of it may be wrong. The second
 * stage: it knows facts alone. docs/internals/scheduling.md explains the guesses. */
#pragma once

#include <math.h>

#include "daemon/schedule/facts/facts.h"

/* What `passed_ns` weighs in an average over the last `most_ns`. `*covered_ns` is the time that the average stands for, 0
 * where it begins: until that is long enough, all of it weighs the same. */
static inline double weight_in_average(double *covered_ns, double passed_ns, double most_ns)
{
    *covered_ns = fmin(*covered_ns + passed_ns, fmax(passed_ns, most_ns));
    return passed_ns / *covered_ns;
}

/* The average over SMOOTH_NS, after `passed_ns` more in which it was `now`. */
static inline void smooth(double *value, double now, double passed_ns)
{
    *value += (now - *value) * fmin(passed_ns / SMOOTH_NS, 1);
}

/* Nothing is known of the session: it is new. */
void estimate_begin(struct arbiter_session *session);
/* `passed` ns have passed up to now. */
void estimate_pass(struct arbiter *arbiter, double passed);
/* The session's lease begins. */
void estimate_begin_lease(struct arbiter_session *session);
/* The longest exclusive turn in force now. */
uint64_t estimate_turn_ns(const struct arbiter *arbiter);

/* --- learn.c: what sessions are like --------------------------------------------------------------- */

/* What was taken from a report: the GPU time that its calls took; and of the time with work, what is its session's
 * alone, since several processes may tell of the same time. */
struct taken {
    double used_ns, busy_ns;
};
struct taken estimate_take(struct arbiter_process *process, const struct report *report);

/* The session's closing processes say nothing: they are taken to have had work since they last did. */
void estimate_take_overdue(struct arbiter_session *session);
/* The most work that a process can have had that has gone without a last report: in a turn, all of it; as a guest, the
 * part of it in which it had work lately. */
double estimate_last_work(const struct arbiter_process *process);

/* How a session fared in a stretch of time, as far as the stretch tells. */
struct judged {
    bool is_alone;   /* no other session's gate was open */
    bool is_guest;   /* it held a guest's lease */
    bool was_dense;  /* before the stretch was judged */
    double whole_ns; /* its length; and the part of it in which the session was not to hold still */
    double passed_ns;
    double busy, speed; /* the part in which it had work; and its speed, as a part of its speed alone */
    double calls;
};
/* Whether the stretch is over: all its processes have reported on about the same time. */
bool estimate_is_stretch(const struct arbiter_session *session);
/* The stretch is over: judge the session by it, and begin the next one. Returns false if it was too short to tell
 * anything. */
bool estimate_judge(struct arbiter_session *session, struct judged *judged);
/* The session's turn is over, which it did not give back: learn what a change of holders costs. */
void estimate_note_gap(const struct arbiter_session *session);
/* The session's turn is over, and its last stretch is judged. `gave_back`: it gave the turn back, since it had no work any
 * more. `was_measuring`: its cost was to be learned in this turn. */
void estimate_end_turn(struct arbiter_session *session, bool gave_back, bool was_measuring);
/* Whether the session was found light, after it had been dense, since the last call. */
bool estimate_take_became_light(struct arbiter_session *session);
/* The session becomes a guest: what it used in turns says nothing about what it takes from others as one. */
void estimate_leave_turns(struct arbiter_session *session);

/* --- cost.c: what calls cost ----------------------------------------------------------------------- */

/* Whether the session's processes are measured one by one, each with the others' gates closed: it has several, they
 * have the same GPUs, and they do not wait for each other's work. */
bool estimate_is_measured_singly(const struct arbiter_session *session);
/* How many processes are measured by themselves; 1 if all are measured together. */
unsigned estimate_measured_count(const struct arbiter_session *session);
/* How many of these need not be measured again: all but one, or none. */
unsigned estimate_sure_count(const struct arbiter_session *session);
/* Whether the process may have its gate open now, in a turn in which the processes are measured one by one. */
bool estimate_may_be_measured(const struct arbiter_process *process);
/* estimate_begin_costs(): the process is new, and is taken to be like another process of its session until it is
 * measured. estimate_end_costs(): a process has gone; if one is left, the session's cost is that process's cost. */
void estimate_begin_costs(struct arbiter_process *process);
void estimate_end_costs(struct arbiter_session *session);
/* The process reported a stretch in which no other process of its session could have had work. */
void estimate_learn_singly(struct arbiter_process *process, struct cost_stretch stretch);
/* Whether the cost of each process that makes calls is known; and whether it is sure. */
bool estimate_knows_each(const struct arbiter_session *session);
bool estimate_is_sure_of_each(const struct arbiter_session *session);
/* Whether the cost of the session's calls is known so well that they are charged by it. */
bool estimate_is_charged_by_calls(const struct arbiter_session *session);
/* The usual error of a charge by the session's calls, as a part of that charge. */
double estimate_calls_error(const struct arbiter_session *session);
/* What so many calls of the process cost; negative: not known. */
double estimate_cost(const struct arbiter_process *process, double calls);
/* Bring the process's smoothed figures up to now, with what it reported since `watched_at`. */
void estimate_watch_process(struct arbiter_process *process);
/* The session's progress in a stretch of `passed_ns`: its speed as a part of its speed alone. `busy` and `used`:
 * the parts of the stretch in which it had work, and that it used. */
double estimate_speed(const struct arbiter_session *session, double passed_ns, double busy, double used);

/* --- beside.c: what is used beside others ---------------------------------------------------------- */

/* From now on, what the session reports is compared with what others are charged from now on. */
void estimate_begin_beside(struct arbiter_session *session);
/* In company, the session had work for `busy_ns` of `passed_ns`, in calls that cost `cost_ns`. Returns the most that
 * others can have used meanwhile: all of the time if their charges are too unsure. */
double estimate_note_beside(struct arbiter_session *session, double passed_ns, double busy_ns,
                            double cost_ns);
/* GPU time of calls that were before the GPU for `busy_ns` and cost `cost_ns`, beside others; negative: not known. */
double estimate_spent(const struct arbiter_session *session, double busy_ns, double cost_ns);

/* --- used.c: what is used -------------------------------------------------------------------------- */

/* What a session used of one GPU's time, and how much of that may be wrong. */
struct used_now {
    double used_ns, error_ns;
};
/* A session's turn since its last charge, for all its GPUs. */
struct turn_estimate {
    double passed_ns, busy_ns, spent_ns, guests_ns;
    bool is_by_calls, is_beside;
};
/* Take from what the session reported what is charged for its turn, of which `passed_ns` were not charged yet. */
struct turn_estimate estimate_take_turn(struct arbiter_session *session, double passed_ns);
/* What the session used of the GPU in that part of its turn, and in `*held_ns` for how long it held it: what guests
 * did not use. */
struct used_now estimate_used_in_turn(struct arbiter_session *session, uint64_t gpu,
                                      const struct turn_estimate *turn, double *held_ns);
/* What a guest used that claims `used_ns` of `busy_ns` with work. */
struct used_now estimate_used_by_guest(const struct arbiter_session *session, double used_ns, double busy_ns,
                                       bool is_alone);
/* Enter what the session used in what it and its GPU's sessions used in all. */
void estimate_book(struct arbiter_session *session, uint64_t gpu, struct used_now used);
void estimate_book_guest(struct arbiter_session *session, uint64_t gpu, double used_ns);
/* The session wants the GPU for the first time: seconds count from now on. */
void estimate_first_second(struct arbiter_session *session, uint64_t gpu);
/* What the session used in the running second, or `back` seconds before it. */
double estimate_used_in_second(const struct arbiter_session *session, unsigned gpu, unsigned back);

/* The part of the GPU's time, 0..1, that the session used in the last ARBITER_WINDOW_S whole seconds, or since it
 * first wanted the GPU if that is less. */
double estimate_achieved(const struct arbiter_session *session, unsigned gpu, uint64_t now);

/* --- doubt.c: what is measured again --------------------------------------------------------------- */

/* Other processes of the session run than before: one came, ended, was stopped or goes on. So its calls may cost
 * something else now. */
void estimate_doubt(struct arbiter_session *session);
/* Audit the charges on the GPU, if it is time. */
void estimate_audit(struct arbiter *arbiter, uint64_t gpu);
/* If the session's cost is doubted and it is time, have it measured, with all other gates closed. Returns whether it is to be
 * measured from now on. */
bool estimate_measure_if_doubted(struct arbiter_session *session);

/* --- look.c: what the daemon sees ------------------------------------------------------------------ */

/* A process of the session had that part of the GPU's time lately. */
void estimate_see(struct arbiter_session *session, unsigned gpu, double part);
/* All was seen that there is to see. */
void estimate_begin_look(struct arbiter *arbiter);
/* Compare what was seen of the session with what its agents said, if it is time, and set in `unsaid_ns` what it used on
 * each GPU beyond what they said. Returns whether it begins to understate. */
bool estimate_compare(struct arbiter_session *session, double *unsaid_ns);
