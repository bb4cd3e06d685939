/* move.c - the process's memory leaves the card when the daemon orders it, and comes back; and what the daemon is told of
 * it. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/least.h"
#include "intercept/agent/agent.h"
#include "intercept/agent/agent_state.h"
#include "intercept/resolve/guard.h"
#include "intercept/resolve/report.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

#define TELL_NS UINT64_C(1000000000)   /* how often to report what changes by itself */
#define PROGRESS_NS UINT64_C(10000000) /* how often to report a move, as other memory can use what left */
#define NAP_NS UINT64_C(20000)         /* between two looks at calls that name addresses */
#define LOOK_NS UINT64_C(10000000)     /* how often to look for work */
#define SPARE_NS UINT64_C(5000000000)  /* how long to keep host memory that is not needed */
/* How soon to look again where all is page-locked (a context takes that with it), or the driver refuses to. */
#define LOCK_AGAIN_NS UINT64_C(5000000000)
/* After page-locking a piece the agent pauses for so many times as long as that took: other calls of a program that works
 * may have waited. */
#define LOCK_PAUSE_WORKS 19
#define LOCK_PAUSE_RESTS 1
#define END_SECONDS 30 /* how long a process that ends waits for a move */

/* Held while memory moves. */
static pthread_mutex_t moving = PTHREAD_MUTEX_INITIALIZER;

/* --- What the daemon is told ----------------------------------------------------------------------- */

/* Whether a thread waits at the gate, for the memory or for a lease. It has work either way. */
static bool has_waiter(const struct gate *gate)
{
    return atomic_load_explicit(&gate->waiters, memory_order_relaxed) > 0;
}

static struct wire_moved memory_now(const struct gate *gate)
{
    struct agent_memory memory = {0};
    agent_mover()->count(&memory);
    bool waits = has_waiter(gate) || agent_is_card_needed();
    uint32_t flags = agent.move.is_away            ? WIRE_MOVED_AWAY | (waits ? WIRE_MOVED_WAITS : 0)
                     : agent.move.idleness.is_idle ? WIRE_MOVED_IDLE
                                                   : 0;
    struct wire_moved moved = {
        .resident_bytes = memory.resident_bytes,
        .evicted_bytes = memory.evicted_bytes,
        .arena_bytes = memory.arena_bytes,
        .flags = flags,
    };
    memcpy(moved.stays_bytes, memory.stays_bytes, sizeof(memory.stays_bytes));
    return moved;
}

static void tell_memory(struct gate *gate, const struct wire_moved *moved)
{
    struct wire_message message = {.header.type = WIRE_MOVED, .moved = *moved};
    agent.move.told = *moved;
    agent.move.told.order = agent.move.told.result = 0;
    agent.move.told_ns = monotonic_ns();
    agent_tell(gate, &message);
}

static void answer(struct gate *gate, uint64_t order, enum wire_move result)
{
    struct wire_moved moved = memory_now(gate);
    moved.order = order;
    moved.result = result;
    tell_memory(gate, &moved);
}

void agent_move_met(struct gate *gate)
{
    if (agent_has_mover())
        answer(gate, 0, WIRE_MOVE_DONE);
}

/* Called by the mover. */
static void tell_progress(void)
{
    if (agent.connection.open && monotonic_ns() - agent.move.told_ns >= PROGRESS_NS)
        answer(gate_of(), agent.move.order, WIRE_MOVE_GOES_ON);
}

static void look_for_work(struct gate *gate, uint64_t now_ns)
{
    struct idleness *idleness = &agent.move.idleness;
    uint64_t submitted = in_flight_submitted(gate);
    bool rests = submitted == agent.move.submitted && idleness->worked_ns && !has_waiter(gate);
    agent.move.submitted = submitted;
    if (rests && (idleness->is_idle || now_ns - idleness->worked_ns < LOOK_NS / 2))
        return;
    if (rests && in_flight_is_finished(gate))
        idleness_rest(idleness, now_ns);
    else
        idleness_work(idleness, now_ns);
}

/* The agent tells of what stays at once, since the daemon takes all else that is charged for memory that can move. But not more
 * often than it looks for work: a program may allocate such memory in a loop. */
static atomic_bool is_to_be_woken;

static bool has_just_told(uint64_t now_ns)
{
    return now_ns - agent.move.told_ns < LOOK_NS;
}

/* If several threads have news, one of them wakes the agent. Either the agent sees the change or this sees that the agent is to be
 * woken. */
void agent_tell_of_memory(void)
{
    struct gate *gate = gate_of();
    atomic_thread_fence(memory_order_seq_cst); /* agent_serve_memory() */
    if (gate && atomic_load_explicit(&is_to_be_woken, memory_order_relaxed) &&
        atomic_exchange_explicit(&is_to_be_woken, false, memory_order_relaxed))
        gate->poke();
}

