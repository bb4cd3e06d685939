#include "daemon/schedule/schedule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "daemon/agents/agents.h"
#include "daemon/gpu/card.h"
#include "daemon/gpu/nvml.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/schedule/turns.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "wire/wire.h"

#define TOUCHED_MAX 16u /* sessions; one call of the arbiter changes the schedule of a few only */

struct schedule {
    struct daemon *daemon;
    struct arbiter *arbiter;
    sd_event_source *timer;
    struct observer observer;
    struct turns *turns;
    /* Sessions whose lease may have changed in a call of the arbiter. */
    const struct session *touched[TOUCHED_MAX];
    unsigned touched_count;
};

_Static_assert(PRIORITY_COUNT == ARBITER_PRIORITIES && PRIORITY_NORMAL == ARBITER_PRIORITY_NORMAL,
               "the arbiter's priorities are the sessions'");

static void touch(struct schedule *schedule, const struct session *session)
{
    if (schedule->touched_count < TOUCHED_MAX)
        schedule->touched[schedule->touched_count++] = session;
}

static void note_turn(struct schedule *schedule, const struct session *session, enum arbiter_lease lease)
{
    struct turn turn = {.session = session->number, .owner = session->owner, .lease = lease};
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (session->gpus[i].gpu >= 0)
            turn.gpus |= UINT64_C(1) << session->gpus[i].gpu;
    turn.asked_ns = arbiter_session_asked(session->arbitrated, &turn.steps);
    strcpy(turn.session_id, session->id);
    turns_note(schedule->turns, &turn, monotonic_ns());
}

/* To be called after each call of the arbiter: notes turns that began or ended, and sets the timer. */
static void set_timer(struct schedule *schedule)
{
    while (schedule->touched_count) {
        const struct session *session = schedule->touched[--schedule->touched_count];
        if (session->arbitrated)
            note_turn(schedule, session, arbiter_session_lease(session->arbitrated));
    }
    uint64_t next = arbiter_next(schedule->arbiter);
    if (next == UINT64_MAX) {
        sd_event_source_set_enabled(schedule->timer, SD_EVENT_OFF);
        return;
    }
    sd_event_source_set_time(schedule->timer, (next + 999) / 1000);
    sd_event_source_set_enabled(schedule->timer, SD_EVENT_ONESHOT);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct schedule *schedule = userdata;
    arbiter_tick(schedule->arbiter, monotonic_ns());
    set_timer(schedule);
    return 0;
}

/* --- What the arbiter says ------------------------------------------------------------------------- */

static void on_grant(void *owner, uint64_t lease, uint32_t flags, uint64_t ahead_ns)
{
    struct process *process = owner;
    struct wire_message message = {
        .header.type = WIRE_GRANT,
        .grant = {.lease = lease, .flags = flags, .ahead_us = (uint32_t)(ahead_ns / 1000)}};
    touch(process->session->daemon->schedule, process->session);
    agents_send(process, &message, -1);
}

static void on_revoke(void *owner, uint64_t lease, uint64_t patience_ns)
{
    struct process *process = owner;
    struct wire_message message = {.header.type = WIRE_REVOKE,
                                   .revoke = {.lease = lease, .patience_ns = patience_ns}};
    touch(process->session->daemon->schedule, process->session);
    agents_send(process, &message, -1);
}

static void on_event(void *owner, enum arbiter_event event, uint64_t ns)
{
    static const struct {
        enum change_kind kind;
        const char *text;
    } events[] = {
        [ARBITER_OVERRUN] = {CHANGE_LEASE_OVERRUN,
                             "a process did not give the GPU back in time; others go on without it"},
        [ARBITER_UNDRAINED] = {CHANGE_LEASE_UNDRAINED,
                               "work on the GPU did not end in time; it runs beside the others'"},
        [ARBITER_UNDRAINABLE] = {CHANGE_LEASE_UNDRAINABLE,
                                 "its work does not drain; it runs beside the others' until it does"},
        [ARBITER_UNDERSTATED] = {CHANGE_USE_UNDERSTATED,
                                 "NVML shows its programs much busier than they say; from now on it "
                                 "is charged by what is seen"},
        [ARBITER_DRAINED] = {CHANGE_LEASE_DRAINED, "its work has drained again"},
    };
    struct session *session = owner;
    log_info("session %s: %s (%llu ms)", session->id, events[event].text, (unsigned long long)ns / 1000000);
    change_publish(session->daemon,
                   &(struct change){events[event].kind, .session = session, .seconds = (double)ns / 1e9},
                   "%s", events[event].text);
}

