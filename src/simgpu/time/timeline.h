/* timeline.h - when the simulated GPU's work is done.
 *
 * Like a card, the device goes on when a process is stopped: no thread drives it. Its state is what it was at
 * some moment. Each process that looks advances the state to now by the rules below, which leave nothing to
 * chance, and publishes it. To submit is part of the same change, so work never begins before it was
 * submitted, and a process that stops or dies half-way cannot hold the device up or make it forget.
 *
 * engine      what serves operations: the compute engine; a copy engine for each direction; HOST, which stands
 *             for the process's own host functions and is served by timeline_host_done() alone; and gates,
 *             which stand for what a stream waits for in memory and are served by timeline_gate_done() alone
 * operation   so many nanoseconds of an engine, not begun before some others of the same process are done
 * queue       a process's operations for one engine, in order
 * position    the number of an operation in its queue, from 0, never used twice
 * marks       for each engine, how many of the queue must be done: what a stream or an event waits for
 *
 * An engine serves one process at a time. It goes on to the next one that has something ready, in the order
 * of slots, after a slice or when the process it serves has nothing ready. A kernel that runs longer than the
 * slice is stopped there and goes on at its process's next turn. The compute engine takes some time for the
 * switch, in which it serves nobody (struct timeline_rules). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic128.h"
#include "simgpu/device/published.h"

enum timeline_engine {
    TIMELINE_COMPUTE,
    TIMELINE_COPY_IN,  /* host to device */
    TIMELINE_COPY_OUT, /* device to host */
    TIMELINE_HOST,
    TIMELINE_GATE, /* the first of TIMELINE_GATES */
    TIMELINE_ENGINES = TIMELINE_GATE + 8,
};
#define TIMELINE_GATES                                                                                       \
    (TIMELINE_ENGINES - TIMELINE_GATE) /* as many as a card's queues for streams, by default */

#define TIMELINE_SLOTS 1024u
#define TIMELINE_RING                                                                                        \
    1024u /* operations of one process that an engine can have before it; as the driver's queue */
#define TIMELINE_COMPLETIONS 64u

/* In an operation's duration: it watches a clock, and is over so long after it began, whoever was served meanwhile, at its
 * process's next turn. */
#define TIMELINE_BY_CLOCK (UINT64_C(1) << 63)

struct timeline_marks {
    uint64_t at[TIMELINE_ENGINES];
};

static inline bool timeline_marks_reached(const struct timeline_marks *marks,
                                          const struct timeline_marks *served)
{
    for (unsigned engine = 0; engine < TIMELINE_ENGINES; engine++)
        if (marks->at[engine] > served->at[engine])
            return false;
    return true;
}

static inline void timeline_marks_join(struct timeline_marks *marks, const struct timeline_marks *others)
{
    for (unsigned engine = 0; engine < TIMELINE_ENGINES; engine++)
        if (others->at[engine] > marks->at[engine])
            marks->at[engine] = others->at[engine];
}

/* Written by the queue's owner before it submits; `done` by the process that finds out. */
struct timeline_operation {
    uint64_t duration_ns;
    struct timeline_marks after;
    struct word128 done; /* low: when; high: position + 1 of the last operation here that is done */
};

/* One process's part. */
struct timeline_slot {
    uint64_t submitted[TIMELINE_ENGINES]; /* by the owner alone; the next owner goes on from behind them */
    struct timeline_marks known_served;   /* by the owner alone: what timeline_look() told last */
    uint64_t
        computed_ns; /* of the compute engine's time, by all owners; written by the process that finds out, and only up */
    struct timeline_operation ring[TIMELINE_ENGINES][TIMELINE_RING];
};

/* A process that has work before some engine. */
struct timeline_entry {
    uint32_t slot;
    struct timeline_progress {
        uint64_t served, submitted; /* operations; equal: nothing to do */
        uint64_t progress_ns;       /* of the first that is not done */
    } engine[TIMELINE_ENGINES];
    uint64_t computed_ns; /* of the compute engine's time, by all of the slot's owners */
    uint64_t begun_ns;    /* when its compute operation that watches a clock began; 0: it has not */
};

/* An operation that the last change found done, or, for engine TIMELINE_ENGINES, one that it dropped. Written
 * to the ring before the next change, so that nobody's death loses it. */
struct timeline_completion {
    uint32_t slot;
    uint32_t engine;
    uint64_t position;
    uint64_t time_ns;
    uint64_t computed_ns; /* its entry's, by then */
};

struct timeline_state {
    uint64_t time_ns;
    struct {
        uint32_t slot; /* whose turn it is, or was */
        uint64_t left_ns;
        uint64_t switching_ns; /* what is left of the switch to it */
    } turn[TIMELINE_ENGINES];
    uint32_t completion_count, entry_count;
    struct timeline_completion completions[TIMELINE_COMPLETIONS];
    struct timeline_entry entries[TIMELINE_SLOTS]; /* in the order of slots */
};

