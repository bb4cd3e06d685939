#include "gpucheck/beliefs.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gpucheck/check.h"

enum weight { RESTS, KNOWN };

static const struct belief {
    const char *check, *figure, *expected;
    enum weight weight;
    const char *page, *claim;
} beliefs[] = {
#define BELIEF(check, figure, expected, weight, page, claim) {check, figure, expected, weight, page, claim},
#include "gpucheck/beliefs.def"
#undef BELIEF
};
#define BELIEFS (sizeof(beliefs) / sizeof(beliefs[0]))

enum verdict { AS_BELIEVED, NOT_AS_BELIEVED, NOT_TRIED_HERE, VERDICTS };
static const char *const verdicts[VERDICTS] = {"as believed", "not as believed", "could not be tried"};

static const char *word_of(const json_t *object, const char *key)
{
    const char *word = json_string_value(json_object_get(object, key));
    return word ? word : "";
}

/* What the check found, as a text. False if it came to nothing that can be compared. */
static bool find(const struct belief *belief, const json_t *result, const char *outcome, char *text,
                 size_t size)
{
    const json_t *figure = json_object_get(json_object_get(result, "figures"), belief->figure);
    const char *said = json_string_value(figure);
    if (!*belief->figure)
        snprintf(text, size, "%s", outcome);
    else if (said)
        snprintf(text, size, "%s", said);
    else if (figure)
        snprintf(text, size, "%.6g %s", json_number_value(json_object_get(figure, "value")),
                 word_of(figure, "unit"));
    else
        snprintf(text, size, "the check %s",
                 strcmp(outcome, "not run") == 0 ? "was not run" : "did not come to it");
    bool is_outcome = !*belief->figure && strcmp(outcome, "not run") != 0;
    return is_outcome || (figure && strncmp(text, NOT_TRIED, strlen(NOT_TRIED)) != 0);
}

static bool is_as_expected(const struct belief *belief, const json_t *result, const char *found)
{
    const json_t *figure = json_object_get(json_object_get(result, "figures"), belief->figure);
    double value = json_number_value(json_object_get(figure, "value"));
    if (strncmp(belief->expected, "<= ", 3) == 0)
        return value <= strtod(belief->expected + 3, NULL);
    if (strncmp(belief->expected, ">= ", 3) == 0)
        return value >= strtod(belief->expected + 3, NULL);
    return strcmp(belief->expected, found) == 0;
}

/* The check fails by what GPU Slice rests on, unless it is the check's own failure that is not as believed. */
static void fail_by(const struct belief *belief, json_t *result, const char *found)
{
    if (!*belief->figure)
        return;
    json_array_append_new(json_object_get(result, "reasons"),
                          json_sprintf("GPU Slice rests on this (docs/%s): %s. Expected '%s', found '%s'",
                                       belief->page, belief->claim, belief->expected, found));
    json_object_set_new(result, "outcome", json_string("failed"));
}

void beliefs_judge(json_t *result)
{
    char found[256], outcome[16];
    json_t *list = json_array();
    snprintf(outcome, sizeof(outcome), "%s", word_of(result, "outcome")); /* before a belief changes it */
    for (const struct belief *belief = beliefs; belief < beliefs + BELIEFS; belief++) {
        if (strcmp(belief->check, word_of(result, "name")) != 0)
            continue;
        enum verdict verdict = NOT_TRIED_HERE;
        if (find(belief, result, outcome, found, sizeof(found)))
            verdict = is_as_expected(belief, result, found) ? AS_BELIEVED : NOT_AS_BELIEVED;
        if (verdict == NOT_AS_BELIEVED && belief->weight == RESTS)
            fail_by(belief, result, found);
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:s}", "page", belief->page, "claim",
                                              belief->claim, "expected", belief->expected, "found", found,
                                              "verdict", verdicts[verdict]));
    }
    json_object_set_new(result, "beliefs", list);
}

void beliefs_print(FILE *out, const json_t *result)
{
    const json_t *belief;
    size_t i;
    json_array_foreach(json_object_get(result, "beliefs"), i, belief)
    {
        const char *verdict = word_of(belief, "verdict");
        fprintf(out, "    %s: docs/%s: %s", verdict, word_of(belief, "page"), word_of(belief, "claim"));
        if (strcmp(verdict, verdicts[AS_BELIEVED]) == 0)
            fputc('\n', out);
        else
            fprintf(out, " (expected '%s', found '%s')\n", word_of(belief, "expected"),
                    word_of(belief, "found"));
    }
}

void beliefs_print_sum(FILE *out, const json_t *results)
{
    unsigned counts[VERDICTS] = {0};
    const json_t *result, *belief;
    size_t i, j;
    json_array_foreach(results, i, result) json_array_foreach(json_object_get(result, "beliefs"), j,
                                                              belief) for (unsigned k = 0; k < VERDICTS; k++)
        counts[k] += strcmp(word_of(belief, "verdict"), verdicts[k]) == 0;
    fprintf(out,
            "of what the docs say of a card: %u as believed, %u not as believed, %u could not be tried\n",
            counts[AS_BELIEVED], counts[NOT_AS_BELIEVED], counts[NOT_TRIED_HERE]);
}
