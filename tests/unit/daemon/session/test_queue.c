/* The queue: who goes past whom, by chance. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>

#include <cmocka.h>

#include "../../wrong.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/round.h"
#include "daemon/session/admit.h"
#include "daemon/session/queue.h"
#include "daemon/session/request.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_life.h"
#include "daemon/users/lent_uids.h"

#define CARD UINT64_C(1000)
#define ASKERS 3000u

static struct daemon daemon_state;

/* One who asked, each a user of its own. */
struct asker {
    char id[SESSION_ID_TEXT];
    uint64_t bytes;
    uint64_t passed_bytes; /* of those that came later and were let in before */
    bool waits, has_gone;
};

static struct asker askers[ASKERS];
static unsigned asker_count, passes;

static int begin(void **state)
{
    struct error error;
    daemon_state = (struct daemon){.gpu_count = 1};
    daemon_state.gpus[0] = (struct gpu){.total_bytes = CARD, .healthy = true, .label = "0", .mig_index = -1};
    asker_count = passes = 0;
    return sd_event_new(&daemon_state.loop) < 0 || round_start(&daemon_state, &error) < 0 ||
                   queue_start(&daemon_state, &error) < 0
               ? -1
               : 0;
}

static int end(void **state)
{
    while (daemon_state.sessions)
        session_end(daemon_state.sessions, NULL);
    queue_stop(&daemon_state);
    round_stop(&daemon_state);
    sd_event_unref(daemon_state.loop);
    lent_uids_free(&daemon_state);
    return 0;
}

static void settle(void)
{
    while (sd_event_run(daemon_state.loop, 0) > 0)
        ;
}

static struct asker *ask(uint64_t bytes)
{
    struct asker *asker = &askers[asker_count];
    struct session_request request = {
        .owner = 1000 + asker_count, .has_bytes = true, .bytes = bytes, .wait = true, .run_pidfd = -1};
    struct session *session;
    struct error error;
    assert_int_equal(admit_new(&daemon_state, &request, &session, &error), 0);
    *asker = (struct asker){.bytes = bytes, .waits = session->state == SESSION_QUEUED};
    strcpy(asker->id, session->id);
    asker_count++;
    return asker;
}

static bool is_queued(const struct asker *asker)
{
    return session_find_id(&daemon_state, asker->id)->state == SESSION_QUEUED;
}

/* Whoever was let in has gone past those before it that still wait. */
static void look(void)
{
    uint64_t reserved = 0;
    settle();
    for (unsigned i = 0; i < asker_count; i++) {
        struct asker *asker = &askers[i];
        if (!asker->has_gone && !is_queued(asker))
            reserved += asker->bytes;
        if (asker->has_gone || !asker->waits || is_queued(asker))
            continue;
        asker->waits = false;
        for (unsigned k = 0; k < i; k++) {
            if (askers[k].has_gone || !askers[k].waits || !is_queued(&askers[k]))
                continue;
            assert_true(asker->bytes <= askers[k].bytes / 4);
            askers[k].passed_bytes += asker->bytes;
            assert_true(askers[k].passed_bytes <= askers[k].bytes);
            passes++;
        }
    }
    assert_true(reserved <= CARD);
}

static void release(struct asker *asker)
{
    asker->has_gone = true;
    session_end(session_find_id(&daemon_state, asker->id), "released");
    look();
}

static void a_small_session_passes_one_that_waits_for_a_whole_card_but_not_for_ever(void **state)
{
    struct asker *first = ask(500), *whole = ask(CARD);
    look();
    for (unsigned i = 0; i < 8; i++) {
        struct asker *small = ask(250);
        look();
        assert_true(is_queued(small) == (i >= 4)); /* a thousand in all */
        if (i < 4)
            release(small);
    }
    assert_true(is_queued(whole));
    release(first);
    assert_false(is_queued(whole));
}

static void a_queue_that_does_not_go_together_is_caught(void **state)
{
    ask(CARD);
    struct session *waiting = session_find_id(&daemon_state, ask(CARD)->id);
    assert_true(queue_is_valid(daemon_state.queue));
    waiting->state = SESSION_ACTIVE;
    assert_false(queue_is_valid(daemon_state.queue));
    ASSERT_CAUGHT(ask(CARD));
    ASSERT_CAUGHT(queue_position(waiting));
    waiting->state = SESSION_QUEUED;
    waiting->owner++;
    assert_false(queue_is_valid(daemon_state.queue));
    waiting->owner--;
    assert_true(queue_is_valid(daemon_state.queue));
}

static void what_is_not_small_waits_behind(void **state)
{
    ask(500);
    ask(CARD);
    struct asker *half = ask(251);
    look();
    assert_true(is_queued(half));
}

/* Sizes, goings and comings by chance: nobody is passed by more than it asks for, and all get in. */
static void by_chance_nobody_is_passed_too_often_and_everybody_gets_in(void **state)
{
    srandom(20260713);
    while (asker_count < ASKERS / 2) {
        ask(random() % 4 == 0 ? CARD - (uint64_t)(random() % 500) : 1 + (uint64_t)(random() % 200));
        look();
        for (unsigned i = 0; i < asker_count; i++)
            if (!askers[i].has_gone && !is_queued(&askers[i]) && random() % 3 == 0)
                release(&askers[i]);
    }
    assert_true(passes > 100);
    for (unsigned i = 0; i < asker_count; i++)
        if (!askers[i].has_gone) {
            for (unsigned k = 0; k < asker_count && is_queued(&askers[i]); k++)
                if (!askers[k].has_gone && !is_queued(&askers[k]))
                    release(&askers[k]);
            assert_false(is_queued(&askers[i]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_small_session_passes_one_that_waits_for_a_whole_card_but_not_for_ever, begin, end),
        cmocka_unit_test_setup_teardown(what_is_not_small_waits_behind, begin, end),
        cmocka_unit_test_setup_teardown(a_queue_that_does_not_go_together_is_caught, begin, end),
        cmocka_unit_test_setup_teardown(by_chance_nobody_is_passed_too_often_and_everybody_gets_in, begin,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
