#include "kube/dra/dra_claims.h"

#include <stdio.h>
#include <stdlib.h>

#include "kube/dra/claim_prepare.h"
#include "kube/dra/claims_answer.h"
#include "kube/grpc/messages.h"
#include "kube/node/tasks.h"

/* A call about claims, and the task that handles it. */
struct claims_job {
    struct kubelet *kubelet;
    struct grpc_call *call; /* NULL: the kubelet has gone, and will ask again */
    bool is_prepare;        /* false: unprepare */
    Kubelet__ClaimsRequest *request;
    struct claim_outcome *outcomes; /* one for each claim */
};

/* A claim is not unprepared while it is being prepared. Nothing is started after the kubelet has gone. */
static void handle_claim(const struct claims_job *job, size_t i)
{
    const Kubelet__Claim *claim = job->request->claims[i];
    struct claim_outcome *outcome = &job->outcomes[i];
    struct task_lock lock;
    if (claim_check(claim, &outcome->error) == 0) {
        task_lock(&lock, claim->uid);
        int (*handle)(struct kubelet *, const Kubelet__Claim *, struct claim_outcome *) =
            job->is_prepare ? claim_prepare : claim_unprepare;
        if (job->call && handle(job->kubelet, claim, outcome) < 0) {
            json_decref(outcome->devices);
            outcome->devices = NULL;
        }
        task_unlock(&lock);
    }
    if (outcome->error.status)
        fprintf(stderr, "gpuslice-kubelet: claim %.63s/%.253s: %s\n", claim->namespace_, claim->name,
                outcome->error.message);
}

static void run_job(void *context)
{
    struct claims_job *job = context;
    size_t count = job->request->n_claims;
    for (size_t i = 0; i < count; i++)
        handle_claim(job, i);
    if (job->call)
        claims_answer(job->call, job->is_prepare, job->request, job->outcomes);
    for (size_t i = 0; i < count; i++)
        json_decref(job->outcomes[i].devices);
    kubelet__claims_request__free_unpacked(job->request, NULL);
    free(job->outcomes);
    free(job);
}

static void forget_call(void *context, struct grpc_call *call)
{
    struct claims_job *job = context;
    job->call = NULL;
}

static void start_job(struct kubelet *kubelet, struct grpc_call *call, const uint8_t *message, size_t bytes,
                      bool is_prepare)
{
    struct claims_job *job = message_array(1, sizeof(*job));
    *job = (struct claims_job){.kubelet = kubelet,
                               .call = call,
                               .is_prepare = is_prepare,
                               .request = kubelet__claims_request__unpack(NULL, bytes, message)};
    if (!job->request) {
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "this is not a list of claims");
        free(job);
        return;
    }
    job->outcomes = message_array(job->request->n_claims, sizeof(*job->outcomes));
    grpc_call_watch(call, forget_call, job);
    if (task_start(run_job, job))
        return;
    grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "too many calls at once");
    kubelet__claims_request__free_unpacked(job->request, NULL);
    free(job->outcomes);
    free(job);
}

void dra_claims_prepare(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    start_job(*(struct kubelet *const *)context, call, message, bytes, true);
}

void dra_claims_unprepare(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes)
{
    start_job(*(struct kubelet *const *)context, call, message, bytes, false);
}
