#include "simgpu/driver/fakecuda.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "simgpu/device/device.h"
#include "simgpu/device/shared.h"

__attribute__((visibility("default"))) int
fakecuda_compute(unsigned gpu, uint64_t *now_ns, struct fakecuda_compute *places, unsigned capacity)
{
    struct error error = {0};
    int count = 0;
    if (device_attach(&error) < 0 || gpu >= device_parameters().gpu_count)
        return -1;
    const struct shared_view *view = shared_view();
    cleanup_free struct timeline_state *scratch = malloc(sizeof(*scratch));
    if (!scratch)
        return -1;
    *now_ns = monotonic_ns();
    for (uint32_t slot = 0; slot < DEVICE_SLOTS; slot++) {
        pid_t pid = shared_slot_pid(slot);
        uint64_t computed_ns =
            pid ? timeline_computed_ns(&view->gpus[gpu].timeline, slot, *now_ns, scratch) : 0;
        if (!computed_ns)
            continue;
        if ((unsigned)count < capacity)
            places[count] = (struct fakecuda_compute){
                .place = slot,
                .pid = pid,
                .computed_ns = computed_ns,
            };
        count++;
    }
    return count;
}
