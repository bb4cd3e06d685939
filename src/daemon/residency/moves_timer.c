/* When the daemon looks again at what moves. */
#include "daemon/loop/daemon.h"
#include "daemon/residency/moves_state.h"

void moves_look_again(struct moves *moves, uint64_t usec)
{
    int enabled;
    uint64_t set_usec;
    if (sd_event_source_get_enabled(moves->timer, &enabled) >= 0 && enabled != SD_EVENT_OFF &&
        sd_event_source_get_time(moves->timer, &set_usec) >= 0 && set_usec <= usec)
        return;
    sd_event_source_set_time(moves->timer, usec);
    sd_event_source_set_enabled(moves->timer, SD_EVENT_ONESHOT);
}

void moves_set_timer(struct moves *moves)
{
    moves_look_again(moves, daemon_now_usec() + MOVES_TICK_USEC);
}
