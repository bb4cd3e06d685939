/* top_bars.h - bars, sparklines and names as text of so many cells. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define TOP_PAST 120 /* values that a sparkline remembers */

/* The last values of something, 0 to 1 each. */
struct top_past {
    float values[TOP_PAST];
    unsigned count, next;
};

void top_past_add(struct top_past *past, double value);
/* The `back`th last value; the newest is 0. 0 where there is none. */
double top_past_get(const struct top_past *past, unsigned back);

/* Up to four bytes a cell and a zero. */
#define TOP_TEXT(cells) (4 * (cells) + 1)

/* A bar of `cells` cells, `ratio` of them full; something above 0 shows. Returns `text`. */
const char *top_bar(double ratio, unsigned cells, bool is_unicode, char *text);
/* The last `cells` values, the newest at the right. Returns `text`. */
const char *top_sparkline(const struct top_past *past, unsigned cells, bool is_unicode, char *text);

/* `text`, cut to `cells` cells of the terminal, with ".." at the end where some of it is missing. What is no printable character
 * is a "?": names are others' words, and would lead the terminal. Needs setlocale(). Returns how many cells it takes. */
#define TOP_CLIPPED 512
unsigned top_clip(const char *text, unsigned cells, char shown[static TOP_CLIPPED]);
