/* What all bodies of requests have in common: an object of JSON, of no more values than the loop has time for. */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/api/api.h"

/* How many values the text has, or more: an element follows each comma, and each bracket may be followed by a first
 * one. Text that is not JSON has some number too. */
static size_t count_values(const char *text, size_t bytes)
{
    size_t count = 1;
    bool is_in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        char byte = text[i];
        if (byte == '"')
            is_in_string = !is_in_string;
        else if (is_in_string)
            i += byte == '\\';
        else
            count += byte == ',' || byte == '[' || byte == '{';
    }
    return count;
}

int api_parse_body(const char *body, size_t bytes, json_t **document, struct error *error)
{
    json_error_t problem;
    *document = NULL;
    if (count_values(body, bytes) > API_BODY_VALUES_MAX)
        return error_set(error, EINVAL, "ERR_BAD_REQUEST",
                         "the body has too many values; expected at most %d", API_BODY_VALUES_MAX);
    *document = bytes ? json_loadb(body, bytes, JSON_REJECT_DUPLICATES, &problem) : json_object();
    if (!*document)
        return error_set(error, EINVAL, "ERR_BAD_REQUEST",
                         "the body is not JSON: %.200s (line %d, column %d)", problem.text, problem.line,
                         problem.column);
    if (json_is_object(*document))
        return 0;
    json_decref(*document);
    *document = NULL;
    return error_set(error, EINVAL, "ERR_BAD_REQUEST", "the body is not a JSON object; expected {...}");
}
