/* role/role.h - which sessions are guests, which take turns, and why. The fourth stage: it knows facts, estimates and
 * accounts. */
#pragma once

#include "daemon/schedule/account/account.h"

/* Whether its cost is to be learned in its turns, for which all other gates must be closed. */
static inline bool is_measuring(const struct arbiter_session *session)
{
    return session->role.is_measured && !session->estimate.is_known;
}

/* Whether its cost was never known. */
bool role_is_new(const struct arbiter_session *session);
/* The session is new. */
void role_begin(struct arbiter_session *session);
/* `passed` ns have passed up to now. */
void role_pass(struct arbiter *arbiter, double passed);

/* What a session's role became. */
enum role_change { ROLE_STAYS, ROLE_TAKES_TURNS, ROLE_BECOMES_GUEST };
/* Find out whether the session takes turns now, and say why if it does. */
enum role_change role_find(struct arbiter_session *session);
/* When the session's role is to be looked at again; UINT64_MAX: never. */
uint64_t role_next(const struct arbiter_session *session);

/* --- need.c ---------------------------------------------------------------------------------------- */

/* How the session fared as a guest says nothing any more. */
void role_forget_need(struct arbiter_session *session);
/* Whether the session takes turns because it got less than its minimum as a guest. */
bool role_is_needy(const struct arbiter_session *session);
/* Whether the session is as fast as a guest as it was in turns. */
bool role_is_content(const struct arbiter_session *session);
/* A stretch of time as a guest. */
void role_count_guest(struct arbiter_session *session, const struct judged *judged);
/* Bring what is known of the session's turns up to date. */
void role_count_turns(struct arbiter_session *session);
/* `robbed` lacks so much of what was promised to it: if that is enough, have the guests that take more than was
 * promised to them take turns. */
void role_find_donors(const struct arbiter_session *robbed, double lacks_ns);
/* Find out whether the session is needy now: it begins to be, or is no longer since turns do not help it. Returns
 * whether it turned out to be content. */
bool role_find_needy(struct arbiter_session *session);

/* --- favour.c -------------------------------------------------------------------------------------- */

void role_favour_begin(struct arbiter_session *session);
/* `passed_ns` more have passed, in which others held still for the session's bursts, or did not. */
void role_favour_count(struct arbiter_session *session, double passed_ns);
/* The session used so much of the GPU. */
void role_favour_use(struct arbiter_session *session, double used_ns);
/* Judge, every 200 ms, whether others go on holding still for the session's bursts. */
void role_favour_judge(struct arbiter_session *session);
/* Whether others of lower priorities hold still for its bursts. */
bool role_is_favoured(const struct arbiter_session *session);
