#include "base/priority.h"

#include <string.h>

static const char *const names[PRIORITY_COUNT] = {
    [PRIORITY_LOW] = "low",
    [PRIORITY_NORMAL] = "normal",
    [PRIORITY_HIGH] = "high",
    [PRIORITY_CRITICAL] = "critical",
};

bool session_priority_parse(const char *text, enum session_priority *priority)
{
    for (unsigned i = 0; i < PRIORITY_COUNT; i++)
        if (strcmp(text, names[i]) == 0) {
            *priority = i;
            return true;
        }
    return false;
}

const char *session_priority_name(enum session_priority priority)
{
    return names[priority];
}
