#include "cli/near.h"

#include <string.h>

#define LONGEST 32u /* letters of a word that is compared */

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* The number of changes that make one word the other (optimal string alignment). Both have LONGEST letters at most. */
static unsigned changes(const char *word, size_t length, const char *known, size_t known_length)
{
    unsigned rows[3][LONGEST + 1];
    unsigned *before = rows[0], *last = rows[1], *row = rows[2];
    for (unsigned j = 0; j <= known_length; j++)
        last[j] = j;
    for (unsigned i = 1; i <= length; i++) {
        row[0] = i;
        for (unsigned j = 1; j <= known_length; j++) {
            row[j] = least(least(last[j] + 1, row[j - 1] + 1), last[j - 1] + (word[i - 1] != known[j - 1]));
            if (i > 1 && j > 1 && word[i - 1] == known[j - 2] && word[i - 2] == known[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        unsigned *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[known_length];
}

unsigned near_distance(const char *word, const char *known)
{
    size_t length = strlen(word), known_length = strlen(known);
    if (length > LONGEST || known_length > LONGEST)
        return NEAR_NEVER;
    if (strcmp(word, known) == 0)
        return 0;
    if (length >= 3 && strncmp(word, known, length) == 0)
        return 1;
    unsigned distance = changes(word, length, known, known_length);
    size_t longer = length > known_length ? length : known_length;
    return 3 * distance <= longer ? distance : NEAR_NEVER;
}
