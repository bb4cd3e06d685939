/* claims_answer.h - the answers to the kubelet's calls about claims. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "kube/grpc/grpc.h"
#include "kubelet.pb-c.h"

/* The result for one claim. */
struct claim_outcome {
    json_t *devices;    /* of a prepared claim */
    struct error error; /* status 0: success */
};

/* Answer a call about the request's claims; there is an outcome for each of them. Each claim has an answer of its own: the
 * failure of one does not affect the others. */
void claims_answer(struct grpc_call *call, bool is_prepare, const Kubelet__ClaimsRequest *request,
                   struct claim_outcome *outcomes);
