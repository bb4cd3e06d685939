/* schedule.h - connects the arbiter to the world: to agents, to the sessions' shares and to the loop's timer. */
#pragma once

#include "base/error.h"
#include "daemon/schedule/arbiter.h"

struct daemon;
struct process;

int schedule_start(struct daemon *daemon, struct error *error); /* after agents_start() */
void schedule_stop(struct daemon *daemon);                      /* every session was removed before */

/* The arbiter, for code that shows how sessions stand; NULL before schedule_start(). */
const struct arbiter *schedule_arbiter(const struct daemon *daemon);

/* The process's memory is off the card, or is leaving it: the process gets no turn until it is back (arbiter.h). */
void schedule_set_away(struct process *process, bool is_away);

/* The longest exclusive turn; 0 is automatic (arbiter.h). */
void schedule_set_quantum(struct daemon *daemon, uint64_t quantum_ns);

enum arbiter_mode schedule_mode(const struct daemon *daemon, unsigned gpu);

/* The turns so far, for code that shows them; NULL before schedule_start(). */
struct turns;
const struct turns *schedule_turns(const struct daemon *daemon);
