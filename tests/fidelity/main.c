/* fidelity [--json] [--group NAME] - check each claim of the simulated GPU about the driver against the
 * libcuda.so.1 that this process finds: the simulated one, or NVIDIA's with a card. Ends with 0 if all hold,
 * 1 if one does not, 2 for wrong use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpucheck/claims/claims.h"

static struct claim_record *records;
static size_t record_count;

static void record_keep(const struct claim_record *made)
{
    struct claim_record *grown = realloc(records, (record_count + 1) * sizeof(*records));
    if (!grown) {
        perror("fidelity");
        exit(2);
    }
    records = grown;
    records[record_count++] = *made;
}

/* Where the claim was seen to hold, or NULL. */
static const char *verified(const char *name)
{
    static const struct {
        const char *name, *where;
    } rows[] = {
#define VERIFIED(claim, card, driver, date) {claim, card ", driver " driver ", " date},
#include "gpucheck/claims/verified.def"
#undef VERIFIED
        {NULL, NULL},
    };
    for (size_t i = 0; rows[i].name; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].where;
    return NULL;
}

static void print_table(void)
{
    printf("%-12s %-72s %-38s %-38s %-4s %s\n", "GROUP", "CLAIM", "CLAIMED", "OBSERVED", "OK", "VERIFIED ON");
    size_t failed = 0;
    for (size_t i = 0; i < record_count; i++) {
        const struct claim_record *row = &records[i];
        const char *where = verified(row->name);
        failed += !row->ok;
        printf("%-12s %-72s %-38s %-38s %-4s %s\n", row->group, row->name, row->claimed, row->observed,
               row->ok ? "yes" : "NO", where ? where : "unverified");
    }
    printf("%zu claims, %zu do not hold\n", record_count, failed);
}

static void print_json_text(const char *text)
{
    putchar('"');
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text >= ' ')
            putchar(*text);
    putchar('"');
}

static void print_json(void)
{
    static const char *const names[] = {"group", "name", "claimed", "observed"};
    puts("[");
    for (size_t i = 0; i < record_count; i++) {
        const struct claim_record *row = &records[i];
        const char *const values[] = {row->group, row->name, row->claimed, row->observed};
        const char *where = verified(row->name);
        printf(" {");
        for (unsigned field = 0; field < 4; field++) {
            print_json_text(names[field]);
            printf(": ");
            print_json_text(values[field]);
            printf(", ");
        }
        printf("\"ok\": %s, \"verified\": ", row->ok ? "true" : "false");
        if (where)
            print_json_text(where);
        else
            printf("null");
        puts(i + 1 < record_count ? "}," : "}");
    }
    puts("]");
}

int main(int count, char **words)
{
    const char *only = NULL;
    bool json = false, found = false;
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--json") == 0)
            json = true;
        else if (strcmp(words[i], "--group") == 0 && i + 1 < count)
            only = words[++i];
        else {
            fprintf(stderr, "usage: fidelity [--json] [--group NAME]\n");
            return 2;
        }
    }
    for (unsigned room = 0; claim_rooms[room]; room++)
        for (const struct group *group = claim_rooms[room]; group->name; group++)
            if (!only || strcmp(only, group->name) == 0) {
                found = true;
                if (!claims_run(group, record_keep)) {
                    perror("fidelity: no process for a group");
                    return 2;
                }
            }
    if (!found) {
        fprintf(stderr, "fidelity: there is no group '%s'; leave --group out to run all\n", only);
        return 2;
    }
    if (json)
        print_json();
    else
        print_table();
    for (size_t i = 0; i < record_count; i++)
        if (!records[i].ok)
            return 1;
    return 0;
}
