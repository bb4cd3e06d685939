/* agents.h - the arbiter's connection to the world: agents' connections, sessions'
 * shares, the loop's timer. */
#pragma once

#include "base/error.h"
#include "daemon/schedule/arbiter.h"

struct daemon;
struct process;
struct session;

int agents_start(struct daemon *daemon, struct error *error);
void agents_stop(struct daemon *daemon); /* no session is left */

/* The process's agent has come, on `fd` (taken over, also on failure). It takes the place
 * of an earlier one. */
void agents_enter(struct process *process, int fd);

/* What agents say about their processes' memory (MOVED, NEED) goes to `take`, in the loop's thread; NULL: the agent has
 * gone. */
struct wire_message;
void agents_tell_memory(struct daemon *daemon,
                        void (*take)(struct process *process, const struct wire_message *message));

/* Send the process's agent a message, with descriptor `fd` unless that is -1. Never waits. False: there is none that can
 * be told; the next one that comes says how it stands. */
bool agents_send(struct process *process, struct wire_message *message, int fd);

/* Who decides, for those who show it; NULL before agents_start(). */
const struct arbiter *agents_arbiter(const struct daemon *daemon);

/* The process's memory is off the card, or leaves it: it is given no turn until it is back (arbiter.h). */
void agents_set_away(struct process *process, bool is_away);

/* The longest exclusive turn; 0 is automatic (arbiter.h). */
void agents_set_quantum(struct daemon *daemon, uint64_t quantum_ns);

enum arbiter_mode agents_mode(const struct daemon *daemon, unsigned gpu);

/* Who had which turn, for those who show it; NULL before agents_start(). */
struct turns;
const struct turns *agents_turns(const struct daemon *daemon);
