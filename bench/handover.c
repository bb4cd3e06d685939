/* handover - gives the GPU next to nothing to do, as often as it can, and says when it could not.
 *
 *   handover SECONDS
 *
 * Prints "ready", waits for a line on standard input, launches empty kernels for so long, and prints for each
 * pause of PAUSE_NS and more when its last launch before had returned and when the first one after did
 * (CLOCK_MONOTONIC, ns). A pause may be a closed gate or a lost CPU: bench/shares.py tells them apart by the
 * other session's pauses. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "driver_program.h"

#define PAUSE_NS 20000
#define PAUSES_MOST 65536u

static struct {
    long last_ns, first_ns;
} pauses[PAUSES_MOST];

int main(int count, char **words)
{
    char line[16];
    long seconds = count > 1 ? strtol(words[1], NULL, 10) : 0;
    unsigned found = 0;
    if (seconds <= 0)
        return 2;
    CHECK(cuInit(0));
    use_gpu(0);
    CUfunction nothing = find_kernel(load_module(PTX(PTX_NOTHING)), "nothing");
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        return 1;
    long last_ns = now_ns(), end_ns = last_ns + seconds * 1000000000L;
    while (last_ns < end_ns && found < PAUSES_MOST) {
        CHECK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
        long now = now_ns();
        if (now - last_ns >= PAUSE_NS) {
            pauses[found].last_ns = last_ns;
            pauses[found++].first_ns = now;
        }
        last_ns = now;
    }
    for (unsigned i = 0; i < found; i++)
        printf("%ld %ld\n", pauses[i].last_ns, pauses[i].first_ns);
    return 0;
}
