/* The first seconds: how long a service's bursts take while the arbiter gets to know whoever is new, in a simulated world
 * (arbiter_world.h), beside the same world without shares. Nothing here takes real time; bench/first.py is the same with
 * real programs.
 *
 *   test_daemon_first [WORD]    the cases whose name has that word; all print what they found */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "arbiter_world.h"

#define FIRST_S 4u
#define LATER_S 4u
#define SETTLE_S 3u
/* A neighbour is there for so long, and away for so long; and so often it comes or goes. */
#define VISIT_S 3u
#define VISITS 4u
/* How long a short session works, until the next one of its loop is there; how many loops there are, and how long they go on. */
#define SHORT_MS 250u
#define STARTS_MS 50u
#define LOOPS 2u
/* Each case runs with so many different moments at which somebody comes. */
#define PHASES 5u
#define PHASE_NS UINT64_C(3500000) /* a period of the service in all */
/* Wanted of p99, and of bursts a second. */
#define WANTED_TIMES 1.5
#define WANTED_PART 0.95

enum device { DEFAULT, H100, DEVICES };

struct first {
    double first_ms, later_ms; /* p99 */
    double bursts;             /* a second, of the first seconds */
    double most_ms;            /* the longest of the first seconds */
    unsigned slow;             /* of the first seconds, those that took longer than `slow_ns` */
};

static struct world world;
static struct world_bursts bursts;
static bool is_shared; /* else nobody is promised anything, and every gate is open */
static uint64_t slow_ns;

static const struct program service = {
    .piece_ns = 700000, .burst = 2, .period_ns = 17 * MS, .says_when_closed = true};
static const struct program trainer = {.piece_ns = 7 * MS, .says_when_closed = true};
static const struct program light = {
    .piece_ns = 500000, .burst = 1, .period_ns = 5 * MS, .says_when_closed = true};
static const struct program brief = {.piece_ns = 400000, .says_when_closed = true};

static const char *share(const char *words)
{
    return is_shared ? words : "0%..100%";
}

static struct member *add(const char *words, unsigned priority, struct program program)
{
    return world_add(&world, share(words), is_shared ? priority : ARBITER_PRIORITY_NORMAL, program);
}

static void add_watched(const char *words, unsigned priority, struct program program)
{
    add(words, priority, program)->bursts = &bursts;
}

static double p99_ms(unsigned from)
{
    return (double)world_p99_ns(&bursts, from) / (double)MS;
}

/* What happened since there were `from` bursts is of the first seconds. */
static struct first first_of(unsigned from, unsigned seconds)
{
    struct first first = {.first_ms = p99_ms(from),
                          .bursts = (double)(bursts.count - from) / seconds,
                          .slow = world_longer_than(&bursts, from, slow_ns)};
    for (unsigned i = from; i < bursts.count; i++)
        first.most_ms = fmax(first.most_ms, (double)bursts.ns[i] / (double)MS);
    return first;
}

static struct first first_and_later(unsigned from, unsigned seconds)
{
    struct first first = first_of(from, seconds);
    unsigned later = bursts.count;
    world_run(&world, LATER_S * SECOND);
    first.later_ms = p99_ms(later);
    return first;
}

static struct first after_first(unsigned from)
{
    world_run(&world, FIRST_S * SECOND);
    return first_and_later(from, FIRST_S);
}

/* Both are there for a moment before either begins; in every other phase the trainer begins first. */
static struct first both_come(unsigned phase)
{
    add_watched("40%..100%", ARBITER_PRIORITY_NORMAL, service);
    add("20%..100%", ARBITER_PRIORITY_NORMAL, trainer);
    for (unsigned i = 0; i < 2; i++)
        world.members[i].idle_until = world.members[i].due_at =
            world.now + STARTS_MS * MS + (i == phase % 2 ? 0 : phase * PHASE_NS);
    return after_first(0);
}

