/* job_turns.h - jobs that one helper does, user by user, so that nobody's many jobs keep another's few waiting.
 *
 * payer   for whom a job is (user_time_key()); 0: for the daemon itself
 * used    how long the helper worked for a payer. Who has used least comes next. A payer who comes, or comes again, has used
 *         as much as the one whose turn it is: nobody is owed the time before
 *
 * Pure: the worker says how long a job took. */
#pragma once

#include <stdint.h>

struct worker_job;
struct payer_jobs;

/* Zero at first. */
struct job_turns {
    struct payer_jobs *payers; /* in the order in which they came */
    struct payer_jobs *working;
    struct worker_job *unpaid, *last_unpaid; /* there was no memory to note who pays: these come first */
    uint64_t used_ns;                        /* of the payer whose turn it is, when the turn began */
};

void job_turns_add(struct job_turns *turns, struct worker_job *job);
/* The next job; NULL: there is none. */
struct worker_job *job_turns_take(struct job_turns *turns);
/* The job that was taken last has been done, and took so long. */
void job_turns_charge(struct job_turns *turns, uint64_t took_ns);
void job_turns_end(struct job_turns *turns); /* when there are no jobs */
