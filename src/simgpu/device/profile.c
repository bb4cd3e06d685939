#include "simgpu/device/profile.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "simgpu/device/device.h"
#include "simgpu/device/mig.h"

static const struct device_profile profiles[] = {
#define DEVICE_PROFILE(key, name, device, subsystem, total_bytes, reserved_bytes, since)                     \
    {key, name, device, subsystem, total_bytes, reserved_bytes, since},
#include "simgpu/device/profiles.def"
};
_Static_assert(sizeof(profiles) / sizeof(profiles[0]) == PROFILES, "a column for each card");

/* By attribute; what is not in the table has `known` false. */
static const struct {
    bool known;
    int of_profile[PROFILES];
} values[] = {
#define DEVICE_PROFILE_VALUE(attribute, standard, h100, t4, a10, l4, b200, rtx5090)                          \
    [attribute] = {true, {standard, h100, t4, a10, l4, b200, rtx5090}},
#include "simgpu/device/profiles.def"
};

int profile_find(const char *key)
{
    for (unsigned i = 0; i < PROFILES; i++)
        if (strcmp(profiles[i].key, key) == 0)
            return (int)i;
    return -1;
}

const struct device_profile *profile_at(unsigned number)
{
    assert(number < PROFILES);
    return &profiles[number];
}

const struct device_profile *profile_current(void)
{
    return profile_at(device_parameters().profile);
}

bool profile_attribute(CUdevice_attribute attribute, int *value)
{
    if ((unsigned)attribute >= sizeof(values) / sizeof(values[0]) || !values[attribute].known)
        return false;
    *value = values[attribute].of_profile[device_parameters().profile];
    return true;
}

int profile_value(CUdevice_attribute attribute)
{
    int value = 0;
    bool known = profile_attribute(attribute, &value);
    assert(known);
    (void)known;
    return value;
}

int profile_gpu_value(unsigned gpu, CUdevice_attribute attribute)
{
    int value = profile_value(attribute);
    if (!device_is_instance(gpu))
        return value;
    const struct mig_profile *mig = mig_profile_at(device_shape(gpu)->mig_profile);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return (int)mig->multiprocessors;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        return (int)mig->copy_engines < value ? (int)mig->copy_engines : value;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        return value / 8 * (int)mig->memory_slices;
    default:
        return value;
    }
}

const char *profile_gpu_name(unsigned gpu, char name[static PROFILE_NAME_BYTES])
{
    snprintf(name, PROFILE_NAME_BYTES, "%s%s%s", profile_current()->name,
             device_is_instance(gpu) ? " MIG " : "",
             device_is_instance(gpu) ? mig_profile_at(device_shape(gpu)->mig_profile)->name : "");
    return name;
}

unsigned profile_architecture(void)
{
    return (unsigned)(10 * profile_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                      profile_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}
