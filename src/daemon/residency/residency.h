/* residency.h - whose memory is on the card: who leaves, who comes. Pure: the caller says how each session stands, and is
 * told what to do.
 *
 * here      bytes of a session that can move and are on a GPU
 * missing   bytes that the session wants there besides: its memory that is away, and what one of its threads waits for
 * waits     the session has work and something of it is missing, or one of its threads waits for room
 * turn      the time from when a session has come until it may be sent away again although it has work. It is so long that
 *           moving takes at most a tenth of it. A session without work has no turn: it leaves as soon as another needs the
 *           room. A program that pauses now and then may work until its next pause: for a tenth of the turn longer, and for
 *           up to a whole turn longer while it has not held two turns more than the others that wait. Turns are longer for
 *           sessions that were promised more of the GPU, because turns must keep shares too
 * held      how long a session has worked while others waited for its room
 * owed      the session was promised a share of the GPU, and has waited so long that it would get less than its share
 * ahead     memory of a session that still waits comes into room that nobody needs yet. One session at a time on each GPU,
 *           and none while another session comes there, because both would share the link
 *
 * Sessions that wait come in this order: a session in its turn that asks for more; sessions that are owed; the higher
 * priority; the longest wait. Those that were given room and did not use it come after all others. The first gets what room there is. If that is not enough, just enough others leave for it:
 * first memory that has come ahead for sessions behind it; then sessions without work, the longest idle first; then
 * sessions whose turn is over, lower priorities first, then the one that came first. A session with work does not leave for
 * one of a lower priority, unless that one is owed. The next in the order come into the room that is left. If more is on a
 * GPU than fits, as memory that the driver pages may be, the session that came last leaves. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/residency/crowds.h"
#include "daemon/residency/seen.h"

/* The bounds of a turn's length. */
struct residency_turns {
    uint64_t least_ns, most_ns;
};

/* How long the session's turn is, beside its crowd. */
uint64_t residency_turn_ns(const struct residency_session *session, const struct residency_crowd *crowd,
                           const struct residency_turns *turns);

/* Whether a session goes together with its answer; and all of them. */
bool residency_session_is_valid(const struct residency_session *session);
bool residency_sessions_are_valid(const struct residency_session *sessions, unsigned count);

/* Decide: sets each session's verdict. `free_bytes`: what is free in each place; below 0: more is there than fits.
 * Returns when to ask again at the latest, because a turn will be over; UINT64_MAX: when something has changed. The work
 * grows a little faster than the number of sessions. Without memory for it, all stay as they are. */
uint64_t residency_decide(struct residency_session *sessions, unsigned count,
                          const int64_t free_bytes[RESIDENCY_PLACES], const struct residency_turns *turns,
                          uint64_t now_ns);
