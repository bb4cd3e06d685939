/* Preloaded into a program: clocks that somebody sets. For the program's own code it is as many seconds later as the file LATER_CLOCK
 * says, by every clock; for its libraries it is as late as the kernel says, so timers and the deadlines of requests stay as they are. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static time_t seconds_later(void)
{
    char text[32] = "";
    int fd = open(getenv("LATER_CLOCK"), O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, text, sizeof(text) - 1) < 0)
            abort();
        close(fd);
    }
    return (time_t)strtol(text, NULL, 10);
}

static bool is_of_program(void *code)
{
    Dl_info program, object;
    return dladdr((void *)getauxval(AT_ENTRY), &program) && dladdr(code, &object) &&
           program.dli_fbase == object.dli_fbase;
}

static int read_clock(clockid_t clock, struct timespec *now, void *caller)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && is_of_program(caller))
        now->tv_sec += seconds_later();
    return result;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    return read_clock(clock, now, __builtin_return_address(0));
}

__attribute__((visibility("default"))) time_t time(time_t *result)
{
    struct timespec now;
    read_clock(CLOCK_REALTIME, &now, __builtin_return_address(0));
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}
