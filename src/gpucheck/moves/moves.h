/* moves.h - sessions whose memory leaves the card and comes back. */
#pragma once

#include <stdint.h>

struct moved {
    double begin_s, end_s; /* when the command began and ended, by now_s() */
    uint64_t bytes;        /* how much left */
};

/* Run `gpuslice suspend`. The check fails unless all of the session's memory but contexts left, `least_bytes` at least: by what
 * the daemon says and by what the card shows as free. If there is too little host memory, the check is not run. */
struct moved moves_suspend(const char *session, uint64_t least_bytes);
/* Run `gpuslice resume`. Returns the seconds; the check fails unless all memory is back. */
double moves_resume(const char *session);
