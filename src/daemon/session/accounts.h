/* accounts.h - users' names and groups. The account database may be behind a network, so a helper thread asks it, and the
 * loop does not wait. What is known of a user is asked for again after a minute, and holds until the answer comes. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

#define ACCOUNT_NAME_BYTES 64

struct daemon;

struct account {
    char name[ACCOUNT_NAME_BYTES]; /* "": the user has no account, and is in no group */
    unsigned group_count;
    struct account_group {
        gid_t gid;
        char name[ACCOUNT_NAME_BYTES]; /* "": the group has none */
    } groups[];
};

/* The account of the daemon's own user is known from the start. */
int accounts_start(struct daemon *daemon, struct error *error);
/* Those that wait are told that the daemon ends. */
void accounts_stop(struct daemon *daemon);

/* The user's account; NULL: it is not known yet, and is asked for. Valid until the loop goes on. */
const struct account *account_of(const struct daemon *daemon, uid_t uid);

/* Have `done` called when the account of a user is known that account_of() does not know yet (0), or cannot be known. Then
 * `error` says why. */
typedef void (*account_done)(void *argument, const struct error *error);
void account_await(const struct daemon *daemon, uid_t uid, account_done done, void *argument);

/* The user's name, for people; the number if the user has no name, or the name is not known yet. Valid until the loop goes
 * on. */
const char *account_name(const struct daemon *daemon, uid_t uid);
