/* agents.h - connects the arbiter to the world: to the agents' sockets, the sessions' shares and the loop's timer. */
#pragma once

#include "base/error.h"
#include "daemon/schedule/arbiter.h"

struct daemon;
struct process;
struct session;

int agents_start(struct daemon *daemon, struct error *error);
void agents_stop(struct daemon *daemon); /* every session was removed before */

/* The process's agent has connected, on `fd` (taken over, also on failure). It replaces an earlier agent of the
 * process. */
void agents_enter(struct process *process, int fd);

/* What agents say about their processes' memory (MOVED, NEED) goes to `take`, in the loop's thread. `message` is
 * NULL when the agent has gone. */
struct wire_message;
void agents_tell_memory(struct daemon *daemon,
                        void (*take)(struct process *process, const struct wire_message *message));

/* Send the process's agent a message, with descriptor `fd` unless that is -1. Never waits. Returns false if no
 * agent can be told; the next one that comes says how its process stands. */
bool agents_send(struct process *process, struct wire_message *message, int fd);

/* The arbiter, for code that shows how sessions stand; NULL before agents_start(). */
const struct arbiter *agents_arbiter(const struct daemon *daemon);

/* The process's memory is off the card, or is leaving it: the process gets no turn until it is back (arbiter.h). */
void agents_set_away(struct process *process, bool is_away);

/* The longest exclusive turn; 0 is automatic (arbiter.h). */
void agents_set_quantum(struct daemon *daemon, uint64_t quantum_ns);

enum arbiter_mode agents_mode(const struct daemon *daemon, unsigned gpu);

/* The turns so far, for code that shows them; NULL before agents_start(). */
struct turns;
const struct turns *agents_turns(const struct daemon *daemon);
