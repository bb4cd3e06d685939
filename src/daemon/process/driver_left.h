/* driver_left.h - what processes of a session let go of, and what a descriptor may keep (ledger_let_go()).
 *
 * NVML lists memory that only a descriptor keeps for nobody, so a card then shows more as used than for all its processes. As
 * long as it does, what a session let go of counts in the session, as far as that goes. Once a process shows it, it counts for
 * that one (driver_line.h); and once the card shows it for nobody, it is gone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct daemon;
struct session;

/* A sample is about to be taken. */
void driver_left_begin(struct daemon *daemon);

/* Take in a sample of one GPU, which showed `shown_bytes` for all its processes together. Returns whether another sample would tell
 * more: what is left is lowered only if several in a row say so, since memory may be taken and given back while one is taken. */
bool driver_left_take(struct daemon *daemon, unsigned gpu, uint64_t shown_bytes);

/* The driver line of the session is published: it has what the session's processes had counted ahead (ledger_count_ahead()) when the
 * sample began, unless slots changed around the sample. */
void driver_left_published(struct session *session);

/* NVML cannot tell whose memory is whose there: nothing is left that anybody could know of. */
void driver_left_forget(struct daemon *daemon, unsigned gpu);
