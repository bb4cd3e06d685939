/* session_valid.h - whether what is known of a session goes together: for GS_CHECK() at the doors of what changes it. */
#pragma once

#include <stdbool.h>

struct session;

/* A session that is in the daemon's list: its place there, its name, its GPUs and shares, and what its state allows. */
bool session_is_valid(const struct session *session);
