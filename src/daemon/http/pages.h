/* pages.h - the dashboard's files, which the build packs into the program (scripts/dashboard); none where it was
 * built without. */
#pragma once

#include <stddef.h>

struct page {
    const char *path, *type;
    const char *tag; /* changes with its bytes, as an ETag is written */
    size_t length;
    const char *bytes;
};

/* Ends with a NULL path. */
extern const struct page pages[];
