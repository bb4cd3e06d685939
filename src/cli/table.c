#include "cli/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define GAP 2          /* between columns */
#define SHRUNK_LEAST 8 /* what a shrinking column keeps */
#define BAR_CELLS 10

/* --- Filling --------------------------------------------------------------------------------------- */

struct table_cell *table_add_row(struct table *table)
{
    void *rows = realloc(table->rows, (table->row_count + 1) * sizeof(*table->rows));
    if (!rows)
        abort(); /* a few hundred bytes: the machine has no memory left */
    table->rows = rows;
    struct table_cell *row = table->rows[table->row_count++];
    memset(row, 0, sizeof(*table->rows));
    return row;
}

void table_free(struct table *table)
{
    free(table->rows);
    table->rows = NULL;
    table->row_count = 0;
}

static char shown_as(char character)
{
    return character < ' ' || character > '~' ? '?' : character;
}

void table_cell_print(struct table_cell *cell, enum table_colour colour, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cell->text, sizeof(cell->text), format, arguments);
    va_end(arguments);
    cell->colour = colour;
    for (char *at = cell->text; *at; at++)
        *at = shown_as(*at);
}

void table_print_text(const char *text, FILE *stream)
{
    for (; *text; text++)
        fputc(shown_as(*text), stream);
}

/* --- Printing -------------------------------------------------------------------------------------- */

static void print_cell(const struct table_cell *cell, const struct table_column *column, size_t width,
                       bool last, FILE *stream, bool colour)
{
    size_t length = strlen(cell->text), shown = length < width ? length : width;
    size_t padding = width - shown;
    const char *cut = shown < length ? ".." : "";
    shown -= strlen(cut);
    fprintf(stream, "%*s%s%.*s%s%s", column->right ? (int)padding : 0, "",
            table_colour_begin(cell->colour, colour), (int)shown, cell->text, cut,
            table_colour_end(cell->colour, colour));
    if (!last)
        fprintf(stream, "%*s", (int)((column->right ? 0 : padding) + GAP), "");
}

/* A column that is left out has the width 0. */
static void print_row(const struct table *table, const struct table_cell *row, const size_t *widths,
                      FILE *stream, bool colour)
{
    size_t end = 0; /* no blanks after the last cell that shows anything */
    for (size_t i = 0; table->columns[i].title; i++)
        if (row[i].text[0] && widths[i])
            end = i;
    for (size_t i = 0; i <= end; i++)
        if (widths[i])
            print_cell(&row[i], &table->columns[i], widths[i], i == end, stream, colour);
    fputc('\n', stream);
}

static size_t measure(const struct table *table, size_t *widths)
{
    size_t total = 0;
    for (size_t i = 0; table->columns[i].title; i++) {
        widths[i] = 0;
        if (table->columns[i].left_out)
            continue;
        widths[i] = strlen(table->columns[i].title);
        for (size_t row = 0; row < table->row_count; row++) {
            size_t length = strlen(table->rows[row][i].text);
            if (length > widths[i])
                widths[i] = length;
        }
        total += widths[i] + (i ? GAP : 0);
    }
    return total;
}

/* Leave out columns that yield until the table has no more than `width` characters. Returns how many it has. */
static size_t leave_out(const struct table *table, size_t *widths, size_t total, size_t width)
{
    while (total > width) {
        size_t first = 0;
        unsigned most = 0;
        for (size_t i = 1; table->columns[i].title; i++)
            if (widths[i] && table->columns[i].yields > most) {
                most = table->columns[i].yields;
                first = i;
            }
        if (most == 0)
            break;
        total -= widths[first] + GAP;
        widths[first] = 0;
    }
    return total;
}

void table_print(const struct table *table, FILE *stream, size_t width, bool colour)
{
    size_t widths[TABLE_COLUMNS], total = leave_out(table, widths, measure(table, widths), width);
    struct table_cell titles[TABLE_COLUMNS] = {0};

    for (size_t i = 0; table->columns[i].title; i++) {
        if (table->columns[i].shrink && total > width) {
            size_t excess = total - width, spare = widths[i] > SHRUNK_LEAST ? widths[i] - SHRUNK_LEAST : 0;
            widths[i] -= excess < spare ? excess : spare;
        }
        table_cell_print(&titles[i], TABLE_BOLD, "%s", table->columns[i].title);
    }
    print_row(table, titles, widths, stream, colour);
    for (size_t row = 0; row < table->row_count; row++)
        print_row(table, table->rows[row], widths, stream, colour);
}

/* --- Usage ----------------------------------------------------------------------------------------- */

const char *table_bar(uint64_t used, uint64_t limit, char bar[static TABLE_BAR_TEXT])
{
    unsigned cells = limit == 0 ? 0 : (unsigned)((unsigned __int128)used * BAR_CELLS / limit);
    if (cells > BAR_CELLS || (used > 0 && limit == 0))
        cells = BAR_CELLS;
    if (cells == 0 && used > 0)
        cells = 1;
    bar[0] = '[';
    memset(bar + 1, '#', cells);
    memset(bar + 1 + cells, '.', BAR_CELLS - cells);
    strcpy(bar + 1 + BAR_CELLS, "]");
    return bar;
}

enum table_colour table_usage_colour(uint64_t used, uint64_t limit)
{
    unsigned __int128 percents = (unsigned __int128)used * 100;
    if (percents >= (unsigned __int128)limit * 90)
        return used ? TABLE_RED : TABLE_GREEN;
    return percents >= (unsigned __int128)limit * 75 ? TABLE_YELLOW : TABLE_GREEN;
}

const char *table_usage(uint64_t used, uint64_t limit, char text[static TABLE_USAGE_TEXT])
{
    char of[UNITS_BYTES_TEXT], part[UNITS_BYTES_TEXT];
    snprintf(text, TABLE_USAGE_TEXT, "%s / %s", units_format_bytes(used, part),
             units_format_bytes(limit, of));
    return text;
}

/* --- The terminal ---------------------------------------------------------------------------------- */

bool table_colour_wanted(FILE *stream)
{
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return isatty(fileno(stream)) && !(no_colour && *no_colour) && terminal && strcmp(terminal, "dumb") != 0;
}

size_t table_width(FILE *stream)
{
    struct winsize size;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0)
        return SIZE_MAX;
    return size.ws_col ? size.ws_col : 80;
}

const char *table_colour_begin(enum table_colour colour, bool wanted)
{
    static const char *const begin[] = {"", "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31m"};
    return wanted ? begin[colour] : "";
}

const char *table_colour_end(enum table_colour colour, bool wanted)
{
    return wanted && colour != TABLE_PLAIN ? "\033[0m" : "";
}
