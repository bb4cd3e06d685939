/* gpu_clock - tells how long the compute engine of a simulated GPU has worked, and for whom.
 *
 * For each line on standard input, the number of a GPU, prints one line: when (CLOCK_MONOTONIC, ns), and
 * PLACE:PID:NS for each place that a process has or had in the simulated machine (simgpu/driver/fakecuda.h). Ends at
 * the end of input. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "simgpu/driver/fakecuda.h"

#define PLACES 1024

int main(void)
{
    static struct fakecuda_compute places[PLACES];
    char line[64];
    while (fgets(line, sizeof(line), stdin)) {
        uint64_t now_ns;
        int count = fakecuda_compute((unsigned)strtoul(line, NULL, 10), &now_ns, places, PLACES);
        if (count < 0) {
            fprintf(stderr, "gpu_clock: there is no such simulated GPU\n");
            return 1;
        }
        printf("%" PRIu64, now_ns);
        for (int i = 0; i < count; i++)
            printf(" %" PRIu32 ":%d:%" PRIu64, places[i].place, (int)places[i].pid, places[i].computed_ns);
        putchar('\n');
        fflush(stdout);
    }
    return 0;
}
