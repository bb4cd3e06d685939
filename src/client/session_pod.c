#include "client/session_pod.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/session_fields.h"

#define NAME_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

bool session_pod_is_meant(const char *text)
{
    unsigned parts = 0;
    for (;; text++) {
        size_t length = strspn(text, NAME_LETTERS);
        text += length;
        if (!length || strchr("._-", text[-(ptrdiff_t)length]) || ++parts > 3)
            return false;
        if (*text != '/')
            return *text == '\0' && parts > 1;
    }
}

/* Whether the text, up to its end or the next '/', is the session's. Moves on behind it. */
static bool part_matches(const char **text, const json_t *session, const char *field)
{
    const char *value = session_text(session, field);
    size_t length = strcspn(*text, "/");
    bool is_same = strlen(value) == length && memcmp(value, *text, length) == 0;
    *text += length + ((*text)[length] == '/');
    return is_same;
}

bool session_pod_is_of(const json_t *object, const char *text)
{
    return part_matches(&text, object, "namespace") && part_matches(&text, object, "pod") &&
           (!*text || part_matches(&text, object, "container"));
}

int session_pod_find(const json_t *sessions, const char *text, char id[static SESSION_POD_ID_TEXT],
                     struct error *error)
{
    const json_t *session, *found = NULL;
    size_t i, count = 0;
    json_array_foreach((json_t *)sessions, i, session)
    {
        if (!session_pod_is_of(session, text))
            continue;
        found = session;
        count++;
    }
    if (count == 0)
        return error_set(error, ENOENT, "ERR_SESSION_NOT_FOUND", "no session is for the pod '%s'", text);
    if (count > 1)
        return error_set(error, EBUSY, "ERR_AMBIGUOUS",
                         "%zu sessions are for containers of the pod '%s'; give NAMESPACE/POD/CONTAINER",
                         count, text);
    snprintf(id, SESSION_POD_ID_TEXT, "%s", session_text(found, "session_id"));
    return 0;
}
