/* Whose bytes NVML shows under a pid that came again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/gpu/pids.h"

static struct known_pids known;
static struct nvml_process entries[3];

/* NVML shows these bytes under our pid, in one entry or two. */
static void show(uint64_t first, uint64_t second)
{
    memset(entries, 0, sizeof(entries));
    entries[0] = (struct nvml_process){.pid = getpid(), .used_bytes = first, .is_known = true};
    entries[1] = (struct nvml_process){.pid = 1, .used_bytes = 11, .is_known = true};
    entries[2] = (struct nvml_process){.pid = getpid(), .used_bytes = second, .is_known = true};
    pids_tell_apart(&known, entries, second ? 3 : 2);
    assert_int_equal(entries[1].used_bytes, 11);
}

/* It was another process that the last sample showed under our pid. */
static void pretend_that_another_had_our_pid(void)
{
    for (unsigned i = 0; i < known.count; i++)
        known.pids[i].start_ticks -= known.pids[i].pid == getpid();
}

static int forget(void **state)
{
    free(known.pids);
    known = (struct known_pids){0};
    return 0;
}

static void what_a_process_holds_is_its_own(void **state)
{
    show(600, 0);
    show(700, 100);
    assert_int_equal(entries[0].used_bytes + entries[2].used_bytes, 800);
    assert_int_equal(entries[0].dead_bytes + entries[2].dead_bytes, 0);
}

static void what_was_shown_for_a_process_that_had_the_pid_before_is_not(void **state)
{
    show(600, 0);
    pretend_that_another_had_our_pid();
    show(600, 0);
    assert_int_equal(entries[0].used_bytes, 0);
    assert_int_equal(entries[0].dead_bytes, 600);
    show(650, 100); /* ours are 150 of these */
    assert_int_equal(entries[0].used_bytes + entries[2].used_bytes, 150);
    assert_int_equal(entries[0].dead_bytes + entries[2].dead_bytes, 600);
    show(200, 0); /* the dead one's may have become less, and do not become more again */
    assert_int_equal(entries[0].dead_bytes, 200);
    show(900, 0);
    assert_int_equal(entries[0].used_bytes, 700);
}

static void a_pid_that_is_not_shown_any_more_begins_anew(void **state)
{
    show(600, 0);
    pretend_that_another_had_our_pid();
    pids_tell_apart(&known, NULL, 0);
    show(600, 0);
    assert_int_equal(entries[0].used_bytes, 600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_a_process_holds_is_its_own, forget),
        cmocka_unit_test_teardown(what_was_shown_for_a_process_that_had_the_pid_before_is_not, forget),
        cmocka_unit_test_teardown(a_pid_that_is_not_shown_any_more_begins_anew, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
