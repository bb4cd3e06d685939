#include "cli/top/top_draw.h"

#include <langinfo.h>
#include <ncurses.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/session_fields.h"

enum { PAIR_GOOD = 1, PAIR_WARN, PAIR_BAD, PAIR_QUIET, PAIR_TITLE };

#define BAR_CELLS 8
#define DETAIL_LINES 11
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

/* Names are others' words: what is no plain character would lead the terminal. */
static void put_text(int y, int x, int width, const char *text)
{
    char shown[256];
    int length = 0;
    if (width > (int)sizeof(shown) - 1)
        width = (int)sizeof(shown) - 1;
    for (; text[length] && length < width; length++)
        shown[length] = text[length] >= ' ' && text[length] <= '~' ? text[length] : '?';
    if (text[length] && length == width && width > 2)
        shown[width - 1] = shown[width - 2] = '.';
    shown[length] = '\0';
    mvaddstr(y, x, shown);
}

static void put_right(int y, int x, int width, const char *text)
{
    int length = (int)strlen(text);
    put_text(y, length < width ? x + width - length : x, width, text);
}

static int usage_pair(double ratio)
{
    return ratio >= 0.95 ? PAIR_BAD : ratio >= 0.8 ? PAIR_WARN : PAIR_GOOD;
}

static void put_bar(const struct top_view *view, int y, int x, unsigned cells, double ratio, int pair)
{
    char text[TOP_TEXT(64)];
    if (cells > 64)
        cells = 64;
    attron(colour(view, pair) | A_DIM);
    for (unsigned i = 0; i < cells; i++)
        mvaddstr(y, x + (int)i, view->is_unicode ? "─" : ".");
    attroff(A_DIM);
    top_bar(ratio, cells, view->is_unicode, text);
    /* The empty cells keep their line. */
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
    put_text(0, 0, COLS, left);
    put_right(0, COLS - (int)strlen(right), (int)strlen(right), right);
    attroff(colour(view, PAIR_TITLE) | A_REVERSE);
}

static unsigned gpu_lines(const struct top_view *view)
{
    unsigned most = LINES > 40 ? GPU_LINES_MAX : 4;
    return view->rows.gpu_count < most ? view->rows.gpu_count : most;
}

static void draw_gpu(const struct top_view *view, int y, const struct top_gpu *gpu)
{
    char text[2 * UNITS_BYTES_TEXT], uncovered[UNITS_BYTES_TEXT], note[160];
    double ratio = gpu->total ? (double)gpu->used / (double)gpu->total : 0;
    int name_width = COLS >= 110 ? 24 : 15, x = 1;
    put_text(y, x, 4, gpu->label);
    put_text(y, x + 4, name_width, gpu->is_healthy ? gpu->name : "does not answer");
    x += 5 + name_width;
    put_bar(view, y, x, BAR_CELLS, ratio, usage_pair(ratio));
    put_right(y, x + BAR_CELLS + 1, 17, usage_text(gpu->used, gpu->total, text));
    x += BAR_CELLS + 20;
    if (gpu->busy >= 0)
        snprintf(text, sizeof(text), "%3.0f%%", 100 * gpu->busy);
    else
        strcpy(text, "  - ");
    mvaddstr(y, x, text);
    x += 5;
    int cells = COLS >= 110 ? 30 : 10;
    put_sparkline(view, y, x, (unsigned)cells, &gpu->past);
    x += cells + 1;
    if (gpu->uncovered && COLS - x > 8) {
        snprintf(note, sizeof(note), "outside %s %s", units_format_bytes(gpu->uncovered, uncovered),
                 gpu->outsider);
        attron(colour(view, PAIR_WARN));
        put_text(y, x, COLS - x, note);
        attroff(colour(view, PAIR_WARN));
    }
}

/* --- The list -------------------------------------------------------------------------------------- */

/* Where columns stand; 0: no room for it. */
struct columns {
    int name, owner, state, gpu, bar, usage, achieved, share, wait, processes, memory_line, compute_line;
    int name_width, line_width;
};

static struct columns lay_out(void)
{
    struct columns at = {.name = 1, .name_width = COLS >= 110 ? 26 : 14};
    int x = at.name + at.name_width + 1;
    at.owner = x;
    at.state = at.owner + 8;
    at.gpu = at.state + 7;
    at.bar = at.gpu + 4;
    at.usage = at.bar + BAR_CELLS + 1;
    at.achieved = at.usage + 16;
    at.share = at.achieved + 6;
    x = at.share + 10;
    if (COLS >= x + 12) {
        at.wait = x + 1;
        at.processes = x + 8;
        x += 13;
    }
    if (COLS >= x + 14) {
        at.line_width = (COLS - x - 4) / 2 < 30 ? (COLS - x - 4) / 2 : 30;
        at.memory_line = x + 1;
        at.compute_line = x + 2 + at.line_width;
    }
    return at;
}

