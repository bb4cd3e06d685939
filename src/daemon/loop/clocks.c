#include "daemon/loop/clocks.h"

#include <stdlib.h>
#include <time.h>

#define STEP_MS 500 /* a smaller difference only comes from reading two clocks one after the other */

static int64_t read_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t clock_machine_ms(void)
{
    return read_ms(CLOCK_BOOTTIME);
}

int64_t clock_wall_ahead_ms(void)
{
    static int64_t ahead_ms;
    int64_t now_ms = read_ms(CLOCK_REALTIME) - clock_machine_ms();
    if (llabs(now_ms - ahead_ms) >= STEP_MS)
        ahead_ms = now_ms;
    return ahead_ms;
}
