/* names.h - words that stand for values of an enum. */
#pragma once

#include <stddef.h>

/* The place in `names` where `text` stands, whose places may be NULL; -1: nowhere. */
int names_find(const char *const names[], size_t count, const char *text);