static void draw_heads(const struct top_view *view, int y, const struct columns *at)
{
    attron(A_BOLD);
    mvaddstr(y, at->name, "SESSION");
    mvaddstr(y, at->owner, "OWNER");
    mvaddstr(y, at->state, "STATE");
    mvaddstr(y, at->gpu, "GPU");
    mvaddstr(y, at->bar, "MEMORY");
    put_right(y, at->usage, 15, "USED/LIMIT");
    put_right(y, at->achieved, 5, "10s");
    put_right(y, at->share, 10, "SHARE");
    if (at->wait)
        put_right(y, at->wait, 6, "WAITS");
    if (at->processes)
        put_right(y, at->processes, 5, "PROCS");
    if (at->memory_line && at->line_width >= 6) {
        mvaddnstr(y, at->memory_line, at->line_width < 13 ? "MEMORY" : "MEMORY, PAST", at->line_width);
        mvaddnstr(y, at->compute_line, at->line_width < 13 ? "COMPUTE" : "COMPUTE, PAST", at->line_width);
    }
    attroff(A_BOLD);
}

static void draw_row(const struct top_view *view, int y, const struct columns *at, const struct top_row *row,
                     bool is_selected)
{
    char text[2 * UNITS_BYTES_TEXT];
    double ratio = row->limit ? (double)row->used / (double)row->limit : 0;
    if (is_selected) {
        attron(A_REVERSE);
        mvhline(y, 0, ' ', COLS);
        attroff(A_REVERSE);
    }
    attr_t selected = is_selected ? A_REVERSE : A_NORMAL;
    attron(selected);
    put_text(y, at->name, at->name_width, row->name);
    put_text(y, at->owner, 7, row->owner);
    int pair = strcmp(row->state, "turn") == 0 ? PAIR_GOOD : strcmp(row->state, "waits") == 0 ? PAIR_WARN : 0;
    attron(pair && !is_selected ? colour(view, pair) : 0);
    put_text(y, at->state, 6, row->state);
    attroff(pair && !is_selected ? colour(view, pair) : 0);
    put_text(y, at->gpu, 3, row->gpus);
    put_right(y, at->usage, 15, usage_text(row->used, row->limit, text));
    if (row->achieved >= 0)
        snprintf(text, sizeof(text), "%.0f%%", 100 * row->achieved);
    else if (row->busy > 0)
        snprintf(text, sizeof(text), "~%.0f%%", 100 * row->busy);
    else
        strcpy(text, "-");
    put_right(y, at->achieved, 5, text);
    put_right(y, at->share, 10, strcmp(row->share, "0%..100%") == 0 ? "-" : row->share);
    if (at->wait) {
        snprintf(text, sizeof(text), "%.1f", row->waiting);
        put_right(y, at->wait, 6, row->waiting > 0 ? text : "-");
    }
    if (at->processes) {
        snprintf(text, sizeof(text), "%u", row->processes);
        put_right(y, at->processes, 5, text);
    }
    attroff(selected);
    put_bar(view, y, at->bar, BAR_CELLS, ratio, usage_pair(ratio));
    if (at->memory_line && at->line_width >= 6) {
        put_sparkline(view, y, at->memory_line, (unsigned)at->line_width, &row->memory);
        put_sparkline(view, y, at->compute_line, (unsigned)at->line_width, &row->compute);
    }
}

static int list_begin(const struct top_view *view)
{
    return (int)gpu_lines(view) + 3;
}

static int list_end(const struct top_view *view)
{
    return LINES - 1 - (view->shows_detail ? DETAIL_LINES : 0);
}

unsigned top_draw_page(const struct top_view *view)
{
    int lines = list_end(view) - list_begin(view);
    return lines > 1 ? (unsigned)lines : 1;
}

static void draw_list(struct top_view *view)
{
    struct columns at = lay_out();
    unsigned selected = top_rows_selected(&view->rows), page = top_draw_page(view);
    if (selected < view->first)
        view->first = selected;
    if (selected >= view->first + page)
        view->first = selected - page + 1;
    if (view->first + page > view->rows.shown_count)
        view->first = view->rows.shown_count > page ? view->rows.shown_count - page : 0;
    int y = list_begin(view);
    draw_heads(view, y - 1, &at);
    for (unsigned i = 0; i < page && view->first + i < view->rows.shown_count; i++)
        draw_row(view, y + (int)i, &at, &view->rows.rows[view->first + i], view->first + i == selected);
    if (view->rows.shown_count == 0)
        put_text(y, 1, COLS - 2,
                 !view->rows.has_answer ? "asking the daemon"
                 : view->rows.filter[0] ? "no session fits the filter"
                                        : "no sessions; 'gpuslice run' and 'gpuslice create' make one");
}

/* --- The detail ------------------------------------------------------------------------------------ */

