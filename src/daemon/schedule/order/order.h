/* order/order.h - whose turn is next, and how long a turn goes on. The fifth stage: it knows facts, estimates, accounts
 * and roles. It decides nothing: it answers. */
#pragma once

#include "daemon/schedule/role/role.h"

/* Find out how far sessions are ahead, and which of them are due. */
void order_find(struct arbiter *arbiter);
/* Whether the session waits for a lease, and its maximum lets it have one. */
bool order_is_eligible(const struct arbiter_session *session);
/* Sort the sessions that do into arbiter->sorted, the first first. Returns how many there are. */
unsigned order_sort(struct arbiter *arbiter);
bool order_precedes(const struct arbiter_session *a, const struct arbiter_session *b);
/* Whether `waiter` may have `holder`'s turn taken away once its time is up. A guest may only while `holder` is
 * being measured, whatever the order. */
bool order_presses(const struct arbiter_session *waiter, const struct arbiter_session *holder);

/* --- holder.c -------------------------------------------------------------------------------------- */

/* Whether the session is in a turn in which its processes' gates open one at a time, so that each is measured. */
bool order_takes_one_by_one(const struct arbiter_session *session);
/* Whether the holder's turn is taken away before its time is up. */
bool order_is_cut_short(const struct arbiter_session *holder);
/* Whether somebody may have the holder's turn once its time is up; and whether somebody waits for its end. */
bool order_is_pressed(const struct arbiter_session *holder);
bool order_is_waited_for(const struct arbiter_session *holder);
/* How long a turn goes on after its time is up, if no session may take it away. */
uint64_t order_until_overtaken(const struct arbiter_session *holder);
/* Whether the holder keeps its turn through its gaps. */
bool order_keeps_its_gaps(const struct arbiter_session *holder);
/* What the session's maximum leaves it, less what its turn has used so far and is not charged for yet. */
double order_tokens_left(const struct arbiter_session *session);
/* When the holder of a turn will have used up what its maximum leaves it. */
uint64_t order_until_throttled(const struct arbiter_session *holder);
/* The time in so many ns, and 50 us from now at least. */
uint64_t order_after(const struct arbiter *arbiter, double ns);
