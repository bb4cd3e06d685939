/* gpuslice dashboard: have the daemon serve its dashboard, and say where. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/options.h"
#include "cli/session_cells.h"
#include "cli/verbs.h"
#include "client/client.h"
#include "client/session_fields.h"

#define TOKEN_BYTES 64

static const struct cli_option options[] = {
    {"open", NULL, CLI_FLAG, offsetof(struct cli_arguments, open), "open it in the browser too"},
    CLI_OPTION_JSON,
    CLI_OPTION_SIMULATED,
    CLI_OPTION_HELP,
    CLI_OPTIONS_END,
};

static int read_token(const struct paths *paths, char token[static TOKEN_BYTES + 1], struct error *error)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/http-token", paths->runtime_dir);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t length = fd >= 0 ? read(fd, token, TOKEN_BYTES) : -1;
    if (length != TOKEN_BYTES)
        return error_set_errno(error, fd < 0 || length < 0 ? errno : EIO, "cannot read the token in %s",
                               path);
    token[length] = '\0';
    return 0;
}

/* Everybody can read a program's command line. So the browser gets a file that only this user can read, which leads
 * to the page. */
static int open_browser(const struct paths *paths, const char *url, struct error *error)
{
    char path[PATH_MAX + 16], fresh[PATH_MAX + 24];
    snprintf(path, sizeof(path), "%s/dashboard.html", paths->runtime_dir);
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    unlink(fresh);
    cleanup_close int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 ||
        dprintf(fd,
                "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url=%s\"><title>GPU Slice</title>\n",
                url) < 0 ||
        rename(fresh, path) < 0)
        return error_set_errno(error, errno, "cannot write %s", path);
    pid_t child = fork();
    if (child == 0) {
        execlp("xdg-open", "xdg-open", path, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return error_set(error, ENOEXEC, NULL,
                         "cannot open a browser: xdg-open failed; open the address above");
    return 0;
}

static enum cli_status run_dashboard(const struct cli_arguments *arguments)
{
    struct client client;
    struct error error;
    json_t *answer = NULL;
    char token[TOKEN_BYTES + 1], url[192] = "";
    int result = client_open(&client, arguments->simulated, &error);
    if (result == 0)
        result = client_request(&client, "POST", "/v1/dashboard", NULL, &answer, &error);
    if (result == 0 && !json_is_true(json_object_get(answer, "has_pages")))
        result =
            error_set(&error, ENOENT, NULL,
                      "this gpusliced was built without the dashboard; build it where npm can fetch uPlot");
    if (result == 0)
        result = read_token(&client.paths, token, &error);
    if (result == 0) {
        snprintf(url, sizeof(url), "http://%s/#token=%s", session_text(answer, "address"), token);
        json_object_set_new(answer, "url", json_string(url));
        if (arguments->json)
            cells_print_json(answer);
        else
            puts(url);
        fflush(stdout);
    }
    if (result == 0 && arguments->open)
        result = open_browser(&client.paths, url, &error);
    json_decref(answer);
    client_close(&client);
    return result < 0 ? cli_report(&error) : cli_finish_output();
}

const struct cli_verb verb_dashboard = {
    .name = "dashboard",
    .summary = "print the address of the dashboard, for a browser",
    .text = "The daemon then serves HTTP on this machine alone, at http-address of gpuslice.conf or a free "
            "port. Whoever has the address acts as the daemon's user, as the part after its # is the token. "
            "From another machine, use 'ssh -L PORT:127.0.0.1:PORT HOST' and the same address.",
    .examples = "  gpuslice dashboard --open",
    .options = options,
    .act = run_dashboard,
};
