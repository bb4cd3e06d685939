/* beliefs.h - what is believed of a card (beliefs.def), beside what a check found. */
#pragma once

#include <jansson.h>
#include <stdio.h>

/* Add to a check's result (runner.h) "beliefs": [{page, claim, expected, found, verdict: "as believed" | "not as believed" |
 * "could not be tried"}]. Where GPU Slice rests on one that is not so, the check has failed, with that as a reason. */
void beliefs_judge(json_t *result);

/* One line for each; and one for all results. */
void beliefs_print(FILE *out, const json_t *result);
void beliefs_print_sum(FILE *out, const json_t *results);
