#include "cli/top/top_draw.h"

#include <langinfo.h>
#include <ncurses.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/columns.h"
#include "client/session_fields.h"

enum { PAIR_GOOD = 1, PAIR_WARN, PAIR_BAD, PAIR_QUIET, PAIR_TITLE };

#define WIDE 110 /* columns from which the screen shows more of everything */
#define DETAIL_LINES 11
#define LIST_LEAST 3 /* sessions that stay visible above the detail */
#define GPU_LINES_MAX 8

void top_draw_start(struct top_view *view)
{
    view->is_unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    view->has_colours = has_colors();
    if (!view->has_colours)
        return;
    start_color();
    use_default_colors();
    init_pair(PAIR_GOOD, COLOR_GREEN, -1);
    init_pair(PAIR_WARN, COLOR_YELLOW, -1);
    init_pair(PAIR_BAD, COLOR_RED, -1);
    init_pair(PAIR_QUIET, COLOR_CYAN, -1);
    init_pair(PAIR_TITLE, COLOR_BLACK, COLOR_CYAN);
}

static attr_t colour(const struct top_view *view, int pair)
{
    return view->has_colours ? (attr_t)COLOR_PAIR(pair) : A_NORMAL;
}

static void put_text(int y, int x, int width, const char *text)
{
    char shown[TOP_CLIPPED];
    if (width > COLS - x) /* more would wrap into the next line */
        width = COLS - x;
    if (width <= 0)
        return;
    top_clip(text, (unsigned)width, shown);
    mvaddstr(y, x, shown);
}

static void put_right(int y, int x, int width, const char *text)
{
    char shown[TOP_CLIPPED];
    int length = (int)top_clip(text, width > 0 ? (unsigned)width : 0, shown);
    put_text(y, x + width - length, length, shown);
}

static int usage_pair(double ratio)
{
    return ratio >= 0.95 ? PAIR_BAD : ratio >= 0.8 ? PAIR_WARN : PAIR_GOOD;
}

/* Cells of a bar, on a screen of this width. */
static int bar_cells(void)
{
    return COLS >= 150 ? 24 : COLS >= WIDE ? 14 : 8;
}

static void put_bar(const struct top_view *view, int y, int x, unsigned cells, double ratio, int pair)
{
    char text[TOP_TEXT(64)];
    if (cells > 64)
        cells = 64;
    if (x + (int)cells > COLS)
        return;
    attron(colour(view, pair) | A_DIM);
    for (unsigned i = 0; i < cells; i++)
        mvaddstr(y, x + (int)i, view->is_unicode ? "─" : ".");
    attroff(A_DIM);
    top_bar(ratio, cells, view->is_unicode, text);
    /* Empty cells keep the line drawn before. */
    const char *at = text;
    for (unsigned i = 0; i < cells && *at; i++) {
        int bytes = (*at & 0x80) ? 3 : 1;
        if (*at != ' ' && *at != '.')
            mvaddnstr(y, x + (int)i, at, bytes);
        at += bytes;
    }
    attroff(colour(view, pair));
}

static void put_sparkline(const struct top_view *view, int y, int x, unsigned cells,
                          const struct top_past *past)
{
    char text[TOP_TEXT(TOP_PAST)];
    if (x + (int)cells > COLS)
        return;
    attron(colour(view, PAIR_QUIET));
    mvaddstr(y, x, top_sparkline(past, cells < TOP_PAST ? cells : TOP_PAST, view->is_unicode, text));
    attroff(colour(view, PAIR_QUIET));
}

static const char *usage_text(uint64_t used, uint64_t limit, char text[static 2 * UNITS_BYTES_TEXT])
{
    char of[UNITS_BYTES_TEXT], part[UNITS_BYTES_TEXT];
    snprintf(text, 2 * UNITS_BYTES_TEXT, "%s/%s", units_format_bytes(used, part),
             units_format_bytes(limit, of));
    return text;
}

/* --- The head -------------------------------------------------------------------------------------- */

