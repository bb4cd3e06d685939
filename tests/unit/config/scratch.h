/* scratch.h - a folder for the files of one test, and no settings of ours in the environment. */
#pragma once

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/config.h"

static char folder[64];

static int set_up(void **state)
{
    for (const struct config_key *key = config_next_key(NULL); key; key = config_next_key(key))
        if (key->environment)
            unsetenv(key->environment);
    strcpy(folder, "/tmp/test_config.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

/* Write the file `name` of the folder. Returns its path. */
static const char *put(const char *name, const char *text)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0)
        abort();
    return path;
}
