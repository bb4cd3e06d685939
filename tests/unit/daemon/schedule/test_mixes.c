/* A search for mixes of programs that break a promise: programs of all characters, drawn by chance, in a simulated world
 * (arbiter_world.h), watched from their first second on.
 *
 *   test_daemon_mixes [FROM TO [KIND|all [h100]]]    the mixes of the seeds from FROM on, below TO, instead of two of each kind and
 *                                                    those that broke a promise once; KIND: a set (enum kind); h100: on a card with
 *                                                    an H100's constants */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arbiter_world.h"
#include "base/units.h"

#define SESSIONS 5u
#define PROCESSES 3u /* of a session, at most */
#define SECONDS 24u
/* For so long promises hold, and charges are compared. */
#define WINDOW_S 10u
/* Points of its minimum that a session may miss, and of its maximum that it may pass, with a turn more or less at either end of
 * the window. */
#define POINTS 1.5
/* The same, where everybody is kept from running at times; and the part of a minimum that is kept nevertheless. */
#define POINTS_DELAYED 3.5
#define PART_DELAYED 0.75
/* The same, where kernels differ; and what a charge may be wrong by then: a few of them tell little of the others. */
#define POINTS_VARIED 5
#define CHARGE_POINTS_VARIED 10
/* The same with an H100's constants, where a change of programs takes time. Programs of short calls and their neighbours may miss
 * their minima by 1.5 points more there (docs/sharing.md). The bound on charges is no promise: it is so wide that the search
 * shows what a change of the scheduler makes worse. */
#define POINTS_H100 3
#define CHARGE_POINTS_H100 5
/* For so long nothing is held against a mix of which a program has become another. */
#define SETTLES_S 3u
/* What a charge may be wrong by: points, or a part of it; of which the last 100 ms of a turn, charged later, are one. */
#define CHARGE_POINTS 1.5
#define CHARGE_PART 0.02
/* In which everybody who wants the GPU, and stands below nobody, has some of it (docs/sharing.md): seventy turns of others,
 * of 50 ms and what hand-overs and last pieces add. */
#define STARVED_S 5u
/* In which a program that goes from light to greedy is known as that (docs/sharing.md), and how often that is looked at. */
#define NOTICED_NS (100 * MS)
#define CALM_NS UINT64_C(400000)
#define LOOK_NS (5 * MS)
/* For so long processes are stopped and killed; and how far apart that is. */
#define UPSETS_S 8u
#define UPSETS_APART_MS 200u
/* After that, until each process was measured: then charges are compared. */
#define MEASURED_S 6u
/* The longest kernel of those that differ. */
#define PIECE_MOST_NS (10 * MS)
#define REPORTS_LATE_NS (10 * MS)

/* What a mix has beside programs: a set. */
enum kind {
    KIND_PLAIN = 0,
    KIND_MAXIMA = 1,
    KIND_ARRIVALS = 2,
    KIND_TWO_GPUS = 4,
    KIND_CHANGES = 8,
    KIND_PRIORITIES = 16,
    KIND_PROCESSES = 32, /* several of a session */
    KIND_NO_MINIMA = 64, /* of some */
    KIND_DELAYS = 128,   /* messages late, the daemon and programs kept from running at times */
    KIND_UPSETS = 256,  /* processes are stopped, go on, are killed and come again, and then are left alone */
    KIND_MEDLEYS = 512, /* each process of a session runs a program of its own */
    KIND_VARIED = 1024, /* some programs' kernels are of different lengths */
};

struct drawn {
    struct program program, later, others[PROCESSES];
    unsigned processes, priority;
    double min, max, alone, alone_later;
    unsigned arrives_s, leaves_s, changes_s;
    uint64_t noticed_by; /* 0: nothing is to be noticed */
    struct member *members[PROCESSES];
    /* By second of the world; promises hold since then. */
    uint64_t computed_ns[SECONDS + 1], charged_ns[SECONDS + 1];
    unsigned since_s;
    bool has_left;
};

static struct world world;
static uint64_t chance_state;
static bool is_on_h100;
static unsigned broken; /* mixes */

