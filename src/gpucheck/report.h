/* report.h - the pipe between a check's process and the one that runs the checks: a line a thing said, in the
 * order in which it was said, by whichever process of the check.
 *
 *   figure NAME VALUE UNIT    text NAME TEXT    detail NAME TEXT    failed REASON    not-run REASON    ended
 *
 * separated by tabs. A line is shorter than PIPE_BUF, so that those of several processes do not mix. */
#pragma once

#define REPORT_FD 3
#define REPORT_LINE_BYTES 1024

/* The check has come to its end. */
void report_ended(void);
