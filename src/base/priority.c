#include "base/priority.h"

#include "base/names.h"

const char *const session_priority_words[PRIORITY_COUNT + 1] = {
    [PRIORITY_LOW] = "low",
    [PRIORITY_NORMAL] = "normal",
    [PRIORITY_HIGH] = "high",
    [PRIORITY_CRITICAL] = "critical",
};

bool session_priority_parse(const char *text, enum session_priority *priority)
{
    int at = names_find(session_priority_words, PRIORITY_COUNT, text);
    if (at >= 0)
        *priority = (enum session_priority)at;
    return at >= 0;
}

const char *session_priority_name(enum session_priority priority)
{
    return session_priority_words[priority];
}