static uint64_t chance(uint64_t below)
{
    chance_state = chance_state * 6364136223846793005u + 1442695040888963407u;
    return (chance_state >> 33) % below;
}

/* Dense, light, periodic. */
static struct program any_program(uint64_t gpus, unsigned kind)
{
    static const uint64_t pieces[] = {20000, 50000, 100000, 300000, 700000, 1500000, 5000000};
    struct program program = {.piece_ns = pieces[chance(7)], .gpus = gpus, .says_when_closed = true};
    if ((kind & KIND_VARIED) && chance(2) == 0) {
        uint64_t most_ns = program.piece_ns * (2 + chance(30));
        program.piece_most_ns = most_ns < PIECE_MOST_NS ? most_ns : PIECE_MOST_NS;
    }
    if (chance(3) == 0)
        return program;
    program.burst = 1 + (unsigned)chance(4);
    program.idle_ns = program.piece_ns * program.burst * (1 + chance(40)) / 4;
    if (program.idle_ns < 20000)
        program.idle_ns = 20000;
    return program;
}

/* Of a session's process with that number. */
static struct program program_of(const struct drawn *drawn, struct program program, unsigned process)
{
    return drawn->others[process].piece_ns ? drawn->others[process] : program;
}

static void enter(struct drawn *drawn, struct program program, const char *share)
{
    drawn->members[0] = world_add(&world, share, drawn->priority, program);
    for (unsigned i = 1; i < drawn->processes; i++)
        drawn->members[i] =
            world_add_process(&world, drawn->members[0]->session, program_of(drawn, program, i));
}

static uint64_t computed_by(const struct drawn *drawn)
{
    uint64_t ns = 0;
    for (unsigned i = 0; i < drawn->processes; i++)
        ns += drawn->members[i]->device_ns;
    return ns;
}

/* How much the session uses of a GPU that it has alone, in percent. */
static double speed_alone(const struct drawn *drawn, struct program program)
{
    struct world kept = world;
    struct drawn alone = *drawn;
    if (!program.burst) /* it has no gaps */
        return 100;
    alone.priority = ARBITER_PRIORITY_NORMAL;
    world_begin(&world);
    enter(&alone, program, "0%..100%");
    world_run(&world, SECOND / 4);
    uint64_t before = computed_by(&alone);
    world_run(&world, 2 * SECOND);
    double percent = 100 * (double)(computed_by(&alone) - before) / (2 * (double)SECOND);
    world_end(&world);
    world = kept;
    return percent;
}

static unsigned first_gpu(const struct drawn *drawn)
{
    return drawn->program.gpus ? (unsigned)__builtin_ctzll(drawn->program.gpus) : 0;
}

static void draw_one(struct drawn *drawn, double left, bool is_last, unsigned kind)
{
    static const uint64_t gpu_sets[] = {1, 2, 3, 1, 3};
    *drawn = (struct drawn){.max = 100,
                            .processes = 1,
                            .priority = ARBITER_PRIORITY_NORMAL,
                            .leaves_s = UINT32_MAX,
                            .changes_s = UINT32_MAX};
    drawn->min = floor(left * (double)(1 + chance(9)) / 10 * (is_last ? 1 : 0.7));
    drawn->min = fmax(drawn->min, 1); /* where nobody is promised anything, nothing is measured */
    if ((kind & KIND_NO_MINIMA) && chance(2) == 0)
        drawn->min = 0;
    if ((kind & KIND_MAXIMA) && chance(3) == 0)
        drawn->max = fmax(drawn->min, 5 + (double)chance(60));
    if ((kind & KIND_PRIORITIES) && chance(2) == 0)
        drawn->priority = (unsigned)chance(ARBITER_PRIORITIES);
    if ((kind & KIND_PROCESSES) && chance(2) == 0)
        drawn->processes = 2 + (unsigned)chance(PROCESSES - 1);
    uint64_t gpus = (kind & KIND_TWO_GPUS) ? gpu_sets[chance(5)] : 0;
    drawn->program = any_program(gpus, kind);
    for (unsigned i = 1; (kind & KIND_MEDLEYS) && i < drawn->processes; i++)
        drawn->others[i] = any_program(gpus, kind);
    drawn->alone = speed_alone(drawn, drawn->program);
    if (kind & KIND_ARRIVALS)
        drawn->arrives_s = chance(2) ? 0 : (unsigned)chance(10);
    if ((kind & KIND_ARRIVALS) && chance(4) == 0)
        drawn->leaves_s = drawn->arrives_s + 1 + (unsigned)chance(10);
    drawn->since_s = (kind & KIND_UPSETS) ? UPSETS_S + SETTLES_S : drawn->arrives_s;
    if ((kind & KIND_CHANGES) && chance(2) == 0) {
        drawn->changes_s = 1 + drawn->arrives_s + (unsigned)chance(10);
        drawn->later = any_program(gpus, kind);
        drawn->alone_later = speed_alone(drawn, drawn->later);
    }
}

