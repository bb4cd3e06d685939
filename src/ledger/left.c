/* left.c - memory that a process of the session has let go of, but which a descriptor may keep: only the card knows.
 *
 * let go   all bytes that processes ever let go of so
 * taken    how much of that the daemon has taken over
 * left     what of that the card still has, by the daemon
 *
 * ahead    all bytes that processes ever saw the driver take without a charge, ahead of the daemon, which finds them when it
 *          next compares with the card (the driver line)
 * seen     how much of that the driver line has, by the daemon
 *
 * A process counts what it lets go of before it takes that out of its slot, and the daemon adds it to what is left before it
 * counts it as taken. So there is no moment in which the bytes do not count. */
#include "ledger/usage.h"

void ledger_let_go(struct ledger_usage *usage, unsigned gpu, uint64_t bytes)
{
    if (gpu < LEDGER_GPUS)
        atomic_fetch_add_explicit(&usage->gpus[gpu].let_go_bytes, bytes, memory_order_acq_rel);
}

uint64_t ledger_let_go_total(const struct ledger_usage *usage, unsigned gpu)
{
    return gpu < LEDGER_GPUS ? atomic_load_explicit(&usage->gpus[gpu].let_go_bytes, memory_order_acquire) : 0;
}

uint64_t ledger_left(const struct ledger_usage *usage, unsigned gpu)
{
    return gpu < LEDGER_GPUS ? usage_left(&usage->gpus[gpu]) : 0;
}

uint64_t ledger_left_take(struct ledger_usage *usage, unsigned gpu, uint64_t total)
{
    if (gpu >= LEDGER_GPUS)
        return 0;
    struct usage_gpu *there = &usage->gpus[gpu];
    uint64_t taken = atomic_load_explicit(&there->taken_bytes, memory_order_relaxed);
    uint64_t left = atomic_load_explicit(&there->left_bytes, memory_order_relaxed);
    if (total < taken)
        return left;
    left = usage_add(left, total - taken);
    /* In this order: usage_left() reads them the other way round. */
    atomic_store_explicit(&there->left_bytes, left, memory_order_release);
    atomic_store_explicit(&there->taken_bytes, total, memory_order_release);
    return left;
}

void ledger_left_set(struct ledger_usage *usage, unsigned gpu, uint64_t bytes)
{
    if (gpu < LEDGER_GPUS)
        atomic_store_explicit(&usage->gpus[gpu].left_bytes, bytes, memory_order_release);
}

void ledger_count_ahead(struct ledger_usage *usage, unsigned gpu, uint64_t bytes)
{
    if (gpu < LEDGER_GPUS)
        atomic_fetch_add_explicit(&usage->gpus[gpu].ahead_bytes, bytes, memory_order_acq_rel);
}

uint64_t ledger_ahead_total(const struct ledger_usage *usage, unsigned gpu)
{
    return gpu < LEDGER_GPUS ? atomic_load_explicit(&usage->gpus[gpu].ahead_bytes, memory_order_acquire) : 0;
}

uint64_t ledger_ahead_seen_total(const struct ledger_usage *usage, unsigned gpu)
{
    return gpu < LEDGER_GPUS ? atomic_load_explicit(&usage->gpus[gpu].seen_bytes, memory_order_acquire) : 0;
}

void ledger_ahead_seen(struct ledger_usage *usage, unsigned gpu, uint64_t total)
{
    if (gpu < LEDGER_GPUS && total > atomic_load_explicit(&usage->gpus[gpu].seen_bytes, memory_order_relaxed))
        atomic_store_explicit(&usage->gpus[gpu].seen_bytes, total, memory_order_release);
}
