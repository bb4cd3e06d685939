#include "base/when_full.h"

#include "base/names.h"

static const char *const names[WHEN_FULL_COUNT] = {
    [WHEN_FULL_REFUSE] = "refuse",
    [WHEN_FULL_WAIT] = "wait",
    [WHEN_FULL_OVERSUBSCRIBE] = "oversubscribe",
};

bool when_full_parse(const char *text, enum when_full *when_full)
{
    int at = names_find(names, WHEN_FULL_COUNT, text);
    if (at >= 0)
        *when_full = (enum when_full)at;
    return at >= 0;
}

const char *when_full_name(enum when_full when_full)
{
    return names[when_full];
}
