/* What is known of sessions and processes goes together, and a daemon in which it does not is caught. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../wrong.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_ledger.h"
#include "daemon/session/session_life.h"
#include "daemon/session/session_valid.h"

static struct daemon host;
static struct session first, second;
static struct process older, newer;

static void make_session(struct session *session, const char *id)
{
    *session = (struct session){.gpu_count = 1, .runner = {.pidfd = -1}, .name = "training"};
    strcpy(session->id, id);
    strcpy(session->token, "secret");
    session->properties.compute = (struct share){0, SHARE_WHOLE};
    session_link(&host, session);
}

/* Two sessions; the first has two processes. */
static int set_up(void **state)
{
    host = (struct daemon){.gpu_count = 1};
    make_session(&first, "0123456789ab");
    make_session(&second, "ba9876543210");
    older = (struct process){.session = &first, .pid = 10, .number = 1, .newer = &newer};
    newer = (struct process){.session = &first, .pid = 11, .number = 2, .slot = 1, .next = &older};
    first.processes = &newer;
    first.oldest_process = &older;
    first.process_count = 2;
    first.processes_seen = 2;
    return 0;
}

static void a_right_daemon_is_valid(void **state)
{
    assert_true(session_is_valid(&first));
    assert_true(session_is_valid(&second));
    assert_true(process_is_valid(&older));
    assert_true(process_is_valid(&newer));
}

/* Each is what a mistake in one line of the daemon would leave. */
static void a_session_that_does_not_go_together_is_not_valid(void **state)
{
    struct session right = first;
#define ASSERT_WRONG(change)                                                                                 \
    do {                                                                                                     \
        first.change;                                                                                        \
        assert_false(session_is_valid(&first));                                                              \
        first = right;                                                                                       \
    } while (0)
    ASSERT_WRONG(has_ended = true);
    ASSERT_WRONG(number = 3);
    ASSERT_WRONG(next = NULL);
    ASSERT_WRONG(id[0] = 'x');
    ASSERT_WRONG(name[0] = '\0');
    ASSERT_WRONG(token[0] = '\0');
    ASSERT_WRONG(gpus[0].gpu = 1);
    ASSERT_WRONG(gpus[0].gpu = -2);
    ASSERT_WRONG(gpu_count = LEDGER_GPUS + 1);
    ASSERT_WRONG(properties.compute.min = SHARE_WHOLE + 1);
    ASSERT_WRONG(properties.priority = PRIORITY_COUNT);
    ASSERT_WRONG(process_count = 0);
    ASSERT_WRONG(oldest_process = NULL);
    ASSERT_WRONG(processes = &older);
    ASSERT_WRONG(processes_seen = 1);
    ASSERT_WRONG(state = SESSION_QUEUED);
    ASSERT_WRONG(queued = (void *)&host);
    ASSERT_WRONG(ledger.usage = (void *)&host);
    ASSERT_WRONG(runner.pidfd = 5);
    ASSERT_WRONG(orphan_count = 1);
#undef ASSERT_WRONG
    assert_true(session_is_valid(&first));
}

static void a_process_that_does_not_go_together_is_not_valid(void **state)
{
    const struct process right = newer;
    struct process wrong[] = {right, right, right, right, right, right};
    wrong[0].pid = 0;
    wrong[1].pidfd = -1;
    wrong[2].slot = LEDGER_SLOTS;
    wrong[3].number = 3;
    wrong[4].next = NULL;
    wrong[5].newer = &older;
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        newer = wrong[i];
        assert_false(process_is_valid(&newer));
    }
}

static void a_daemon_that_goes_wrong_is_caught_at_the_door(void **state)
{
    struct error error;
    session_unlink(&second);
    second.has_ended = true;
    ASSERT_CAUGHT(session_end(&second, NULL));
    ASSERT_CAUGHT(session_expire(&second, "expired"));
    ASSERT_CAUGHT(session_activate(&first, &error));
    ASSERT_CAUGHT(session_revive(&first));
    first.state = SESSION_QUEUED;
    ASSERT_CAUGHT(session_ledger_open(&first, &error));
    older.newer = NULL;
    ASSERT_CAUGHT(process_forget(&older));
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_right_daemon_is_valid),
        TEST(a_session_that_does_not_go_together_is_not_valid),
        TEST(a_process_that_does_not_go_together_is_not_valid),
        TEST(a_daemon_that_goes_wrong_is_caught_at_the_door),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
