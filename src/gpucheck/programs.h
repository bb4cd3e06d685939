/* programs.h - scripts for Python's frameworks, which lie beside the product's libraries. */
#pragma once

#include <limits.h>

/* The check is not run where there is no python3. */
void need_python(void);
/* Where check_`name`.py is. */
void find_script(const char *name, char path[static PATH_MAX]);
/* Whatever PyTorch is started from now on has its expandable segments. */
void use_expandable_segments(void);
