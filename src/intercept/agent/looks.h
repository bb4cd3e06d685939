/* looks.h - for how long streams that work side by side had work, found by looks at them at moments chosen by chance. Pure.
 *
 * A stream's own marks tell for how long it had work, but not how much of that was at the same time as another stream's.
 * Looks tell that. But the thread that looks often wakes together with the program's threads, since timers that end at
 * nearly the same moment end together, and so it finds what these threads find as they wake: streams without work. How
 * wrong looks are follows from comparing what each stream's marks told with what looks saw of that stream. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct looks {
    /* Since looks_count_anew(): how many looks there were; at how many of them a stream had work; and the sum, over all looks,
     * of the streams that had work. */
    uint32_t count, busy, streams;
    /* Recent time, in which older time counts less. `any_ns`: any stream had work, as looks saw it. `seen_ns`, `told_ns`: the
     * time with work of all streams added up, as looks saw it and as marks told it. */
    double any_ns, seen_ns, told_ns;
};

/* Add one look, at which `streams` streams had work. */
void looks_add(struct looks *looks, uint32_t streams);

/* Forget the looks, but not how wrong looks are. */
void looks_count_anew(struct looks *looks);

/* For how much of the `passed_ns` since looks_count_anew() any stream had work. `told_ns`: the time with work that marks told,
 * added up over all streams. `is_guess`: few of their calls were measured, so `told_ns` says nothing about looks. */
uint64_t looks_busy_ns(struct looks *looks, uint64_t passed_ns, uint64_t told_ns, bool is_guess);

/* The same for a stretch without company that is too short for many looks: what marks told of it, less the part that looks
 * saw at the same time, in this stretch and in earlier ones. */
uint64_t looks_merged_ns(struct looks *looks, uint64_t passed_ns, uint64_t told_ns);

/* How many calls were done in the `busy_ns` for which looks saw work. Marks show calls late, by up to the number of calls
 * between two marks. Those that were reached told of `done` calls, `ahead` of which were counted before, and of `told_ns` in
 * which streams had work. Returns at most these calls and the `unreached` ones. */
uint64_t looks_calls(const struct looks *looks, uint64_t busy_ns, uint64_t told_ns, uint64_t done,
                     uint64_t ahead, uint64_t unreached);
