/* agents.h - the arbiter's connection to the world: agents' connections, sessions' shares, the loop's timer.
 */
#pragma once

#include "base/error.h"
#include "daemon/schedule/arbiter.h"

struct agent;
struct daemon;
struct process;
struct session;

int lease_start(struct daemon *daemon, struct error *error);
void lease_stop(struct daemon *daemon); /* no session is left */

/* The process's agent has come, on `fd` (taken over, also on failure). It takes the place of an earlier one.
 */
void lease_enter(struct process *process, int fd);

/* The agent's process has gone: close its connection. */
void lease_drop(struct agent *agent);

/* Its share or priority may have changed. */
void lease_session_changed(struct session *session);

/* The session goes, its processes have gone. */
void lease_forget(struct session *session);

/* Who decides, for those who show it; NULL before lease_start(). */
const struct arbiter *lease_arbiter(const struct daemon *daemon);
/* The longest exclusive turn; 0 is automatic (arbiter.h). */
void lease_set_quantum(struct daemon *daemon, uint64_t quantum_ns);

/* How a session stands, as answers and metrics show it. Zero for one that no agent has come for. */
struct lease_standing {
    enum arbiter_lease lease;
    bool waits, is_undrainable;
    uint64_t waited_ns; /* at its processes' gates, over all threads */
    uint64_t overruns;
};
struct lease_standing lease_standing(const struct session *session);
/* Of a card's time: all it got, and its part of the last seconds (0..1). */
uint64_t lease_used_ns(const struct session *session, unsigned policy_gpu);
double lease_achieved_ratio(const struct session *session, unsigned policy_gpu);

/* What stands in answers and metrics: "exclusive", and so on. */
const char *lease_name(enum arbiter_lease lease);
const char *lease_mode_name(enum arbiter_mode mode);
