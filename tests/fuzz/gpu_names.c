/* GPUs as people name them: CUDA_VISIBLE_DEVICES, --memory by GPU, UUIDs, and FAKECUDA_MIG's partitions. */
#include "client/gpu_names.h"
#include "base/units.h"
#include "client/memory_limits.h"
#include "cuda/uuid.h"
#include "fuzz.h"
#include "simgpu/device/mig.h"

static void check_names(const struct gpu_names *names)
{
    fuzz_require(names->count <= GPU_NAMES_MAX);
    for (unsigned i = 0; i < names->count; i++) {
        fuzz_require(memchr(names->names[i], '\0', GPU_NAME_BYTES) && names->names[i][0]);
        fuzz_require(gpu_names_contain(names, names->names[i]));
    }
}

static void check_uuid(const char *text)
{
    uint8_t uuid[GPU_UUID_BYTES], again[GPU_UUID_BYTES];
    char written[GPU_UUID_TEXT];
    if (!gpu_uuid_parse(text, uuid))
        return;
    fuzz_require(gpu_uuid_parse(gpu_uuid_format(uuid, written), again));
    fuzz_require(memcmp(uuid, again, sizeof(uuid)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const cards[] = {"default", "h100", "t4", "a10", "l4", "b200", "rtx5090"};
    char *text = fuzz_text(data, bytes);
    struct gpu_names names = {0};
    struct memory_limits limits = {0};
    struct error error = {0};
    if (gpu_names_from_visible_devices(&names, text, &error) == 0) {
        fuzz_require(names.count > 0);
        check_names(&names);
    }
    if (memory_limits_parse(&limits, text, &error) == 0) {
        fuzz_require(limits.every_bytes <= INT64_MAX && limits.every_part <= SHARE_WHOLE &&
                     (limits.every_bytes > 0) + (limits.every_part > 0) + (limits.gpus.count > 0) == 1);
        check_names(&limits.gpus);
        for (unsigned i = 0; i < limits.gpus.count; i++)
            fuzz_require(limits.gpu_bytes[i] <= INT64_MAX && limits.gpu_parts[i] <= SHARE_WHOLE &&
                         (limits.gpu_bytes[i] > 0) + (limits.gpu_parts[i] > 0) == 1);
    }
    check_uuid(text);
    for (size_t i = 0; i < sizeof(cards) / sizeof(cards[0]); i++) {
        unsigned profiles[MIG_INSTANCES], count = 0;
        if (mig_read(text, bytes ? data[0] % 4 : 0, cards[i], profiles, &count, &error) == 0)
            fuzz_require(count <= MIG_INSTANCES);
    }
    free(text);
    return 0;
}
