/* options.h - the command line of gpusliced. */
#pragma once

struct daemon_options;

/* Returns -1 to go on, else the exit status. What no option sets stays as it is. */
int options_parse(struct daemon_options *chosen, const char **idle_exit, const char **probed,
                  const char **checkpoint, int count, char **arguments);
