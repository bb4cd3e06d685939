/* pages.h - the dashboard's files, which the build packs into the program (scripts/dashboard); none if it was built without
 * the dashboard. */
#pragma once

#include <stddef.h>

struct page {
    const char *path, *type;
    const char *tag; /* changes with the file's bytes; written like an ETag */
    size_t length;
    const char *bytes;
};

/* The last one has a NULL path. */
extern const struct page pages[];
