#include "base/when_full.h"

#include <string.h>

static const char *const names[WHEN_FULL_COUNT] = {
    [WHEN_FULL_REFUSE] = "refuse",
    [WHEN_FULL_WAIT] = "wait",
    [WHEN_FULL_OVERSUBSCRIBE] = "oversubscribe",
};

bool when_full_parse(const char *text, enum when_full *when_full)
{
    for (unsigned i = WHEN_FULL_REFUSE; i < WHEN_FULL_COUNT; i++)
        if (strcmp(text, names[i]) == 0) {
            *when_full = (enum when_full)i;
            return true;
        }
    return false;
}

const char *when_full_name(enum when_full when_full)
{
    return names[when_full];
}