/* By a tenth, as they do where the CPUs are shared with others. */
static struct first both_come_with_calls_that_differ(unsigned phase)
{
    add_watched("40%..100%", ARBITER_PRIORITY_NORMAL, service);
    add("20%..100%", ARBITER_PRIORITY_NORMAL, trainer);
    for (unsigned i = 0; i < 2; i++)
        world.members[i].jitter = 0.1;
    return after_first(0);
}

static struct first the_trainer_comes(unsigned phase)
{
    add_watched("40%..100%", ARBITER_PRIORITY_NORMAL, service);
    world_run(&world, SETTLE_S * SECOND + phase * PHASE_NS);
    unsigned from = bursts.count;
    add("20%..100%", ARBITER_PRIORITY_NORMAL, trainer);
    return after_first(from);
}

static struct first the_service_comes(unsigned phase)
{
    add("20%..100%", ARBITER_PRIORITY_NORMAL, trainer);
    world_run(&world, SETTLE_S * SECOND + phase * PHASE_NS);
    add_watched("40%..100%", ARBITER_PRIORITY_NORMAL, service);
    return after_first(0);
}

/* A second trainer, each time in a session of its own. */
static struct first a_neighbour_comes_and_goes(unsigned phase)
{
    add_watched("40%..100%", ARBITER_PRIORITY_NORMAL, service);
    add("20%..100%", ARBITER_PRIORITY_NORMAL, trainer);
    world_run(&world, SETTLE_S * SECOND + phase * PHASE_NS);
    unsigned from = bursts.count;
    struct member *visitor = NULL;
    for (unsigned visit = 0; visit < VISITS; visit++) {
        if (visit % 2)
            world_kill(visitor);
        else if (visitor)
            world_come_again(visitor, 77, share("20%..100%"), ARBITER_PRIORITY_NORMAL);
        else
            visitor = add("20%..100%", ARBITER_PRIORITY_NORMAL, trainer);
        world_run(&world, VISIT_S * SECOND);
    }
    return first_and_later(from, VISITS * VISIT_S);
}

/* Two users start one short program after another. */
static struct first beside_loops(unsigned phase, unsigned priority)
{
    struct member *loops[LOOPS];
    add_watched("30%..100%", priority, light);
    world_run(&world, SETTLE_S * SECOND + phase * PHASE_NS);
    unsigned from = bursts.count;
    for (unsigned i = 0; i < LOOPS; i++)
        loops[i] = add("0%..100%", ARBITER_PRIORITY_NORMAL, brief);
    for (uint64_t ms = 1; ms <= FIRST_S * 1000; ms++) {
        world_run(&world, MS);
        for (unsigned i = 0; i < LOOPS; i++) {
            uint64_t at = (ms + i * SHORT_MS / 2) % (SHORT_MS + STARTS_MS);
            if (at == SHORT_MS)
                world_kill(loops[i]);
            else if (at == 0 && loops[i]->is_dead)
                world_come_again(loops[i], 1001 + i, "0%..100%", ARBITER_PRIORITY_NORMAL);
        }
    }
    return first_of(from, FIRST_S);
}

static struct first short_ones_come_and_go(unsigned phase)
{
    return beside_loops(phase, ARBITER_PRIORITY_NORMAL);
}

static struct first short_ones_come_and_go_below(unsigned phase)
{
    return beside_loops(phase, ARBITER_PRIORITY_NORMAL + 1);
}

/* The worst of all phases. */
static struct first worst(struct first (*run)(unsigned), enum device device, bool shared)
{
    struct first worst = {.bursts = 1e9};
    is_shared = shared;
    for (unsigned phase = 0; phase < PHASES; phase++) {
        world_begin(&world);
        bursts.count = 0;
        if (device == H100)
            world_be_h100(&world);
        struct first first = run(phase);
        world_end(&world);
        worst.first_ms = fmax(worst.first_ms, first.first_ms);
        worst.later_ms = fmax(worst.later_ms, first.later_ms);
        worst.most_ms = fmax(worst.most_ms, first.most_ms);
        worst.bursts = fmin(worst.bursts, first.bursts);
        worst.slow = first.slow > worst.slow ? first.slow : worst.slow;
    }
    return worst;
}

