/* A search for mixes of programs that break a promise: programs of all characters, drawn by chance, in a simulated world
 * (arbiter_world.h), watched from their first second on.
 *
 *   test_daemon_mixes [FROM TO]    the mixes of these seeds, instead of a few of each kind */
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
#define SECONDS 24u
/* For so long promises hold, and charges are compared. */
#define WINDOW_S 10u
/* Points of its minimum that a session may miss, and of its maximum that it may pass, with a turn more or less at either end of
 * the window. */
#define POINTS 1.5
/* For so long nothing is held against a mix of which a program has become another. */
#define SETTLES_S 3u
/* What a charge may be wrong by: points, or a part of it; of which the last 100 ms of a turn, charged later, are one. */
#define CHARGE_POINTS 1.5
#define CHARGE_PART 0.02

/* What a seed's mix has beside programs. */
enum kind { KIND_PLAIN, KIND_MAXIMA, KIND_ARRIVALS, KIND_TWO_GPUS, KIND_CHANGES };

struct drawn {
    struct program program, later;
    double min, max, alone, alone_later;
    unsigned arrives_s, leaves_s, changes_s;
    struct member *member;
    /* By second of the world; promises hold since then. */
    uint64_t computed_ns[SECONDS + 1], charged_ns[SECONDS + 1];
    unsigned since_s;
    bool has_left;
};

static struct world world;
static uint64_t chance_state;

static uint64_t chance(uint64_t below)
{
    chance_state = chance_state * 6364136223846793005u + 1442695040888963407u;
    return (chance_state >> 33) % below;
}

/* Dense, light, periodic. */
static struct program any_program(uint64_t gpus)
{
    static const uint64_t pieces[] = {20000, 50000, 100000, 300000, 700000, 1500000, 5000000};
    struct program program = {.piece_ns = pieces[chance(7)], .gpus = gpus, .says_when_closed = true};
    if (chance(3) == 0)
        return program;
    program.burst = 1 + (unsigned)chance(4);
    program.idle_ns = program.piece_ns * program.burst * (1 + chance(40)) / 4;
    if (program.idle_ns < 20000)
        program.idle_ns = 20000;
    return program;
}

/* How much it uses of a GPU that it has alone, in percent. */
static double speed_alone(struct program program)
{
    struct world kept = world;
    world_begin(&world);
    struct member *member = world_add(&world, "0%..100%", ARBITER_PRIORITY_NORMAL, program);
    world_run(&world, SECOND / 4);
    uint64_t before = member->device_ns;
    world_run(&world, 2 * SECOND);
    double percent = 100 * (double)(member->device_ns - before) / (2 * (double)SECOND);
    world_end(&world);
    world = kept;
    return percent;
}

static unsigned first_gpu(const struct drawn *drawn)
{
    return drawn->program.gpus ? (unsigned)__builtin_ctzll(drawn->program.gpus) : 0;
}

/* Minima that together are at most nine tenths: what hand-overs cost, dense sessions lose alike. */
static unsigned draw(struct drawn *mix, uint64_t seed, enum kind kind)
{
    static const uint64_t gpu_sets[] = {1, 2, 3, 1, 3};
    chance_state = seed * 7919;
    unsigned count = 2 + (unsigned)chance(SESSIONS - 1);
    double left = 90;
    for (unsigned i = 0; i < count; i++) {
        struct drawn *drawn = &mix[i];
        *drawn = (struct drawn){.max = 100, .leaves_s = UINT32_MAX, .changes_s = UINT32_MAX};
        drawn->min = floor(left * (double)(1 + chance(9)) / 10 * (i + 1 == count ? 1 : 0.7));
        drawn->min = fmax(drawn->min, 1); /* where nobody is promised anything, nothing is measured */
        left -= drawn->min;
        if (kind == KIND_MAXIMA && chance(3) == 0)
            drawn->max = fmax(drawn->min, 5 + (double)chance(60));
        uint64_t gpus = kind == KIND_TWO_GPUS ? gpu_sets[chance(5)] : 0;
        drawn->program = any_program(gpus);
        drawn->alone = speed_alone(drawn->program);
        if (kind == KIND_ARRIVALS)
            drawn->arrives_s = chance(2) ? 0 : (unsigned)chance(10);
        if (kind == KIND_ARRIVALS && chance(4) == 0)
            drawn->leaves_s = drawn->arrives_s + 1 + (unsigned)chance(10);
        drawn->since_s = drawn->arrives_s;
        if (kind == KIND_CHANGES && chance(2) == 0) {
            drawn->changes_s = 1 + (unsigned)chance(10);
            drawn->later = any_program(gpus);
            drawn->alone_later = speed_alone(drawn->later);
        }
    }
    return count;
}

