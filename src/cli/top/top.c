/* gpuslice top: sessions and GPUs as they change, on the whole terminal. */
#include <errno.h>
#include <locale.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/top/top_draw.h"
#include "cli/top/top_fetch.h"
#include "cli/verbs.h"
#include "cli/verbs/help.h"
#include "client/session_fields.h"

#define INTERVAL_USEC UINT64_C(1000000)
#define INTERVAL_LEAST_USEC UINT64_C(100000)
#define INTERVAL_MOST_USEC UINT64_C(60000000)
#define WORDS_MAX 16
#define ESCAPE 27

/* --- The terminal, whatever happens ---------------------------------------------------------------- */

static struct termios before; /* the terminal's state at the start */
static volatile sig_atomic_t is_over;

static void on_end(int number)
{
    is_over = 1;
}

/* On a crash the terminal is restored by hand, as a signal handler may not call ncurses. */
static void on_crash(int number)
{
    static const char leave[] = "\033[?1049l\033[?1l\033>\033[?25h\033[0m\r\n";
    ssize_t ignored = write(STDOUT_FILENO, leave, sizeof(leave) - 1);
    (void)ignored;
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_signals(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT},
                     crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    struct sigaction end = {.sa_handler = on_end}, crash = {.sa_handler = on_crash};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        sigaction(ends[i], &end, NULL);
    for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
        sigaction(crashes[i], &crash, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* --- Keys ------------------------------------------------------------------------------------------ */

static void say(struct top_view *view, bool is_bad, const char *text)
{
    snprintf(view->said, sizeof(view->said), "%.*s", (int)sizeof(view->said) - 1, text);
    view->is_bad = is_bad;
}

static const struct top_row *selected_row(const struct top_view *view)
{
    return view->rows.shown_count ? &view->rows.rows[top_rows_selected(&view->rows)] : NULL;
}

static void ask_daemon(struct top_view *view, struct top_fetch *fetch, const char *method, const char *behind,
                       json_t *body, const char *done)
{
    if (!top_fetch_act(fetch, method, view->asked, behind, body, done))
        say(view, true, "the daemon is still answering the last request");
}

/* Read what was typed as options of `set`, and send the change. */
static void change(struct top_view *view, struct top_fetch *fetch, const struct top_row *row)
{
    char *words[WORDS_MAX + 2], *state = NULL;
    unsigned count = 0;
    struct cli_arguments arguments;
    struct error error;
    json_t *body = NULL;
    char done[128];
    words[count++] = view->asked;
    for (char *word = strtok_r(view->input, " ", &state); word && count <= WORDS_MAX;
         word = strtok_r(NULL, " ", &state))
        words[count++] = word;
    words[count] = NULL;
    if (cli_parse(&verb_set, words, &arguments, &error) < 0 ||
        session_wish_body(&arguments.wish, NULL, &body, &error) < 0) {
        say(view, true, error.message);
        return;
    }
    snprintf(done, sizeof(done), "%s is changed", row->name);
    ask_daemon(view, fetch, "PATCH", "", body, done);
}

static void release(struct top_view *view, struct top_fetch *fetch, const struct top_row *row)
{
    char done[128];
    snprintf(done, sizeof(done), "%s is released", row->name);
    ask_daemon(view, fetch, "DELETE", row->processes ? "?kill=true" : "", NULL, done);
}

/* Its memory leaves the card. */
static void suspend(struct top_view *view, struct top_fetch *fetch, const struct top_row *row)
{
    char done[128];
    snprintf(done, sizeof(done), "%s is leaving the card", row->name);
    ask_daemon(view, fetch, "POST", "/suspend", NULL, done);
}

/* Its memory comes back. */
static void resume(struct top_view *view, struct top_fetch *fetch, const struct top_row *row)
{
    char done[128];
    snprintf(done, sizeof(done), "%s is coming back to the card", row->name);
    ask_daemon(view, fetch, "POST", "/resume", NULL, done);
}

/* The session that was asked about; without it, says that it has gone. */
static const struct top_row *asked_row(struct top_view *view)
{
    const struct top_row *row = top_rows_find(&view->rows, view->asked);
    if (!row)
        say(view, true, "the session has gone");
    return row;
}

static void end_input(struct top_view *view, struct top_fetch *fetch)
{
    enum top_ask ask = view->ask;
    view->ask = TOP_ASK_NOTHING;
    if (ask == TOP_ASK_FILTER) {
        snprintf(view->rows.filter, sizeof(view->rows.filter), "%.*s", TOP_FILTER_TEXT - 1, view->input);
        top_rows_sort(&view->rows);
        return;
    }
    const struct top_row *row = asked_row(view);
    if (row)
        change(view, fetch, row);
}

static void take_input(struct top_view *view, struct top_fetch *fetch, int key)
{
    size_t length = strlen(view->input);
    if (key == ESCAPE) {
        view->ask = TOP_ASK_NOTHING;
    } else if (key == '\n' || key == '\r' || key == KEY_ENTER) {
        end_input(view, fetch);
    } else if (key == KEY_BACKSPACE || key == 127 || key == '\b') {
        view->input[length ? length - 1 : 0] = '\0';
    } else if (key >= ' ' && key <= '~' && length + 1 < sizeof(view->input)) {
        view->input[length] = (char)key;
        view->input[length + 1] = '\0';
    }
}

static void begin_input(struct top_view *view, enum top_ask ask, const char *text)
{
    if (ask != TOP_ASK_FILTER && !selected_row(view))
        return;
    /* The answer counts for the row that is selected now, however the list changes in the meantime. */
    if (selected_row(view)) {
        strcpy(view->rows.selected, selected_row(view)->id);
        strcpy(view->asked, view->rows.selected);
    }
    view->ask = ask;
    snprintf(view->input, sizeof(view->input), "%s", text);
}

/* To suspend stops the session's programs, so it asks first; to resume harms nobody. */
static void suspend_or_resume(struct top_view *view, struct top_fetch *fetch)
{
    begin_input(view, TOP_ASK_SUSPEND, "");
    const struct top_row *row = view->ask == TOP_ASK_SUSPEND ? asked_row(view) : NULL;
    if (!row ||
        (!session_is_away(row->session) && strcmp(session_text(row->session, "residency"), "leaving") != 0))
        return;
    view->ask = TOP_ASK_NOTHING;
    resume(view, fetch, row);
}

/* The answer to a question that takes y or n. */
static void take_answer(struct top_view *view, struct top_fetch *fetch, int key)
{
    enum top_ask ask = view->ask;
    view->ask = TOP_ASK_NOTHING;
    const struct top_row *row = key == 'y' || key == 'Y' ? asked_row(view) : NULL;
    if (row && ask == TOP_ASK_RELEASE)
        release(view, fetch, row);
    else if (row)
        suspend(view, fetch, row);
}

static void set_interval(struct top_view *view, struct top_fetch *fetch, double factor)
{
    char text[64];
    uint64_t usec = (uint64_t)(view->interval_seconds * factor * 1e6);
    usec = usec < INTERVAL_LEAST_USEC  ? INTERVAL_LEAST_USEC
           : usec > INTERVAL_MOST_USEC ? INTERVAL_MOST_USEC
                                       : usec;
    view->interval_seconds = (double)usec / 1e6;
    top_fetch_set_interval(fetch, usec);
    snprintf(text, sizeof(text), "the daemon is asked every %g s", view->interval_seconds);
    say(view, false, text);
}

/* Returns false when the user ends it. */
static bool take_key(struct top_view *view, struct top_fetch *fetch, int key)
{
    int place = (int)top_rows_selected(&view->rows), page = (int)top_draw_page(view);
    if (view->ask == TOP_ASK_RELEASE || view->ask == TOP_ASK_SUSPEND) {
        take_answer(view, fetch, key);
        return true;
    }
    if (view->ask != TOP_ASK_NOTHING) {
        take_input(view, fetch, key);
        return true;
    }
    view->said[0] = '\0';
    switch (key) {
    case 'q':
        return false;
    case ESCAPE:
        view->shows_help = false;
        view->detail = TOP_DETAIL_HIDDEN;
        break;
    case KEY_UP:
    case 'k':
        top_rows_select(&view->rows, place - 1);
        break;
    case KEY_DOWN:
    case 'j':
        top_rows_select(&view->rows, place + 1);
        break;
    case KEY_PPAGE:
        top_rows_select(&view->rows, place - page);
        break;
    case KEY_NPAGE:
        top_rows_select(&view->rows, place + page);
        break;
    case KEY_HOME:
        top_rows_select(&view->rows, 0);
        break;
    case KEY_END:
        top_rows_select(&view->rows, (int)view->rows.shown_count - 1);
        break;
    case '\n':
    case '\r':
    case KEY_ENTER:
        view->detail = top_draw_shows_detail(view) ? TOP_DETAIL_HIDDEN : TOP_DETAIL_SHOWN;
        break;
    case 's':
        view->rows.order = (view->rows.order + 1) % TOP_ORDERS;
        top_rows_sort(&view->rows);
        break;
    case '/':
        begin_input(view, TOP_ASK_FILTER, view->rows.filter);
        break;
    case 'l':
        begin_input(view, TOP_ASK_CHANGE, "--memory ");
        break;
    case 'r':
        begin_input(view, TOP_ASK_RELEASE, "");
        break;
    case 'z':
        suspend_or_resume(view, fetch);
        break;
    case '+':
        set_interval(view, fetch, 0.5);
        break;
    case '-':
        set_interval(view, fetch, 2);
        break;
    case ' ':
        view->is_paused = !view->is_paused;
        break;
    case '?':
    case 'h':
        view->shows_help = !view->shows_help;
        break;
    default:
        break;
    }
    return true;
}

/* --- The loop -------------------------------------------------------------------------------------- */

static void take_news(struct top_view *view, struct top_fetch *fetch)
{
    struct top_news news = top_fetch_take(fetch);
    view->is_lost = news.is_lost;
    if (news.said)
        say(view, news.is_bad, news.said);
    free(news.said);
    if (view->is_paused) {
        json_decref(news.sessions);
        json_decref(news.gpus);
    } else if (news.sessions || news.gpus) {
        top_rows_take(&view->rows, news.sessions, news.gpus);
    }
    if (news.history) {
        top_rows_take_history(&view->rows, news.history);
        json_decref(news.history);
    }
}

/* ncurses learns of a new size by a signal, and two changes in a row may come as one signal. */
static void follow_size(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0 &&
        is_term_resized(size.ws_row, size.ws_col))
        resizeterm(size.ws_row, size.ws_col);
}

static void run(struct top_view *view, struct top_fetch *fetch)
{
    struct pollfd waited[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                              {.fd = top_fetch_fd(fetch), .events = POLLIN}};
    bool goes_on = true;
    while (goes_on && !is_over) {
        follow_size();
        top_draw(view);
        if (poll(waited, 2, 1000) < 0 && errno != EINTR)
            break;
        if (waited[0].revents & (POLLHUP | POLLERR | POLLNVAL)) /* the terminal was closed */
            break;
        if (waited[1].revents)
            take_news(view, fetch);
        for (int key; goes_on && (key = getch()) != ERR;)
            goes_on = take_key(view, fetch, key);
        waited[0].revents = waited[1].revents = 0;
    }
}

static enum cli_status show(const struct cli_arguments *arguments)
{
    struct error error;
    struct top_fetch *fetch;
    uint64_t interval = arguments->since_usec ? arguments->since_usec : INTERVAL_USEC;
    static struct top_view view;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before) < 0) {
        error_set(&error, ENOTTY, NULL,
                  "top needs a terminal; 'gpuslice list' and 'gpuslice gpus' print once");
        return cli_report(&error);
    }
    if (interval < INTERVAL_LEAST_USEC || interval > INTERVAL_MOST_USEC) {
        error_set(&error, ERANGE, NULL, "--interval is out of bounds; expected 100ms to 60s");
        return cli_report_usage(&verb_top, &error);
    }
    if (top_fetch_start(&fetch, arguments->simulated, interval, &error) < 0)
        return cli_report(&error);
    view.interval_seconds = (double)interval / 1e6;
    setlocale(LC_ALL, "");
    SCREEN *screen = newterm(NULL, stdout, stdin);
    if (!screen) {
        error_set(&error, ENOTTY, NULL,
                  "the terminal type '%.40s' is unknown; set TERM, or use 'gpuslice list'",
                  getenv("TERM") ? getenv("TERM") : "");
        return cli_report(&error);
    }
    watch_signals();
    cbreak();
    noecho();
    nonl();
    curs_set(0);
    keypad(stdscr, true);
    nodelay(stdscr, true);
    set_escdelay(50);
    top_draw_start(&view);
    run(&view, fetch);
    endwin();
    delscreen(screen);
    top_fetch_stop(fetch);
    top_rows_free(&view.rows);
    return CLI_DONE;
}

/* The words are those after `gpuslice top`. */
int main(int count, char **words)
{
    struct cli_arguments arguments;
    struct error error;
    (void)count;
    if (cli_parse(&verb_top, words + 1, &arguments, &error) < 0)
        return (int)cli_report_usage(&verb_top, &error);
    if (arguments.help) {
        help_print_verb(&verb_top);
        return (int)cli_finish_output();
    }
    return (int)show(&arguments);
}
