/* role/record.h - whether sessions are guests or take turns, and why.
 *
 * Written by role/ alone. Times are nanoseconds. */
#pragma once

#include "daemon/schedule/backoff.h"
#include "daemon/schedule/types.h"

/* How a session fared for `ns`: its speed as a part of its speed alone, times the time; and its calls. */
struct pace {
    double ns, speed_ns, calls;
};

/* How well a session used the time in which others held still for its bursts, since `from`. */
struct favour {
    uint64_t from;
    double ns, used_ns;
    /* How long they have been holding still. `ns` leaves out the first part of that, in which the GPU still does
     * what they had before it. */
    double still_ns;
    /* The window before was wasted too. One wasted window says nothing: on a busy machine, any program leaves the
     * GPU idle now and then. */
    bool was_wasted;
    /* They do not hold still. */
    struct backoff pause;
};

struct session_role {
    /* Whether it takes turns; until when as a needy guest, and until when for the sake of others; and for how long
     * the next time. */
    bool takes_turns;
    enum arbiter_why why;
    /* Of a needy one: its speed as a guest, as a part of its speed alone; and the serial number of the session beside it
     * that used most. */
    double got;
    uint64_t beside;
    /* Its cost is to be learned in its turns, for which all other gates are closed. */
    bool is_measured;
    struct backoff needy, donor;
    /* It is not needy, since turns did not help it. */
    struct backoff content;
    /* How it fared of late as a guest beside others; and in turns, since it was last found needy. */
    struct pace as_guest, in_turns;
    /* Of the account and of its calls in all, what was looked at. */
    struct pace seen;
    struct favour favour;
};