static void draw_title(const struct top_view *view)
{
    char left[128], right[64], clock[16];
    time_t now = time(NULL);
    struct tm parts;
    strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&now, &parts));
    snprintf(left, sizeof(left), " gpuslice top   %u session%s on %u GPU%s, by %s%s%s", view->rows.count,
             view->rows.count == 1 ? "" : "s", view->rows.gpu_count, view->rows.gpu_count == 1 ? "" : "s",
             top_order_name(view->rows.order), view->rows.filter[0] ? ", with " : "", view->rows.filter);
    snprintf(right, sizeof(right), "%s%s ",
             view->is_lost     ? "NO DAEMON  "
             : view->is_paused ? "HELD  "
                               : "",
             clock);
    attron(colour(view, PAIR_TITLE) | (view->has_colours ? A_NORMAL : A_REVERSE));
    mvhline(0, 0, ' ', COLS);
    int clock_at = COLS - (int)strlen(right);
    put_text(0, 0, clock_at > 0 ? clock_at : COLS, left);
    if (clock_at > 0)
        put_text(0, clock_at, COLS, right);
    attroff(colour(view, PAIR_TITLE) | A_REVERSE);
}

static unsigned gpus_shown(const struct top_view *view)
{
    unsigned most = LINES > 40 ? GPU_LINES_MAX : LINES > 16 ? 4 : 1;
    return view->rows.gpu_count < most ? view->rows.gpu_count : most;
}

/* One more line says how many are left out; on the lowest screens there is no room for it. */
static bool says_more_gpus(const struct top_view *view)
{
    return LINES > 16 && gpus_shown(view) < view->rows.gpu_count;
}

/* The first GPU's line: on a screen that is not low, below the headings. */
static int gpus_begin(void)
{
    return LINES > 16 ? 2 : 1;
}

/* Where the parts of a GPU's line begin; 0: there is no room for it. */
struct gpu_layout {
    int name, name_width, bar, bar_width, usage, busy, heat, line, line_width, note;
};

#define GPU_LABEL_WIDTH 4
#define GPU_USAGE_WIDTH 17
#define GPU_BUSY_WIDTH 5
#define GPU_HEAT_WIDTH 12 /* temperature and power */

/* On a narrow screen the name is short and cut first. The past gets what is left, and shares it with a note about programs
 * outside of sessions where there are any. */
static struct gpu_layout lay_out_gpus(const struct top_view *view)
{
    struct gpu_layout layout = {.bar_width = bar_cells(), .line_width = COLS >= WIDE ? 30 : 10};
    int fixed = 1 + GPU_LABEL_WIDTH + layout.bar_width + 1 + GPU_USAGE_WIDTH + 1 + GPU_BUSY_WIDTH;
    int room = COLS - fixed - layout.line_width - 2, x = 1 + GPU_LABEL_WIDTH;
    bool has_outsiders = false;
    for (unsigned i = 0; i < view->rows.gpu_count; i++)
        has_outsiders |= view->rows.gpus[i].uncovered > 0;
    layout.name_width = COLS >= WIDE ? 24 : room < 15 ? room : 15;
    if (layout.name_width > 3) {
        layout.name = x;
        x += layout.name_width + 1;
    }
    layout.bar = x;
    layout.usage = layout.bar + layout.bar_width + 1;
    layout.busy = layout.usage + GPU_USAGE_WIDTH + 1;
    x = layout.busy + GPU_BUSY_WIDTH;
    if (COLS >= WIDE) {
        layout.heat = x;
        x += GPU_HEAT_WIDTH + 1;
    }
    layout.line = x;
    if (COLS >= WIDE && !has_outsiders)
        layout.line_width = COLS - 1 - x < TOP_PAST ? COLS - 1 - x : TOP_PAST;
    layout.note = layout.line + layout.line_width + 1;
    return layout;
}

static void draw_gpu_heads(int y, const struct gpu_layout *layout)
{
    attron(A_BOLD);
    put_text(y, 1, GPU_LABEL_WIDTH, column_GPU);
    if (layout->name)
        put_text(y, layout->name, layout->name_width, "NAME");
    put_text(y, layout->bar, layout->bar_width, column_MEMORY);
    put_right(y, layout->usage, GPU_USAGE_WIDTH, "USED / TOTAL");
    put_text(y, layout->busy, GPU_BUSY_WIDTH, "BUSY");
    if (layout->heat)
        put_right(y, layout->heat, GPU_HEAT_WIDTH, "TEMP  POWER");
    put_text(y, layout->line, layout->line_width, layout->line_width < 12 ? "BUSY" : "BUSY, PAST");
    attroff(A_BOLD);
}

/* NVML's figure times `factor`; "-" where it has none. */
static const char *figure_text(double figure, double factor, const char *unit, char text[static 16])
{
    if (figure < 0)
        return "-";
    snprintf(text, 16, "%.0f%s", factor * figure, unit);
    return text;
}

