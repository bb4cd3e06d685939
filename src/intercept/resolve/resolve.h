/* resolve.h - which function a caller gets for a name.
 *
 * Callers reach the driver by linked symbols (our exports), by dlsym and dlvsym, and by cuGetProcAddress. For the
 * last three the real resolver is asked first. Then the caller's function is chosen by the name that was asked and
 * the pointer that was returned, so that versions, per-thread forms and "not found" come out as they would without
 * us.
 *
 * A caller whose file has the name of a driver (or of NVML) gets the real answer. WSL2's libcuda.so.1 and drivers
 * that reach a GPU elsewhere look up another driver behind themselves; if they got our hook, which calls them, they
 * would call each other without end.
 *
 * dlsym and dlvsym themselves are assembly (dlsym.S): for names that are not the driver's or NVML's, and for
 * pseudo-handles, they jump to the real one with the caller's return address in place, so that "the caller" stays the
 * caller. */
#pragma once

#include <dlfcn.h>
#include <stdbool.h>

#include "cuda/driver.h"

/* The real functions. Before the first call they point to assembly that finds them and tries again. */
typedef void *resolve_dlsym_function(void *handle, const char *name);
typedef void *resolve_dlvsym_function(void *handle, const char *name, const char *version);
extern resolve_dlsym_function *resolve_real_dlsym;
extern resolve_dlvsym_function *resolve_real_dlvsym;

/* Find the real dlsym and dlvsym in the symbol tables of libc.so.6 and libdl.so.2. Never by asking one of the two for
 * the other: both are ours. Two threads may run it at once. */
void resolve_find_dlsym(void);

/* The address of `symbol`'s default version in the loaded object with this SONAME; NULL when there is none. */
void *resolve_symbol_in(const char *soname, const char *symbol);

/* libc's own functions that go with dlsym, past any library in between. Found on first use. */
struct resolve_libc {
    void *(*dlopen)(const char *path, int flags);
    int (*dlclose)(void *handle);
    char *(*dlerror)(void);
    int (*dladdr)(const void *address, Dl_info *info);
};
const struct resolve_libc *resolve_libc(void);

/* The path of the loaded library that `address` is in, if its file is named `stem` or `stem`.something; else
 * NULL. */
const char *resolve_library_of(const void *address, const char *stem);
#define RESOLVE_DRIVER_FILE "libcuda.so"
#define RESOLVE_NVML_FILE "libnvidia-ml.so"

/* dlsym.S jumps here for the driver's and NVML's names with a real handle. */
resolve_dlsym_function resolve_dlsym;
resolve_dlvsym_function resolve_dlvsym;

/* What dlsym's caller gets for `symbol`, for which the real answer is `pointer` (never NULL). `caller` is an address
 * in the calling code. */
void *resolve_exported(const char *symbol, void *pointer, const void *caller);

/* Choose for (name, version, flags), with `pointer` as the real answer. The tables are our hooks and the driver's own
 * functions, by row. */
struct resolve_tables {
    void *const *hooks;
    void *(*driver_function)(int id);
};
struct resolve_choice {
    int id;       /* the row whose hook the caller gets; -1: the caller gets the pointer */
    bool unknown; /* the pointer was not one of the name's; the row was chosen by name, version and flags */
    bool is_new;  /* the table has no row for the pointer (unknown.h) */
};
struct resolve_choice resolve_choose(const struct resolve_tables *tables, const char *name, int version,
                                     cuuint64_t flags, const void *pointer);
