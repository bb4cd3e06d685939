#include "daemon/loop/job_turns.h"

#include <stdlib.h>

#include "daemon/loop/job.h"

struct payer_jobs {
    struct payer_jobs *next;
    uint64_t payer;
    uint64_t used_ns;
    struct worker_job *first, *last;
};

/* The payer's account, made if there is none; NULL without memory. */
static struct payer_jobs *account_of(struct job_turns *turns, uint64_t payer)
{
    struct payer_jobs **at = &turns->payers;
    while (*at && (*at)->payer != payer)
        at = &(*at)->next;
    if (!*at && (*at = calloc(1, sizeof(**at))))
        (*at)->payer = payer;
    return *at;
}

static void append(struct worker_job **first, struct worker_job **last, struct worker_job *job)
{
    job->next = NULL;
    if (*first)
        (*last)->next = job;
    else
        *first = job;
    *last = job;
}

static struct worker_job *take_first(struct worker_job **first)
{
    struct worker_job *job = *first;
    *first = job->next;
    job->next = NULL;
    return job;
}

void job_turns_add(struct job_turns *turns, struct worker_job *job)
{
    struct payer_jobs *account = account_of(turns, job->payer);
    if (!account) {
        append(&turns->unpaid, &turns->last_unpaid, job);
        return;
    }
    if (!account->first && account->used_ns < turns->used_ns)
        account->used_ns = turns->used_ns;
    append(&account->first, &account->last, job);
}

/* Those that would begin anew with as much need no account. */
static void forget_idle(struct job_turns *turns)
{
    for (struct payer_jobs **at = &turns->payers; *at;) {
        struct payer_jobs *account = *at;
        if (account->first || account->used_ns > turns->used_ns || account == turns->working) {
            at = &account->next;
            continue;
        }
        *at = account->next;
        free(account);
    }
}

struct worker_job *job_turns_take(struct job_turns *turns)
{
    struct payer_jobs *least = NULL;
    turns->working = NULL;
    if (turns->unpaid)
        return take_first(&turns->unpaid);
    for (struct payer_jobs *at = turns->payers; at; at = at->next)
        if (at->first && (!least || at->used_ns < least->used_ns))
            least = at;
    if (!least)
        return NULL;
    turns->used_ns = least->used_ns;
    turns->working = least;
    forget_idle(turns);
    return take_first(&least->first);
}

void job_turns_charge(struct job_turns *turns, uint64_t took_ns)
{
    if (turns->working)
        turns->working->used_ns += took_ns;
    turns->working = NULL;
}

void job_turns_end(struct job_turns *turns)
{
    while (turns->payers) {
        struct payer_jobs *account = turns->payers;
        turns->payers = account->next;
        free(account);
    }
}
