/* Handler of POST /v1/room. */
#include "daemon/api/api.h"

#include "base/units.h"
#include "daemon/http/http.h"
#include "daemon/session/admit.h"
#include "daemon/session/request.h"

#define MOST 1000

static int parse_most(const struct http_request *request, uint64_t *most, struct error *error)
{
    const char *text = http_argument(request, "most");
    struct error cause;
    *most = 1;
    if (!text || (units_parse_number(text, MOST, most, &cause) == 0 && *most > 0))
        return 0;
    return error_set(error, EINVAL, "ERR_BAD_REQUEST", "the query is wrong; expected most, from 1 to %d",
                     MOST);
}

void api_count_room(struct http_request *request, const char *id)
{
    struct session_request wanted = {.run_pidfd = -1};
    struct error error;
    json_t *document = NULL;
    uint64_t most;
    int result = parse_most(request, &most, &error);
    if (result == 0)
        result = api_parse_session(request->daemon, request->body, request->body_bytes, true, &document,
                                   &wanted, &error);
    if (!wanted.has_owner)
        wanted.owner = request->peer.uid;
    if (result == 0)
        result = admit_choose_when_full(request->daemon, &wanted, &error);
    if (result < 0) {
        http_reply_error(request, &error);
    } else {
        admit_apply_defaults(request->daemon, &wanted);
        unsigned count = admit_count(request->daemon, &wanted, (unsigned)most, &error);
        http_reply_json(
            request, 200,
            json_pack("{s:i,s:s?}", "sessions", (int)count, "reason", error.status ? error.message : NULL));
    }
    json_decref(document);
}
