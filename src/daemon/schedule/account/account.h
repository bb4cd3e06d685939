/* account/account.h - what sessions held, what they are owed, and what their maxima and users leave them. The third
 * stage: it knows facts and estimates. Nobody else changes what is owed. */
#pragma once

#include "daemon/schedule/estimate/estimate.h"

static inline double bucket_start(const struct arbiter_session *session)
{
    return BUCKET_NS * fmin(0.4, 2.0 * session->facts.share.max / SHARE_WHOLE);
}

/* How much of its minimum others keep from it. */
static inline double missing(const struct arbiter_session *session)
{
    return session->estimate.is_dense ? session->account.robbed_ns : session->account.owed_ns;
}

/* The session is new, and belongs to that user. */
void account_begin(struct arbiter_session *session, struct arbiter_user *user);
/* `passed` ns have passed up to now. */
void account_pass(struct arbiter *arbiter, double passed);
/* The session's lease begins: it is charged from now on, or from the time up to which its processes have reported if
 * the lease before goes on as this one. */
void account_begin_lease(struct arbiter_session *session, bool goes_on);
/* Its share or its priority, which was `was`, has changed. */
void account_set_share(struct arbiter_session *session, unsigned was);

/* --- Demand ---------------------------------------------------------------------------------------- */

/* Note which sessions wait, and weigh them. Sessions that neither waited nor held a lease before come back from
 * idling. */
void account_find_backlogged(struct arbiter *arbiter);
/* Whether the session waits or holds a lease, or did so up to 5 ms ago: between two turns, a session does neither
 * for a moment. */
bool account_has_demand(const struct arbiter_session *session);
/* Whether the session's program has gaps of its own and is owed nothing. Such a program leaves the GPU idle in its
 * turns, and others make more of time that nobody is promised: so they come first until it is owed something again. */
bool account_leaves_the_rest(const struct arbiter_session *session);
/* The session comes back from idling, or is new on these GPUs. It gets a credit of one quantum at most for time
 * that it did not use. */
void account_come_back(struct arbiter_session *session, uint64_t gpus);
/* How far the session is ahead of its GPUs' clocks, counting what it took and is not charged for yet. */
double account_lag(const struct arbiter_session *session);
/* Advance the session's virtual time by what it held. What it takes while others want nothing is not held against it
 * later: it gets ahead by two turns at most, or by the lease that goes on if that is longer. A session that is ahead
 * by more stays where it is. */
void account_advance(struct arbiter_session *session, uint64_t gpu, double held_ns);
/* How far the session may be ahead of its GPUs' clocks at most, whatever it took. */
double account_most_ahead(const struct arbiter_session *session);
/* Note whether the session's maximum keeps it from having a lease now. */
void account_throttle(struct arbiter_session *session);
/* Its maximum is used up, by what its turn has taken so far. */
void account_use_up(struct arbiter_session *session);

/* --- What is owed ---------------------------------------------------------------------------------- */

/* What the session is owed, less what it took and is not charged for yet. */
static inline double account_owed(const struct arbiter_session *session)
{
    return session->account.owed_ns - (is_exclusive(session) ? facts_uncharged(session) : 0);
}

/* Why nothing is owed any more of what was. */
enum forgiven {
    FORGIVEN_WAS_DENSE, /* while it was dense, its turns took nothing off: that is no sign of need as a guest */
    FORGIVEN_CONTENT,   /* it is as fast without turns */
};
void account_forgive(struct arbiter_session *session, enum forgiven why);
/* A guest's stretch of time: it was this fast, as a part of its speed alone. */
void account_note_guest(struct arbiter_session *session, const struct judged *judged, double speed);
/* A stretch of a turn. */
void account_note_turn(struct arbiter_session *session, const struct judged *judged);
/* The turn has ended that it was asked back: what the hand-over cost was not its own. */
void account_note_handover(struct arbiter_session *session);

/* --- Charges --------------------------------------------------------------------------------------- */

/* Charge the session for the time of its turn since the last charge. */
void account_charge(struct arbiter_session *session);
/* Charge a guest: of the time in which it had work, it used so much. `is_alone`: no other session's gate was open. */
void account_charge_guest(struct arbiter_session *session, struct taken taken, bool is_alone);
/* Charge the session for what it used beyond what its agents said. */
void account_charge_unsaid(struct arbiter_session *session, unsigned gpu, double used_ns);

/* --- debt.c ---------------------------------------------------------------------------------------- */

/* The user with this ID, who gets one more session. Returns NULL without memory. */
struct arbiter_user *account_user_enter(struct arbiter *arbiter, uint64_t id);
void account_users_free(struct arbiter *arbiter);
/* For how long sessions of its user may keep others' gates closed now so that they are measured; and that they did so
 * for so long. */
double account_measure_left(const struct arbiter_session *session);
void account_take_measure(struct arbiter_session *session, double ns);
/* The session ceases to take turns, or ends: what it is ahead becomes its user's debt. */
void account_leave_turns(struct arbiter_session *session);
/* The session, which was a guest or is new, takes turns from now on. It begins at its GPUs' clocks, behind by what
 * its user owes. */
void account_join_turns(struct arbiter_session *session);
/* The session ends: what it is ahead and what it overdrew on its maximum become its user's debt. */
void account_end(struct arbiter_session *session);
/* The user's debt from sessions that overdrew on their maxima, as it is now. */
double account_overdraft(const struct arbiter_session *session);
