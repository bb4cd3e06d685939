/* process.h - which process a pid means, so that a reused pid is never taken for the one that died. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The start time of `pid` in clock ticks since boot (proc(5), /proc/PID/stat field 22). Returns 0 or a
 * negative errno; -ESRCH when there is no such process, or only its zombie. Opens and closes one
 * descriptor; allocates nothing. */
int process_start_time(pid_t pid, uint64_t *ticks);

/* Whose child `pid` is (field 4); 0 where that one cannot be seen from here. Fails as process_start_time() does. */
int process_parent(pid_t pid, pid_t *parent);

/* For a thread that others wait for, and that is woken, works for some microseconds and sleeps: where Linux
 * knows slices of a thread's own (6.12), a short one lets it run at once, however busy the CPUs are. No right
 * is needed; where it cannot be had, nothing changes. */
void process_ask_for_short_slices(void);

/* Whether the process that had `pid` and `start_ticks` still runs. A zombie does not. */
bool process_is_alive(pid_t pid, uint64_t start_ticks);
