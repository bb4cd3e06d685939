/* A full card: a thread that was refused memory there waits until the daemon has made room. */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "intercept/agent/agent.h"
#include "intercept/agent/agent_state.h"
#include "intercept/resolve/guard.h"
#include "intercept/session/session.h"
#include "intercept/submit/gate.h"

/* The daemon answers earlier, if it is there. */
#define PATIENCE_NS UINT64_C(120000000000)
#define NAP_NS 1000000000
#define ATTEMPTS 16u

/* One thread asks at a time; the others wait for the lock. */
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
static struct wire_need need;     /* under the lock, and read by the agent once `asked` names it */
static _Atomic uint64_t asked;    /* number of the question that waits; 0: none */
static _Atomic uint32_t answered; /* a futex: another number with each answer */
static atomic_bool has_room;
static uint64_t told; /* the agent's: the question that it sent last */

static void wake(bool is_room)
{
    atomic_store_explicit(&has_room, is_room, memory_order_relaxed);
    atomic_store_explicit(&asked, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&answered, 1, memory_order_release); /* wait_for_answer() */
    syscall(SYS_futex, &answered, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* False: nobody has answered in time. */
static bool wait_for_answer(uint32_t seen)
{
    const struct timespec nap = {.tv_sec = NAP_NS / 1000000000};
    uint64_t deadline_ns = monotonic_ns() + PATIENCE_NS;
    while (atomic_load_explicit(&answered, memory_order_acquire) == seen && monotonic_ns() < deadline_ns)
        syscall(SYS_futex, &answered, FUTEX_WAIT_PRIVATE, seen, &nap, NULL, 0);
    return atomic_load_explicit(&answered, memory_order_acquire) != seen;
}

static bool ask(struct gate *gate, uint32_t gpu, uint64_t bytes, uint32_t attempt)
{
    static uint64_t last;
    uint32_t seen = atomic_load_explicit(&answered, memory_order_acquire);
    need = (struct wire_need){.number = ++last, .bytes = bytes, .gpu = gpu, .attempt = attempt};
    atomic_store_explicit(&asked, last, memory_order_release); /* agent_serve_room() */
    gate->poke();
    bool is_told = wait_for_answer(seen);
    atomic_store_explicit(&asked, 0, memory_order_relaxed);
    return is_told && atomic_load_explicit(&has_room, memory_order_relaxed);
}

bool agent_wait_for_room(uint32_t gpu, uint64_t bytes, bool is_charged, unsigned attempt)
{
    if (session_is_standalone() || !session_slot()->ledger.policy->gives_room || attempt >= ATTEMPTS)
        return false;
    agent_begin(); /* before the first context too */
    struct gate *gate = gate_of();
    if (!gate || atomic_load_explicit(&gate->ended, memory_order_relaxed))
        return false;
    guard_lock(&asking);
    bool is_there = ask(gate, gpu, bytes, attempt | (is_charged ? WIRE_NEED_CHARGED : 0));
    guard_unlock(&asking);
    return is_there;
}

/* --- The agent's ----------------------------------------------------------------------------------- */

void agent_serve_room(struct gate *gate)
{
    uint64_t number = atomic_load_explicit(&asked, memory_order_acquire); /* ask() */
    if (!number)
        return;
    if (!agent.connection.open) {
        wake(false);
        return;
    }
    if (agent.move.is_away) { /* what is made now needs no room */
        wake(true);
        return;
    }
    if (number == told)
        return;
    told = number;
    struct wire_message message = {.header.type = WIRE_NEED, .need = need};
    agent_tell(gate, &message);
}

void agent_take_room(const struct wire_room *room)
{
    if (room->number == atomic_load_explicit(&asked, memory_order_relaxed))
        wake(room->has_room);
}

void agent_wake_waiters(void)
{
    told = 0;
    if (atomic_load_explicit(&asked, memory_order_relaxed))
        wake(false);
}
