/* residency.h - whose memory is on the card: who leaves, who comes. Pure: it is told how everybody stands, and says what to do.
 *
 * here      bytes of a session that can move and are on a GPU
 * missing   bytes that it would have there besides: what is away, and what a thread of it waits for
 * waits     it has work and something of it is missing, or a thread of it waits for room
 * turn      the time from a session's coming until it may be sent away again while it has work. It is long enough that moving
 *           takes a tenth of it at most. A session without work has no turn: it leaves as soon as somebody needs the room
 *
 * Those who wait come in order: the higher priority first, then who has waited longest. Who comes first gets what room there
 * is; where that is not enough, just enough of the others leaves for it: those without work, the longest idle first; then
 * those whose turn is over, lower priorities first, then who came first. Nobody leaves for one of a lower priority while it has
 * work. The next in line come into room that is left. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define RESIDENCY_GPUS 64u

struct residency_part {
    unsigned gpu;
    uint64_t here_bytes, missing_bytes;
};

enum residency_verdict { RESIDENCY_STAYS, RESIDENCY_LEAVES, RESIDENCY_COMES };

struct residency_session {
    const struct residency_part *parts;
    unsigned part_count;
    bool can_leave;  /* it is on the card, it can move, and no order of it goes on */
    bool is_leaving; /* its part of the card will be free soon */
    bool waits;
    unsigned priority;
    uint64_t waits_since_ns;
    uint64_t came_ns;       /* when it was on the card as a whole last */
    uint64_t idle_since_ns; /* since when it has no work; 0: it has */
    uint64_t move_ns;       /* how long it takes to leave and come back, about */
    enum residency_verdict verdict;
};

/* The bounds of a turn; equal: that long. */
struct residency_turns {
    uint64_t least_ns, most_ns;
};

/* How long the session's turn is. */
uint64_t residency_turn_ns(const struct residency_session *session, const struct residency_turns *turns);

/* Sets the verdicts. `free_bytes`: of each GPU, what nobody has. Returns when to ask again at the latest, as a turn will be
 * over by then; UINT64_MAX: when something has changed. */
uint64_t residency_decide(struct residency_session *sessions, unsigned count,
                          const uint64_t free_bytes[RESIDENCY_GPUS], const struct residency_turns *turns,
                          uint64_t now_ns);