static void draw_gpu(const struct top_view *view, int y, const struct gpu_layout *layout,
                     const struct top_gpu *gpu)
{
    char text[2 * UNITS_BYTES_TEXT], uncovered[UNITS_BYTES_TEXT], note[160], figure[16];
    double ratio = gpu->total ? (double)gpu->used / (double)gpu->total : 0;
    put_text(y, 1, GPU_LABEL_WIDTH, gpu->label);
    if (!gpu->is_healthy)
        put_text(y, 1 + GPU_LABEL_WIDTH, 15, "does not answer");
    else if (layout->name)
        put_text(y, layout->name, layout->name_width, gpu->name);
    put_bar(view, y, layout->bar, (unsigned)layout->bar_width, ratio, usage_pair(ratio));
    put_right(y, layout->usage, GPU_USAGE_WIDTH, usage_text(gpu->used, gpu->total, text));
    put_right(y, layout->busy, GPU_BUSY_WIDTH - 1, figure_text(gpu->busy, 100, "%", figure));
    if (layout->heat) {
        put_right(y, layout->heat, 5, figure_text(gpu->celsius, 1, "C", figure));
        put_right(y, layout->heat + 6, 6, figure_text(gpu->watts, 1, "W", figure));
    }
    put_sparkline(view, y, layout->line, (unsigned)layout->line_width, &gpu->past);
    if (gpu->uncovered && COLS - layout->note > 8) {
        snprintf(note, sizeof(note), "outside %s %s", units_format_bytes(gpu->uncovered, uncovered),
                 gpu->outsider);
        attron(colour(view, PAIR_WARN));
        put_text(y, layout->note, COLS - layout->note, note);
        attroff(colour(view, PAIR_WARN));
    }
}

static void draw_gpus(const struct top_view *view)
{
    struct gpu_layout layout = lay_out_gpus(view);
    int y = gpus_begin();
    unsigned shown = gpus_shown(view);
    char text[32];
    if (y > 1)
        draw_gpu_heads(y - 1, &layout);
    for (unsigned i = 0; i < shown; i++)
        draw_gpu(view, y + (int)i, &layout, &view->rows.gpus[i]);
    if (says_more_gpus(view)) {
        snprintf(text, sizeof(text), "and %u more GPU%s", view->rows.gpu_count - shown,
                 view->rows.gpu_count - shown == 1 ? "" : "s");
        put_text(y + (int)shown, 5, COLS - 6, text);
    }
}

/* --- The list -------------------------------------------------------------------------------------- */

enum top_column { NAME, OWNER, STATUS, GPU, BAR, USAGE, ACHIEVED, COMPUTE, WAIT, PROCESSES, COLUMNS };

/* In the order of the screen. When there is too little room, columns are left out, those with the highest `rank`
 * first. */
static const struct {
    const char *title;
    int width, rank;
    bool right;
} columns[COLUMNS] = {
    [NAME] = {column_SESSION, 14, 0},
    [OWNER] = {column_OWNER, 7, 7},
    [STATUS] = {column_STATUS, 11, 3},
    [GPU] = {column_GPU, 3, 6},
    [BAR] = {column_MEMORY, 8, 5},
    [USAGE] = {column_USED, 15, 1, .right = true},
    [ACHIEVED] = {column_TIME, 5, 2, .right = true},
    [COMPUTE] = {column_COMPUTE, 10, 4, .right = true},
    [WAIT] = {"WAITS", 6, 8, .right = true},
    [PROCESSES] = {column_PROCESSES, 5, 9, .right = true},
};

#define NAME_MOST 23
#define LINE_LEAST 7
#define LINE_MOST 30

/* Where columns and sparklines begin; 0: there is no room for it. */
struct layout {
    int at[COLUMNS], name_width;
    int memory_line, compute_line, line_width;
};

static int width_of(int column)
{
    return column == BAR ? bar_cells() : columns[column].width;
}