static void on_mode(void *context, unsigned gpu, enum arbiter_mode mode)
{
    const struct schedule *schedule = context;
    log_info("GPU %u: %s", schedule->daemon->gpus[gpu].index,
             mode == ARBITER_MODE_FREE ? "it is free to all now" : "shares count now");
}

static const struct arbiter_calls calls = {
    .grant = on_grant,
    .revoke = on_revoke,
    .event = on_event,
    .mode = on_mode,
};

/* --- What agents say ------------------------------------------------------------------------------- */

/* The policy's GPUs by the daemon's numbers. GPUs that are not there now, or never were, count for nothing. */
static uint64_t card_set(const struct session *session, uint64_t policy_set)
{
    uint64_t cards = 0;
    for (unsigned i = 0; i < session->gpu_count; i++)
        if ((policy_set >> i & 1) && session->gpus[i].gpu >= 0)
            cards |= UINT64_C(1) << session->gpus[i].gpu;
    return cards;
}

static bool take_in(struct process *process, const struct wire_message *message)
{
    uint64_t now = monotonic_ns();
    switch (message->header.type) {
    case WIRE_WANT:
        arbiter_want(process->gate, card_set(process->session, message->want.gpus), now);
        return true;
    case WIRE_RETURNED:
        if (message->returned.outcome < WIRE_OUTCOME_DRAINED ||
            message->returned.outcome > WIRE_OUTCOME_UNDRAINED)
            return false;
        arbiter_returned(process->gate, &message->returned, now);
        return true;
    case WIRE_CLOSED:
        arbiter_closed(process->gate, &message->closed, now);
        return true;
    case WIRE_REPORT:
        arbiter_report(process->gate, &message->report, now);
        return true;
    case WIRE_WAITS:
        arbiter_waits(process->gate, &message->waits);
        return true;
    case WIRE_BURST:
        arbiter_burst(process->gate, &message->burst, now);
        return true;
    default:
        return false;
    }
}

static bool take_message(struct process *process, const struct wire_message *message)
{
    struct schedule *schedule = process->session->daemon->schedule;
    if (!take_in(process, message))
        return false;
    touch(schedule, process->session);
    set_timer(schedule);
    return true;
}

static bool come(struct process *process)
{
    struct session *session = process->session;
    struct schedule *schedule = session->daemon->schedule;
    if (!session->arbitrated)
        session->arbitrated = arbiter_session_add(schedule->arbiter, session, session->owner,
                                                  session->properties.compute, session->properties.priority);
    process->gate =
        session->arbitrated ? arbiter_process_add(session->arbitrated, process, monotonic_ns()) : NULL;
    set_timer(schedule);
    return process->gate;
}

static void gone(struct process *process)
{
    struct schedule *schedule = process->session->daemon->schedule;
    arbiter_process_remove(process->gate, monotonic_ns());
    process->gate = NULL;
    touch(schedule, process->session);
    set_timer(schedule);
}

static const struct agent_listener listener = {.come = come, .take = take_message, .gone = gone};

/* --- Sessions -------------------------------------------------------------------------------------- */

static void session_changed(struct session *session)
{
    if (!session->arbitrated)
        return;
    arbiter_session_set(session->arbitrated, session->properties.compute, session->properties.priority,
                        monotonic_ns());
    set_timer(session->daemon->schedule);
}

