/* Preloaded into a program: whoever asks for a user waits while the file SLOW_NAMES is there, as with an account database on a
 * machine that does not answer, and says so by the file's length. */
#include <dlfcn.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#define OURS __attribute__((visibility("default")))

static void *wait_for_real(const char *name)
{
    const char *file = getenv("SLOW_NAMES");
    void *real = dlsym(RTLD_NEXT, name);
    if (!real)
        abort();
    while (file && truncate(file, 1) == 0)
        usleep(1000);
    return real;
}

OURS struct passwd *getpwuid(uid_t uid);
OURS int getpwuid_r(uid_t uid, struct passwd *entry, char *text, size_t bytes, struct passwd **found);

struct passwd *getpwuid(uid_t uid)
{
    struct passwd *(*real)(uid_t uid);
    *(void **)&real = wait_for_real("getpwuid");
    return real(uid);
}

int getpwuid_r(uid_t uid, struct passwd *entry, char *text, size_t bytes, struct passwd **found)
{
    int (*real)(uid_t uid, struct passwd * entry, char *text, size_t bytes, struct passwd **found);
    *(void **)&real = wait_for_real("getpwuid_r");
    return real(uid, entry, text, bytes, found);
}
