/* process.h - telling processes apart by pid and start time, so that a reused pid is not taken for the process that
 * died. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The start time of `pid` in clock ticks since boot (proc(5), /proc/PID/stat field 22). Returns 0 or a
 * negative errno; -ESRCH when there is no such process, or only its zombie. Opens and closes one
 * descriptor; allocates nothing. */
int process_start_time(pid_t pid, uint64_t *ticks);

/* The parent of `pid` (field 4 of the same file); 0 when the parent is in a pid namespace that is not visible here.
 * Fails as process_start_time() does. */
int process_parent(pid_t pid, pid_t *parent);

/* Whether it is stopped, by a signal or a debugger. False also if it cannot be read. */
bool process_is_stopped(pid_t pid);

/* The name of the program that `pid` runs, as /proc/PID/comm has it; "" when it cannot be read. A program chooses its
 * name: what is not UTF-8 or a control character reads '?'. A letter that the kernel cut in two at the end is left out. */
void process_command(pid_t pid, char *command, size_t bytes);

/* For a thread that others wait for, and that wakes up, works for some microseconds and sleeps again. Where Linux
 * has time slices per thread (6.12), a short slice lets the thread run at once, however busy the CPUs are. Needs no
 * privilege; where it is not supported, nothing changes. */
void process_ask_for_short_slices(void);

/* How the process ended, as waitpid() tells: the process is no child of ours, and `pidfd` says that it has ended. Linux tells
 * since 6.15, and until its parent has waited for it, earlier kernels too. False: not known. */
bool process_exit_status(int pidfd, pid_t pid, int *status);

/* Whether the process that had `pid` and `start_ticks` still runs. A zombie does not run. */
bool process_is_alive(pid_t pid, uint64_t start_ticks);