/* Minima that together are at most nine tenths: what hand-overs cost, dense sessions lose alike. */
static unsigned draw(struct drawn *mix, uint64_t seed, unsigned kind)
{
    chance_state = seed * 7919;
    unsigned count = 2 + (unsigned)chance(SESSIONS - 1);
    double left = 90;
    for (unsigned i = 0; i < count; i++) {
        draw_one(&mix[i], left, i + 1 == count, kind);
        left -= mix[i].min;
    }
    return count;
}

/* What is due at the beginning of a second. */
static void move_on(struct drawn *drawn, unsigned second)
{
    if (second == drawn->arrives_s) {
        char share[32];
        snprintf(share, sizeof(share), "%.0f%%..%.0f%%", drawn->min, drawn->max);
        enter(drawn, drawn->program, share);
    }
    if (second == drawn->leaves_s) {
        for (unsigned i = 0; i < drawn->processes; i++)
            world_kill(drawn->members[i]);
        drawn->has_left = true;
    }
    if (second != drawn->changes_s || drawn->has_left)
        return;
    for (unsigned i = 0; i < drawn->processes; i++) {
        drawn->members[i]->program = program_of(drawn, drawn->later, i);
        drawn->members[i]->pieces = 0;
    }
    drawn->alone = drawn->alone_later;
    if (drawn->program.burst && !drawn->later.burst) {
        uint64_t begins = drawn->members[0]->idle_until;
        drawn->noticed_by = (begins > world.now ? begins : world.now) + NOTICED_NS;
    }
}

static bool has_change(const struct drawn *mix, unsigned count, unsigned second)
{
    for (unsigned i = 0; i < count; i++)
        if (mix[i].changes_s == second)
            return true;
    return false;
}

static double percent_of_window(const uint64_t *ns, unsigned second)
{
    return 100 * (double)(ns[second] - ns[second - WINDOW_S]) / (WINDOW_S * (double)SECOND);
}

static void note_broken(const struct drawn *drawn, unsigned second, uint64_t seed, unsigned kind,
                        unsigned index, double computed, double charged)
{
    const struct program *program = &drawn->members[0]->program;
    broken++;
    print_error(
        "mix %llu of kind %u, second %u, session %u (%u of kernels of %llu us, %u of them, gaps of %llu us, "
        "priority %u): %.2f %% of the GPU, charged %.2f %%, alone %.2f %%, promised %.0f..%.0f %%\n",
        (unsigned long long)seed, kind, second, index, drawn->processes,
        (unsigned long long)program->piece_ns / 1000, program->burst,
        (unsigned long long)program->idle_ns / 1000, drawn->priority, computed, charged, drawn->alone,
        drawn->min, drawn->max);
}

/* Where nobody is promised anything, nothing is measured. */
static bool is_free(const struct drawn *drawn)
{
    return arbiter_mode(world.arbiter, first_gpu(drawn), world.now) == ARBITER_MODE_FREE;
}

