/* GPUSLICE_MEMORY_LIMIT and GPUSLICE_COMPUTE_LIMIT of a process on its own: an amount, or JSON of amounts. */
#include "intercept/session/limits.h"
#include "base/units.h"
#include "fuzz.h"

static bool read_limits(int (*parse)(const char *, struct limits *, struct error *), const char *text,
                        struct limits *limits)
{
    struct error error = {0};
    *limits = (struct limits){.count = 77};
    if (parse(text, limits, &error) < 0) {
        fuzz_require(limits->count == 77 && error.message[0]);
        return false;
    }
    fuzz_require(limits->count <= LEDGER_GPUS);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    struct limits limits;
    read_limits(limits_parse, text, &limits);
    if (read_limits(limits_parse_shares, text, &limits)) {
        fuzz_require(limits.every_gpu_amount <= SHARE_WHOLE);
        for (uint32_t i = 0; i < limits.count; i++)
            fuzz_require(limits.rows[i].amount > 0 && limits.rows[i].amount <= SHARE_WHOLE);
    }
    free(text);
    return 0;
}
