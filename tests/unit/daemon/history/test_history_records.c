#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/history/history_file.h"
#include "daemon/history/history_records.h"

#define NOON INT64_C(1750000000)
#define ANA 1000u
#define BEN 1001u

struct world {
    char path[64];
    struct history_file *file;
    char told[4096]; /* the texts that were read, with a space behind each */
};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    uint32_t next;
    snprintf(world->path, sizeof(world->path), "/tmp/test-history-records-%d.db", (int)getpid());
    assert_int_equal(history_file_open(world->path, &world->file, &next, NULL), 0);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    static const char *const parts[] = {"", "-wal", "-shm"};
    struct world *world = *state;
    history_file_close(world->file);
    for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        char path[96];
        snprintf(path, sizeof(path), "%s%s", world->path, parts[i]);
        unlink(path);
    }
    free(world);
    return 0;
}

static void put(struct world *world, struct history_record head, const char *text)
{
    struct history_record *record = malloc(sizeof(*record) + strlen(text) + 1);
    *record = head;
    strcpy(record->text, text);
    assert_int_equal(history_records_put(world->file, record, NULL), 0);
    free(record);
}

static void put_event(struct world *world, uint64_t epoch, uint64_t number, uid_t owner, int64_t at,
                      const char *text)
{
    put(world,
        (struct history_record){
            .kind = RECORD_EVENT, .epoch = epoch, .number = number, .owner = owner, .at_ms = at * 1000},
        text);
}

static void put_ended(struct world *world, const char *id, uid_t owner, int64_t at, const char *text)
{
    struct history_record head = {.kind = RECORD_ENDED, .owner = owner, .at_ms = at * 1000};
    strcpy(head.session_id, id);
    snprintf(head.name, sizeof(head.name), "name-%s", text);
    put(world, head, text);
}

static void tell(struct world *world, const char *text)
{
    strcat(world->told, text);
    strcat(world->told, " ");
}

static void take_event(const struct history_record *record, void *context)
{
    tell(context, record->text);
}

static void take_ended(const char *text, void *context)
{
    tell(context, text);
}

static void take_totals(const char *session_id, const char *text, void *context)
{
    tell(context, session_id);
    tell(context, text);
}

static void check_events(struct world *world, struct history_events_ask ask, const char *expected)
{
    world->told[0] = '\0';
    assert_int_equal(history_records_events(world->file, &ask, take_event, world, NULL), 0);
    assert_string_equal(world->told, expected);
}

static void check_ended(struct world *world, struct history_ended_ask ask, const char *session,
                        const char *expected)
{
    world->told[0] = '\0';
    strcpy(ask.session, session);
    assert_int_equal(history_records_ended(world->file, &ask, take_ended, world, NULL), 0);
    assert_string_equal(world->told, expected);
}

static void events_come_in_the_order_of_daemons_to_whom_may_see_them(void **state)
{
    struct world *world = *state;
    put_event(world, 2, 1, ANA, NOON + 3, "c");
    put_event(world, 1, 2, BEN, NOON + 2, "b");
    put_event(world, 1, 1, ANA, NOON + 1, "a");
    put(world,
        (struct history_record){
            .epoch = 2, .number = 2, .owner = 0, .is_for_all = true, .at_ms = (NOON + 4) * 1000},
        "d");
    check_events(world, (struct history_events_ask){.uid = 0, .most = 9}, "a b c d ");
    check_events(world, (struct history_events_ask){.uid = ANA, .most = 9}, "a c d ");
    check_events(world, (struct history_events_ask){.uid = BEN, .most = 9}, "b d ");
    check_events(world, (struct history_events_ask){.epoch = 1, .number = 1, .most = 2}, "b c ");
    check_events(world, (struct history_events_ask){.from_ms = (NOON + 3) * 1000, .most = 9}, "c d ");
}

