#include "daemon/http/http_connection.h"

#include <microhttpd.h>

#include "daemon/loop/daemon.h"
#include "daemon/loop/deferred.h"

/* How long libmicrohttpd may go from one connection to the next; then the rest wait for their turns. */
#define RUN_USEC UINT64_C(1000)

void http_resume(struct http_request *request)
{
    struct http *http = request->daemon->http;
    if (!request->is_suspended)
        return;
    request->is_suspended = false;
    MHD_resume_connection(request->connection);
    deferred_wake(http->servers[request->door].due);
}

void http_suspend(struct http_request *request)
{
    request->is_suspended = true;
    MHD_suspend_connection(request->connection);
}

void http_wait_for_turn(struct http_request *request)
{
    http_suspend(request);
    http_turns_join(request->daemon->http->turns, request->peer.uid, &request->turn, request);
}

bool http_is_stopping(const struct http_request *request)
{
    return request->daemon->http->is_stopping;
}

bool http_has_run_long(const struct http_request *request)
{
    return daemon_now_usec() - request->daemon->http->run_began_usec > RUN_USEC && !http_is_stopping(request);
}
