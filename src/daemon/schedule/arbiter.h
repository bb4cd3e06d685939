/* arbiter.h - which session may submit work to which GPU, and for how long.
 *
 * The arbiter is pure: it is told what happened and when, and answers through callbacks. It has no clock, no
 * socket and no timer of its own; src/daemon/schedule/schedule.h connects it to the world. docs/internals/scheduling.md
 * explains the rules.
 *
 * session   a set of processes that share one lease over all GPUs they use (all of them, or none)
 * process   has one gate, which is open while its session holds the lease and the process asked for it
 * lease     the right of a session to submit to its GPUs. An exclusive lease is a turn. A guest holds its lease
 *           beside other sessions. A loose lease is that of a session whose work does not drain: the work runs on
 *           beside the session whose turn it is
 * dense     a program that would keep the GPU busy all the time if it had it alone
 * guest     a session whose gate is open beside the holder of a turn, and beside other guests. A session that is
 *           not dense is a guest, as long as every session's minimum can be kept that way
 * needy     a guest that gets less than its minimum. It takes turns for a while, and so do guests that use more
 *           than was promised to them
 * content   a guest that turns did not help: it is as fast without them, and not needy for a while
 * cost      GPU time that a call of the session takes when no other session's gate is open
 * used      GPU time of a session's work, by cost. Maxima count it
 * held      time in which other sessions were kept from the GPU: of a turn, what guests did not use; of a guest,
 *           its own work. Turns are balanced by it
 * progress  the session's speed as a part of its speed alone: the part of the time in which it has no work before
 *           the GPU, plus the part that it uses
 * clock     of a GPU and a priority: how far the session that is furthest behind has come, in held time by
 *           weight. Of the sessions that take turns, the one that is least ahead of the clock comes first. A
 *           session that was idle gets a credit of one quantum at most
 * debt      what a user's sessions had taken beyond their part when they ended, or ceased to take turns. The
 *           user's next session that takes turns begins that far behind
 * burst     work that a session of a higher priority begins after a rest. Sessions of lower priorities hold still
 *           until it is over: they keep their leases and submit nothing
 * free      a GPU on which no share counts: gates are open and nothing is measured
 *
 * Times are nanoseconds of one clock that never goes back. Shares are ten-thousandths (base/units.h). */
#pragma once

#include "daemon/schedule/types.h"

/* Returns NULL without memory. `context` is passed to calls.mode. */
struct arbiter *arbiter_new(const struct arbiter_calls *calls, void *context, uint64_t now);
void arbiter_free(struct arbiter *arbiter); /* every session was removed before */

/* `session` is what calls.event is given. `user` still owes what earlier sessions took beyond their part. Returns
 * NULL without memory. */
struct arbiter_session *arbiter_session_add(struct arbiter *arbiter, void *session, uint64_t user,
                                            struct share share, unsigned priority);
void arbiter_session_set(struct arbiter_session *session, struct share share, unsigned priority,
                         uint64_t now);
void arbiter_session_remove(struct arbiter_session *session); /* every process was removed before */

/* A grant or a revoke comes before this returns, so that the agent knows at once whether its gate may be open.
 * Returns NULL without memory. */
struct arbiter_process *arbiter_process_add(struct arbiter_session *session, void *process, uint64_t now);
/* The process died, or its agent has hung up. */
void arbiter_process_remove(struct arbiter_process *process, uint64_t now);

/* WANT: the process uses these GPUs (bits), and waits for a lease unless its gate is open. */
void arbiter_want(struct arbiter_process *process, uint64_t gpus, uint64_t now);
/* The process's memory is off the card, or is leaving it. Until it is back, the process gets no lease that can end,
 * and waits for none. If it holds a lease, its agent gives that back by itself. */
