#include "daemon/api/user_names.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

/* The account database may be behind a network: each name is asked for once in five minutes. */
#define KEPT_NS UINT64_C(300000000000)
#define NAMES 256u
#define NAME_BYTES 64
#define LOOK_UP_BYTES 4096

const char *user_name_of(uid_t uid)
{
    static struct {
        uid_t uid;
        uint64_t until_ns; /* 0: the place is empty */
        char name[NAME_BYTES];
    } names[NAMES];
    const unsigned place = (unsigned)uid % NAMES;
    uint64_t now = monotonic_ns();
    if (names[place].until_ns > now && names[place].uid == uid)
        return names[place].name;
    char text[LOOK_UP_BYTES];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(uid, &entry, text, sizeof(text), &found) == 0 && found)
        snprintf(names[place].name, NAME_BYTES, "%s", found->pw_name);
    else
        snprintf(names[place].name, NAME_BYTES, "%u", (unsigned)uid);
    names[place].uid = uid;
    names[place].until_ns = now + KEPT_NS;
    return names[place].name;
}
