/* report.h - the pipe from a check's processes to the one that runs the checks: one line for each report, in the
 * order of writing, from whichever process of the check.
 *
 *   figure NAME VALUE UNIT    text NAME TEXT    detail NAME TEXT    failed REASON    stop REASON    not-run REASON
 *   ended
 *
 * separated by tabs. A line is shorter than PIPE_BUF, so that lines of several processes do not mix. */
#pragma once

#define REPORT_FD 3
#define REPORT_LINE_BYTES 1024

/* Report that the check has come to its end. */
void report_ended(void);
