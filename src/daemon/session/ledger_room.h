/* ledger_room.h - the room that ledgers take on the runtime folder's file system, which is all users'.
 *
 * A program of a session has its usage file open for writing: it can make it longer, and can write where the session has
 * no GPU. (Only a memfd could be sealed against that; a file survives the daemon, and older ones know it.) So what a
 * ledger needs is set aside as it is made, and counts as its owner's; and whatever programs take beyond that is given
 * back: soon by itself, and at once where somebody needs it. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct daemon;
struct session;

/* Whether the session's owner may have one more ledger: all but root's and the daemon's own user's take a quarter of the
 * file system at most. 0, or ERR_TOO_MANY. */
int ledger_room_check(const struct session *session, struct error *error);

/* There is no room for a ledger: take some back. False: nobody has taken any, and none is being taken back. */
bool ledger_room_make(struct daemon *daemon);

/* Look at the session's file. */
void ledger_room_look(struct session *session);

int ledger_room_start(struct daemon *daemon, struct error *error);
void ledger_room_stop(struct daemon *daemon);