static struct layout lay_out(void)
{
    struct layout layout = {.name_width = columns[NAME].width};
    int room = COLS - 1, ranks = 0, x = 1;
    for (; ranks < COLUMNS; ranks++) {
        int width = 0;
        for (int i = 0; i < COLUMNS; i++)
            width += columns[i].rank == ranks ? width_of(i) + 1 : 0;
        if (width > room)
            break;
        room -= width;
    }
    if (ranks < COLUMNS || COLS >= WIDE) { /* names get the remaining room */
        int more = room < NAME_MOST - layout.name_width ? room : NAME_MOST - layout.name_width;
        layout.name_width += more;
        room -= more;
    }
    for (int i = 0; i < COLUMNS; i++) {
        if (columns[i].rank >= ranks)
            continue;
        layout.at[i] = x;
        x += (i == NAME ? layout.name_width : width_of(i)) + 1;
    }
    if (room >= 2 * (LINE_LEAST + 1)) {
        layout.line_width = room / 2 - 1 < LINE_MOST ? room / 2 - 1 : LINE_MOST;
        layout.memory_line = x;
        layout.compute_line = x + layout.line_width + 1;
    }
    return layout;
}

/* Put `text` into a column, if that column is shown. */
static void put_cell(int y, const struct layout *layout, enum top_column column, const char *text)
{
    if (!layout->at[column])
        return;
    int width = column == NAME ? layout->name_width : columns[column].width;
    if (columns[column].right)
        put_right(y, layout->at[column], width, text);
    else
        put_text(y, layout->at[column], width, text);
}

static void draw_heads(int y, const struct layout *layout)
{
    attron(A_BOLD);
    for (int i = 0; i < COLUMNS; i++)
        put_cell(y, layout, (enum top_column)i, columns[i].title);
    if (layout->memory_line) {
        put_text(y, layout->memory_line, layout->line_width,
                 layout->line_width < 13 ? "MEMORY" : "MEMORY, PAST");
        put_text(y, layout->compute_line, layout->line_width,
                 layout->line_width < 13 ? "COMPUTE" : "COMPUTE, PAST");
    }
    attroff(A_BOLD);
}

static int status_pair(enum session_tone tone)
{
    static const int pairs[] = {[SESSION_CALM] = 0,
                                [SESSION_BUSY] = PAIR_GOOD,
                                [SESSION_WAITS] = PAIR_WARN,
                                [SESSION_BAD] = PAIR_BAD};
    return pairs[tone];
}

static void draw_compute(int y, const struct layout *layout, const struct top_row *row)
{
    char text[32];
    if (row->achieved >= 0)
        snprintf(text, sizeof(text), "%.0f%%", 100 * row->achieved);
    else if (row->busy > 0)
        snprintf(text, sizeof(text), "~%.0f%%", 100 * row->busy);
    else
        strcpy(text, "-");
    put_cell(y, layout, ACHIEVED, text);
    put_cell(y, layout, COMPUTE, strcmp(row->share, "0%..100%") == 0 ? "-" : row->share);
    snprintf(text, sizeof(text), "%.1f", row->waiting);
    put_cell(y, layout, WAIT, row->waiting > 0 ? text : "-");
}

static void draw_row(const struct top_view *view, int y, const struct layout *layout,
                     const struct top_row *row, bool is_selected)
{
    char text[2 * UNITS_BYTES_TEXT];
    double ratio = row->limit ? (double)row->used / (double)row->limit : 0;
    if (is_selected) {
        attron(A_REVERSE);
        mvhline(y, 0, ' ', layout->name_width + 2);
        put_cell(y, layout, NAME, row->name);
        attroff(A_REVERSE);
        attron(A_BOLD);
    } else {
        put_cell(y, layout, NAME, row->name);
    }
    put_cell(y, layout, OWNER, row->owner);
    attron(colour(view, status_pair(row->tone)));
    put_cell(y, layout, STATUS, row->status);
    attroff(colour(view, status_pair(row->tone)));
    put_cell(y, layout, GPU, row->gpus);
    put_cell(y, layout, USAGE, usage_text(row->used, row->limit, text));
    draw_compute(y, layout, row);
    snprintf(text, sizeof(text), "%u", row->processes);
    put_cell(y, layout, PROCESSES, text);
    attroff(A_BOLD);
    if (layout->at[BAR])
        put_bar(view, y, layout->at[BAR], (unsigned)bar_cells(), ratio, usage_pair(ratio));
    if (layout->memory_line) {
        put_sparkline(view, y, layout->memory_line, (unsigned)layout->line_width, &row->memory);
        put_sparkline(view, y, layout->compute_line, (unsigned)layout->line_width, &row->compute);
    }
}

static int list_begin(const struct top_view *view)
{
    return gpus_begin() + (int)gpus_shown(view) + says_more_gpus(view) + (LINES > 16 ? 2 : 1);
}