void agent_serve_memory(struct gate *gate)
{
    if (!agent_has_mover() || !agent.connection.open)
        return;
    uint64_t now_ns = monotonic_ns();
    look_for_work(gate, now_ns);
    bool has_told = has_just_told(now_ns);
    /* Before the memory is counted: who changes it afterwards wakes the agent. */
    atomic_store_explicit(&is_to_be_woken, !has_told, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* agent_tell_of_memory() */
    struct wire_moved moved = memory_now(gate);
    bool has_news = memcmp(&moved, &agent.move.told, sizeof(moved)) != 0;
    bool stays_other = memcmp(moved.stays_bytes, agent.move.told.stays_bytes, sizeof(moved.stays_bytes)) != 0;
    if (moved.flags != agent.move.told.flags || (stays_other && !has_told) ||
        (has_news && now_ns - agent.move.told_ns >= TELL_NS))
        tell_memory(gate, &moved);
}

/* Spare host memory goes back one chunk at a time, since the agent has other things to do. Each chunk is reported at once,
 * since the daemon computes what is on its way from the reports before and after. */
void agent_serve_spare(struct gate *gate)
{
    const struct agent_mover *moves = agent_mover();
    uint64_t now_ns = monotonic_ns();
    if (!moves || !moves->has_spare_chunk || !agent.connection.open)
        return;
    if (!moves->has_spare_chunk())
        agent.move.spare_since_ns = 0;
    else if (!agent.move.spare_since_ns)
        agent.move.spare_since_ns = now_ns;
    bool is_spare = agent.move.spare_since_ns && now_ns - agent.move.spare_since_ns >= SPARE_NS;
    if ((!is_spare && !agent.move.gives_back) || !agent_begin_move(gate))
        return;
    bool is_given = moves->give_back_chunk(agent.move.gives_back ? agent.move.keep_bytes : UINT64_MAX);
    agent_end_of_move();
    if (is_given) {
        answer(gate, 0, WIRE_MOVE_DONE);
    } else { /* it cannot go now: try again later, or when the daemon asks again */
        agent.move.spare_since_ns = now_ns;
        agent.move.gives_back = false;
    }
}

void agent_keep(const struct wire_keep *keep)
{
    agent.move.gives_back = true;
    agent.move.keep_bytes = keep->most_bytes;
}

/* --- Page-locking ---------------------------------------------------------------------------------- */

static bool is_at_rest(void)
{
    return agent.move.is_away || agent.move.idleness.is_idle;
}

void agent_serve_arena(struct gate *gate)
{
    const struct agent_mover *moves = agent_mover();
    uint64_t from_ns = monotonic_ns();
    if (!moves || !moves->lock_pages || from_ns < agent.move.lock_at_ns || !agent_begin_move(gate))
        return;
    int result = moves->lock_pages();
    agent_end_of_move();
    uint64_t now_ns = monotonic_ns();
    uint64_t pause = is_at_rest() ? LOCK_PAUSE_RESTS : LOCK_PAUSE_WORKS;
    agent.move.lock_at_ns = now_ns + (result > 0 ? (now_ns - from_ns) * pause : LOCK_AGAIN_NS);
}

static uint64_t lock_pause_ns(uint64_t now_ns)
{
    uint64_t at_ns = agent_mover()->lock_pages ? agent.move.lock_at_ns : UINT64_MAX;
    return at_ns > now_ns ? at_ns - now_ns : 0;
}

uint64_t agent_move_pause_ns(void)
{
    if (!agent_has_mover())
        return UINT64_MAX;
    const struct idleness *idleness = &agent.move.idleness;
    uint64_t now_ns = monotonic_ns();
    if (agent.move.gives_back)
        return 0;
    bool has_rested = idleness->is_idle && now_ns - idleness->worked_ns >= 2 * IDLENESS_MOST_NS;
    bool may_sleep = (has_rested || agent.move.is_away) && !has_just_told(now_ns);
    return least(lock_pause_ns(now_ns), may_sleep ? TELL_NS : LOOK_NS);
}

/* --- Orders ---------------------------------------------------------------------------------------- */

void agent_take_chunk(struct gate *gate, const struct wire_arena *arena, int fd)
{
    int result = agent_has_mover() ? agent_mover()->take_chunk(fd, arena->bytes) : -EINVAL;
    if (result < 0)
        report_debug("cannot use a piece of host memory for evicted GPU memory: %s", strerror(-result));
    agent.move.lock_at_ns = 0;
    if (agent_has_mover())
        answer(gate, 0, WIRE_MOVE_DONE);
}

/* Close the gate, wait until what was submitted is done, and give back a lease that can end. False: the work did not end in
 * time, or the daemon has gone; the gate is open. */
static bool leave_gpu(struct gate *gate, uint64_t patience_ns)
{
    bool is_free = agent.held && !agent_is_paced();
    if (atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_CLOSED)
        return true;
    if (agent_is_paced())
        agent_give_back(gate, agent.lease, patience_ns, WIRE_OUTCOME_IDLE);
    else if (!agent_drain(gate, patience_ns, AGENT_CLOSES) && agent.connection.open && is_free)
        gate_open(gate, agent_free_state());
    return agent.connection.open && atomic_load_explicit(&gate->word, memory_order_relaxed) == GATE_CLOSED;
}

bool agent_takes_addresses(void)
{
    return agent_has_mover() && agent_mover()->takes_addresses;
}

static bool have_all_left(struct gate *gate, uint64_t patience_ns)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    uint64_t until_ns = monotonic_ns() + patience_ns;
    gate_memory_leaves(gate);
    while (!gate_is_left_by_all(gate)) {
        if (monotonic_ns() > until_ns)
            return false;
        nanosleep(&nap, NULL);
    }
    return true;
}

