/* ini.h - sections of `key = value` lines.
 *
 * A line is `[section]`, `key = value`, blank, or a comment that begins with '#' or ';'. Blanks around names
 * and values mean nothing; there are no comments behind values, no quotes and no lines that go on. Every line
 * has a number, from 1, which whoever takes it may keep. */
#pragma once

#include "base/error.h"

/* A section begins (`key` is NULL), or says `key` to be `value`. */
struct ini_entry {
    unsigned line;
    const char *section; /* "" before the first */
    const char *key, *value;
};

/* Takes an entry, whose text lives until ini_parse() returns. A negative errno ends the reading. */
typedef int (*ini_take)(void *context, const struct ini_entry *entry, struct error *error);

/* Hand the entries in `text` (cut into pieces in place) to `take` in order.
 * On failure, of form (-EINVAL) or of `take`, `*line` is where. */
int ini_parse(char *text, ini_take take, void *context, unsigned *line, struct error *error);

/* Cut the next line, without its end and the blanks around it, off `*rest`; NULL behind the last. */
char *ini_next_line(char **rest);
