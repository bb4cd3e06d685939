/* Preloaded into a program with an sd-event loop: its timers of a second or more come once an hour, so what it does at once, it
 * does because of an event. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

__attribute__((visibility("default"))) int sd_event_source_set_time_relative(void *source, uint64_t usec);

int sd_event_source_set_time_relative(void *source, uint64_t usec)
{
    int (*real)(void *source, uint64_t usec);
    *(void **)&real = dlsym(RTLD_NEXT, "sd_event_source_set_time_relative");
    if (!real)
        abort();
    return real(source, usec < 1000000 ? usec : UINT64_C(3600) * 1000000);
}
