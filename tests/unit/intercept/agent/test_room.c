/* A thread that waits for room while daemons come and go. The clock is the test's; so is the agent's part. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "intercept/agent/agent.h"
#include "intercept/agent/agent_state.h"
#include "intercept/session/private.h"
#include "intercept/session/session.h"
#include "intercept/submit/gate.h"

#define SECOND_NS UINT64_C(1000000000)

static uint64_t now_ns = 1000 * SECOND_NS;
static unsigned told;
static sem_t is_asked;
static struct gate *gate;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    *time = (struct timespec){.tv_sec = (time_t)(now_ns / SECOND_NS), .tv_nsec = (long)(now_ns % SECOND_NS)};
    return 0;
}

void __wrap_agent_tell(struct gate *of, struct wire_message *message);
void __wrap_agent_tell(struct gate *of, struct wire_message *message)
{
    told += message->header.type == WIRE_NEED;
}

static void poke(void)
{
    sem_post(&is_asked);
}

static void *ask(void *is_there)
{
    *(bool *)is_there = agent_wait_for_room(0, 1, true, 0);
    return NULL;
}

static void serve_seconds(bool has_daemon, unsigned seconds)
{
    agent.connection.open = has_daemon;
    if (!has_daemon)
        agent.told_need = 0; /* as agent_lose_daemon() */
    for (unsigned i = 0; i < seconds; i++, now_ns += SECOND_NS)
        agent_serve_room(gate);
}

static int set_up(void **state)
{
    static struct ledger_policy policy;
    static struct attachment attachment;
    attachment.slot.ledger.policy = &policy;
    struct private_area *area = private_get();
    atomic_store(&area->attachment, &attachment);
    gate = gate_in(area);
    gate->started = true;
    return sem_init(&is_asked, 0, 0) == 0 && gate_make(gate, poke) ? 0 : -1;
}

static void each_loss_of_the_daemon_has_its_own_ten_seconds(void **state)
{
    pthread_t thread;
    bool is_there = true;
    assert_int_equal(pthread_create(&thread, NULL, ask, &is_there), 0);
    sem_wait(&is_asked);
    for (unsigned i = 1; i <= 4; i++) {
        serve_seconds(false, 6);
        assert_true(agent_is_asked_for_room());
        serve_seconds(true, 6);
        assert_int_equal(told, i); /* the next daemon is asked, once */
    }
    serve_seconds(false, 10);
    assert_true(agent_is_asked_for_room());
    serve_seconds(false, 1);
    assert_false(agent_is_asked_for_room());
    pthread_join(thread, NULL);
    assert_false(is_there);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_loss_of_the_daemon_has_its_own_ten_seconds, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
