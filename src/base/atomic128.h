/* atomic128.h - a 16-byte word that changes as one, without libatomic.
 *
 * x86-64: lock cmpxchg16b. aarch64: casp with LSE, else ldxp/stxp, through the compiler's __sync builtin. Either is
 * a full barrier. Words must be 16-byte aligned, or the processor faults. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct word128 {
    _Alignas(16) uint64_t low;
    uint64_t high;
};

union word128_bits {
    struct word128 halves;
    unsigned __int128 whole;
};

/* If `*word` is `*expected`, store `desired` and return true; else set `*expected` to the value that was found and
 * return false. Full barrier either way. */
static inline bool word128_compare_exchange(struct word128 *word, struct word128 *expected,
                                            struct word128 desired)
{
    union word128_bits old = {.halves = *expected}, new = {.halves = desired}, seen;
#if defined(__x86_64__)
    bool swapped;
    seen = old;
    __asm__ __volatile__("lock cmpxchg16b %1"
                         : "=@ccz"(swapped), "+m"(*word), "+a"(seen.halves.low), "+d"(seen.halves.high)
                         : "b"(new.halves.low), "c"(new.halves.high)
                         : "memory");
    *expected = seen.halves;
    return swapped;
#else
    seen.whole = __sync_val_compare_and_swap((unsigned __int128 *)(void *)word, old.whole, new.whole);
    *expected = seen.halves;
    return seen.whole == old.whole;
#endif
}

/* The whole word as it was at one moment. Writes nothing, so it works on read-only mappings: it reads both halves
 * until two readings agree. A torn pair could repeat only if the word returned to both of its old values, which a
 * word with a sequence number in it never does. */
static inline struct word128 word128_load(const struct word128 *word)
{
    struct word128 seen;
    for (;;) {
        seen.high = __atomic_load_n(&word->high, __ATOMIC_ACQUIRE);
        seen.low = __atomic_load_n(&word->low, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&word->high, __ATOMIC_ACQUIRE) == seen.high &&
            __atomic_load_n(&word->low, __ATOMIC_RELAXED) == seen.low)
            return seen;
    }
}
