#include "simgpu/profile.h"

#include <assert.h>
#include <string.h>

#include "simgpu/device.h"

static const struct device_profile profiles[] = {
#define DEVICE_PROFILE(key, name, device, subsystem, total_bytes, reserved_bytes)                            \
    {key, name, device, subsystem, total_bytes, reserved_bytes},
#include "simgpu/profiles.def"
};
#define PROFILES (sizeof(profiles) / sizeof(profiles[0]))

/* By attribute; what is not in the table has `known` false. */
static const struct {
    bool known;
    int of_profile[PROFILES];
} values[] = {
#define DEVICE_PROFILE_VALUE(attribute, standard, h100, t4) [attribute] = {true, {standard, h100, t4}},
#include "simgpu/profiles.def"
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

unsigned profile_architecture(void)
{
    return (unsigned)(10 * profile_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                      profile_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}
