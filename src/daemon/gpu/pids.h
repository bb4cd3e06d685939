/* pids.h - whose bytes NVML shows under a pid.
 *
 * NVML may go on listing a process that has died, and its pid comes again. So a pid counts together with its process's
 * start time: what was shown under it while another process had it, or none, is not the present one's. Used by the
 * sampler's helper thread alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct nvml_process {
    pid_t pid;
    uint64_t used_bytes;
    uint64_t dead_bytes; /* shown under the pid as well, of processes that had it before (pids.h) */
    bool is_known;       /* `used_bytes` is known: drivers have no figure for some processes */
    int busy_percent;    /* of the GPU's time, in about the last second; -1 where the driver does not say */
};

/* A pid in the last sample of a GPU. */
struct known_pid {
    pid_t pid;
    uint64_t start_ticks; /* 0: no living process of this machine has it */
    uint64_t bytes;       /* all that was shown under it */
    uint64_t dead_bytes;  /* of these, those of processes that had the pid before */
};

struct known_pids {
    struct known_pid *pids; /* by pid; owned */
    unsigned count;
};

/* Move what is not the present processes' from `used_bytes` to `dead_bytes` in the sample, and remember the sample. */
void pids_tell_apart(struct known_pids *known, struct nvml_process *processes, unsigned count);
