/* near.h - which known word somebody may have meant by one that is not known. */
#pragma once

/* Beyond any word that is near. */
#define NEAR_NEVER 100u

/* How far `word` is from `known`: 0 for the same, 1 where `word` is its beginning (of three letters at least), else the
 * number of letters that are missing, too many, wrong or swapped, up to a third of the longer one. NEAR_NEVER: it is not
 * near. */
unsigned near_distance(const char *word, const char *known);
