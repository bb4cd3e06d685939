/* moves.h - sessions whose memory leaves the card and comes back. */
#pragma once

/* `gpuslice suspend` or `resume`; the seconds that it took. Where host memory does not suffice, the check is not run. */
double moves_order(const char *verb, const char *session);
