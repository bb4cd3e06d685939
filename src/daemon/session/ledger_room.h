/* ledger_room.h - the room that ledgers take on the runtime folder's file system, which all users share.
 *
 * A session's program has the usage file open for writing: it can make the file longer, and can write where the session
 * has no GPU. (Only a memfd could be sealed against that; but the file has to survive the daemon.) So the daemon sets aside what a ledger needs when it makes the file, and counts that as the owner's. It takes back
 * whatever programs add: within a while by itself, and at once where somebody needs the room. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct daemon;
struct session;

/* Whether the session's owner may have one more ledger. The ledgers of a user other than root and the daemon's own may
 * take a quarter of the file system. 0, or -EBUSY with ERR_TOO_MANY. */
int ledger_room_check(const struct session *session, struct error *error);

/* There is no room for a ledger: take some back from programs. False: no program has taken any, and none is being taken
 * back. */
bool ledger_room_make(struct daemon *daemon);

/* Check the session's file, and have the room taken back that its programs added. */
void ledger_room_look(struct session *session);

int ledger_room_start(struct daemon *daemon, struct error *error);
void ledger_room_stop(struct daemon *daemon);
