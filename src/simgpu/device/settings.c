/* settings.c - what the environment makes of the simulated GPUs, for the first process that uses them. */
#include <errno.h>
#include <stdlib.h>

#include "base/units.h"
#include "simgpu/device/constants.h"
#include "simgpu/device/mig.h"
#include "simgpu/device/profile.h"
#include "simgpu/device/shared.h"

#define SLICE_LEAST_NS 1000 /* shorter slices would be mostly the simulation's own work */

static int read_bytes(const char *name, uint64_t fallback, uint64_t *bytes, struct error *error)
{
    const char *text = secure_getenv(name);
    struct error why = {0};
    *bytes = fallback;
    if (!text || !*text || units_parse_bare_bytes(text, bytes, &why) == 0)
        return 0;
    return error_set(error, EINVAL, NULL, "%s is '%s': %s", name, text, why.message);
}

static int read_parameters(struct device_parameters *parameters, struct error *error)
{
    uint64_t gpu_count = 1;
    const char *gpus = secure_getenv("FAKECUDA_GPUS");
    if (gpus && *gpus && (units_parse_number(gpus, DEVICE_CARDS, &gpu_count, NULL) != 0 || gpu_count == 0))
        return error_set(error, EINVAL, NULL, "FAKECUDA_GPUS is '%s'; set a number from 1 to %u", gpus,
                         DEVICE_CARDS);
    parameters->card_count = parameters->gpu_count = (unsigned)gpu_count;
    const char *card = secure_getenv("FAKECUDA_DEVICE");
    int profile = profile_find(card && *card ? card : "default");
    if (profile < 0)
        return error_set(error, EINVAL, NULL, "FAKECUDA_DEVICE is '%s'; set " PROFILE_KEYS, card);
    parameters->profile = (unsigned)profile;
    int result = read_bytes("FAKECUDA_TOTAL_MEM", profile_at(parameters->profile)->total_bytes,
                            &parameters->total_bytes, error);
    if (result == 0 && (parameters->total_bytes == 0 || parameters->total_bytes > UINT64_C(1) << 42))
        result = error_set(error, EINVAL, NULL, "FAKECUDA_TOTAL_MEM is '%s'; set 1 byte to 4096GiB",
                           secure_getenv("FAKECUDA_TOTAL_MEM"));
    return result;
}

/* The cards, and behind them their MIG instances. */
static int read_shapes(struct device_parameters *parameters, struct device_shape shapes[DEVICE_GPUS],
                       struct error *error)
{
    const struct device_profile *card = profile_at(parameters->profile);
    const char *given = secure_getenv("FAKECUDA_TOTAL_MEM"), *text = secure_getenv("FAKECUDA_MIG");
    text = text ? text : "";
    if (mig_card_count(text) > parameters->card_count)
        return error_set(error, EINVAL, NULL,
                         "FAKECUDA_MIG is '%.100s', of %u GPUs, and there are %u; set more by "
                         "FAKECUDA_GPUS",
                         text, mig_card_count(text), parameters->card_count);
    for (unsigned i = 0; i < parameters->card_count; i++) {
        unsigned profiles[MIG_INSTANCES], count;
        int result = mig_read(text, i, card->key, profiles, &count, error);
        if (result < 0)
            return result;
        if (parameters->gpu_count + count > DEVICE_GPUS)
            return error_set(error, EINVAL, NULL,
                             "FAKECUDA_MIG is '%.100s': more than %u GPUs and instances; set fewer", text,
                             DEVICE_GPUS);
        shapes[i] = (struct device_shape){.card = i,
                                          .instance = DEVICE_WHOLE,
                                          .instance_count = count,
                                          .first_instance = parameters->gpu_count,
                                          .total_bytes = parameters->total_bytes};
        for (unsigned instance = 0; instance < count; instance++)
            shapes[parameters->gpu_count++] = (struct device_shape){
                .card = i,
                .instance = instance,
                .mig_profile = profiles[instance],
                .total_bytes = mig_bytes(mig_profile_at(profiles[instance]),
                                         given && *given ? parameters->total_bytes : 0, card->total_bytes)};
    }
    return 0;
}

int settings_read(struct device_parameters *parameters, struct device_shape shapes[static DEVICE_GPUS],
                  double constants[static SIM_CONSTANTS], struct error *error)
{
    int result = read_parameters(parameters, error);
    if (result == 0)
        result = constants_decide(parameters->profile, constants, error);
    if (result == 0 && constants[SIM_SLICE_NS] < SLICE_LEAST_NS)
        result = error_set(error, EINVAL, NULL, "FAKECUDA_SLICE_NS is '%g'; set %d or more",
                           constants[SIM_SLICE_NS], SLICE_LEAST_NS);
    return result < 0 ? result : read_shapes(parameters, shapes, error);
}
