#include "base/when_full.h"

#include "base/names.h"

const char *const when_full_words[WHEN_FULL_COUNT + 1] = {
    [WHEN_FULL_REFUSE] = "refuse",
    [WHEN_FULL_WAIT] = "wait",
    [WHEN_FULL_OVERSUBSCRIBE] = "oversubscribe",
};

bool when_full_parse(const char *text, enum when_full *when_full)
{
    int at = names_find(when_full_words, WHEN_FULL_COUNT, text);
    if (at >= 0)
        *when_full = (enum when_full)at;
    return at >= 0;
}

const char *when_full_name(enum when_full when_full)
{
    return when_full_words[when_full];
}
