#include "cli/top/top_bars.h"

#include <string.h>
#include <wchar.h>

/* Eighths of a cell, from the left and from below; the first is empty. */
static const char *const parts[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
static const char *const heights[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char plain_heights[] = " .:-=+*#%";

void top_past_add(struct top_past *past, double value)
{
    past->values[past->next] = (float)(value < 0 ? 0 : value > 1 ? 1 : value);
    past->next = (past->next + 1) % TOP_PAST;
    past->count += past->count < TOP_PAST;
}

double top_past_get(const struct top_past *past, unsigned back)
{
    return back < past->count ? past->values[(past->next + TOP_PAST - 1 - back) % TOP_PAST] : 0;
}

/* `ratio` of `cells`, in eighths; at least one for any ratio above 0. */
static unsigned eighths(double ratio, unsigned cells)
{
    double most = 8.0 * cells;
    unsigned count = ratio >= 1 ? 8 * cells : (unsigned)(ratio * most);
    return count == 0 && ratio > 0 ? 1 : count;
}

const char *top_bar(double ratio, unsigned cells, bool is_unicode, char *text)
{
    unsigned full = eighths(ratio, cells);
    char *end = text;
    for (unsigned i = 0; i < cells; i++) {
        unsigned part = full >= 8 * (i + 1) ? 8 : full > 8 * i ? full - 8 * i : 0;
        end = stpcpy(end, is_unicode ? parts[part] : part >= 4 || (i == 0 && part) ? "#" : ".");
    }
    *end = '\0';
    return text;
}

const char *top_sparkline(const struct top_past *past, unsigned cells, bool is_unicode, char *text)
{
    char *end = text;
    for (unsigned i = cells; i-- > 0;) {
        unsigned height = eighths(top_past_get(past, i), 1);
        if (is_unicode)
            end = stpcpy(end, heights[height]);
        else
            *end++ = plain_heights[height];
    }
    *end = '\0';
    return text;
}

/* The next character at `*at`, what is shown for it and its width in cells. Returns the bytes to show. A byte that
 * does not begin a character is shown as "?". */
static size_t next_character(const char **at, const char **shown, unsigned *cells)
{
    wchar_t wide;
    mbstate_t state = {0};
    const char *begin = *at;
    size_t bytes = mbrtowc(&wide, begin, strlen(begin), &state);
    bool is_broken = bytes == (size_t)-1 || bytes == (size_t)-2;
    int width = is_broken ? -1 : wcwidth(wide);
    *at += is_broken ? 1 : bytes;
    *shown = width >= 0 ? begin : "?";
    *cells = width >= 0 ? (unsigned)width : 1;
    return width >= 0 ? bytes : 1;
}

unsigned top_clip(const char *text, unsigned cells, char shown[static TOP_CLIPPED])
{
    size_t length = 0, short_length = 0; /* length that leaves room for ".." */
    unsigned used = 0, short_used = 0, dots = cells > 2 ? 2 : 0;
    for (const char *at = text; *at;) {
        const char *part;
        unsigned width;
        size_t bytes = next_character(&at, &part, &width);
        if (used + width > cells || length + bytes + dots >= TOP_CLIPPED) {
            length = short_length;
            used = short_used;
            memcpy(shown + length, "..", dots);
            length += dots;
            used += dots;
            break;
        }
        memcpy(shown + length, part, bytes);
        length += bytes;
        used += width;
        if (used + dots <= cells) {
            short_length = length;
            short_used = used;
        }
    }
    shown[length] = '\0';
    return used;
}
