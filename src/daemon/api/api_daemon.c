/* What the daemon says of itself: version, configuration, health and metrics; and the dashboard's port. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "daemon/api/api.h"
#include "daemon/api/api_pieces.h"
#include "daemon/api/metrics.h"
#include "daemon/http/http.h"
#include "daemon/http/pages.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"

void api_open_dashboard(struct http_request *request, const char *id)
{
    const char *address = NULL;
    struct error error;
    int result = 0;
    if (request->peer.uid != geteuid() && request->peer.uid != 0)
        result = error_set(&error, EACCES, "ERR_FORBIDDEN",
                           "the dashboard shows everybody's sessions; only the daemon's user may open it");
    if (result == 0)
        result = http_open_tcp(request->daemon, &address, &error);
    if (result < 0) {
        http_reply_error(request, &error);
        return;
    }
    log_info("HTTP is served on %s, to programs that have the token", address);
    http_reply_json(request, 200,
                    json_pack("{s:s,s:b}", "address", address, "has_pages", pages[0].path != NULL));
}

void api_show_version(struct http_request *request, const char *id)
{
    struct utsname machine;
    uname(&machine);
    http_reply_json(request, 200,
                    json_pack("{s:s,s:i,s:s}", "version", GPUSLICE_VERSION, "pid", (int)getpid(), "host",
                              machine.nodename));
}

void api_show_config(struct http_request *request, const char *id)
{
    http_reply_json(request, 200, api_config_json(request->daemon));
}

void api_show_health(struct http_request *request, const char *id)
{
    http_reply_text(request, 200, "text/plain", "ok\n");
}

void api_show_readiness(struct http_request *request, const char *id)
{
    for (unsigned i = 0; i < request->daemon->gpu_count; i++) {
        if (request->daemon->gpus[i].healthy)
            continue;
        char text[96];
        snprintf(text, sizeof(text), "GPU %s: NVML does not answer\n", request->daemon->gpus[i].label);
        http_reply_text(request, 503, "text/plain", text);
        return;
    }
    http_reply_text(request, 200, "text/plain", "ok\n");
}

static enum pieces_next write_metrics(void *context, FILE *out)
{
    return metrics_write(context, out) ? PIECES_MORE : PIECES_END;
}

void api_show_metrics(struct http_request *request, const char *id)
{
    static const char *const types[] = {[METRICS_PROMETHEUS] = "text/plain; version=0.0.4",
                                        [METRICS_INFLUX] = "text/plain; charset=utf-8",
                                        [METRICS_JSON] = "application/x-ndjson"};
    const char *named = http_argument(request, "format");
    enum metrics_format format = METRICS_PROMETHEUS;
    struct error error;
    if (named && !metrics_format_parse(named, &format)) {
        error_set(&error, EINVAL, "ERR_BAD_REQUEST", "format is '%.40s'; expected prometheus, influx or json",
                  named);
        http_reply_error(request, &error);
        return;
    }
    /* Whoever reads metrics-address watches the whole machine, and may see everything. */
    uid_t viewer = request->door == HTTP_METRICS ? 0 : request->peer.uid;
    struct metrics_text *text = malloc(sizeof(*text));
    if (text)
        *text = metrics_begin(request->daemon, viewer, format);
    api_reply_pieces(request, 200, types[format], write_metrics, text);
}
