/* agent_state.h - what the agent's parts share. All of it is the agent's thread's own, but for `pokes`.
 *
 * agent.c        the thread: it listens to the daemon and looks after the gate
 * connection.c   how the daemon is reached, spoken to and lost
 * measure.c      how busy the process keeps the GPUs
 * lease.c        what a GRANT and a REVOKE do, and what a lease is given back for
 * silence.c      a daemon that hangs
 * alone.c        a cap of the environment's, where there is no daemon */
#pragma once

#include "intercept/session/attach.h"
#include "intercept/submit/cap_bucket.h"
#include "intercept/submit/gate_area.h"
#include "wire/wire.h"

/* How often the agent looks at a busy process under a lease that can end. */
#define AGENT_TICK_NS UINT64_C(1000000)
/* How often it looks at all: whether its descriptors are still its own. */
#define AGENT_CHECK_NS UINT64_C(5000000000)

/* In a forked child, nobody's. */
struct agent_state {
    struct attach_descriptor connection;
    /* Threads write into the second one. */
    struct attach_descriptor pokes[2];
    uint16_t version;
    /* GRANT came, and has not been answered by RETURNED. */
    bool held;
    /* WANT was sent for what waits at the gate now. */
    bool wanted;
    uint64_t lease;
    /* Of the lease: enum wire_lease_flags. */
    uint32_t flags;
    /* By the last WANT. */
    uint64_t told_gpus;
    uint64_t next_report_ns;
    /* How long there was work since GRANT or the last REPORT. One of the last two is 0. */
    uint64_t busy_ns, busy_from_ns, idle_from_ns;
    uint64_t submitted;
    /* Alone: there is no daemon, and a cap of the environment's is all there is to keep. */
    bool alone;
    struct cap_bucket cap;
    /* Alone: the last drain failed, and is not tried again before. */
    uint64_t drain_again_ns;
};
extern struct agent_state agent;

/* --- connection.c ---------------------------------------------------------------------------------- */

/* 0, or a negative errno. */
int agent_reach_daemon(void);
/* From now on the gate is open, until the daemon is reached again. */
void agent_lose_daemon(struct gate *gate, const char *why);
/* Send a message; never waits. */
void agent_tell(struct gate *gate, struct wire_message *message);
void agent_tell_want(struct gate *gate);

/* --- measure.c ------------------------------------------------------------------------------------- */

/* Begin to count at `now_ns`. `busy`: there is work already. */
void agent_count_from(struct gate *gate, uint64_t now_ns, bool busy);
/* Under a lease: look whether there is work, submitted since the last look or not done yet. */
void agent_look(struct gate *gate);
/* How long there was work since the last such question. */
uint64_t agent_busy_until(uint64_t now_ns);

/* --- lease.c --------------------------------------------------------------------------------------- */

void agent_grant(struct gate *gate, const struct wire_grant *grant);
void agent_give_back(struct gate *gate, uint64_t lease, uint64_t patience_ns, enum wire_outcome outcome);
/* Close the gate and wait for what was submitted. False: it did not end in time, or there is no daemon any
 * more; the gate is open. */
bool agent_drain(struct gate *gate, uint64_t patience_ns);
/* Whether there is a lease that can end. */
bool agent_is_paced(void);
/* Say to the daemon what there is to say, and give back what nobody uses. */
void agent_serve(struct gate *gate);

/* --- silence.c ------------------------------------------------------------------------------------- */

/* Where a thread waits at the closed gate and the daemon gives no sign of life for two seconds, go on without it.
 * Returns how long until it should be looked at again; UINT64_MAX where nobody waits. */
uint64_t agent_watch_daemon(struct gate *gate);

/* --- alone.c --------------------------------------------------------------------------------------- */

/* Keep the environment's cap. Returns how long until it should be looked at again. */
uint64_t agent_serve_alone(struct gate *gate);