static int detail_lines(void)
{
    return LINES > 40 ? 2 * DETAIL_LINES : DETAIL_LINES;
}

bool top_draw_shows_detail(const struct top_view *view)
{
    if (view->detail != TOP_DETAIL_ROOM)
        return view->detail == TOP_DETAIL_SHOWN;
    int list = view->rows.shown_count < LIST_LEAST ? LIST_LEAST : (int)view->rows.shown_count;
    return view->rows.shown_count && LINES - 1 - list_begin(view) - list >= detail_lines();
}

/* On a low screen the detail replaces everything else. */
static bool is_detail_alone(const struct top_view *view)
{
    return top_draw_shows_detail(view) && LINES - 1 - list_begin(view) - detail_lines() < LIST_LEAST;
}

static int list_end(const struct top_view *view)
{
    if (is_detail_alone(view))
        return 1;
    int least = LINES - 1 - detail_lines(), list = list_begin(view) + (int)view->rows.shown_count + 1;
    if (!top_draw_shows_detail(view))
        return LINES - 1;
    return list < least ? list : least; /* the detail has what the list leaves */
}

unsigned top_draw_page(const struct top_view *view)
{
    int lines = list_end(view) - list_begin(view);
    return lines > 1 ? (unsigned)lines : 1;
}

static void draw_list(struct top_view *view)
{
    struct layout layout = lay_out();
    unsigned selected = top_rows_selected(&view->rows), page = top_draw_page(view);
    if (selected < view->first)
        view->first = selected;
    if (selected >= view->first + page)
        view->first = selected - page + 1;
    if (view->first + page > view->rows.shown_count)
        view->first = view->rows.shown_count > page ? view->rows.shown_count - page : 0;
    int y = list_begin(view);
    draw_heads(y - 1, &layout);
    for (unsigned i = 0; i < page && view->first + i < view->rows.shown_count; i++)
        draw_row(view, y + (int)i, &layout, &view->rows.rows[view->first + i], view->first + i == selected);
    if (view->rows.shown_count == 0)
        put_text(y, 1, COLS - 2,
                 !view->rows.has_answer ? "asking the daemon"
                 : view->rows.filter[0] ? "no session fits the filter"
                                        : "no sessions; 'gpuslice run' and 'gpuslice create' make one");
}

/* --- The detail ------------------------------------------------------------------------------------ */

/* The session's processes, one on each line from `y` to before `end`. */
static void draw_processes(const struct top_row *row, int y, int end)
{
    const json_t *processes = json_object_get(row->session, "processes"), *process;
    char text[64];
    size_t i;
    attron(A_BOLD);
    put_right(y, 1, 7, "PID");
    put_text(y, 10, 16, "COMMAND");
    put_right(y, 27, 10, "USED");
    put_right(y, 38, 8, column_DENIED);
    attroff(A_BOLD);
    if (json_array_size(processes) == 0)
        put_text(y + 1, 3, COLS - 4, "no processes");
    json_array_foreach((json_t *)processes, i, process)
    {
        int line = y + 1 + (int)i;
        if (line == end - 1 && i + 1 < json_array_size(processes)) {
            snprintf(text, sizeof(text), "and %zu more", json_array_size(processes) - i);
            put_text(line, 10, COLS - 11, text);
            return;
        }
        snprintf(text, sizeof(text), "%llu", (unsigned long long)session_number(process, "pid"));
        put_right(line, 1, 7, text);
        put_text(line, 10, 16, session_text(process, "command"));
        put_right(line, 27, 10, units_format_bytes(session_number(process, "used_bytes"), text));
        snprintf(text, sizeof(text), "%llu",
                 (unsigned long long)session_number(process, "denied_allocations"));
        put_right(line, 38, 8, text);
    }
}

