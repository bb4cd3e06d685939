#include "arbiter_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define AHEAD_NS MS
#define SLICE_NS (2 * MS) /* unless a world says something else */
/* An H100's, as src/simgpu/device/constants.def has them. */
#define H100_SLICE_NS UINT64_C(1024000)
#define H100_SWITCH_NS UINT64_C(100000)
/* As in the agent: agent_rest_ns(). */
#define REST_SPARSE_NS UINT64_C(60000)
#define REST_NS (2 * MS)
#define NOTICES_AFTER_NS UINT64_C(50000) /* that what it submitted has ended */

/* --- Messages -------------------------------------------------------------------------------------- */

static void send(struct world *world, struct mailbox *box, struct mail mail)
{
    assert_true(box->count < sizeof(box->mails) / sizeof(box->mails[0]));
    mail.due = world->now + world->latency_ns;
    box->mails[box->count++] = mail;
}

static bool receive(struct world *world, struct mailbox *box, struct mail *mail)
{
    if (box->count == 0 || box->mails[0].due > world->now)
        return false;
    *mail = box->mails[0];
    memmove(box->mails, box->mails + 1, --box->count * sizeof(*mail));
    return true;
}

static void on_grant(void *owner, uint64_t lease, uint32_t flags, uint64_t ahead_ns)
{
    struct member *member = owner;
    send(member->world, &member->inbox,
         (struct mail){.type = WIRE_GRANT, .lease = lease, .flags = flags, .ahead_ns = ahead_ns});
}

static void on_revoke(void *owner, uint64_t lease, uint64_t patience_ns)
{
    struct member *member = owner;
    assert_int_equal(patience_ns, ARBITER_PATIENCE_NS);
    send(member->world, &member->inbox, (struct mail){.type = WIRE_REVOKE, .lease = lease});
}

static void on_event(void *owner, enum arbiter_event event, uint64_t ns)
{
    struct world *world = owner;
    world->events[event]++;
}

static void on_mode(void *context, unsigned gpu, enum arbiter_mode mode)
{
    const struct world *world = context;
    assert_int_equal(arbiter_mode(world->arbiter, gpu, world->now), mode);
}

static const struct arbiter_calls calls = {
    .grant = on_grant, .revoke = on_revoke, .event = on_event, .mode = on_mode};

/* --- A program ------------------------------------------------------------------------------------- */

static uint64_t gpus_of(const struct member *member)
{
    return member->program.gpus ? member->program.gpus : 1;
}

/* Whether it would submit if the gate were open. */
static bool has_work(const struct member *member)
{
    return member->world->now >= member->idle_until;
}

