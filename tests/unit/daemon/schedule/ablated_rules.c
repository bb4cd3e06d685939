/* Switches rules of the scheduler off: those that GPUSLICE_RULES_OFF names, with a comma between two. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/schedule/rules.h"

bool rules_off[RULES];

static const char *const names[] = {
#define RULE(name, text) #name,
#include "daemon/schedule/rules.def"
#undef RULE
};

static void switch_off(const char *name)
{
    for (unsigned i = 0; i < RULES; i++)
        if (strcmp(names[i], name) == 0) {
            rules_off[i] = true;
            return;
        }
    fprintf(stderr, "there is no rule '%s'\n", name);
    exit(2);
}

__attribute__((constructor)) static void read_names(void)
{
    static char words[4096];
    const char *off = getenv("GPUSLICE_RULES_OFF");
    snprintf(words, sizeof(words), "%s", off ? off : "");
    for (const char *name = strtok(words, ","); name; name = strtok(NULL, ","))
        switch_off(name);
}