void arbiter_set_away(struct arbiter_process *process, bool is_away, uint64_t now);
/* CLOSED, RETURNED, REPORT, BURST. Times that cannot be true are cut down to what is possible. */
void arbiter_closed(struct arbiter_process *process, const struct wire_closed *closed, uint64_t now);
void arbiter_returned(struct arbiter_process *process, const struct wire_returned *returned, uint64_t now);
void arbiter_report(struct arbiter_process *process, const struct wire_report *report, uint64_t now);
void arbiter_burst(struct arbiter_process *process, const struct wire_burst *burst, uint64_t now);
/* The daemon has looked at the GPUs itself, without asking the agents. arbiter_seen() adds what a process of the
 * session had lately of a GPU's time (`part`, 0..1), once for each process; arbiter_look_is_over() says that this
 * was all. To be called now and then. */
void arbiter_seen(struct arbiter_session *session, unsigned gpu, double part);
void arbiter_look_is_over(struct arbiter *arbiter, uint64_t now);
/* WAITS: counted, and no decision follows from it. */
void arbiter_waits(struct arbiter_process *process, const struct wire_waits *waits);

/* Do what is due. To be called at the time that arbiter_next() returns, which may change with every call above
 * (UINT64_MAX: never). */
void arbiter_tick(struct arbiter *arbiter, uint64_t now);
uint64_t arbiter_next(const struct arbiter *arbiter);

/* Set the longest exclusive turn. 0: automatic, that is fifty times the measured gap of a hand-over, within 15..50
 * ms. */
void arbiter_set_quantum(struct arbiter *arbiter, uint64_t quantum_ns);
uint64_t arbiter_quantum(const struct arbiter *arbiter); /* in force now */
bool arbiter_quantum_is_auto(const struct arbiter *arbiter);
/* How much of its turn a session loses when the turn before was another session's, smoothed; 0 before the first
 * such change. */
uint64_t arbiter_gap(const struct arbiter *arbiter);

enum arbiter_mode arbiter_mode(const struct arbiter *arbiter, unsigned gpu, uint64_t now);
/* How often a turn on the GPU went from one session to another. */
uint64_t arbiter_handovers(const struct arbiter *arbiter, unsigned gpu);

/* What a session got, and how it stands now. `used` and `achieved` are measured only while shares count. */
enum arbiter_lease arbiter_session_lease(const struct arbiter_session *session);
/* When the daemon asked for the session's lease back (0: it did not), and how many steps were taken since. */
uint64_t arbiter_session_asked(const struct arbiter_session *session, unsigned *steps);
bool arbiter_session_waits(const struct arbiter_session *session);
bool arbiter_session_is_undrainable(const struct arbiter_session *session);
uint64_t arbiter_session_used(const struct arbiter_session *session, unsigned gpu); /* in all */
uint64_t arbiter_session_held(const struct arbiter_session *session, unsigned gpu);
/* NVML shows the session's processes much busier than its agents say, so the session is charged by what NVML shows. */
bool arbiter_session_understates(const struct arbiter_session *session);
bool arbiter_session_takes_turns(const struct arbiter_session *session);
/* Why it does, or does not. `got`: of a needy session (WHY_NEEDY), its speed before as a part of its speed alone;
 * `beside`: the session (as it was added) that used most of its GPUs then; NULL: that one has gone. */
enum arbiter_why arbiter_session_why(const struct arbiter_session *session, double *got, void **beside);
/* Its speed as a part of its speed alone, 0..1, smoothed over half a second. */
double arbiter_session_progress(const struct arbiter_session *session);
/* How many waits of its threads at gates there were, by their length: WAITS_BUCKETS numbers (base/waits.h). */
const uint64_t *arbiter_session_waits_by_length(const struct arbiter_session *session);
/* The part of the GPU's time, 0..1, that the session used in the last ARBITER_WINDOW_S whole seconds, or since it
 * first wanted the GPU if that is less. */
double arbiter_session_achieved(const struct arbiter_session *session, unsigned gpu, uint64_t now);
uint64_t arbiter_session_waited(const struct arbiter_session *session); /* at gates, over all threads */
uint64_t arbiter_session_overruns(const struct arbiter_session *session);
