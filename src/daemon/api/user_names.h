/* user_names.h - what users are called, for people who read answers. The account database may be behind a network, so
 * a thread asks it: until it has answered a user is called by number. */
#pragma once

#include <sys/types.h>

#include "base/error.h"

struct daemon;

/* The daemon's own user is known from the start. */
int user_names_start(struct daemon *daemon, struct error *error);
void user_names_stop(struct daemon *daemon);

/* The user's name, or its number where it has none or none is known yet. Valid until the loop goes on. */
const char *user_name_of(struct daemon *daemon, uid_t uid);
