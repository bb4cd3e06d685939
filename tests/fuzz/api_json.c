/* The bodies of HTTP requests: POST and PATCH of sessions, gslice's, and the scheduler's. */
#include "daemon/api/api.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/request.h"
#include "fuzz.h"

#define CARDS 3u

static struct daemon cards;

static void make_cards(void)
{
    static const char *const uuids[CARDS] = {"GPU-11111111-0000-0000-0000-000000000001",
                                             "GPU-12345678-0000-0000-0000-000000000002",
                                             "MIG-12345678-0000-0000-0000-000000000003"};
    for (unsigned i = 0; i < CARDS; i++) {
        struct gpu *gpu = &cards.gpus[i];
        gpu->index = i;
        gpu->mig_index = i == 2 ? 0 : -1;
        snprintf(gpu->label, sizeof(gpu->label), i == 2 ? "%u:0" : "%u", i);
        strcpy(gpu->uuid_text, uuids[i]);
        fuzz_require(gpu_uuid_parse(uuids[i], gpu->uuid));
    }
    cards.gpu_count = CARDS;
}

static void check_refusal(const struct error *error)
{
    fuzz_require(error->code && strncmp(error->code, "ERR_", 4) == 0);
    fuzz_require(error->message[0] && strlen(error->message) < sizeof(error->message));
    json_t *told = json_string(error->message); /* the answer can be made */
    fuzz_require(told);
    json_decref(told);
}

static void check_limit(bool is_given, uint64_t bytes, uint32_t part)
{
    fuzz_require(bytes <= INT64_MAX && part <= SHARE_WHOLE);
    fuzz_require((bytes > 0) + (part > 0) == is_given);
}

static void check_request(const struct session_request *request)
{
    fuzz_require(request->limit_count <= CARDS);
    for (unsigned i = 0; i < request->limit_count; i++) {
        fuzz_require(request->limits[i].gpu < CARDS);
        check_limit(request->limits[i].has_bytes, request->limits[i].bytes, request->limits[i].part);
    }
    check_limit(request->has_bytes, request->bytes, request->part);
    fuzz_require(!property_is_given(&request->properties, PROPERTY_COMPUTE) ||
                 (request->properties.compute.min <= request->properties.compute.max &&
                  request->properties.compute.max <= SHARE_WHOLE));
    fuzz_require(request->properties.ttl_seconds <= INT32_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!cards.gpu_count)
        make_cards();
    char *body = fuzz_text(data, bytes); /* as http.c does: a zero behind it */
    for (int creating = 0; creating < 2; creating++) {
        struct session_request request = {.run_pidfd = -1};
        struct error error = {0};
        json_t *document = NULL;
        if (api_parse_session(&cards, body, bytes, creating, &document, &request, &error) < 0) {
            check_refusal(&error);
            continue;
        }
        check_request(&request);
        fuzz_require(!request.name || memchr(request.name, '\0', bytes + 1));
        json_decref(document);
    }
    struct session_request request = {.run_pidfd = -1};
    struct error error = {0};
    if (api_parse_gslice(body, bytes, &request, &error) < 0)
        check_refusal(&error);
    else
        check_request(&request);
    struct scheduler_wish wish;
    error = (struct error){0};
    if (api_parse_scheduler(body, bytes, &wish, &error) < 0)
        check_refusal(&error);
    else
        fuzz_require(!wish.has_quantum || wish.quantum_ns == 0 ||
                     (wish.quantum_ns >= 1000000 && wish.quantum_ns <= UINT64_C(3600000000000)));
    free(body);
    return 0;
}