/* By chance, for that number: 0 to 1. */
static double drawn_for(const struct member *member, uint64_t number)
{
    uint64_t hash = (number + 1) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(member - member->world->members);
    hash = (hash ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return (double)(hash >> 11) / 0x1p53;
}

/* Of its piece with that number. */
static uint64_t length_of(const struct member *member, uint64_t number)
{
    const struct program *program = &member->program;
    if (!program->piece_most_ns)
        return program->piece_ns;
    double orders = log((double)program->piece_most_ns / (double)program->piece_ns);
    return (uint64_t)((double)program->piece_ns * exp(orders * drawn_for(member, number)));
}

static void note_burst(struct member *member)
{
    struct world_bursts *bursts = member->bursts;
    if (!bursts)
        return;
    assert_true(bursts->count < WORLD_BURSTS);
    bursts->ns[bursts->count++] = member->world->now - member->due_at;
}

/* Its burst is done: when does the next one begin? */
static void end_burst(struct member *member)
{
    const struct program *program = &member->program;
    uint64_t now = member->world->now;
    member->pieces = 0;
    note_burst(member);
    if (program->every_ns) {
        member->asked_at = member->asked ? member->asked_at : now;
        member->asked_at +=
            (uint64_t)(-log(1 - drawn_for(member, member->asked++)) * (double)program->every_ns);
        member->due_at = member->asked_at;
    } else if (program->period_ns) {
        while (member->due_at <= now)
            member->due_at += program->period_ns;
    } else {
        member->due_at = now + program->idle_ns;
    }
    member->idle_until = member->due_at > now ? member->due_at : now;
}

static uint64_t longest_of(const struct program *program)
{
    return program->piece_most_ns ? program->piece_most_ns : program->piece_ns;
}

static void submit(struct member *member)
{
    const struct program *program = &member->program;
    uint64_t ahead_ns = member->ahead_ns ? member->ahead_ns : AHEAD_NS;
    while (has_work(member) && member->in_flight_ns < ahead_ns + program->piece_ns) {
        if (program->burst && member->pieces == program->burst) {
            if (member->in_flight_ns == 0)
                end_burst(member);
            return;
        }
        uint64_t ns = length_of(member, member->submitted++);
        if (member->in_flight_ns == 0)
            member->first_left_ns = ns;
        member->in_flight_ns += ns;
        member->pieces++;
    }
}

/* The gate is closed, or the burst has been submitted: nothing to do but what is in flight. */
static bool waits_at_gate(const struct member *member)
{
    bool is_over = member->program.burst && member->pieces == member->program.burst;
    return has_work(member) && !is_over;
}

/* --- Its agent ------------------------------------------------------------------------------------- */

/* Its next report. */
static void draw_report(struct member *member)
{
    struct world *world = member->world;
    member->report_due = WIRE_REPORT_NS;
    if (!world->late_ns)
        return;
    world->chance = world->chance * 6364136223846793005u + 1442695040888963407u;
    member->report_due += (world->chance >> 33) % world->late_ns;
}

static void forget_measure(struct member *member)
{
    draw_report(member);
    member->busy_ns = member->begun_ns = member->calls = member->counted = member->least_ns = 0;
    member->told_device_ns = member->device_ns;
    member->reported_at = member->world->now;
}

static void tell_measure(struct member *member)
{
    uint64_t passed = member->world->now - member->reported_at, busy = member->busy_ns;
    send(member->world, &member->outbox,
         (struct mail){.type = WIRE_REPORT,
                       .lease = member->lease,
                       .busy_ns = busy,
                       .computed_ns = member->device_ns - member->told_device_ns,
                       .calls = member->calls,
                       .least_ns = member->least_ns});
    if (member->calls)
        member->gap_ns = passed > busy ? (passed - busy) / member->calls : 0;
    member->busy_ns = member->calls = member->counted = member->least_ns = 0;
    member->told_device_ns = member->device_ns;
    member->reported_at = member->world->now;
    draw_report(member);
}

/* Where the next one has begun by then, nobody waits for it. */
static uint64_t calm_ns(const struct member *member)
{
    bool is_awaited = !(member->flags & WIRE_LEASE_OVERLAPS) || !member->program.says_when_closed;
    return is_awaited ? 0 : member->world->calm_ns;
}

static void give_back(struct member *member, uint32_t outcome)
{
    tell_measure(member);
    send(member->world, &member->outbox,
         (struct mail){.type = WIRE_RETURNED,
                       .lease = member->lease,
                       .flags = outcome,
                       .ended_ns = outcome == WIRE_OUTCOME_DRAINED ? calm_ns(member) : 0});
    forget_measure(member);
}

static uint64_t rest_ns(const struct member *member)
{
    return member->gap_ns > REST_NS ? REST_SPARSE_NS : REST_NS;
}

static void tell_burst(struct member *member, bool begins)
{
    member->told_burst = begins;
    send(member->world, &member->outbox,
         (struct mail){.type = WIRE_BURST, .lease = member->lease, .flags = begins});
}

static void hear(struct member *member, const struct mail *mail)
{
    uint64_t now = member->world->now;
    if (mail->type == WIRE_GRANT && (mail->flags & WIRE_LEASE_FREE)) {
        member->gate_open = member->is_free = true;
        member->is_draining = member->has_asked = false;
        member->lease = 0;
    } else if (mail->type == WIRE_GRANT && mail->lease > member->lease) {
        member->gate_open = true;
        member->is_free = member->has_asked = false;
        member->lease = mail->lease;
        member->flags = mail->flags;
        member->ahead_ns = mail->ahead_ns;
        member->idle_since = now;
        member->of_late_ns = 0;
        forget_measure(member);
        member->told_burst = false;
        member->grants++;
    } else if (mail->type == WIRE_GRANT && mail->lease == member->lease && member->gate_open) {
        if (mail->flags & ~member->flags & WIRE_LEASE_MEASURE)
            member->of_late_ns = 0;
        member->flags = mail->flags;
        member->ahead_ns = mail->ahead_ns;
    } else if (mail->type == WIRE_REVOKE) {
        member->gate_open = member->is_free = false;
        member->is_draining = true;
        member->lease = mail->lease > member->lease ? mail->lease : member->lease;
        member->revoked_at = member->idle_since = now;
        member->revokes++;
    }
}

static void tend(struct member *member)
{
    struct world *world = member->world;
    bool is_idle = member->in_flight_ns == 0;
    if (!is_idle || (member->gate_open && waits_at_gate(member)))
        member->idle_since = world->now;
    if (member->is_draining) {
        if (member->program.says_when_closed && member->revoked_at == world->now)
            send(world, &member->outbox,
                 (struct mail){.type = WIRE_CLOSED,
                               .lease = member->lease,
                               .busy_ns = member->understates ? 0 : member->in_flight_ns});
        if (is_idle && world->now - member->idle_since >= NOTICES_AFTER_NS + calm_ns(member)) {
            member->is_draining = false;
            give_back(member, WIRE_OUTCOME_DRAINED);
        } else if (world->now - member->revoked_at >= ARBITER_PATIENCE_NS + longest_of(&member->program)) {
            member->is_draining = false;
            member->gate_open = true;
            member->undrained++;
            give_back(member, WIRE_OUTCOME_UNDRAINED);
        }
    } else if (member->gate_open && !member->is_free) {
        bool rests = world->now - member->idle_since >= rest_ns(member);
        if ((member->flags & WIRE_LEASE_BURSTS) && member->told_burst != !is_idle && (rests || !is_idle))
            tell_burst(member, !is_idle);
        if ((member->flags & WIRE_LEASE_WANTED) && rests) {
            member->gate_open = false;
            give_back(member, WIRE_OUTCOME_IDLE);
        } else if ((member->flags & WIRE_LEASE_REPORT) && member->calls &&
                   world->now - member->reported_at >= member->report_due) {
            tell_measure(member);
        }
    } else if (!member->gate_open && !member->has_asked && waits_at_gate(member)) {
        member->has_asked = true;
        send(world, &member->outbox, (struct mail){.type = WIRE_WANT});
    }
}

/* The step that has just passed. A piece is told of as a whole, when it is done. */
static void count_step(struct member *member)
{
    member->begun_ns += member->had_work ? WORLD_STEP_NS : 0;
    if (member->calls == member->counted)
        return;
    member->busy_ns += member->begun_ns;
    member->begun_ns = 0;
    member->counted = member->calls;
}

static void live(struct member *member)
{
    struct mail mail;
    if (member->is_dead || member->is_stopped)
        return;
    count_step(member);
    while (receive(member->world, &member->inbox, &mail))
        hear(member, &mail);
    if (member->gate_open && !(member->flags & WIRE_LEASE_STILL))
        submit(member);
    else if (member->program.burst && member->pieces == member->program.burst && member->in_flight_ns == 0)
        end_burst(member);
    tend(member);
    member->had_work = member->in_flight_ns > 0;
}

/* --- The GPUs -------------------------------------------------------------------------------------- */

static bool may_run(const struct member *member, unsigned gpu)
{
    return !member->is_dead && member->in_flight_ns > 0 && (gpus_of(member) >> gpu & 1) &&
           !(member->program.never_drains && member->is_draining);
}

/* The GPU worked for so long on its pieces. Where the program has become another, what is in flight may be fewer of them, or more. */
static void finish(struct member *member, uint64_t ns)
{
    while (ns >= member->first_left_ns || (member->in_flight_ns == 0 && member->done < member->submitted)) {
        uint64_t length = length_of(member, member->done++);
        ns -= ns < member->first_left_ns ? ns : member->first_left_ns;
        member->calls++;
        member->least_ns = member->least_ns && member->least_ns < length ? member->least_ns : length;
        member->first_left_ns = length_of(member, member->done);
    }
    member->first_left_ns -= ns;
    if (member->submitted < member->done)
        member->submitted = member->done;
}

/* Slices, one process after the other. Work on several GPUs runs where the first of them runs it. */
static void run_gpu(struct world *world, unsigned gpu)
{
    unsigned *running = &world->running[gpu];
    for (unsigned tries = 0; tries <= world->member_count && world->member_count; tries++) {
        if (world->slice_left_ns[gpu] && *running < world->member_count &&
            may_run(&world->members[*running], gpu))
            break;
        *running = (*running + 1) % world->member_count;
        world->slice_left_ns[gpu] = world->slice_ns;
    }
    if (*running >= world->member_count || !may_run(&world->members[*running], gpu))
        return;
    struct member *member = &world->members[*running];
    if (*running != world->served[gpu])
        world->switching_ns[gpu] = world->switch_ns;
    world->served[gpu] = *running;
    if (world->switching_ns[gpu] >= WORLD_STEP_NS) {
        world->switching_ns[gpu] -= WORLD_STEP_NS;
        return;
    }
    world->slice_left_ns[gpu] -=
        world->slice_left_ns[gpu] < WORLD_STEP_NS ? world->slice_left_ns[gpu] : WORLD_STEP_NS;
    if ((unsigned)__builtin_ctzll(gpus_of(member)) != gpu)
        return;
    uint64_t done = member->in_flight_ns < WORLD_STEP_NS ? member->in_flight_ns : WORLD_STEP_NS;
    member->in_flight_ns -= done;
    member->device_ns += done;
    finish(member, done);
}

/* Whoever lives may use its lease: work that is before the GPU, or an open gate. */
static void watch(struct world *world, unsigned gpu)
{
    const struct arbiter_session *user = NULL;
    for (unsigned i = 0; i < world->member_count; i++) {
        const struct member *member = &world->members[i];
        if (member->is_dead || member->is_stopped || member->is_free || !(gpus_of(member) >> gpu & 1) ||
            arbiter_session_lease(member->session) != LEASE_EXCLUSIVE ||
            !(member->gate_open || member->in_flight_ns) ||
            (member->program.says_when_closed && member->is_draining &&
             member->in_flight_ns <= ARBITER_LEAD_NS))
            continue;
        world->breaches += user && user != member->session;
        user = member->session;
    }
}

/* For how long it had work, by the calls that were measured and those of before. */
static uint64_t told_of_late(struct member *member, double busy_ns, double done)
{
    double each_ns = busy_ns / done;
    if (member->of_late_ns <= 0)
        member->of_late_ns = each_ns;
    double told_ns = done * (each_ns + (member->of_late_ns - each_ns) * member->remembers);
    member->of_late_ns += (each_ns - member->of_late_ns) / 8;
    return (uint64_t)told_ns;
}

static void deliver(struct member *member)
{
    struct world *world = member->world;
    struct mail mail;
    while (!member->is_dead && receive(world, &member->outbox, &mail)) {
        if (mail.type == WIRE_WANT) {
            arbiter_want(member->process, gpus_of(member), world->now);
        } else if (mail.type == WIRE_CLOSED) {
            struct wire_closed closed = {.lease = mail.lease, .left_ns = mail.busy_ns};
            arbiter_closed(member->process, &closed, world->now);
        } else if (mail.type == WIRE_BURST) {
            struct wire_burst burst = {.lease = mail.lease, .begins = mail.flags};
            arbiter_burst(member->process, &burst, world->now);
        } else if (mail.type == WIRE_REPORT) {
            double times = !(member->misjudges > 0) ? 1
                           : member->reports++ % 2  ? member->misjudges / 2
                                                    : member->misjudges;
            if (member->jitter > 0)
                times = member->reports++ % 2 ? 1 - member->jitter : 1 + member->jitter;
            bool is_guess = member->guesses && member->last_each_ns > 0 && ++member->reports % 2;
            if (is_guess)
                mail.busy_ns = (uint64_t)(member->last_each_ns * (double)mail.calls);
            else if (mail.calls)
                member->last_each_ns = (double)mail.busy_ns / (double)mail.calls;
            if (member->remembers > 0 && mail.calls)
                mail.busy_ns = told_of_late(member, (double)mail.busy_ns, (double)mail.calls);
            struct wire_report report = {
                .lease = mail.lease,
                .busy_ns = member->says_nothing ? 0 : (uint64_t)((double)mail.busy_ns * times),
                .longest_ns = longest_of(&member->program),
                .calls = member->says_nothing ? 0 : mail.calls,
                .begun_ns = world->waits_are_told ? mail.computed_ns : 0,
                .least_ns = (uint64_t)((double)mail.least_ns * times),
                .measured = is_guess ? 0 : mail.calls};
            arbiter_report(member->process, &report, world->now);
        } else {
            struct wire_returned returned = {.lease = mail.lease,
                                             .longest_ns = longest_of(&member->program),
                                             .outcome = mail.flags,
                                             .ended_us = (uint32_t)(mail.ended_ns / 1000)};
            arbiter_returned(member->process, &returned, world->now);
        }
    }
}

/* --- Quiet steps ----------------------------------------------------------------------------------- */

/* Nothing happens to whoever has that much left of something before the step in which it runs out. */
static uint64_t quiet_of(uint64_t left_ns)
{
    return left_ns ? (left_ns - 1) / WORLD_STEP_NS : 0;
}

static uint64_t quiet_until(const struct world *world, uint64_t at)
{
    return at > world->now ? quiet_of(at - world->now) : 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t quiet_until_mail(const struct world *world, const struct mailbox *box)
{
    return box->count ? quiet_until(world, box->mails[0].due) : UINT64_MAX;
}

/* Whether it asks for a lease, submits more, or begins its next burst, in the next step. */
static bool goes_on(const struct member *member)
{
    const struct program *program = &member->program;
    uint64_t ahead_ns = member->ahead_ns ? member->ahead_ns : AHEAD_NS;
    bool may_submit = member->gate_open && !(member->flags & WIRE_LEASE_STILL);
    if (!member->gate_open && !member->is_draining && !member->has_asked && waits_at_gate(member))
        return true;
    if (program->burst && member->pieces == program->burst)
        return member->in_flight_ns == 0 && (has_work(member) || !may_submit);
    return may_submit && has_work(member) && member->in_flight_ns < ahead_ns + program->piece_ns;
}

/* How many steps pass until the member does something, if nothing that it has before the GPU is done by then. */
static uint64_t quiet_steps_of(const struct member *member)
{
    const struct world *world = member->world;
    uint64_t steps = quiet_until_mail(world, &member->outbox);
    if (member->is_dead)
        return UINT64_MAX;
    if (member->is_stopped)
        return steps;
    steps = least(steps, quiet_until_mail(world, &member->inbox));
    if (member->calls != member->counted || goes_on(member))
        return 0;
    if (!has_work(member))
        steps = least(steps, quiet_until(world, member->idle_until));
    bool is_calm = member->in_flight_ns == 0 && !(member->gate_open && waits_at_gate(member));
    if (member->is_draining) {
        steps = least(steps, quiet_until(world, member->revoked_at + ARBITER_PATIENCE_NS +
                                                    longest_of(&member->program)));
        if (member->in_flight_ns == 0)
            steps = least(steps, quiet_until(world, member->idle_since + NOTICES_AFTER_NS + calm_ns(member)));
    } else if (member->gate_open && !member->is_free) {
        if (is_calm && world->now - member->idle_since < rest_ns(member))
            steps = least(steps, quiet_until(world, member->idle_since + rest_ns(member)));
        if ((member->flags & WIRE_LEASE_REPORT) && member->calls)
            steps = least(steps, quiet_until(world, member->reported_at + member->report_due));
    }
    return steps;
}

/* Whose work the GPU does, or NULL. */
static struct member *running_on(struct world *world, unsigned gpu)
{
    unsigned running = world->running[gpu];
    return running < world->member_count && may_run(&world->members[running], gpu) ? &world->members[running]
                                                                                   : NULL;
}

static uint64_t quiet_steps_on(struct world *world, unsigned gpu)
{
    const struct member *member = running_on(world, gpu);
    if (!member) {
        for (unsigned i = 0; i < world->member_count; i++)
            if (may_run(&world->members[i], gpu))
                return 0;
        return UINT64_MAX;
    }
    if (!world->slice_left_ns[gpu] || world->running[gpu] != world->served[gpu])
        return 0;
    if (world->switching_ns[gpu] >= WORLD_STEP_NS)
        return quiet_of(world->switching_ns[gpu]);
    uint64_t steps = quiet_of(world->slice_left_ns[gpu]);
    if ((unsigned)__builtin_ctzll(gpus_of(member)) != gpu)
        return steps;
    steps = least(steps, quiet_of(least(member->first_left_ns, member->in_flight_ns)));
    uint64_t ahead_ns = (member->ahead_ns ? member->ahead_ns : AHEAD_NS) + member->program.piece_ns;
    if (member->in_flight_ns >= ahead_ns)
        steps = least(steps, (member->in_flight_ns - ahead_ns) / WORLD_STEP_NS);
    return steps;
}

/* So many steps pass in which nothing happens but that time goes by. */
static void pass_quietly(struct world *world, uint64_t steps)
{
    uint64_t ns = steps * WORLD_STEP_NS;
    world->now += ns;
    for (unsigned gpu = 0; gpu < world->gpu_count; gpu++) {
        struct member *member = running_on(world, gpu);
        if (!member && world->member_count) {
            world->running[gpu] = (unsigned)((world->running[gpu] + steps) % world->member_count);
            world->slice_left_ns[gpu] = world->slice_ns;
        } else if (world->switching_ns[gpu] >= WORLD_STEP_NS) {
            world->switching_ns[gpu] -= ns;
        } else if (member) {
            world->slice_left_ns[gpu] -= ns;
            if ((unsigned)__builtin_ctzll(gpus_of(member)) != gpu)
                continue;
            member->in_flight_ns -= ns;
            member->device_ns += ns;
            member->first_left_ns -= ns;
        }
    }
    for (unsigned i = 0; i < world->member_count; i++) {
        struct member *member = &world->members[i];
        if (member->is_dead || member->is_stopped)
            continue;
        member->begun_ns += member->had_work ? ns : 0;
        if (member->in_flight_ns || (member->gate_open && waits_at_gate(member)))
            member->idle_since = world->now;
    }
}

static void skip_quiet_steps(struct world *world, uint64_t end)
{
    uint64_t steps = least(quiet_until(world, end), quiet_until(world, arbiter_next(world->arbiter)));
    for (unsigned gpu = 0; gpu < world->gpu_count && steps; gpu++)
        steps = least(steps, quiet_steps_on(world, gpu));
    for (unsigned i = 0; i < world->member_count && steps; i++)
        steps = least(steps, quiet_steps_of(&world->members[i]));
    if (steps)
        pass_quietly(world, steps);
}

void world_run(struct world *world, uint64_t ns)
{
    for (uint64_t begin = world->now, end = begin + ns; world->now < end;) {
        if (world->now > begin) /* the test may have changed anything before */
            skip_quiet_steps(world, end);
        world->now += WORLD_STEP_NS;
        for (unsigned gpu = 0; gpu < world->gpu_count; gpu++)
            run_gpu(world, gpu);
        for (unsigned gpu = 0; gpu < world->gpu_count; gpu++)
            watch(world, gpu);
        for (unsigned i = 0; i < world->member_count; i++)
            live(&world->members[i]);
        if (world->is_starved)
            continue;
        for (unsigned i = 0; i < world->member_count; i++)
            deliver(&world->members[i]);
        if (arbiter_next(world->arbiter) <= world->now)
            arbiter_tick(world->arbiter, world->now);
    }
}

/* --- Coming and going ------------------------------------------------------------------------------ */

void world_begin(struct world *world)
{
    memset(world, 0, sizeof(*world));
    world->now = 1000 * SECOND;
    world->latency_ns = 50000;
    world->slice_ns = SLICE_NS;
    world->arbiter = arbiter_new(&calls, world, world->now);
    assert_non_null(world->arbiter);
}

void world_be_h100(struct world *world)
{
    world->slice_ns = H100_SLICE_NS;
    world->switch_ns = H100_SWITCH_NS;
}

void world_kill(struct member *member)
{
    member->is_dead = true;
    arbiter_process_remove(member->process, member->world->now);
}

void world_start_again(struct member *member)
{
    struct world *world = member->world;
    assert_true(member->is_dead);
    *member = (struct member){.world = world,
                              .session = member->session,
                              .program = member->program,
                              .device_ns = member->device_ns,
                              .bursts = member->bursts,
                              .due_at = world->now};
    member->process = arbiter_process_add(member->session, member, world->now);
    assert_non_null(member->process);
}

void world_end(struct world *world)
{
    for (unsigned i = 0; i < world->member_count; i++) {
        struct member *member = &world->members[i];
        bool is_last = true;
        if (!member->is_dead)
            world_kill(member);
        for (unsigned j = i + 1; j < world->member_count; j++)
            is_last &= world->members[j].session != member->session;
        if (is_last)
            arbiter_session_remove(member->session);
    }
    arbiter_free(world->arbiter);
}

struct member *world_add_process(struct world *world, struct arbiter_session *session, struct program program)
{
    assert_true(world->member_count < WORLD_PROCESSES);
    struct member *member = &world->members[world->member_count++];
    *member = (struct member){.world = world, .session = session, .program = program, .due_at = world->now};
    unsigned gpus = 64 - (unsigned)__builtin_clzll(gpus_of(member));
    if (world->gpu_count < gpus)
        world->gpu_count = gpus;
    member->process = arbiter_process_add(session, member, world->now);
    assert_non_null(member->process);
    return member;
}

static struct arbiter_session *add_session(struct world *world, uint64_t user, const char *share,
                                           unsigned priority)
{
    struct share parsed;
    struct error error;
    assert_int_equal(units_parse_share(share, &parsed, &error), 0);
    struct arbiter_session *session = arbiter_session_add(world->arbiter, world, user, parsed, priority);
    assert_non_null(session);
    return session;
}

struct member *world_add(struct world *world, const char *share, unsigned priority, struct program program)
{
    return world_add_of(world, 1000 + world->member_count, share, priority, program);
}

struct member *world_add_of(struct world *world, uint64_t user, const char *share, unsigned priority,
                            struct program program)
{
    return world_add_process(world, add_session(world, user, share, priority), program);
}

void world_come_again(struct member *member, uint64_t user, const char *share, unsigned priority)
{
    assert_true(member->is_dead);
    arbiter_session_remove(member->session);
    member->session = add_session(member->world, user, share, priority);
    world_start_again(member);
}

/* --- What is looked at afterwards ------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;
    return *left < *right ? -1 : *left > *right;
}

uint64_t world_p99_ns(const struct world_bursts *bursts, unsigned from)
{
    static uint64_t sorted[WORLD_BURSTS];
    unsigned count = bursts->count - from;
    if (!count)
        return 0;
    memcpy(sorted, bursts->ns + from, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare);
    return sorted[count * 99 / 100];
}

unsigned world_longer_than(const struct world_bursts *bursts, unsigned from, uint64_t ns)
{
    unsigned longer = 0;
    for (unsigned i = from; i < bursts->count; i++)
        longer += bursts->ns[i] > ns;
    return longer;
}