/* What is kept of each case on each device. Whoever makes one of them better writes the better figure here. */
struct row {
    const char *name;
    struct first (*run)(unsigned phase);
    struct kept {
        double first_times, later_times; /* p99, as parts of the same without shares */
        double part;                     /* bursts a second, likewise */
        double most_ms;                  /* the longest of the first seconds */
        unsigned slow; /* of those, so many take longer than WANTED_TIMES their p99 without shares */
    } kept[DEVICES];
};

static bool is_kept_on(const struct row *row, enum device device)
{
    const struct kept *kept = &row->kept[device];
    slow_ns = UINT64_MAX;
    struct first without = worst(row->run, device, false);
    slow_ns = (uint64_t)(WANTED_TIMES * without.first_ms * (double)MS);
    struct first inside = worst(row->run, device, true);
    double first_times = inside.first_ms / without.first_ms;
    double later_times = without.later_ms > 0 ? inside.later_ms / without.later_ms : 0;
    double part = inside.bursts / without.bursts;
    print_message("%-34s %-7s first: p99 %5.2f ms of %5.2f (%5.2f times), longest %5.1f of %5.1f, ",
                  row->name, device == H100 ? "h100" : "default", inside.first_ms, without.first_ms,
                  first_times, inside.most_ms, without.most_ms);
    print_message("slow %2u; later: p99 %5.2f of %5.2f; %5.1f bursts a second of %5.1f\n", inside.slow,
                  inside.later_ms, without.later_ms, inside.bursts, without.bursts);
    return first_times <= kept->first_times && later_times <= kept->later_times && part >= kept->part &&
           inside.most_ms <= kept->most_ms && inside.slow <= kept->slow;
}

static void keeps_the_first_seconds(void **state)
{
    unsigned kept = 0;
    for (unsigned device = 0; device < DEVICES; device++)
        kept += is_kept_on(*state, device);
    assert_int_equal(kept, DEVICES);
}

int main(int count, char **words)
{
    static struct row rows[] = {
        {"service and trainer come", both_come, {{1.1, 1.1, 0.98, 42, 2}, {1.1, 1.1, 0.98, 42, 2}}},
        {"the same, calls differ",
         both_come_with_calls_that_differ,
         {{1.1, 1.1, 0.99, 32, 1}, {1.1, 1.1, 0.99, 32, 1}}},
        {"a trainer comes", the_trainer_comes, {{1.1, 1.1, 0.98, 45, 1}, {1.1, 1.1, 0.98, 45, 1}}},
        {"a service comes", the_service_comes, {{1.1, 1.1, 0.98, 45, 2}, {1.1, 1.1, 0.98, 45, 2}}},
        {"a neighbour comes and goes",
         a_neighbour_comes_and_goes,
         {{1.1, 1.1, 0.99, 34, 4}, {1.1, 1.1, 0.99, 34, 4}}},
        {"short sessions come and go",
         short_ones_come_and_go,
         {{1.2, 0, 0.95, 85, 8}, {1.2, 0, 0.95, 55, 8}}},
        {"short sessions come and go below",
         short_ones_come_and_go_below,
         {{1.2, 0, 0.97, 10, 1}, {1.2, 0, 0.97, 10, 1}}},
    };
    struct CMUnitTest tests[sizeof(rows) / sizeof(rows[0])];
    size_t chosen = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (count < 2 || strstr(rows[i].name, words[1]))
            tests[chosen++] =
                (struct CMUnitTest){rows[i].name, keeps_the_first_seconds, NULL, NULL, &rows[i]};
    return _cmocka_run_group_tests("first", tests, chosen, NULL, NULL);
}