/* What is due at the beginning of a second. */
static void move_on(struct drawn *drawn, unsigned second)
{
    if (second == drawn->arrives_s) {
        char share[32];
        snprintf(share, sizeof(share), "%.0f%%..%.0f%%", drawn->min, drawn->max);
        drawn->member = world_add(&world, share, ARBITER_PRIORITY_NORMAL, drawn->program);
    }
    if (second == drawn->leaves_s) {
        world_kill(drawn->member);
        drawn->has_left = true;
    }
    if (second == drawn->changes_s) {
        drawn->member->program = drawn->later;
        drawn->member->pieces = 0;
        drawn->alone = drawn->alone_later;
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

static void assert_promises(const struct drawn *drawn, bool any_changes, unsigned second, uint64_t seed,
                            unsigned index)
{
    if (drawn->has_left || !drawn->member || second < drawn->since_s + WINDOW_S)
        return;
    double computed = percent_of_window(drawn->computed_ns, second);
    double charged = percent_of_window(drawn->charged_ns, second);
    double promised = fmin((drawn->min - POINTS) / 100 * drawn->alone, drawn->max - POINTS);
    if (computed >= promised && computed <= drawn->max + POINTS &&
        (any_changes || fabs(charged - computed) <= fmax(CHARGE_POINTS, CHARGE_PART * computed)))
        return;
    const struct program *program = &drawn->member->program;
    fail_msg("mix %llu, second %u, session %u (kernels of %llu us, %u of them, gaps of %llu us): %.2f %% of "
             "the GPU, charged "
             "%.2f %%, alone %.2f %%, promised %.0f..%.0f %%",
             (unsigned long long)seed, second, index, (unsigned long long)program->piece_ns / 1000,
             program->burst, (unsigned long long)program->idle_ns / 1000, computed, charged, drawn->alone,
             drawn->min, drawn->max);
}

static void try_mix(uint64_t seed, enum kind kind)
{
    struct drawn mix[SESSIONS];
    world_begin(&world);
    unsigned count = draw(mix, seed, kind);
    bool any_changes = kind == KIND_CHANGES;
    for (unsigned second = 0; second < SECONDS; second++) {
        for (unsigned i = 0; i < count; i++)
            move_on(&mix[i], second);
        if (has_change(mix, count, second))
            for (unsigned i = 0; i < count; i++)
                mix[i].since_s = second + SETTLES_S;
        world_run(&world, SECOND);
        for (unsigned i = 0; i < count; i++) {
            if (!mix[i].member)
                continue;
            mix[i].computed_ns[second + 1] = mix[i].member->device_ns;
            mix[i].charged_ns[second + 1] = arbiter_session_used(mix[i].member->session, first_gpu(&mix[i]));
            assert_promises(&mix[i], any_changes, second + 1, seed, i);
        }
    }
    world_end(&world);
}

static uint64_t from = 1, to = 13;

static void try_mixes(enum kind kind)
{
    for (uint64_t seed = from; seed < to; seed++)
        try_mix(seed, kind);
}

static void any_mix_keeps_its_promises_from_the_first_second(void **state)
{
    try_mixes(KIND_PLAIN);
}

static void maxima_beside_minima_are_kept(void **state)
{
    try_mixes(KIND_MAXIMA);
}

static void programs_that_come_and_go_break_nothing(void **state)
{
    try_mixes(KIND_ARRIVALS);
}

static void programs_on_two_gpus_break_nothing(void **state)
{
    try_mixes(KIND_TWO_GPUS);
}

static void programs_that_become_others_break_nothing(void **state)
{
    try_mixes(KIND_CHANGES);
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mix_keeps_its_promises_from_the_first_second),
        cmocka_unit_test(maxima_beside_minima_are_kept),
        cmocka_unit_test(programs_that_come_and_go_break_nothing),
        cmocka_unit_test(programs_on_two_gpus_break_nothing),
        cmocka_unit_test(programs_that_become_others_break_nothing),
    };
    if (count == 3) {
        from = strtoull(words[1], NULL, 10);
        to = strtoull(words[2], NULL, 10);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
