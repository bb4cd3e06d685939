/* What an API server says a claim is: read whole, or refused with a reason. */
#include "kube/dra/claim.h"
#include "fuzz.h"
#include "kube/dra/quantity.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    json_t *claim = json_loads(text, 0, NULL), *body = NULL, *devices = NULL;
    json_t *gpus = json_loads(
        "[{\"uuid\":\"GPU-AA\",\"total_bytes\":1000},{\"uuid\":\"GPU-BB\",\"total_bytes\":2000}]", 0, NULL);
    struct error error = {0};
    uint64_t number = 7;
    if (claim_read(claim, "u1", gpus, &body, &devices, &error) == 0) {
        fuzz_require(json_array_size(devices) > 0 && json_array_size(json_object_get(body, "gpus")) > 0);
    } else {
        fuzz_require(!body && !devices && error.message[0]);
    }
    if (quantity_parse(text, &number, NULL) < 0)
        fuzz_require(number == 7);
    else
        fuzz_require(number <= INT64_MAX);
    json_decref(claim);
    json_decref(gpus);
    json_decref(body);
    json_decref(devices);
    free(text);
    return 0;
}