static void draw_detail(const struct top_view *view)
{
    int y = list_end(view), cells = COLS - 12 < TOP_PAST ? COLS - 12 : TOP_PAST;
    char text[1024];
    if (view->rows.shown_count == 0)
        return;
    const struct top_row *row = &view->rows.rows[top_rows_selected(&view->rows)];
    attron(colour(view, PAIR_QUIET));
    mvhline(y, 0, view->is_unicode ? ACS_HLINE : '-', COLS);
    attroff(colour(view, PAIR_QUIET));
    attron(A_BOLD);
    snprintf(text, sizeof(text), " %s ", row->name);
    put_text(y, 2, COLS - 4, text);
    attroff(A_BOLD);
    snprintf(text, sizeof(text), "%s   owner %s   %s%s   priority %s   compute %s", row->id, row->owner,
             row->status, json_is_true(json_object_get(row->session, "declared")) ? ", declared" : "",
             session_text(row->session, "priority"), row->share);
    put_text(y + 1, 1, COLS - 2, text);
    top_row_lease(row, text, sizeof(text));
    put_text(y + 2, 1, COLS - 2, text);
    if (cells > 0) {
        put_text(y + 3, 1, 8, "memory");
        put_sparkline(view, y + 3, 10, (unsigned)cells, &row->memory);
        put_text(y + 4, 1, 8, "compute");
        put_sparkline(view, y + 4, 10, (unsigned)cells, &row->compute);
    }
    draw_processes(row, y + 5, LINES - 1);
}

static void draw_help(void)
{
    static const char *const lines[] = {
        "up down PgUp PgDn Home End   choose a session",
        "Enter                        show more of it, or less",
        "s                            sort by memory, compute, waiting, name in turn",
        "/                            filter by name, ID, owner, status or command",
        "l                            change its limits, by options of 'gpuslice set'",
        "r                            release it (asks first)",
        "z                            its memory leaves the card (asks first), or comes back",
        "+ -                          ask more often, less often",
        "Space                        hold still",
        "q                            end",
        "",
        "TIME: part of a GPU's time in the last 10 s; ~: by NVML, if no share counts.",
        "COMPUTE: the least speed that it keeps, and the most GPU time that it may take.",
        "WAITS: threads waiting for a turn. outside: memory of no session's programs."};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        put_text((LINES > 16 ? 2 : 1) + (int)i, 2, COLS - 4, lines[i]);
}

/* As many keys as there is room for; the last two are always shown. */
static void list_keys(char *text, size_t bytes)
{
    static const char *const keys[] = {"Enter detail", "s sort",     "/ filter", "l limits",
                                       "r release",    "Space hold", "z suspend"};
    static const char last[] = "? keys  q end";
    size_t used = 0;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        size_t with = used + strlen(keys[i]) + 2;
        if ((int)(with + sizeof(last)) > COLS - 1 || with + sizeof(last) > bytes)
            break;
        strcpy(stpcpy(text + used, keys[i]), "  ");
        used = with;
    }
    strcpy(text + used, last);
}

static void draw_foot(const struct top_view *view)
{
    char text[512], keys[128];
    const struct top_row *row = top_rows_find(&view->rows, view->asked);
    list_keys(keys, sizeof(keys));
    switch (view->ask) {
    case TOP_ASK_FILTER:
        snprintf(text, sizeof(text), "Show what has: %s_", view->input);
        break;
    case TOP_ASK_CHANGE:
        snprintf(text, sizeof(text), "set %s: %s_", row ? row->name : "", view->input);
        break;
    case TOP_ASK_SUSPEND:
        snprintf(text, sizeof(text), "Suspend %s? Its programs stand still until it is resumed. (y/n)",
                 row ? row->name : "");
        break;
    case TOP_ASK_RELEASE:
        if (row && row->processes)
            snprintf(text, sizeof(text), "End %u process%s and release %s? (y/n)", row->processes,
                     row->processes == 1 ? "" : "es", row->name);
        else
            snprintf(text, sizeof(text), "Release %s? (y/n)", row ? row->name : "");
        break;
    default:
        snprintf(text, sizeof(text), "%s", view->said[0] ? view->said : keys);
    }
    int pair =
        view->ask == TOP_ASK_NOTHING && view->said[0] ? (view->is_bad ? PAIR_BAD : PAIR_GOOD) : PAIR_QUIET;
    attron(view->ask == TOP_ASK_NOTHING ? colour(view, pair) : A_BOLD);
    put_text(LINES - 1, 1, COLS - 2, text);
    attroff(view->ask == TOP_ASK_NOTHING ? colour(view, pair) : A_BOLD);
}

void top_draw(struct top_view *view)
{
    erase();
    draw_title(view);
    if (view->shows_help) {
        draw_help();
    } else {
        if (!is_detail_alone(view)) {
            draw_gpus(view);
            draw_list(view);
        }
        if (top_draw_shows_detail(view))
            draw_detail(view);
    }
    draw_foot(view);
    refresh();
}
