/* python.h - scripts for Python's frameworks, which are installed beside GPU Slice's libraries. */
#pragma once

#include <limits.h>
#include <stdbool.h>

/* Whether PATH has a program of that name. */
bool is_in_path(const char *name);
/* Without python3 the check is not run. */
void need_python(void);
/* Set `path` to that of check_`name`.py. */
void find_script(const char *name, char path[static PATH_MAX]);
/* Programs that are started from now on use PyTorch's expandable segments. */
void use_expandable_segments(void);
