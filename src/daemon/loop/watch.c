#include "daemon/loop/watch.h"

#include <sys/resource.h>
#include <systemd/sd-event.h>
#include <time.h>

#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/users/user_time.h"

/* Log at most this often, unless a hold is the longest so far. */
#define TELL_USEC UINT64_C(10000000)
/* A shorter hold goes to the log and the metrics only: nobody notices it, and busy machines have many. */
#define EVENT_USEC UINT64_C(50000)

/* What the thread has done so far. */
struct mark {
    uint64_t passed_usec, computed_usec;
    uint64_t kernel_usec; /* how much of it in the kernel, roughly: by the kernel's ticks */
    long faults;          /* page faults */
    long waits;           /* how often the thread gave its CPU away */
};

static struct mark mark_now(void)
{
    struct timespec computed;
    struct rusage usage;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &computed);
    getrusage(RUSAGE_THREAD, &usage);
    return (struct mark){
        .passed_usec = daemon_now_usec(),
        .computed_usec = (uint64_t)computed.tv_sec * 1000000 + (uint64_t)computed.tv_nsec / 1000,
        .kernel_usec = (uint64_t)usage.ru_stime.tv_sec * 1000000 + (uint64_t)usage.ru_stime.tv_usec,
        .faults = usage.ru_minflt + usage.ru_majflt,
        .waits = usage.ru_nvcsw,
    };
}

static void report_long_callback(struct daemon *daemon, uint64_t held, const struct mark *before,
                                 const struct mark *after)
{
    double held_ms = (double)held / 1000;
    double computed_ms = (double)(after->computed_usec - before->computed_usec) / 1000;
    log_warning("a callback held the loop for %.1f ms, and computed for %.1f ms of them (%.1f ms in the "
                "kernel; %ld page faults)",
                held_ms, computed_ms, (double)(after->kernel_usec - before->kernel_usec) / 1000,
                after->faults - before->faults);
    if (held < EVENT_USEC || !daemon->options.system) /* it is noise to the user of a daemon of his own */
        return;
    change_publish(daemon, &(struct change){CHANGE_LOOP_HELD, .seconds = (double)held / 1e6},
                   "a callback held the daemon's loop for %.1f ms, and computed for %.1f ms of them", held_ms,
                   computed_ms);
}

static void judge(struct daemon *daemon, const struct mark *before)
{
    uint64_t held = daemon_now_usec() - before->passed_usec;
    uint64_t longest = daemon->longest_hold_usec;
    struct mark after = *before;
    if (held > LOOP_HOLD_USEC) {
        after = mark_now();
        held = after.waits > before->waits ? held : after.computed_usec - before->computed_usec;
    }
    user_time_end(daemon, held);
    if (held > longest)
        daemon->longest_hold_usec = held;
    if (held <= LOOP_HOLD_USEC)
        return;
    daemon->long_holds++;
    if (held <= longest && before->passed_usec - daemon->hold_told_usec < TELL_USEC)
        return;
    daemon->hold_told_usec = before->passed_usec;
    report_long_callback(daemon, held, before, &after);
}

int loop_run(struct daemon *daemon)
{
    while (sd_event_get_state(daemon->loop) != SD_EVENT_FINISHED) {
        int result = sd_event_prepare(daemon->loop);
        if (result == 0)
            result = sd_event_wait(daemon->loop, UINT64_MAX);
        if (result < 0)
            return result;
        if (result == 0)
            continue;
        struct mark before = mark_now();
        result = sd_event_dispatch(daemon->loop);
        if (result < 0)
            return result;
        judge(daemon, &before);
    }
    return 0;
}
