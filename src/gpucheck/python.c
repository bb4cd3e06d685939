#include "gpucheck/python.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/paths.h"
#include "gpucheck/check.h"

bool is_in_path(const char *name)
{
    char file[PATH_MAX];
    const char *list = getenv("PATH");
    for (const char *at = list ? list : ""; *at;) {
        size_t length = strcspn(at, ":");
        snprintf(file, sizeof(file), "%.*s/%s", (int)length, at, name);
        if (access(file, X_OK) == 0)
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

void find_script(const char *name, char path[static PATH_MAX])
{
    struct error error;
    char below[64];
    snprintf(below, sizeof(below), "gpu-check/check_%s.py", name);
    if (paths_library(below, path, &error) < 0)
        fail_and_end("%s", error.message);
}

void need_python(void)
{
    if (!is_in_path("python3"))
        not_run("python3 is not installed");
}

void use_expandable_segments(void)
{
    setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", 1);
    setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", 1);
}
