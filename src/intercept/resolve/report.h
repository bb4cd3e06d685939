/* report.h - what the interceptor says, and counts, inside other people's programs.
 *
 * Lines go to descriptor 2 in one write each, past stdio: a program's buffers, locks and locale stay as they
 * were, a closed pipe there raises no SIGPIPE, and errno is kept. Nothing is ever written on stdout. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* "gpuslice: ...\n"; a longer line is cut at REPORT_LINE_BYTES. */
#define REPORT_LINE_BYTES 1024
void report_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same, the first time only, for this `said`. */
#define report_once(said, ...)                                                                               \
    do {                                                                                                     \
        if (!atomic_exchange_explicit((said), true, memory_order_relaxed))                                   \
            report_line(__VA_ARGS__);                                                                        \
    } while (0)

/* The same, with GPUSLICE_DEBUG set (to anything but "" and "0") and the program not privileged. */
void report_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Entry points that were chosen by name because the pointer was none we know: another copy of the driver, or
 * one that hands out functions it does not export. `gpuslice doctor` shows the sum. */
void report_unknown_pointer(const char *symbol);
uint64_t report_unknown_pointers(void);
