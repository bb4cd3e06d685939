/* moves.h - sessions whose memory leaves the card and comes back. */
#pragma once

/* Run `gpuslice suspend` or `resume`. Returns the seconds that it took. If there is too little host memory, the
 * check is not run. */
double moves_order(const char *verb, const char *session);