/* How the compute engine goes from process to process; set before any work, and then fixed. */
struct timeline_rules {
    uint64_t slice_ns;       /* how long a process is served while others wait; of the copy engines too */
    uint64_t switch_ns;      /* to stop what runs and begin with the next process */
    uint64_t switch_idle_ns; /* the same when the last one had nothing to run */
};

/* One device's part of the shared memory; zeros but for the rules are a device that never did anything. */
struct timeline {
    struct timeline_rules rules;
    published_current current;
    struct timeline_slot slots[TIMELINE_SLOTS];
    struct timeline_state buffers[TIMELINE_SLOTS * 2];
};

/* The functions below are called by one thread of `slot`'s process at a time; other processes do as they
 * like. */

/* Take over a slot whose last owner is gone: its queues are dropped. `now_ns` is CLOCK_MONOTONIC throughout.
 */
void timeline_slot_begin(struct timeline *timeline, uint32_t slot, uint64_t now_ns);

/* Submit an operation and set `*mark` to what to wait for on this engine. False when the queue is full by
 * what the last timeline_look() told; so no place in the queue is used again before that told of its
 * operation's end. The operation is submitted about when this returns: `clock_ns` gives the time. */
bool timeline_submit(struct timeline *timeline, uint32_t slot, enum timeline_engine engine,
                     uint64_t duration_ns, const struct timeline_marks *after, uint64_t (*clock_ns)(void),
                     uint64_t *mark);

/* Find out how far `slot`'s queues are. */
void timeline_look(struct timeline *timeline, uint32_t slot, uint64_t now_ns, struct timeline_marks *served);

/* When all of `marks` will be reached if nobody submits anything more; UINT64_MAX if that waits for the host.
 * `scratch` is for this process alone. */
uint64_t timeline_expect(struct timeline *timeline, uint32_t slot, const struct timeline_marks *marks,
                         uint64_t now_ns, struct timeline_state *scratch);

/* When the operation before `mark` was done. To be asked after timeline_look() told that it was, and before
 * the queue goes on by TIMELINE_RING operations; 0 otherwise. */
uint64_t timeline_done_ns(const struct timeline *timeline, uint32_t slot, enum timeline_engine engine,
                          uint64_t mark);

/* The host function at the head of the queue of HOST returned. */
void timeline_host_done(struct timeline *timeline, uint32_t slot, uint64_t now_ns);

/* Whether the head of the queue of HOST may run now; its mark. */
bool timeline_host_ready(struct timeline *timeline, uint32_t slot, uint64_t now_ns, uint64_t *mark);

/* The same for a gate (0 .. TIMELINE_GATES-1): what is waited for came. */
void timeline_gate_done(struct timeline *timeline, uint32_t slot, unsigned gate, uint64_t now_ns);
bool timeline_gate_ready(struct timeline *timeline, uint32_t slot, unsigned gate, uint64_t now_ns,
                         uint64_t *mark);

/* How long the slot's last operations kept the engine busy between two moments, both of them past. Where the ring
 * does not remember all of that time, what it remembers stands for the rest; under time slices an operation counts
 * as if it had run in one piece. */
uint64_t timeline_busy_ns(const struct timeline *timeline, uint32_t slot, enum timeline_engine engine,
                          uint64_t from_ns, uint64_t to_ns);

/* How much of the compute engine's time the slot's owners have had in all by `now_ns`, to the nanosecond;
 * only differences mean something. Changes nothing. */
uint64_t timeline_computed_ns(const struct timeline *timeline, uint32_t slot, uint64_t now_ns,
                              struct timeline_state *scratch);

/* Drop what the owner of `gone` had before the device. `generation` of the slot is still `seen`, or nothing
 * happens: somebody new has it. */
void timeline_drop(struct timeline *timeline, uint32_t slot, uint32_t gone,
                   const _Atomic uint64_t *generation, uint64_t seen, uint64_t now_ns);

/* Slots that have work before the device. Returns how many; a moment's picture. */
uint32_t timeline_busy_slots(const struct timeline *timeline, uint32_t *slots, uint32_t capacity);

/* Whether a state goes together: its entries are in the order of slots, each has something to do, and no queue is served
 * beyond its end. */
bool timeline_state_is_valid(const struct timeline_state *state);

/* Advance a state to `until_ns`, but by no more than some thousand steps and completions: false when it is
 * not there yet. Pure but for reading the timeline's rules and rings. */
bool timeline_advance(struct timeline_state *state, const struct timeline *timeline, uint64_t until_ns);
