/* policy.h - a session's policy region: what its programs are told, and the daemon alone writes.
 *
 * The region is a memfd that the daemon maps writable and then seals, so that this one mapping is the only way
 * ever to write it; programs get a read-only descriptor. All that stands in it is written here. */
#pragma once

#include "base/error.h"

struct session;

/* Make the region of `session` and publish it. */
int policy_make(struct session *session, struct error *error);
void policy_unmake(struct session *session);

/* Make the region say what the session's limits, GPUs and state are. Nothing without a region. */
void policy_publish(struct session *session);
/* Of this, only what NVML's samples show: what the driver holds for the session beyond what was charged, and how busy
 * its GPUs are. */
void policy_publish_sample(struct session *session);

/* Say that the daemon goes on. */
void policy_beat(struct session *session);

/* No new memory for its processes. */
void policy_close(struct session *session);
