/* gpuslice suspend and gpuslice resume: a session's memory leaves the card, and comes back. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/client.h"
#include "client/session_fields.h"

#define ASK_USEC 100000

static const struct cli_option options[] = {
    {"no-wait", NULL, CLI_FLAG, offsetof(struct cli_arguments, no_wait),
     "return at once, before the move is done"},
    CLI_OPTION_JSON,
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

/* One line that is written over, for people at a terminal. */
static void show_progress(const json_t *session)
{
    const json_t *move = json_object_get(session, "move"), *left = json_object_get(move, "seconds_left");
    char done[UNITS_BYTES_TEXT], total[UNITS_BYTES_TEXT], seconds[48] = "";
    if (!json_is_object(move) || !isatty(STDERR_FILENO))
        return;
    if (json_is_real(left))
        snprintf(seconds, sizeof(seconds), ", %.0f s left", json_real_value(left));
    fprintf(stderr, "\r\033[K%s of %s%s", units_format_bytes(session_number(move, "done_bytes"), done),
            units_format_bytes(session_number(move, "total_bytes"), total), seconds);
    fflush(stderr);
}

static void end_progress(bool was_shown)
{
    if (was_shown && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

/* When a session ends, its memory goes with it, so nothing is left to wait for. */
static bool has_ended(int result, const struct error *error)
{
    return result < 0 && error->code && strcmp(error->code, "ERR_SESSION_NOT_FOUND") == 0;
}

/* Ask until the session's memory is where it should be, the session has ended, or it says why it cannot. */
static int wait_for_move(struct client *client, bool (*is_there)(const json_t *session), json_t **session,
                         struct error *error)
{
    char id[32];
    bool shown = false;
    int result = 0;
    snprintf(id, sizeof(id), "%s", session_text(*session, "session_id"));
    while (result == 0 && !is_there(*session) && !json_is_string(json_object_get(*session, "move_failure"))) {
        show_progress(*session);
        shown = true;
        usleep(ASK_USEC);
        json_t *now = NULL;
        result = client_request_session(client, "GET", id, "", NULL, &now, error);
        if (result < 0)
            break;
        json_decref(*session);
        *session = now;
    }
    end_progress(shown);
    if (has_ended(result, error))
        return 0;
    if (result < 0 || is_there(*session))
        return result;
    return error_set(error, EIO, NULL, "session %s: %s", id, session_text(*session, "move_failure"));
}

/* Say what could not leave. */
static void tell_stays(const json_t *session)
{
    struct error error;
    char left[UNITS_BYTES_TEXT], stays[SESSION_STAYS_TEXT];
    error_set(&error, EBUSY, NULL, "session %s is partly away: %s left the card, and %s",
              session_text(session, "session_id"),
              units_format_bytes(session_number(session, "evicted_bytes"), left),
              session_stays(session, stays));
    cli_report(&error);
}

static enum cli_status move(const struct cli_arguments *arguments, const char *order,
                            bool (*is_there)(const json_t *session))
{
    struct client client;
    struct error error;
    json_t *session = NULL;
    int result = client_open(&client, arguments->simulated, &error);
    if (result == 0)
        result =
            client_request_session(&client, "POST", arguments->operands[0], order, NULL, &session, &error);
    if (result == 0 && !arguments->no_wait)
        result = wait_for_move(&client, is_there, &session, &error);
    client_close(&client);
    bool is_in_part = result == 0 && is_there == session_is_away && session_is_partly_away(session);
    if (result == 0 && arguments->json)
        cells_print_json(session);
    if (is_in_part)
        tell_stays(session);
    json_decref(session);
    if (result < 0)
        return cli_report(&error);
    enum cli_status status = cli_finish_output();
    return status == CLI_DONE && is_in_part ? CLI_IN_PART : status;
}

static enum cli_status suspend(const struct cli_arguments *arguments)
{
    return move(arguments, "/suspend", session_is_away);
}

static bool is_resident(const json_t *session)
{
    return strcmp(session_text(session, "residency"), "resident") == 0;
}

static enum cli_status resume(const struct cli_arguments *arguments)
{
    return move(arguments, "/resume", is_resident);
}

const struct cli_verb verb_suspend = {
    .name = "suspend",
    .operands = "SESSION",
    .operand_kind = CLI_SESSION,
    .operands_min = 1,
    .operands_max = 1,
    .summary = "have a session's GPU memory leave the card",
    .text =
        "The session's GPU memory moves to host memory; its programs go on until they touch the GPU, and "
        "then wait for 'gpuslice resume'. Returns when the memory has left the card, or the session has "
        "ended. Memory that cannot leave the card stays there: the command then says how much and why, and "
        "its status is 3. If the session was not made with --oversubscribe, the driver takes its programs "
        "off the card as a whole, which needs driver 570 or later.",
    .examples = "  gpuslice create --name notebook --memory 4GiB --oversubscribe\n"
                "  gpuslice suspend notebook",
    .options = options,
    .act = suspend,
};

const struct cli_verb verb_resume = {
    .name = "resume",
    .operands = "SESSION",
    .operand_kind = CLI_SESSION,
    .operands_min = 1,
    .operands_max = 1,
    .summary = "have a suspended session's GPU memory come back to the card",
    .text = "The session's programs find the same bytes at the same addresses, and go on. Returns when all "
            "of the memory is back, or the session has ended.",
    .examples = "  gpuslice resume notebook",
    .options = options,
    .act = resume,
};