/* Tell the arbiter what NVML shows of sessions' processes, on GPUs where shares count. */
static void look_at_sessions(struct schedule *schedule)
{
    const struct daemon *daemon = schedule->daemon;
    for (unsigned i = 0; i < daemon->gpu_count; i++) {
        const struct gpu *card = &daemon->gpus[i];
        if (schedule_mode(daemon, i) == ARBITER_MODE_FREE)
            continue;
        for (unsigned j = 0; j < card->process_count; j++) {
            if (card->processes[j].busy_percent <= 0)
                continue;
            const struct session *session = process_session_of(daemon, card->processes[j].pid);
            if (session && session->arbitrated)
                arbiter_seen(session->arbitrated, i, card->processes[j].busy_percent / 100.0);
        }
    }
    arbiter_look_is_over(schedule->arbiter, monotonic_ns());
    set_timer(schedule);
}

static void take_change(void *context, const struct change *change)
{
    switch (change->kind) {
    case CHANGE_SESSION_CHANGED:
        session_changed(change->session);
        break;
    case CHANGE_GPUS_SAMPLED:
        look_at_sessions(context);
        break;
    case CHANGE_SESSION_GONE: /* its processes have gone */
        if (change->session->arbitrated) {
            note_turn(change->session->daemon->schedule, change->session, LEASE_NONE);
            arbiter_session_remove(change->session->arbitrated);
        }
        change->session->arbitrated = NULL;
        break;
    default:
        break;
    }
}

enum arbiter_mode schedule_mode(const struct daemon *daemon, unsigned gpu)
{
    return daemon->schedule ? arbiter_mode(daemon->schedule->arbiter, gpu, monotonic_ns())
                            : ARBITER_MODE_FREE;
}

const struct arbiter *schedule_arbiter(const struct daemon *daemon)
{
    return daemon->schedule ? daemon->schedule->arbiter : NULL;
}

const struct turns *schedule_turns(const struct daemon *daemon)
{
    return daemon->schedule ? daemon->schedule->turns : NULL;
}

void schedule_set_away(struct process *process, bool is_away)
{
    struct schedule *schedule = process->session->daemon->schedule;
    if (!process->gate)
        return;
    arbiter_set_away(process->gate, is_away, monotonic_ns());
    touch(schedule, process->session);
    set_timer(schedule);
}

void schedule_set_quantum(struct daemon *daemon, uint64_t quantum_ns)
{
    arbiter_set_quantum(daemon->schedule->arbiter, quantum_ns);
}

/* --- Start and end --------------------------------------------------------------------------------- */

int schedule_start(struct daemon *daemon, struct error *error)
{
    process_ask_for_short_slices();
    struct schedule *schedule = calloc(1, sizeof(*schedule));
    struct arbiter *arbiter = schedule ? arbiter_new(&calls, schedule, monotonic_ns()) : NULL;
    if (arbiter)
        schedule->turns = turns_new();
    if (!arbiter || !schedule->turns) {
        if (arbiter)
            arbiter_free(arbiter);
        free(schedule);
        return error_set_errno(error, ENOMEM, "cannot share the GPUs' time");
    }
    schedule->daemon = daemon;
    schedule->arbiter = arbiter;
    schedule->observer = (struct observer){.take = take_change, .context = schedule};
    change_observe(daemon, &schedule->observer);
    daemon->schedule = schedule;
    agents_listen(daemon, AGENTS_TIME, &listener);
    /* Accurate to 1 us: the default is a quarter of a second. */
    int result = sd_event_add_time(daemon->loop, &schedule->timer, CLOCK_MONOTONIC, 0, 1, on_timer, schedule);
    if (result >= 0)
        result = sd_event_source_set_enabled(schedule->timer, SD_EVENT_OFF);
    if (result >= 0)
        result = sd_event_source_set_priority(schedule->timer, SD_EVENT_PRIORITY_IMPORTANT);
    return result < 0 ? error_set_errno(error, -result, "cannot share the GPUs' time") : 0;
}

void schedule_stop(struct daemon *daemon)
{
    struct schedule *schedule = daemon->schedule;
    if (!schedule)
        return;
    change_observe_no_more(daemon, &schedule->observer);
    sd_event_source_disable_unref(schedule->timer);
    arbiter_free(schedule->arbiter);
    turns_free(schedule->turns);
    free(schedule);
    daemon->schedule = NULL;
}
