/* report.h - what the interceptor prints, and counts, inside other people's programs.
 *
 * Each line goes to descriptor 2 (or to vgpu.rs's TF_LOG_PATH: report.c) in one write, past stdio: the program's
 * buffers, locks and locale stay as they were, a closed pipe raises no SIGPIPE, and errno is kept. Nothing is ever
 * written to stdout. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* "gpuslice: ...\n"; a longer line is cut at REPORT_LINE_BYTES. */
#define REPORT_LINE_BYTES 1024
void report_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* report_line(), but only the first time for this `said`. */
#define report_once(said, ...)                                                                               \
    do {                                                                                                     \
        if (!atomic_exchange_explicit((said), true, memory_order_relaxed))                                   \
            report_line(__VA_ARGS__);                                                                        \
    } while (0)

/* The same for a line that only helps to debug: if GPUSLICE_DEBUG is set to anything but "" and "0", or is not set and
 * vgpu.rs's TF_LOG_LEVEL asks for it; never in a privileged program. */
void report_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Count an entry point that was chosen by name because the pointer was not one that we know: another copy of the
 * driver, or a driver that hands out functions that it does not export. `gpuslice doctor` shows the sum. */
void report_unknown_pointer(const char *symbol);
uint64_t report_unknown_pointers(void);
