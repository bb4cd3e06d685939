/* looks.h - for how long streams that work side by side had work, by looks at them at moments chosen by chance; pure.
 *
 * A stream's own marks tell for how long it had work, but not how much of that was at the same time as another's. Looks
 * tell, but a thread makes them that often wakes with those of the program, as timers that end at nearly the same moment end
 * together: it finds what these find as they wake, streams without work. By how much looks are wrong follows from what the
 * streams told, beside what looks saw of each. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct looks {
    /* Moments since they were counted anew; those at which a stream had work; and how many had, at all of them. */
    uint32_t count, busy, streams;
    /* Of late, the time for which any stream had work, as looks saw it; and for which streams had, each for itself, as looks saw it
     * and as marks told. */
    double any_ns, seen_ns, told_ns;
};

/* One moment, and how many streams had work then. */
void looks_add(struct looks *looks, uint32_t streams);

/* Forget the moments, not by how much they are wrong. */
void looks_count_anew(struct looks *looks);

/* For how much of the time since they were counted anew a stream had work. `told_ns`: what all streams told of it; `is_guess`: few of
 * their calls were measured, which says nothing of looks. */
uint64_t looks_busy_ns(struct looks *looks, uint64_t passed_ns, uint64_t told_ns, bool is_guess);

/* The same of a stretch without company that is too short for many looks, as part of several of them: what streams told of it, less what
 * looks saw to be at the same time. */
uint64_t looks_apart_ns(struct looks *looks, uint64_t passed_ns, uint64_t told_ns);

/* How many calls were done in the time for which looks saw work. Marks say so late, by up to what is between two of them: those that
 * were reached said that `done` calls were, of which `ahead` were counted before, and that streams had work for `told_ns`. No
 * more than these and the `unreached` ones. */
uint64_t looks_calls(const struct looks *looks, uint64_t busy_ns, uint64_t told_ns, uint64_t done,
                     uint64_t ahead, uint64_t unreached);
