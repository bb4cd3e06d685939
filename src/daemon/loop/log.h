/* log.h - one line per event, to stderr or to a file of bounded size. Any thread may call. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Write to the file `path` from now on , which nobody else may read (appended.h). When it has grown to LOG_FILE_BYTES
 * it becomes `path`.1 and a new one begins. */
#define LOG_FILE_BYTES (4 << 20)
int log_open(const char *path, struct error *error);

/* Whether the lines go to a file. */
bool log_is_file(void);

/* Send stderr to the log file too, for what libraries print there. */
void log_take_stderr(void);

void log_set_debug(bool debug);
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)
