/* lease/lease.h - gives leases and takes them away. The last stage: it knows all others, and calls none of them to
 * charge or to learn. Where an answer of its ends a lease, arbiter.c does that first, and then calls lease_end(). */
#pragma once

#include "daemon/schedule/order/order.h"

/* --- lease.c --------------------------------------------------------------------------------------- */

/* The session holds that lease from now on: for all its GPUs, or instead of the lease that it has. Its gates stay as
 * they are. */
void lease_begin(struct arbiter_session *session, enum arbiter_lease lease);
void lease_convert(struct arbiter_session *session, enum arbiter_lease lease);
/* The session's lease is over: no gate of its is open or closing. */
void lease_end(struct arbiter_session *session);
/* Whether it is over, and lease_end() is due. */
bool lease_is_over(const struct arbiter_session *session);
/* Revoke the session's lease, and wait for its processes' answers. */
void lease_close(struct arbiter_session *session);
/* The process has closed its gate of its own accord, and cannot return the lease at once. */
void lease_leave(struct arbiter_process *process);
/* The arbiter does not wait for the process any longer. */
void lease_give_up(struct arbiter_session *session);
/* The work of one of the session's processes did not drain, and that gate is open again. The other gates open too,
 * and the next session in the order runs beside this one, since the work on the GPU may wait for either. */
void lease_become_loose(struct arbiter_session *session);
/* The holder's turn may be taken away in `ns`. */
void lease_extend(struct arbiter_session *session, uint64_t ns);
/* The process is new: if its gate was not opened, it may have been open until now, under an earlier daemon. The arbiter
 * does not wait for the answer. */
void lease_enter(struct arbiter_process *process);
void lease_tell(const struct arbiter_session *session, enum arbiter_event event);

/* When a lease that is being closed will have so little work left that the next one may begin; UINT64_MAX: not
 * known, or the next one has to wait for the end. */
uint64_t lease_leaves_at(const struct arbiter_session *session);
/* Note that its work is so little now. */
void lease_note_left(struct arbiter_session *session);
/* Whether the session's lease keeps others' turns off its GPUs: an exclusive one, or one of a free GPU while it
 * closes; not once so little work is left that the next session may begin. */
bool lease_is_in_the_way(const struct arbiter_session *session);
/* Whether another session's turn, or open gate, on the session's GPUs forbids it a turn now. */
bool lease_is_obstructed(const struct arbiter_session *session);
/* Note on which GPUs sessions wait for a lease now. */
void lease_note_waiting(struct arbiter *arbiter);
/* When the session's lease is to be looked at again; UINT64_MAX: never. */
uint64_t lease_next(const struct arbiter_session *session);

/* --- due.c ----------------------------------------------------------------------------------------- */

/* What becomes of a lease now. */
enum lease_due {
    LEASE_STAYS,
    LEASE_CONVERTS,   /* a turn becomes a guest's lease, or the other way round */
    LEASE_CLOSES,     /* it is to be revoked */
    LEASE_IS_USED_UP, /* the same, since the session's maximum leaves it nothing */
    LEASE_IS_OVERDUE, /* it was revoked, and its processes are not waited for any longer */
};
/* Because the session's role has changed; and because of the time and of those who wait. */
enum lease_due lease_due_by_role(const struct arbiter_session *session);
enum lease_due lease_due_by_time(struct arbiter_session *session);

/* When a session that waits may have its turn. */
enum lease_turn {
    TURN_BEGINS,        /* now */
    TURN_WAITS,         /* later, and its GPUs may be others' meanwhile */
    TURN_AFTER_GUESTS,  /* once guests or the rest of a turn have left its GPUs, which are kept for it */
    TURN_AFTER_HOLDERS, /* once those have closed that hold some of its GPUs; the others are kept for it */
};
enum lease_turn lease_find_turn(const struct arbiter_session *session);

/* --- gates.c --------------------------------------------------------------------------------------- */

/* Open the gates of sessions that hold leases, and tell them what holds for these now. */
void lease_open_gates(struct arbiter *arbiter);
void lease_open_gate(struct arbiter_process *process);

/* --- steps.c --------------------------------------------------------------------------------------- */

/* The process's agent is being told to close. */
void lease_ask_to_close(struct arbiter_process *process);
/* The process says that it has `left_ns` of work left, or that its work does not end (WIRE_LEFT_ENDLESS). */
void lease_note_left_of(struct arbiter_process *process, uint64_t left_ns);
/* The process should be drained after `left_ns` more of its work. */
void lease_expect_drained(struct arbiter_process *process, uint64_t left_ns);
/* If a process of a closing session cannot drain, let each process of it that has drained and waits make one call,
 * which the first may wait for. */
void lease_step(struct arbiter_session *session);
/* The same for all sessions in whose closings steps are taken without being asked for. */
void lease_take_steps(struct arbiter *arbiter);
/* The process's agent has said something. Counts if the process is closing. */
void lease_note_answer(struct arbiter_process *process);
/* When a step is due although no agent asks for it; UINT64_MAX: never. */
uint64_t lease_steps_at(const struct arbiter_session *session);
/* A closing begins: until when steps may be taken, and whether its processes are taken to wait for each other. */
void lease_begin_steps(struct arbiter_session *session);
