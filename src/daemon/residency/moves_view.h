/* moves_view.h - one decision about who comes and who leaves, for moves_see.c, moves_hope.c and moves_room.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/residency/moves_state.h"
#include "daemon/residency/residency.h"

/* All sessions, as residency.h sees them. */
struct moves_view {
    unsigned count;
    struct residency_session *seen;
    struct session **sessions;
    /* The parts of all sessions; and where each session's begin. */
    struct residency_part *parts, **first_part;
    struct residency_crowd *crowds; /* per session; found before those are told apart that wait in vain */
    /* Those that wait for room that nobody can make; there is room for all. Per session: what it lacks then, and whether it has
     * waited so for long enough to be refused. */
    struct vain_wait *vain_waits;
    unsigned vain_count;
    struct moves_lack *lacks;
    bool *has_lost_hope;
    int64_t seems_free[RESIDENCY_PLACES]; /* by the counts alone */
    int64_t most_room[RESIDENCY_PLACES];  /* if all left, and whoever comes now had come and left */
    unsigned waiters[RESIDENCY_PLACES];   /* how many wait there for what others have */
    unsigned orders_left, refusals_left;  /* in this round; */
    bool is_cut;                          /* and there was more to do */
};

/* A session of the view that waits in vain. */
struct vain_wait {
    uint64_t since_ns;
    unsigned number;
};

/* Whether one more may be done of what costs something; `*left` may be done in this round. */
static inline bool moves_may_do(struct moves_view *view, unsigned *left)
{
    bool may = *left > 0;
    *left -= may;
    view->is_cut |= !may;
    return may;
}

/* --- moves_see.c ----------------------------------------------------------------------------------- */

/* What the session counts for on one of its GPUs: no more than it can have, and bounded so that sums of it cannot
 * overflow. */
int64_t moves_counted_by(const struct session *session, unsigned policy_gpu);
/* What is left out of a card as unusable parts of blocks. */
uint64_t moves_slack_bytes(const struct gpu *card);
/* Whether the driver pages the session's memory: then it may be more than the card has. Other memory cannot be,
 * whatever the counts say. */
bool moves_is_paged(const struct session *session);
/* What seems to be free of each GPU; below 0: more is counted there than it has. */
void moves_count_free(const struct daemon *daemon, int64_t free_bytes[RESIDENCY_PLACES]);
/* Take off what refusals taught. More than there is can only be on a GPU whose memory the driver pages. */
void moves_bound_free(const struct daemon *daemon, int64_t free_bytes[RESIDENCY_PLACES]);
/* What would seem to be left of a GPU if the session had all that it waits for. A session that is coming counts as there. */
int64_t moves_left_beside(const struct session *session, unsigned policy_gpu,
                          const int64_t seems_free[RESIDENCY_PLACES]);
/* Learn from all who asked again since it was last decided. */
void moves_learn_from_needs(const struct daemon *daemon, const int64_t seems_free[RESIDENCY_PLACES]);
/* How residency.h sees one session. `parts` has room for the places of all its GPUs. */
struct residency_session moves_see(const struct session *session, struct residency_part *parts);

/* --- moves_hope.c ---------------------------------------------------------------------------------- */

/* Tell apart those that wait in vain: they wait no longer in this decision. */
void moves_find_hopeless(struct moves_view *view, const int64_t free_bytes[RESIDENCY_PLACES]);
/* Those that have waited in vain for long enough: refuse their programs, or say what they lack. */
void moves_end_hopes(struct moves_view *view, const struct daemon *daemon);