static void assert_promises(const struct drawn *drawn, unsigned second, uint64_t seed, unsigned kind,
                            unsigned index)
{
    if (drawn->has_left || !drawn->members[0] || second < drawn->since_s + WINDOW_S)
        return;
    double computed = percent_of_window(drawn->computed_ns, second);
    double charged = percent_of_window(drawn->charged_ns, second);
    bool is_delayed = kind & KIND_DELAYS;
    bool is_varied = kind & KIND_VARIED;
    double points = is_delayed   ? POINTS_DELAYED
                    : is_varied  ? POINTS_VARIED
                    : is_on_h100 ? POINTS_H100
                                 : POINTS;
    double part = is_delayed ? PART_DELAYED : 1;
    double charge_points = is_varied ? CHARGE_POINTS_VARIED : is_on_h100 ? CHARGE_POINTS_H100 : CHARGE_POINTS;
    double promised = fmin((drawn->min * part - points) / 100 * drawn->alone, drawn->max - points);
    bool is_measured =
        !(kind & KIND_UPSETS) || drawn->processes == 1 || second >= UPSETS_S + MEASURED_S + WINDOW_S;
    bool is_charged = is_delayed || (kind & KIND_CHANGES) || is_free(drawn) || !is_measured ||
                      fabs(charged - computed) <= fmax(charge_points, CHARGE_PART * computed);
    if (computed < promised || computed > drawn->max + points || !is_charged)
        note_broken(drawn, second, seed, kind, index, computed, charged);
}

/* Whoever stands below nobody has something of the GPU in the time that is written down. */
static void assert_nobody_is_starved(const struct drawn *mix, unsigned count, unsigned index, unsigned second,
                                     uint64_t seed, unsigned kind)
{
    const struct drawn *drawn = &mix[index];
    if (drawn->has_left || !drawn->members[0] || second < drawn->since_s + STARVED_S)
        return;
    for (unsigned i = 0; i < count; i++)
        if (mix[i].priority > drawn->priority)
            return;
    if (drawn->computed_ns[second] == drawn->computed_ns[second - STARVED_S])
        note_broken(drawn, second, seed, kind, index, 0, 0);
}

/* A program that left the GPU idle at times and does so no more runs on beside others for no longer than is written down; while its
 * gate is closed it does not run. */
static void assert_is_noticed(struct drawn *drawn, unsigned second, uint64_t seed, unsigned kind,
                              unsigned index)
{
    if (!drawn->noticed_by)
        return;
    const struct arbiter_session *session = drawn->members[0]->session;
    if (arbiter_session_takes_turns(session) || is_free(drawn))
        drawn->noticed_by = 0;
    else if (arbiter_session_lease(session) != LEASE_GUEST)
        drawn->noticed_by += LOOK_NS;
    else if (world.now >= drawn->noticed_by)
        note_broken(drawn, second, seed, kind, index, 0, 0);
}

static void run_with_changes(struct drawn *mix, unsigned count, unsigned second, uint64_t seed, unsigned kind)
{
    unsigned was_broken = broken;
    for (uint64_t end = world.now + SECOND; world.now < end && broken == was_broken;) {
        world_run(&world, LOOK_NS);
        for (unsigned i = 0; i < count; i++)
            assert_is_noticed(&mix[i], second, seed, kind, i);
    }
}

/* For some milliseconds at a time nobody tells anybody anything, and a program does nothing. */
static void run_with_delays(void)
{
    for (uint64_t end = world.now + SECOND; world.now < end;) {
        struct member *member = &world.members[chance(world.member_count)];
        world.latency_ns = chance(8) ? 50000 : MS * (1 + chance(10));
        member->is_stopped = chance(16) == 0;
        world.is_starved = chance(16) == 0;
        world_run(&world, MS * (1 + chance(20)));
        member->is_stopped = world.is_starved = false;
    }
}

/* One that is stopped goes on or is killed, one that was killed comes again. */
static void upset(struct member *member)
{
    bool is_killed = chance(member->is_stopped ? 2 : 3) == 0;
    if (member->is_dead)
        world_start_again(member);
    else if (is_killed)
        world_kill(member);
    else
        member->is_stopped = !member->is_stopped;
}

static void run_with_upsets(void)
{
    for (uint64_t end = world.now + SECOND; world.now < end;) {
        world_run(&world, MS * (1 + chance(UPSETS_APART_MS)));
        upset(&world.members[chance(world.member_count)]);
    }
}

