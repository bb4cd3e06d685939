/* user_names.h - users' names, for people who read answers. The account database may be behind a network, so a helper
 * thread asks it: until it has answered, a user is shown as a number. */
#pragma once

#include <sys/types.h>

#include "base/error.h"

struct daemon;

/* The name of the daemon's own user is known from the start. */
int user_names_start(struct daemon *daemon, struct error *error);
void user_names_stop(struct daemon *daemon);

/* The user's name; the number if the user has no name, or the name is not known yet. Valid until the loop goes on. */
const char *user_name_of(struct daemon *daemon, uid_t uid);