static void ended_sessions_are_found_by_name_id_owner_and_time(void **state)
{
    struct world *world = *state;
    put_ended(world, "aaaaaaaaaaaa", ANA, NOON + 1, "a");
    put_ended(world, "aabbbbbbbbbb", BEN, NOON + 2, "b");
    put_ended(world, "cccccccccccc", ANA, NOON + 3, "c");
    struct history_ended_ask all = {.to_ms = INT64_MAX, .most = 9};
    check_ended(world, all, "", "a b c ");
    check_ended(world, all, "aa", "a b ");
    check_ended(world, all, "name-c", "c ");
    put_ended(world, "dddddddddddd", ANA, NOON + 4, "d");
    struct history_record named = {.kind = RECORD_ENDED, .owner = ANA, .at_ms = (NOON + 5) * 1000};
    strcpy(named.session_id, "eeeeeeeeeeee");
    strcpy(named.name, "d"); /* a name goes before the beginning of an ID */
    put(world, named, "e");
    check_ended(world, all, "d", "e ");
    check_ended(world, (struct history_ended_ask){.uid = BEN, .to_ms = INT64_MAX, .most = 9}, "d", "");
    check_ended(world, (struct history_ended_ask){.uid = ANA, .to_ms = INT64_MAX, .most = 9}, "", "a c d e ");
    check_ended(world,
                (struct history_ended_ask){.has_owner = true, .owner = BEN, .to_ms = INT64_MAX, .most = 9},
                "", "b ");
    check_ended(world, (struct history_ended_ask){.to_ms = INT64_MAX, .most = 2}, "", "d e ");
    check_ended(
        world,
        (struct history_ended_ask){.from_ms = (NOON + 2) * 1000, .to_ms = (NOON + 2) * 1000, .most = 9}, "",
        "b ");
}

static void the_end_of_a_session_removes_its_totals(void **state)
{
    struct world *world = *state;
    struct history_record head = {.kind = RECORD_TOTALS};
    strcpy(head.session_id, "aaaaaaaaaaaa");
    put(world, head, "1");
    put(world, head, "2");
    strcpy(head.session_id, "bbbbbbbbbbbb");
    put(world, head, "3");
    assert_int_equal(history_records_totals(world->file, take_totals, world, NULL), 0);
    assert_string_equal(world->told, "aaaaaaaaaaaa 2 bbbbbbbbbbbb 3 ");
    put_ended(world, "aaaaaaaaaaaa", ANA, NOON, "a");
    world->told[0] = '\0';
    assert_int_equal(history_records_totals(world->file, take_totals, world, NULL), 0);
    assert_string_equal(world->told, "bbbbbbbbbbbb 3 ");
}

static void who_has_most_loses_the_oldest(void **state)
{
    struct world *world = *state;
    put_event(world, 1, 1, ANA, NOON, "ana");
    for (unsigned i = 2; i <= 20; i++)
        put_event(world, 1, i, BEN, NOON + i, i < 18 ? "old" : "new");
    struct history_bounds bounds = {.bytes = UINT64_MAX, .days = 31, .records = 4};
    assert_int_equal(history_file_prune(world->file, NOON + 60, &bounds, NULL), 0);
    check_events(world, (struct history_events_ask){.most = 9}, "ana new new new ");
    assert_int_equal(history_file_prune(world->file, NOON + 32 * 86400, &bounds, NULL), 0);
    check_events(world, (struct history_events_ask){.most = 9}, "");
}

static void records_count_in_the_size_of_the_file(void **state)
{
    struct world *world = *state;
    static char text[1001];
    memset(text, 'x', sizeof(text) - 2);
    for (unsigned i = 0; i < 400; i++)
        put_event(world, 1, i + 1, BEN, NOON + i, text);
    put_event(world, 1, 500, ANA, NOON, "ana");
    struct history_bounds bounds = {.bytes = 200000, .days = 31, .records = 10000};
    assert_int_equal(history_file_prune(world->file, NOON + 60, &bounds, NULL), 0);
    assert_true(history_file_bytes(world->file) <= bounds.bytes);
    check_events(world, (struct history_events_ask){.uid = ANA, .most = 9}, "ana ");
    check_events(world, (struct history_events_ask){.uid = BEN, .epoch = 1, .number = 399, .most = 1},
                 strcat(text, " "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(events_come_in_the_order_of_daemons_to_whom_may_see_them, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(ended_sessions_are_found_by_name_id_owner_and_time, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_end_of_a_session_removes_its_totals, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_has_most_loses_the_oldest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(records_count_in_the_size_of_the_file, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
