/* policy.h - a session's policy region: what the daemon tells its programs. Only the daemon writes it.
 *
 * The region is a memfd that the daemon maps writable and then seals, so that this one mapping is the only way ever to
 * write it; programs get a read-only descriptor. Only the functions here write the region. */
#pragma once

#include "base/error.h"

struct session;

/* Make the region of `session` and publish it. */
int policy_make(struct session *session, struct error *error);
void policy_unmake(struct session *session);

/* Write the session's limits, GPUs and state into the region. Nothing without a region. */
void policy_publish(struct session *session);
/* Write only what NVML's samples change: what the driver holds for the session beyond what was charged, and how busy
 * its GPUs are. */
void policy_publish_sample(struct session *session);

/* Count one more heartbeat: it tells programs that the daemon is alive. */
void policy_beat(struct session *session);

/* Refuse new memory to the session's processes. */
void policy_close(struct session *session);
