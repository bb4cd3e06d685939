#include "base/names.h"

#include <string.h>

int names_find(const char *const names[], size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (names[i] && strcmp(text, names[i]) == 0)
            return (int)i;
    return -1;
}
