#include "kube/dra/claims_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/session_fields.h"
#include "kube/dra/claim_words.h"
#include "kube/grpc/messages.h"

/* One claim's part of either answer. Its strings belong to the outcome, to this struct, or to the request. */
struct answered {
    Kubelet__PrepareEntry prepare;
    Kubelet__PreparedClaim prepared;
    Kubelet__UnprepareEntry unprepare;
    Kubelet__UnpreparedClaim unprepared;
    Kubelet__PreparedDevice *list, **pointers;
    char **requests, **cdi; /* one for each device */
};

/* "request/subrequest": the container names the part before the slash. */
static char *base_request(const char *request)
{
    char *base = strdup(request);
    if (!base)
        abort();
    base[strcspn(base, "/")] = '\0';
    return base;
}

static void fill_prepared(struct answered *one, const json_t *devices)
{
    size_t count = json_array_size(devices);
    one->list = message_array(count, sizeof(*one->list));
    one->pointers = message_array(count, sizeof(*one->pointers));
    one->requests = message_array(count, sizeof(*one->requests));
    one->cdi = message_array(count, sizeof(*one->cdi));
    for (size_t i = 0; i < count; i++) {
        const json_t *device = json_array_get(devices, i);
        Kubelet__PreparedDevice *to = &one->list[i];
        kubelet__prepared_device__init(to);
        one->requests[i] = base_request(session_text(device, "request"));
        if (asprintf(&one->cdi[i], CLAIM_CDI_KIND "=%s", session_text(device, "cdi")) < 0)
            abort();
        to->n_request_names = 1;
        to->request_names = &one->requests[i];
        to->pool_name = (char *)session_text(device, "pool");
        to->device_name = (char *)session_text(device, "device");
        to->share_id = (char *)session_text(device, "share_id");
        to->n_cdi_device_ids = 1;
        to->cdi_device_ids = &one->cdi[i];
        one->pointers[i] = to;
    }
    one->prepared.n_devices = count;
    one->prepared.devices = one->pointers;
}

static void free_prepared(struct answered *one)
{
    for (size_t i = 0; i < one->prepared.n_devices; i++) {
        free(one->requests[i]);
        free(one->cdi[i]);
    }
    free(one->cdi);
    free(one->list);
    free(one->pointers);
    free(one->requests);
}

static void begin_answer(struct answered *one, char *uid, struct error *error)
{
    kubelet__prepare_entry__init(&one->prepare);
    kubelet__prepared_claim__init(&one->prepared);
    kubelet__unprepare_entry__init(&one->unprepare);
    kubelet__unprepared_claim__init(&one->unprepared);
    one->prepare.key = one->unprepare.key = uid;
    one->prepare.value = &one->prepared;
    one->unprepare.value = &one->unprepared;
    if (error->status)
        one->prepared.error = one->unprepared.error = error->message;
}

void claims_answer(struct grpc_call *call, bool is_prepare, const Kubelet__ClaimsRequest *request,
                   struct claim_outcome *outcomes)
{
    size_t count = request->n_claims;
    struct answered *all = message_array(count, sizeof(*all));
    Kubelet__PrepareAnswer prepared = KUBELET__PREPARE_ANSWER__INIT;
    Kubelet__UnprepareAnswer unprepared = KUBELET__UNPREPARE_ANSWER__INIT;
    prepared.claims = message_array(count, sizeof(*prepared.claims));
    unprepared.claims = message_array(count, sizeof(*unprepared.claims));
    prepared.n_claims = unprepared.n_claims = count;
    for (size_t i = 0; i < count; i++) {
        struct claim_outcome *outcome = &outcomes[i];
        begin_answer(&all[i], request->claims[i]->uid, &outcome->error);
        prepared.claims[i] = &all[i].prepare;
        unprepared.claims[i] = &all[i].unprepare;
        if (outcome->devices)
            fill_prepared(&all[i], outcome->devices);
    }
    message_answer(call, is_prepare ? &prepared.base : &unprepared.base);
    for (size_t i = 0; i < count; i++)
        free_prepared(&all[i]);
    free(all);
    free(prepared.claims);
    free(unprepared.claims);
}
