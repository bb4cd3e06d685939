/* job.h - a job of a helper thread (worker.h). */
#pragma once

#include <stdint.h>

struct worker_job {
    struct worker_job *next;
    void (*done)(struct worker_job *job); /* in the loop's thread */
    uint64_t payer;                       /* for whom it is, where the thread takes turns (job_turns.h) */
};
