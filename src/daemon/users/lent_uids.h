/* lent_uids.h - user IDs that a user has beside their own: the subordinate ones of /etc/subuid.
 *
 * In a user namespace (newuidmap(1), rootless containers) a user runs processes under 65,536 user IDs, as a rule, and these
 * may keep the user's groups, so that they reach control.sock. To the daemon they are one user more, not 65,536: what it
 * counts by user, it counts for all of them together. They ask nothing of control.sock: the user does. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct daemon;

#define LENT_UIDS_NAME 64

/* For whom the daemon counts what `uid` holds: the first of the user IDs that were lent together with it; `uid` itself if
 * it was not lent. Reads the file again if it has changed. What was lent once is taken as lent as long as the daemon runs,
 * so that what was counted is taken back from the same count. */
uid_t lent_uids_account(struct daemon *daemon, uid_t uid);

/* Whether `uid` was lent, and to whom, as the file names them. Root and the daemon's own user never were. */
bool lent_uids_find(struct daemon *daemon, uid_t uid, char user[static LENT_UIDS_NAME]);

/* Read `path` as if it were the file. */
void lent_uids_read(struct daemon *daemon, const char *path);

void lent_uids_free(struct daemon *daemon);
