#include "simgpu/device/mig.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SLICES 7u
#define MEMORY_SLICES 8u

static const struct mig_profile profiles[] = {
#define MIG_PROFILE(card, name, most, slices, memory_slices, mib, multiprocessors, copy_engines, decoders,   \
                    jpeg_engines, flow_engines)                                                              \
    {card,         name,     most,         slices,      memory_slices, UINT64_C(mib) << 20, multiprocessors, \
     copy_engines, decoders, jpeg_engines, flow_engines},
#include "simgpu/device/mig_profiles.def"
};
#define PROFILES (sizeof(profiles) / sizeof(profiles[0]))

const struct mig_profile *mig_profile_at(unsigned number)
{
    assert(number < PROFILES);
    return &profiles[number];
}

bool mig_is_known(const char *card)
{
    for (unsigned i = 0; i < PROFILES; i++)
        if (strcmp(profiles[i].card, card) == 0)
            return true;
    return false;
}

/* The profile of that name; PROFILES when the card has no such profile. */
static unsigned find(const char *card, const char *name, size_t length)
{
    unsigned i = 0;
    while (i < PROFILES && (strcmp(profiles[i].card, card) != 0 || strlen(profiles[i].name) != length ||
                            strncmp(profiles[i].name, name, length) != 0))
        i++;
    return i;
}

unsigned mig_card_count(const char *text)
{
    unsigned count = *text != '\0';
    for (; *text; text++)
        count += *text == ';';
    return count;
}

static int refuse(const char *card, const char *name, size_t length, struct error *error)
{
    char names[200] = "";
    for (unsigned i = 0; i < PROFILES; i++)
        if (strcmp(profiles[i].card, card) == 0) {
            size_t used = strlen(names);
            snprintf(names + used, sizeof(names) - used, " %s", profiles[i].name);
        }
    return error_set(error, EINVAL, NULL, "FAKECUDA_MIG has '%.*s'; the card '%s' %s%s",
                     length > 40 ? 40 : (int)length, name, card, *names ? "can have" : "has no MIG mode",
                     names);
}

int mig_read(const char *text, unsigned index, const char *card, unsigned found[static MIG_INSTANCES],
             unsigned *count, struct error *error)
{
    for (; index > 0 && *text; index--) {
        text += strcspn(text, ";");
        text += *text == ';';
    }
    unsigned slices = 0, memory_slices = 0, made[PROFILES] = {0};
    *count = 0;
    while (*text && *text != ';') {
        size_t length = strcspn(text, ",;");
        unsigned profile = find(card, text, length);
        if (profile == PROFILES)
            return refuse(card, text, length, error);
        slices += profiles[profile].slices;
        memory_slices += profiles[profile].memory_slices;
        if (++made[profile] > profiles[profile].most || slices > SLICES || memory_slices > MEMORY_SLICES)
            return error_set(error, EINVAL, NULL,
                             "FAKECUDA_MIG: a GPU has %u compute and %u memory slices, too few for '%.100s'",
                             SLICES, MEMORY_SLICES, text);
        found[(*count)++] = profile;
        text += length;
        text += *text == ',';
    }
    return 0;
}

uint64_t mig_bytes(const struct mig_profile *profile, uint64_t card_bytes, uint64_t usual_card_bytes)
{
    if (!card_bytes && profile->bytes)
        return profile->bytes;
    return (card_bytes ? card_bytes : usual_card_bytes) / MEMORY_SLICES * profile->memory_slices;
}