static void draw_detail(const struct top_view *view)
{
    int y = list_end(view);
    char text[256], used[UNITS_BYTES_TEXT];
    if (view->rows.shown_count == 0)
        return;
    const struct top_row *row = &view->rows.rows[top_rows_selected(&view->rows)];
    const json_t *processes = json_object_get(row->session, "processes"), *process;
    size_t i;
    attron(colour(view, PAIR_QUIET));
    mvhline(y, 0, view->is_unicode ? ACS_HLINE : '-', COLS);
    attroff(colour(view, PAIR_QUIET));
    attron(A_BOLD);
    snprintf(text, sizeof(text), " %s ", row->name);
    put_text(y, 2, COLS - 4, text);
    attroff(A_BOLD);
    snprintf(text, sizeof(text), "%s   owner %s   %s%s   priority %s   compute %s", row->id, row->owner,
             session_text(row->session, "state"),
             json_is_true(json_object_get(row->session, "declared")) ? ", declared" : "",
             session_text(row->session, "priority"), row->share);
    put_text(y + 1, 1, COLS - 2, text);
    snprintf(text, sizeof(text), "lease %s   threads waited %.1f s   overruns %llu",
             session_text(row->session, "lease"), row->waited,
             (unsigned long long)session_number(row->session, "overruns"));
    put_text(y + 2, 1, COLS - 2, text);
    int cells = COLS - 12 < TOP_PAST ? COLS - 12 : TOP_PAST;
    if (cells > 0) {
        mvaddstr(y + 3, 1, "memory");
        put_sparkline(view, y + 3, 10, (unsigned)cells, &row->memory);
        mvaddstr(y + 4, 1, "compute");
        put_sparkline(view, y + 4, 10, (unsigned)cells, &row->compute);
    }
    attron(A_BOLD);
    mvaddnstr(y + 5, 1, "    PID  COMMAND                USED  REFUSED", COLS - 2);
    attroff(A_BOLD);
    json_array_foreach((json_t *)processes, i, process)
    {
        int line = y + 6 + (int)i;
        if (line >= y + DETAIL_LINES - 1 && json_array_size(processes) > DETAIL_LINES - 6) {
            snprintf(text, sizeof(text), "and %zu more", json_array_size(processes) - i);
            put_text(line, 1, COLS - 2, text);
            break;
        }
        snprintf(text, sizeof(text), "%7llu  %-16s %10s  %7llu",
                 (unsigned long long)session_number(process, "pid"), session_text(process, "command"),
                 units_format_bytes(session_number(process, "used_bytes"), used),
                 (unsigned long long)session_number(process, "denied_allocations"));
        put_text(line, 1, COLS - 2, text);
    }
    if (json_array_size(processes) == 0)
        put_text(y + 6, 1, COLS - 2, "no processes");
}

static void draw_help(void)
{
    static const char *const lines[] = {
        "up down PgUp PgDn Home End   choose a session",
        "Enter                        show more of it",
        "s                            sort by the next of memory, compute, waiting, name",
        "/                            show what has a word in name, ID, owner, state or command",
        "l                            change its limits, with the options of 'gpuslice set'",
        "r                            release it (asks first)",
        "+ -                          ask more often, less often",
        "Space                        hold still",
        "q                            end",
        "",
        "10s: part of a GPU's time in the last ten seconds; ~ by NVML, where no share counts.",
        "SHARE: what it was promised and may take.",
        "WAITS: threads that wait for a turn. outside: memory of programs in no session."};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        put_text(2 + (int)i, 2, COLS - 4, lines[i]);
}

static void draw_foot(const struct top_view *view)
{
    char text[512];
    const struct top_row *row =
        view->rows.shown_count ? &view->rows.rows[top_rows_selected(&view->rows)] : NULL;
    switch (view->ask) {
    case TOP_ASK_FILTER:
        snprintf(text, sizeof(text), "Show what has: %s_", view->input);
        break;
    case TOP_ASK_CHANGE:
        snprintf(text, sizeof(text), "set %s: %s_", row ? row->name : "", view->input);
        break;
    case TOP_ASK_RELEASE:
        if (row && row->processes)
            snprintf(text, sizeof(text), "End %u process%s and release %s? (y/n)", row->processes,
                     row->processes == 1 ? "" : "es", row->name);
        else
            snprintf(text, sizeof(text), "Release %s? (y/n)", row ? row->name : "");
        break;
    default:
        snprintf(text, sizeof(text), "%s",
                 view->said[0]
                     ? view->said
                     : "Enter detail  s sort  / filter  l limits  r release  Space hold  ? keys  q end");
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
        for (unsigned i = 0; i < gpu_lines(view); i++)
            draw_gpu(view, 1 + (int)i, &view->rows.gpus[i]);
        draw_list(view);
        if (view->shows_detail)
            draw_detail(view);
    }
    draw_foot(view);
    refresh();
}
