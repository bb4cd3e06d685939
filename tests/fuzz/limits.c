/* GPUSLICE_MEMORY_LIMIT of a process on its own: a size, or JSON of sizes. */
#include "intercept/limits.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    struct limits limits = {.count = 77};
    struct error error = {0};
    if (limits_parse(text, &limits, &error) < 0) {
        fuzz_require(limits.count == 77 && error.message[0]);
    } else {
        fuzz_require(limits.count <= LEDGER_GPUS);
        fuzz_require(!limits.every_gpu || limits.count == 0);
    }
    free(text);
    return 0;
}
