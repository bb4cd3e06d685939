#include "simgpu/device/constants.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "simgpu/device/device.h"
#include "simgpu/device/profile.h"

enum scope { MACHINE, PROCESS };

static const struct {
    const char *variable;
    enum scope scope;
    double of_profile[PROFILES]; /* in the order of profiles.def */
} rows[SIM_CONSTANTS] = {
#define SIM_CONSTANT(name, scope, standard, h100, t4, a10, l4, b200, rtx5090, figure, source)                \
    {"FAKECUDA_" #name, scope, {standard, h100, t4, a10, l4, b200, rtx5090}},
#include "simgpu/device/constants.def"
#undef SIM_CONSTANT
};

/* The same with FAKECUDA_UNKIND=1 (unkind.def). */
static const struct {
    enum sim_constant name;
    double value;
} unkind[] = {
#define UNKIND(name, value) {SIM_##name, value},
#include "simgpu/device/unkind.def"
#undef UNKIND
};

static double in_force[SIM_CONSTANTS];
bool constants_are_free = true;

/* What calls pay for where it is not 0 (costs.h). */
static const enum sim_constant costs[] = {SIM_LAUNCH_NS,      SIM_GRAPH_LAUNCH_NS, SIM_EVENT_NS,
                                          SIM_EVENT_TIMED_NS, SIM_QUERY_NS,        SIM_LOAD_NS};

double constant(enum sim_constant name)
{
    return in_force[name];
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static double value_without_setting(enum sim_constant name, unsigned profile)
{
    const char *is_unkind = secure_getenv("FAKECUDA_UNKIND");
    size_t count = is_unkind && *is_unkind == '1' ? sizeof(unkind) / sizeof(unkind[0]) : 0;
    for (size_t i = 0; i < count; i++)
        if (unkind[i].name == name)
            return unkind[i].value;
    return rows[name].of_profile[profile];
}

static int read_one(enum sim_constant name, unsigned profile, double *value, struct error *error)
{
    const char *variable = rows[name].variable, *text = secure_getenv(variable);
    uint64_t bytes;
    char *end;
    *value = value_without_setting(name, profile);
    if (!text || !*text)
        return 0;
    if (ends_with(variable, "_BYTES")) {
        struct error why = {0};
        if (units_parse_bare_bytes(text, &bytes, &why) < 0)
            return error_set(error, EINVAL, NULL, "%s is '%s': %s", variable, text, why.message);
        *value = (double)bytes;
        return 0;
    }
    double number = strtod(text, &end);
    if (*end != '\0' || !(number >= 0 && number <= 1e18))
        return error_set(error, EINVAL, NULL, "%s is '%s', which is not a number; set one, as in %s=%g",
                         variable, text, variable, *value);
    *value = number;
    return 0;
}

/* Which column of the table this process uses. */
static int read_profile(unsigned *profile, struct error *error)
{
    const char *key = secure_getenv("FAKECUDA_CONSTANTS");
    int number = key && *key ? profile_find(key) : (int)*profile;
    const char *is_unkind = secure_getenv("FAKECUDA_UNKIND");
    if (is_unkind && *is_unkind && strcmp(is_unkind, "0") != 0 && strcmp(is_unkind, "1") != 0)
        return error_set(error, EINVAL, NULL, "FAKECUDA_UNKIND is '%s'; set 0 or 1", is_unkind);
    if (number < 0)
        return error_set(error, EINVAL, NULL, "FAKECUDA_CONSTANTS is '%s'; set " PROFILE_KEYS, key);
    *profile = (unsigned)number;
    return 0;
}

static int read_scope(enum scope scope, unsigned profile, double values[static SIM_CONSTANTS],
                      struct error *error)
{
    int result = read_profile(&profile, error);
    for (unsigned name = 0; name < SIM_CONSTANTS && result == 0; name++)
        if (rows[name].scope == scope)
            result = read_one((enum sim_constant)name, profile, &values[name], error);
    return result;
}

int constants_decide(unsigned profile, double values[static SIM_CONSTANTS], struct error *error)
{
    return read_scope(MACHINE, profile, values, error);
}

int constants_attach(unsigned profile, const double values[static SIM_CONSTANTS], struct error *error)
{
    double all[SIM_CONSTANTS];
    memcpy(all, values, sizeof(all));
    int result = read_scope(PROCESS, profile, all, error);
    if (result != 0)
        return result;
    memcpy(in_force, all, sizeof(all));
    bool are_free = true;
    for (size_t i = 0; i < sizeof(costs) / sizeof(costs[0]); i++)
        are_free = are_free && all[costs[i]] == 0;
    constants_are_free = are_free;
    return 0;
}

double constant_early(enum sim_constant name)
{
    const char *card = secure_getenv("FAKECUDA_DEVICE");
    int device = profile_find(card && *card ? card : "default");
    unsigned profile = device < 0 ? 0 : (unsigned)device;
    double value;
    if (device_is_attached())
        return constant(name);
    return read_profile(&profile, NULL) == 0 && read_one(name, profile, &value, NULL) == 0 ? value : 0;
}
