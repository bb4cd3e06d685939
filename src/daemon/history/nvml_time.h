/* nvml_time.h - the GPU time of sessions where no share counts: what NVML shows of their processes, added up in
 * session_gpu.nvml. NVML is asked each second, and sooner while a process is young.
 *
 * NVML says for each process which part of the time since the last question it kept the GPU busy, in percent, and nothing of
 * one that has died. So the time since the last question counts for a process that dies as the time before did. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct daemon;
struct session;

int nvml_time_start(struct daemon *daemon, struct error *error);
void nvml_time_stop(struct daemon *daemon);

/* Whether the session's time on a GPU is counted so: no share counts there, and it has processes. */
bool nvml_time_counts(const struct session *session, unsigned policy_gpu);
/* The part, 0..1, of the last 5 to 10 seconds. */
double nvml_time_ratio(const struct session *session, unsigned policy_gpu);