static void end_upsets(void)
{
    for (unsigned i = 0; i < world.member_count; i++) {
        world.members[i].is_stopped = false;
        if (world.members[i].is_dead)
            world_start_again(&world.members[i]);
    }
}

static void run_second(unsigned kind, unsigned second)
{
    if ((kind & KIND_UPSETS) && second == UPSETS_S)
        end_upsets();
    if ((kind & KIND_UPSETS) && second < UPSETS_S)
        run_with_upsets();
    else if ((kind & KIND_DELAYS) && world.member_count)
        run_with_delays();
    else
        world_run(&world, SECOND);
}

static void try_mix(uint64_t seed, unsigned kind)
{
    struct drawn mix[SESSIONS];
    unsigned was_broken = broken;
    world_begin(&world);
    world.late_ns = (kind & KIND_UPSETS) ? REPORTS_LATE_NS : 0;
    world.calm_ns = (kind & KIND_DELAYS) ? CALM_NS : 0;
    if (is_on_h100)
        world_be_h100(&world);
    unsigned count = draw(mix, seed, kind);
    for (unsigned second = 0; second < SECONDS && broken == was_broken; second++) {
        for (unsigned i = 0; i < count; i++)
            move_on(&mix[i], second);
        bool is_changed = has_change(mix, count, second);
        for (unsigned i = 0; i < count && is_changed; i++)
            mix[i].since_s = second + SETTLES_S;
        if (is_changed)
            run_with_changes(mix, count, second, seed, kind);
        else
            run_second(kind, second);
        for (unsigned i = 0; i < count && broken == was_broken; i++) {
            if (!mix[i].members[0])
                continue;
            mix[i].computed_ns[second + 1] = computed_by(&mix[i]);
            mix[i].charged_ns[second + 1] =
                arbiter_session_used(mix[i].members[0]->session, first_gpu(&mix[i]));
            assert_promises(&mix[i], second + 1, seed, kind, i);
            if (broken == was_broken)
                assert_nobody_is_starved(mix, count, i, second + 1, seed, kind);
        }
    }
    world_end(&world);
}

static uint64_t from = 1, to = 3;
static unsigned only = UINT32_MAX;
static bool is_asked_for_seeds;

static void keeps_its_promises(void **state)
{
    const unsigned *kind = *state;
    broken = 0;
    for (uint64_t seed = from; seed < to; seed++)
        if (only == UINT32_MAX || only == *kind)
            try_mix(seed, *kind);
    assert_int_equal(broken, 0);
}

