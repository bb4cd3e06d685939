/* table.h - tables for people: aligned columns, usage bars, and colour where a terminal shows it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/units.h"

enum table_colour { TABLE_PLAIN, TABLE_BOLD, TABLE_DIM, TABLE_GREEN, TABLE_YELLOW, TABLE_RED };

#define TABLE_COLUMNS 16
#define TABLE_CELL_BYTES 128

struct table_cell {
    char text[TABLE_CELL_BYTES];
    enum table_colour colour;
};

struct table_column {
    const char *title;
    bool right;    /* align to the right */
    bool left_out; /* leave it out */
    /* cut short, with "..", if the table is too wide even so; at most one column */
    bool shrink;
    unsigned yields; /* left out if the table is too wide, those with the highest number first; 0: it stays */
};

struct table {
    const struct table_column *columns; /* ends with a NULL title */
    struct table_cell (*rows)[TABLE_COLUMNS];
    size_t row_count;
};

/* Add an empty row. Returns its cells, valid until the next call. */
struct table_cell *table_add_row(struct table *table);
void table_free(struct table *table);

/* Write a cell. Control characters and anything but ASCII become '?', so that columns stay aligned and names that
 * other people chose cannot control the terminal. */
__attribute__((format(printf, 3, 4))) void table_cell_print(struct table_cell *cell, enum table_colour colour,
                                                            const char *format, ...);

/* Print all of `text`, with the same characters as '?'. */
void table_print_text(const char *text, FILE *stream);

/* Print the table, in lines of at most `width` characters if it is enough to leave out the columns that yield, one after the
 * other, and then to shrink its column. */
void table_print(const struct table *table, FILE *stream, size_t width, bool colour);

/* Draw `used` of `limit` as "[#####.....]". Any use at all shows at least one mark, and only all of it shows ten. */
#define TABLE_BAR_TEXT 13
const char *table_bar(uint64_t used, uint64_t limit, char bar[static TABLE_BAR_TEXT]);

/* Green; yellow from three quarters on, red from nine tenths on. */
enum table_colour table_usage_colour(uint64_t used, uint64_t limit);

/* "512MiB / 4GiB" */
#define TABLE_USAGE_TEXT (2 * UNITS_BYTES_TEXT)
const char *table_usage(uint64_t used, uint64_t limit, char text[static TABLE_USAGE_TEXT]);

/* Whether `stream` shows colour: it is a terminal other than "dumb", and NO_COLOR is not set. */
bool table_colour_wanted(FILE *stream);

/* Characters in a line of `stream`: the width of the terminal, or SIZE_MAX for anything else, so that programs get
 * uncut lines. */
size_t table_width(FILE *stream);

/* The escape sequences that begin a colour and end it; empty without colour. */
const char *table_colour_begin(enum table_colour colour, bool wanted);
const char *table_colour_end(enum table_colour colour, bool wanted);
