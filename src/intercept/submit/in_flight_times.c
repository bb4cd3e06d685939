/* in_flight_times.c - when the streams of the process had work, by one clock for all of them. */
#include "base/least.h"
#include "intercept/resolve/guard.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/in_flight_entry.h"

/* The origin is moved this often. Times since an event are floats: after a second they would be exact to a microsecond only
 * (cuda.h 13.0, cuEventElapsedTime). */
#define ORIGIN_MOST_NS UINT64_C(250000000)
/* Of so many marks on idle streams, some are reached at once, unless every call waits for others. And in so much time, the GPU's
 * clock and the host's come apart by no more than one part of that. */
#define IDLE_MARKS 16u
#define APART_PART 10000u

bool in_flight_elapsed_ns(CUevent from, CUevent to, double *ns)
{
    float ms = 0;
    if (!from || !to || !real(cuEventElapsedTime) || real(cuEventElapsedTime)(&ms, from, to) != CUDA_SUCCESS)
        return false;
    *ns = (double)ms * 1e6;
    return true;
}

/* The clock of `context`, or a free place if that is NULL. NULL: there is none. */
static struct in_flight_clock *find_clock(struct in_flight_times *times, CUcontext context)
{
    for (unsigned i = 0; i < IN_FLIGHT_CLOCKS; i++)
        if (times->clocks[i].context == context)
            return &times->clocks[i];
    return NULL;
}

static void begin_clock(struct in_flight_clock *clock, CUcontext context, struct in_flight_mark *mark)
{
    *clock = (struct in_flight_clock){context, mark->event, mark->began_ns, 0, UINT64_MAX, UINT64_MAX};
    mark->event = NULL;
}

/* The context's clock, which begins with the mark `before` if it is new. NULL: all places are taken. */
static struct in_flight_clock *have_clock(struct in_flight_times *times, CUcontext context,
                                          struct in_flight_mark *before)
{
    struct in_flight_clock *clock = find_clock(times, context);
    if (clock || !(clock = find_clock(times, NULL)))
        return clock;
    begin_clock(clock, context, before);
    return clock;
}

/* The GPU's clock may run faster than the host's. Then even the mark that was reached the soonest seems to have been late. If it
 * runs slower, even the call that the host knew of the soonest seems to have ended before. But if all calls wait for others, the
 * marks are late indeed; and the host may always be late. So the lesser time is the one that the clocks make. */
static void keep_step(struct in_flight_clock *clock, uint64_t passed_ns)
{
    uint64_t most_ns = passed_ns / APART_PART, before_ns = clock->least_before_ns,
             after_ns = clock->least_after_ns;
    if (clock->idle_marks >= IDLE_MARKS && before_ns < after_ns)
        clock->origin_ns -= least(before_ns, most_ns);
    else if (clock->idle_marks >= IDLE_MARKS)
        clock->origin_ns += least(after_ns, most_ns);
    clock->idle_marks = 0;
    clock->least_before_ns = clock->least_after_ns = UINT64_MAX;
}

/* Take `event` for the clock's origin, and give back the one that it had. */
static void move_origin(struct in_flight_clock *clock, CUevent *event)
{
    CUevent before = clock->origin;
    double ns = 0;
    if (!in_flight_elapsed_ns(before, *event, &ns))
        return;
    clock->origin = *event;
    clock->origin_ns += (uint64_t)(int64_t)ns;
    *event = before;
    keep_step(clock, (uint64_t)ns);
}

/* When the GPU reached the mark, which it has by `now_ns`; 0: unknown. The clock then begins anew with the mark `before`. */
static uint64_t reached_ns(struct in_flight_clock *clock, struct in_flight_mark *before,
                           const struct in_flight_mark *mark, uint64_t now_ns)
{
    double ns = 0;
    if (!in_flight_elapsed_ns(clock->origin, mark->event, &ns)) {
        begin_clock(clock, clock->context, before);
        return 0;
    }
    uint64_t told_ns = clock->origin_ns + (uint64_t)(int64_t)ns, reached_ns = told_ns;
    /* When the thread had recorded the mark tells nothing, as it may have been descheduled meanwhile. */
    reached_ns = reached_ns > mark->began_ns ? reached_ns : mark->began_ns;
    reached_ns = least(reached_ns, now_ns);
    clock->origin_ns += reached_ns - told_ns;
    return reached_ns;
}

void in_flight_note_times(struct in_flight_times *times, struct in_flight_entry *entry,
                          const struct in_flight_mark *mark, uint64_t measured_ns, uint64_t now_ns)
{
    struct in_flight_mark *before = in_flight_mark_before(entry);
    guard_lock(&times->lock);
    struct in_flight_clock *clock = have_clock(times, in_flight_entry_context(entry), before);
    uint64_t to_ns = clock ? reached_ns(clock, before, mark, now_ns) : 0;
    if (to_ns > measured_ns)
        work_spans_add(&times->spans, to_ns - measured_ns, to_ns,
                       mark->began_ns + mark->shared_ms * UINT64_C(1000000));
    if (to_ns && to_ns > clock->origin_ns + ORIGIN_MOST_NS)
        move_origin(clock, &before->event);
    guard_unlock(&times->lock);
}

uint64_t in_flight_reached_idle_ns(struct in_flight_times *times, struct in_flight_entry *entry,
                                   uint64_t by_ns)
{
    struct in_flight_mark *before = in_flight_mark_before(entry);
    guard_lock(&times->lock);
    struct in_flight_clock *clock = have_clock(times, in_flight_entry_context(entry), before);
    uint64_t at_ns = clock ? reached_ns(clock, before, before, by_ns) : 0;
    if (at_ns) {
        clock->idle_marks++;
        clock->least_before_ns = least(clock->least_before_ns, at_ns - before->began_ns);
        clock->least_after_ns = least(clock->least_after_ns, by_ns - at_ns);
    }
    if (at_ns && at_ns > clock->origin_ns + ORIGIN_MOST_NS)
        move_origin(clock, &before->event);
    guard_unlock(&times->lock);
    return at_ns;
}

uint64_t in_flight_take_times(struct in_flight_times *times, uint64_t told_ns)
{
    guard_lock(&times->lock);
    uint64_t any_ns = work_spans_take(&times->spans, told_ns);
    guard_unlock(&times->lock);
    return any_ns;
}

void in_flight_change_times(struct in_flight_times *times)
{
    guard_lock(&times->lock);
    work_spans_change(&times->spans);
    guard_unlock(&times->lock);
}

void in_flight_forget_clock(struct in_flight_times *times, CUcontext context)
{
    guard_lock(&times->lock);
    struct in_flight_clock *clock = find_clock(times, context);
    if (clock) {
        real(cuEventDestroy_v2)(clock->origin);
        *clock = (struct in_flight_clock){0};
    }
    guard_unlock(&times->lock);
}
