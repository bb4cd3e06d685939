/* terminal.h - a line on the terminal of a process, for people who have no other place where they would read it. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Write "gpuslice: TEXT" on a line of its own to the terminal that process `pid` has as its standard error, output or input.
 * False: it has none, or the terminal takes no messages from us (mesg(1)). Never waits for a slow terminal. `text` must
 * be printable. */
bool terminal_tell(pid_t pid, const char *text);
