/* user_names.h - what users are called, for people who read answers. */
#pragma once

#include <sys/types.h>

/* The user's name, or its number where it has none. Looked up once in a while: valid until the next call. */
const char *user_name_of(uid_t uid);
