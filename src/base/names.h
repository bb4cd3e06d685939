/* names.h - words that stand for values of an enum. */
#pragma once

#include <stddef.h>

/* The index at which `names`, whose entries may be NULL, holds `text`; -1 when it does not. */
int names_find(const char *const names[], size_t count, const char *text);
