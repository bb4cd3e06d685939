/* room.c - a full card: a thread that was refused memory waits until the daemon has made room. */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "intercept/agent/agent.h"
#include "intercept/agent/agent_state.h"
#include "intercept/resolve/guard.h"
#include "intercept/session/session.h"
#include "intercept/submit/gate.h"

/* The most attempts for one request. */
#define ATTEMPTS 16u
/* If the daemon that was asked has gone: how long to wait for the next one. */
#define LOST_NS UINT64_C(10000000000)

/* While the memory is away, most of what is made does not go onto the card; contexts, arrays and the like do. Which a
 * request is for shows when the thread tries once more. If that fails, the memory has to come back first. */
static __thread struct {
    /* In which this thread's request was tried once more (agent.move.absences); 0: in none. */
    uint64_t absence;
    /* How often it was, in all absences. */
    unsigned count;
} tried;

/* One thread asks at a time; the others wait for the lock. */
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
static struct wire_need need;     /* under the lock; the agent reads it once `asked` has its number */
static uint64_t tried_in;         /* with `need`: tried.absence */
static _Atomic uint64_t asked;    /* number of the question that waits for an answer; 0: none */
static _Atomic uint32_t answered; /* a futex; counts answers */
static atomic_bool has_room;
static _Atomic uint64_t try_in; /* the answer: to try once more in this absence; 0: it is the daemon's */
/* The agent's own: the question that it cannot send for want of a daemon, and since when. `lost` is 0 while there is a daemon. */
static uint64_t lost, lost_ns;
static bool needs_card; /* the thread waits until the memory is back */

static void wake(bool is_room, uint64_t absence)
{
    atomic_store_explicit(&has_room, is_room, memory_order_relaxed);
    atomic_store_explicit(&try_in, absence, memory_order_relaxed);
    atomic_store_explicit(&asked, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&answered, 1, memory_order_release); /* wait_for_answer() */
    syscall(SYS_futex, &answered, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* May take as long as turns of other sessions. The agent always answers: if the daemon has gone for good, that there is no
 * room. */
static void wait_for_answer(uint32_t seen)
{
    while (atomic_load_explicit(&answered, memory_order_acquire) == seen) /* wake() */
        syscall(SYS_futex, &answered, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static bool ask_for_room(struct gate *gate, uint32_t gpu, uint64_t bytes, uint32_t attempt)
{
    static uint64_t last;
    uint32_t seen = atomic_load_explicit(&answered, memory_order_acquire);
    need = (struct wire_need){.number = ++last, .bytes = bytes, .gpu = gpu, .attempt = attempt};
    tried_in = tried.absence;
    atomic_store_explicit(&asked, last, memory_order_release); /* agent_serve_room() */
    gate->poke();
    wait_for_answer(seen);
    uint64_t absence = atomic_load_explicit(&try_in, memory_order_relaxed);
    if (absence) {
        tried.absence = absence;
        tried.count++;
    }
    return atomic_load_explicit(&has_room, memory_order_relaxed);
}

bool agent_may_ask_for_room(unsigned *attempt)
{
    if (*attempt == 0)
        tried.absence = tried.count = 0;
    *attempt -= *attempt < tried.count ? *attempt : tried.count;
    return !session_is_standalone() && *attempt < ATTEMPTS;
}

bool agent_ask_for_room(struct gate *gate, uint32_t gpu, uint64_t bytes, bool is_charged, unsigned attempt)
{
    guard_lock(&asking);
    bool is_there = ask_for_room(gate, gpu, bytes, attempt | (is_charged ? WIRE_NEED_CHARGED : 0));
    guard_unlock(&asking);
    return is_there;
}

/* --- The agent's ----------------------------------------------------------------------------------- */

/* The daemon has gone, but a new one may come: answer only after LOST_NS. */
static void wait_for_daemon(uint64_t number)
{
    uint64_t now_ns = monotonic_ns();
    if (lost != number)
        lost_ns = now_ns;
    lost = number;
    if (now_ns - lost_ns >= LOST_NS)
        wake(false, 0);
}

/* The daemon forgets the question meanwhile. */
static void serve_while_away(void)
{
    agent.told_need = 0;
    needs_card = tried_in == agent.move.absences;
    if (!needs_card)
        wake(true, agent.move.absences);
}

void agent_serve_room(struct gate *gate)
{
    uint64_t number = atomic_load_explicit(&asked, memory_order_acquire); /* ask_for_room() */
    needs_card = false;
    if (!number)
        return;
    if (!agent.connection.open) {
        wait_for_daemon(number);
        return;
    }
    lost = 0;
    if (agent.move.is_away) {
        serve_while_away();
        return;
    }
    if (number == agent.told_need)
        return;
    agent.told_need = number;
    struct wire_message message = {.header.type = WIRE_NEED, .need = need};
    agent_tell(gate, &message);
}

void agent_take_room(const struct wire_room *room)
{
    if (room->number != atomic_load_explicit(&asked, memory_order_relaxed))
        return;
    wake(room->has_room, 0);
}

bool agent_is_asked_for_room(void)
{
    return atomic_load_explicit(&asked, memory_order_relaxed) != 0;
}

bool agent_is_card_needed(void)
{
    return needs_card;
}
