/* top_bars.h - bars, sparklines and names as text of a given number of cells. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define TOP_PAST 120 /* how many values a sparkline keeps */

/* The last values of something, each 0 to 1. */
struct top_past {
    float values[TOP_PAST];
    unsigned count, next;
};

void top_past_add(struct top_past *past, double value);
/* The `back`th value from the end; 0 is the newest. Returns 0 if there is none. */
double top_past_get(const struct top_past *past, unsigned back);

/* At most four bytes for each cell, and a zero. */
#define TOP_TEXT(cells) (4 * (cells) + 1)

/* A bar of `cells` cells, `ratio` of them full; any ratio above 0 shows. Returns `text`. */
const char *top_bar(double ratio, unsigned cells, bool is_unicode, char *text);
/* The last `cells` values, the newest at the right. Returns `text`. */
const char *top_sparkline(const struct top_past *past, unsigned cells, bool is_unicode, char *text);

/* `text`, cut to `cells` cells of the terminal; ".." at the end stands for what is missing. Characters that cannot
 * be printed become "?": other people choose the names, which could control the terminal. Needs setlocale().
 * Returns the cells used. */
#define TOP_CLIPPED 512
unsigned top_clip(const char *text, unsigned cells, char shown[static TOP_CLIPPED]);
