/* arbiter.h - who may submit work to which GPU, and for how long.
 *
 * Pure: it is told what happened and when, and answers through calls; it has no clock, no socket and no
 * timer of its own. src/daemon/schedule/agents.h is its connection to the world.
 *
 * session   a set of processes that share one lease over all GPUs they use (all of them, or none)
 * process   has one gate, which is open while its session holds the lease and the process asked for it
 * lease     the right to submit. Exclusive, which is a turn; a guest's, beside others; or loose: the session's
 *           work does not drain, and runs on beside that of the session whose turn it is
 * dense     a program that would keep the GPU busy all the time if it had it alone
 * guest     a session whose gate is open beside the holder of a turn, and beside other guests. Who is not dense
 *           is a guest, as long as that keeps every session's minimum
 * needy     a session that gets less than its minimum as a guest. It takes turns for a while, and so do those
 *           who use more than was promised to them
 * cost      GPU time that a call of the session takes when nobody else's gate is open
 * used      GPU time of a session's work, by cost. Maxima count it
 * held      time for which others were kept from the GPU: of a turn, what guests did not use; of a guest, its
 *           own work. Turns are balanced by it
 * progress  the session's speed as part of its speed alone: the part of the time in which it has no work before
 *           the GPU, and the part it uses
 * clock     of a GPU and a priority: how far the session that is furthest behind has come, in held time by
 *           weight. Of those who take turns, the session that is least ahead of it comes first. Time in which a
 *           session was idle is not made up for, but for one quantum
 * debt      what a user's sessions had taken beyond their part as they ended, or ceased to take turns. The user's
 *           next session that takes turns begins so far behind
 * burst     of work, by a session of a higher priority: those of lower ones hold still until it is over
 * free      a GPU on which no share counts: gates are open and nothing is measured
 *
 * Times are nanoseconds of one clock that never goes back. Shares are ten-thousandths (base/units.h). */
#pragma once

#include "daemon/schedule/arbiter_types.h"

/* NULL without memory. `context` is for calls.mode. */
struct arbiter *arbiter_new(const struct arbiter_calls *calls, void *context, uint64_t now);
void arbiter_free(struct arbiter *arbiter); /* no session is left */

/* A session of `user`'s, who goes on owing what earlier ones took too much. NULL without memory. */
struct arbiter_session *arbiter_session_add(struct arbiter *arbiter, void *session, uint64_t user,
                                            struct share share, unsigned priority);
void arbiter_session_set(struct arbiter_session *session, struct share share, unsigned priority,
                         uint64_t now);
void arbiter_session_remove(struct arbiter_session *session); /* no process is left */

/* Its gate is told its state by a call at once: it may be open (a grant), or is to be closed (a revoke).
 * NULL without memory. */
struct arbiter_process *arbiter_process_add(struct arbiter_session *session, void *process, uint64_t now);
/* It died, or its agent has hung up. */
void arbiter_process_remove(struct arbiter_process *process, uint64_t now);

/* WANT: it uses these GPUs (bits), and waits for a lease unless it has one. */
void arbiter_want(struct arbiter_process *process, uint64_t gpus, uint64_t now);
/* Its memory is off the card, or leaves it: it is given no lease that can end, and waits for none, until it is back. What it
 * holds it gives back by itself. */
void arbiter_set_away(struct arbiter_process *process, bool is_away, uint64_t now);
/* CLOSED, RETURNED, REPORT, PROGRESS, WORK, BURST. Numbers beyond what can be are cut down to it. */
void arbiter_closed(struct arbiter_process *process, const struct wire_closed *closed, uint64_t now);
void arbiter_returned(struct arbiter_process *process, const struct wire_returned *returned, uint64_t now);
void arbiter_report(struct arbiter_process *process, const struct wire_report *report, uint64_t now);
void arbiter_progress(struct arbiter_process *process, const struct wire_progress *progress, uint64_t now);
void arbiter_work(struct arbiter_process *process, const struct wire_work *work, uint64_t now);
void arbiter_burst(struct arbiter_process *process, const struct wire_burst *burst, uint64_t now);
/* The daemon has looked by itself, without asking the agents: first how much of a GPU's time of late processes of a
 * session had, each of them, then that this was all. To be called now and then. */
void arbiter_seen(struct arbiter_session *session, unsigned gpu, double part);
void arbiter_look_is_over(struct arbiter *arbiter, uint64_t now);
/* WAITS, which changes nothing. */
void arbiter_waits(struct arbiter_process *process, const struct wire_waits *waits);

/* Do what is due. To be called at arbiter_next(), which changes with every call above (UINT64_MAX: never). */
void arbiter_tick(struct arbiter *arbiter, uint64_t now);
uint64_t arbiter_next(const struct arbiter *arbiter);

/* The longest exclusive turn: fixed, or 0 for fifty times the measured gap of a hand-over within
 * 15..50 ms. */
void arbiter_set_quantum(struct arbiter *arbiter, uint64_t quantum_ns);
uint64_t arbiter_quantum(const struct arbiter *arbiter); /* as it is now */
bool arbiter_quantum_is_auto(const struct arbiter *arbiter);
/* What a change of holders costs the GPU, smoothed; 0 before the first. */
uint64_t arbiter_gap(const struct arbiter *arbiter);

enum arbiter_mode arbiter_mode(const struct arbiter *arbiter, unsigned gpu, uint64_t now);
/* How often a GPU went from one session to another. */
uint64_t arbiter_handovers(const struct arbiter *arbiter, unsigned gpu);

/* What a session got and how it stands. `used` and `achieved` are measured while shares count alone. */
enum arbiter_lease arbiter_session_lease(const struct arbiter_session *session);
/* When its lease was asked back, 0: it was not; and how many steps were taken since. */
uint64_t arbiter_session_asked(const struct arbiter_session *session, unsigned *steps);
bool arbiter_session_waits(const struct arbiter_session *session);
bool arbiter_session_is_undrainable(const struct arbiter_session *session);
uint64_t arbiter_session_used(const struct arbiter_session *session, unsigned gpu); /* of GPU time, in all */
uint64_t arbiter_session_held(const struct arbiter_session *session, unsigned gpu);
/* Its agents say much less than the daemon sees: it is charged by that. */
bool arbiter_session_understates(const struct arbiter_session *session);
bool arbiter_session_takes_turns(const struct arbiter_session *session);
/* Of late, 0..1: its speed as part of its speed alone. */
double arbiter_session_progress(const struct arbiter_session *session);
/* Of its threads at gates, by their length (base/waits.h). */
const uint64_t *arbiter_session_waits_by_length(const struct arbiter_session *session);
/* Its part of the last ARBITER_WINDOW_S whole seconds, or of those since it first wanted the GPU; 0..1. */
double arbiter_session_achieved(const struct arbiter_session *session, unsigned gpu, uint64_t now);
uint64_t arbiter_session_waited(const struct arbiter_session *session); /* at gates, over all threads */
uint64_t arbiter_session_overruns(const struct arbiter_session *session);