/* Mixes that broke a promise once. */
static void keeps_its_promises_where_it_did_not(void **state)
{
    static const struct {
        unsigned kind;
        uint64_t seed;
    } mixes[] = {
        {KIND_PLAIN, 92},
        {KIND_PLAIN, 109},
        {KIND_PLAIN, 117},
        {KIND_MAXIMA, 30},
        {KIND_MAXIMA | KIND_ARRIVALS | KIND_PRIORITIES, 32},
        {KIND_MAXIMA | KIND_ARRIVALS | KIND_PRIORITIES, 40},
        {KIND_MAXIMA | KIND_ARRIVALS | KIND_PRIORITIES, 84},
        {KIND_MAXIMA | KIND_ARRIVALS | KIND_PRIORITIES, 109},
        {KIND_ARRIVALS, 114},
        {KIND_TWO_GPUS, 46},
        {KIND_TWO_GPUS, 434},
        {KIND_TWO_GPUS, 453},
        {KIND_PLAIN, 318},
        {KIND_PROCESSES | KIND_MAXIMA | KIND_TWO_GPUS, 424},
        {KIND_PRIORITIES, 59},
        {KIND_PROCESSES, 100},
        {KIND_DELAYS, 109},
        {KIND_PROCESSES | KIND_MAXIMA | KIND_TWO_GPUS, 30},
        {KIND_UPSETS | KIND_PROCESSES, 12},
        {KIND_UPSETS | KIND_PROCESSES | KIND_MEDLEYS, 71},
        {KIND_UPSETS, 34},
        {KIND_PROCESSES | KIND_MAXIMA | KIND_TWO_GPUS, 38},
        {KIND_PROCESSES | KIND_MAXIMA | KIND_TWO_GPUS, 61},
        {KIND_PROCESSES | KIND_MEDLEYS, 50},
        {KIND_PROCESSES | KIND_MEDLEYS, 16},
        {KIND_PROCESSES | KIND_MEDLEYS, 31},
        {KIND_UPSETS | KIND_PROCESSES | KIND_MEDLEYS, 20},
        {KIND_PROCESSES, 54},
        {KIND_PROCESSES | KIND_MAXIMA | KIND_TWO_GPUS, 50},
        {KIND_PROCESSES, 46},
        {KIND_PRIORITIES, 89},
        {KIND_PRIORITIES | KIND_NO_MINIMA | KIND_CHANGES, 22},
        {KIND_PRIORITIES | KIND_NO_MINIMA | KIND_CHANGES, 38},
        {KIND_PRIORITIES | KIND_NO_MINIMA | KIND_CHANGES, 40},
        {KIND_CHANGES, 4},
        {KIND_VARIED, 18},
        {KIND_VARIED, 28},
        {KIND_VARIED | KIND_MAXIMA, 5},
        {KIND_VARIED | KIND_PRIORITIES, 22},
    };
    (void)state;
    broken = 0;
    for (unsigned i = 0; i < sizeof(mixes) / sizeof(mixes[0]) && !is_asked_for_seeds; i++)
        try_mix(mixes[i].seed, mixes[i].kind);
    assert_int_equal(broken, 0);
}

int main(int count, char **words)
{
    static unsigned kinds[] = {KIND_PLAIN,
                               KIND_MAXIMA,
                               KIND_ARRIVALS,
                               KIND_TWO_GPUS,
                               KIND_CHANGES,
                               KIND_PRIORITIES,
                               KIND_PROCESSES,
                               KIND_NO_MINIMA,
                               KIND_DELAYS,
                               KIND_PRIORITIES | KIND_MAXIMA | KIND_ARRIVALS,
                               KIND_PRIORITIES | KIND_NO_MINIMA | KIND_CHANGES,
                               KIND_PROCESSES | KIND_MAXIMA | KIND_TWO_GPUS,
                               KIND_DELAYS | KIND_MAXIMA | KIND_ARRIVALS,
                               KIND_PROCESSES | KIND_MEDLEYS,
                               KIND_UPSETS,
                               KIND_UPSETS | KIND_PROCESSES,
                               KIND_UPSETS | KIND_PROCESSES | KIND_MEDLEYS,
                               KIND_VARIED};
    static const char *const names[] = {"any mix",
                                        "maxima beside minima",
                                        "programs that come and go",
                                        "programs on two GPUs",
                                        "programs that become others",
                                        "priorities",
                                        "sessions of several processes",
                                        "sessions without minima",
                                        "delays",
                                        "priorities, maxima, coming and going",
                                        "priorities, no minima, changes",
                                        "several processes, maxima, two GPUs",
                                        "delays, maxima, coming and going",
                                        "sessions of several programs",
                                        "stops and kills",
                                        "stops and kills of several processes",
                                        "stops and kills of several programs",
                                        "kernels that differ"};
    enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };
    struct CMUnitTest tests[KINDS + 1];
    for (unsigned i = 0; i < KINDS; i++)
        tests[i] = (struct CMUnitTest){names[i], keeps_its_promises, NULL, NULL, &kinds[i]};
    tests[KINDS] = (struct CMUnitTest)cmocka_unit_test(keeps_its_promises_where_it_did_not);
    if (count >= 3) {
        is_asked_for_seeds = true;
        from = strtoull(words[1], NULL, 10);
        to = strtoull(words[2], NULL, 10);
    }
    is_on_h100 = count >= 5 && strcmp(words[4], "h100") == 0;
    if (count >= 4 && strcmp(words[3], "all") != 0)
        only = (unsigned)strtoul(words[3], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
