/* residency.h - whose memory is on the card: who leaves, who comes. Pure: it is told how everybody stands, and says what to do.
 *
 * here      bytes of a session that can move and are on a GPU
 * missing   bytes that it would have there besides: what is away, and what a thread of it waits for
 * waits     it has work and something of it is missing, or a thread of it waits for room
 * turn      the time from a session's coming until it may be sent away again while it has work. It is long enough that moving
 *           takes a tenth of it at most. A session without work has no turn: it leaves as soon as somebody needs the room.
 *           Who pauses now and then may work until it does: for a tenth of the turn longer, and for up to a turn while it has not
 *           held two turns more than others who wait. It is longer for those to whom more of the GPU was promised, as shares are
 *           kept by turns too
 * held      for so long a session worked while others waited for its room
 * owed      it was promised a part of the GPU, and has waited so long that it would have less of it than that
 * ahead      what is away comes into room that nobody needs yet, while the session still waits; on each GPU one at a time, and
 *            nobody while another one comes there, which would share the way with it
 *
 * Those who wait come in order: who is owed, then the higher priority, then who has waited longest. Who comes first gets what
 * room there is; where that is not enough, just enough of the others leaves for it: what has come ahead for those behind it;
 * then those without work, the longest idle first; then those whose turn is over, lower priorities first, then who came first.
 * Nobody leaves for one of a lower priority while it has work, unless that one is owed. The next in line come into room that is
 * left. Where more is on a GPU than fits, as memory that the driver pages may be, who came last leaves. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define RESIDENCY_GPUS 64u
/* Of each GPU its memory; and behind these of each GPU the right to work there, of one byte, for those who take turns
 * although all fit. */
#define RESIDENCY_PLACES (2 * RESIDENCY_GPUS)
#define RESIDENCY_SHARE_WHOLE 10000u

struct residency_part {
    unsigned gpu; /* or a place behind */
    uint64_t here_bytes, missing_bytes;
    uint64_t least_bytes; /* of what is missing: without it there is no use */
    uint64_t ahead_bytes; /* what comes of it: so much may come ahead */
};

enum residency_verdict {
    RESIDENCY_STAYS,
    RESIDENCY_LEAVES,
    RESIDENCY_COMES,
    RESIDENCY_COMES_AHEAD, /* so much of each part: ahead_bytes */
};

struct residency_session {
    struct residency_part *parts;
    unsigned part_count;
    bool can_leave;      /* it is on the card, it can move, and no order of it goes on */
    bool is_leaving;     /* its part of the card will be free soon */
    bool is_coming;      /* some of it, or all, comes at present */
    bool is_ahead;       /* what it has here came ahead: it waits, and can_leave */
    bool can_come_ahead; /* piece by piece, while it waits */
    bool waits;
    unsigned priority;
    uint32_t min_share; /* promised of the GPU, of RESIDENCY_SHARE_WHOLE */
    uint64_t waits_since_ns;
    uint64_t came_ns;       /* when it was on the card as a whole last */
    uint64_t idle_since_ns; /* since when it has no work; 0: it has */
    uint64_t began_ns;      /* when it was new */
    uint64_t paused_ns;     /* when it had no work last; 0: never */
    uint64_t held_ns;
    uint64_t move_ns; /* how long it takes to leave and come back, about */
    uint64_t come_ns; /* and what is missing now, to come */
    /* What comes of it. */
    enum residency_verdict verdict;
    uint64_t due_ns; /* of one that waits: when it should be there, about; 0: that cannot be told */
};

/* The bounds of a turn; equal: that long. */
struct residency_turns {
    uint64_t least_ns, most_ns;
};

/* Whether both have or miss something on one GPU, or the right to work there. */
bool residency_share_place(const struct residency_session *a, const struct residency_session *b);

/* How long the session's turn is, beside these. */
uint64_t residency_turn_ns(const struct residency_session *session, const struct residency_session *sessions,
                           unsigned count, const struct residency_turns *turns);

/* Sets what comes of it. `free_bytes`: of each place, what nobody has; below 0: more is there than fits. Returns when to ask
 * again at the latest, as a turn will be over by then; UINT64_MAX: when something has changed. */
uint64_t residency_decide(struct residency_session *sessions, unsigned count,
                          const int64_t free_bytes[RESIDENCY_PLACES], const struct residency_turns *turns,
                          uint64_t now_ns);
