/* order/record.h - how sessions stand in the order of turns. Written by order/ alone. */
#pragma once

#include <stdbool.h>

struct session_order {
    /* How far it is ahead of its GPUs' clocks, in virtual nanoseconds. Read for sessions that want a turn. */
    double lag;
    /* A session that is a turn behind its minimum while one of a higher priority comes before it is due: it comes
     * first until it has caught up. */
    bool is_due, is_robbed;
};
