/* pod_annotations.h - reads what a pod's annotations ask of its session. Sends no requests. */
#pragma once

#include <jansson.h>

#define POD_PROBLEMS_TEXT 900 /* an event's message has 1024 characters at most */

/* The body of a PATCH with what the annotations ask for. `session` is as the API shows it; neither its limits nor its
 * share grow. `said` gets for each field of the body the annotation that asks for it, with its value. What cannot be read,
 * is unknown, or is more than the session has, is left out and described in `problems`, which is "" where there is nothing
 * to say. */
json_t *pod_annotations_read(const json_t *annotations, const json_t *session, json_t *said,
                             char problems[static POD_PROBLEMS_TEXT]);

/* Add a problem to the text; what does not fit is left out. */
__attribute__((format(printf, 2, 3))) void
pod_annotations_add_problem(char problems[static POD_PROBLEMS_TEXT], const char *format, ...);
