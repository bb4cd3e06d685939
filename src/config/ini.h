/* ini.h - sections of `key = value` lines.
 *
 * A line is `[section]`, `key = value`, blank, or a comment that begins with '#' or ';'. Blanks around names and
 * values do not count. There are no comments after values, no quotes and no continued lines. Lines are numbered
 * from 1. */
#pragma once

#include "base/error.h"

/* The beginning of a section (`key` is NULL), or one setting. */
struct ini_entry {
    unsigned line;
    const char *section; /* "" before the first */
    const char *key, *value;
};

/* Takes an entry, whose strings live until ini_parse() returns. A negative errno stops the parser. */
typedef int (*ini_take)(void *context, const struct ini_entry *entry, struct error *error);

/* Hand the entries in `text`, which is cut into pieces, to `take` in order. On failure, a malformed line (-EINVAL)
 * or one that `take` refused, `*line` is that line. */
int ini_parse(char *text, ini_take take, void *context, unsigned *line, struct error *error);

/* Cut the next line off `*rest`, without its end and the blanks around it; NULL after the last. */
char *ini_next_line(char **rest);