bool agent_move_out(struct gate *gate, uint64_t patience_ns)
{
    agent.move.is_away = !agent_takes_addresses() || have_all_left(gate, patience_ns);
    if (agent.move.is_away)
        agent.move.absences++;
    else
        gate_memory_is_back(gate);
    return agent.move.is_away;
}

void agent_move_in(struct gate *gate)
{
    gate_memory_is_back(gate);
    agent.move.is_away = false;
}

static int move(uint64_t order, int (*step)(void (*progress)(void)))
{
    agent.move.order = order;
    return step(tell_progress);
}

/* Open the gate if the lease cannot end, or if the daemon has gone. */
static void reopen(struct gate *gate)
{
    if (!agent.connection.open)
        agent_open_gate(gate, GATE_FREE);
    else if (agent.held && !agent_is_paced())
        agent_open_gate(gate, agent_free_state());
}

static enum wire_move result_of(int result)
{
    if (result == 0)
        return WIRE_MOVE_DONE;
    if (result == -EBUSY)
        return WIRE_MOVE_BUSY;
    return result == -ENOMEM ? WIRE_MOVE_NO_ROOM : WIRE_MOVE_FAILED;
}

/* Move all memory that can move off the card. */
static enum wire_move evict(struct gate *gate, const struct wire_evict *order)
{
    uint64_t now_ns = monotonic_ns();
    bool was_away = agent.move.is_away;
    agent.move.gives_back = false; /* what this process has it needs now */
    if (agent.move.is_away && memory_now(gate).resident_bytes == 0)
        return WIRE_MOVE_DONE;
    look_for_work(gate, now_ns);
    if (order->idle_ns &&
        (!agent.move.idleness.is_idle || now_ns - agent.move.idleness.worked_ns < order->idle_ns))
        return WIRE_MOVE_BUSY;
    if (!was_away && !leave_gpu(gate, order->patience_ns))
        return WIRE_MOVE_BUSY;
    if (!was_away && !agent_move_out(gate, order->patience_ns)) {
        reopen(gate);
        return WIRE_MOVE_BUSY;
    }
    int result = move(order->order, agent_mover()->evict);
    if (result < 0 && !was_away && memory_now(gate).evicted_bytes == 0) {
        agent_move_in(gate);
        reopen(gate);
    }
    return result_of(result);
}

static enum wire_move restore(struct gate *gate, const struct wire_restore *order)
{
    if (!agent.move.is_away)
        return WIRE_MOVE_DONE;
    int result = move(order->order, agent_mover()->restore);
    if (result < 0)
        return result_of(result);
    agent_move_in(gate);
    idleness_work(&agent.move.idleness, monotonic_ns()); /* the work that it came back for is still to come */
    reopen(gate);
    return WIRE_MOVE_DONE;
}

/* The memory counts as away, even if all of it has come back. */
static enum wire_move restore_part(const struct wire_restore_part *order)
{
    if (!agent.move.is_away || !agent_mover()->restore_part)
        return WIRE_MOVE_DONE;
    agent.move.order = order->order;
    return result_of(agent_mover()->restore_part(order->gpu, order->most_bytes, tell_progress));
}

bool agent_begin_move(struct gate *gate)
{
    guard_lock(&moving);
    if (!atomic_load_explicit(&gate->ended, memory_order_relaxed))
        return true;
    guard_unlock(&moving);
    return false;
}

void agent_end_of_move(void)
{
    guard_unlock(&moving);
}

void agent_evict(struct gate *gate, const struct wire_evict *order)
{
    if (!agent_has_mover() || !agent_begin_move(gate))
        return;
    enum wire_move result = evict(gate, order);
    agent_end_of_move();
    answer(gate, order->order, result);
}

void agent_restore(struct gate *gate, const struct wire_restore *order)
{
    if (!agent_has_mover() || !agent_begin_move(gate))
        return;
    enum wire_move result = restore(gate, order);
    agent_end_of_move();
    answer(gate, order->order, result);
}

void agent_restore_part(struct gate *gate, const struct wire_restore_part *order)
{
    if (!agent_has_mover() || !agent_begin_move(gate))
        return;
    enum wire_move result = restore_part(order);
    agent_end_of_move();
    answer(gate, order->order, result);
}

void agent_move_end(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += END_SECONDS;
    guard_begin();
    /* The lock is never released. If this is the agent's own thread, in a signal handler, it may hold the lock already. */
    pthread_mutex_timedlock(&moving, &until);
    guard_end();
}
