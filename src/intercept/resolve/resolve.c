/* resolve.c - answers dlsym and dlvsym for the driver's and NVML's names. */
#include "intercept/resolve/resolve.h"

#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>

#include "intercept/resolve/hooks.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/report.h"
#include "intercept/resolve/unknown.h"

const char *resolve_library_of(const void *address, const char *stem)
{
    Dl_info info;
    if (!resolve_libc()->dladdr(address, &info) || !info.dli_fname)
        return NULL;
    const char *slash = strrchr(info.dli_fname, '/');
    const char *file = slash ? slash + 1 : info.dli_fname;
    size_t length = strlen(stem);
    if (strncmp(file, stem, length) != 0 || (file[length] != '\0' && file[length] != '.'))
        return NULL;
    return info.dli_fname;
}

/* Whether `pointer`, which is not from our driver, is from another copy of it. */
static bool is_driver_copy(int id, const void *pointer)
{
    if (!resolve_library_of(pointer, RESOLVE_DRIVER_FILE))
        return false;
    report_unknown_pointer(cuda_entries[id].symbol);
    return true;
}

static bool is_nvml_copy(int id, const void *pointer)
{
    if (!resolve_library_of(pointer, RESOLVE_NVML_FILE))
        return false;
    report_unknown_pointer(hook_nvml_symbols[id]);
    return true;
}

static void *exported_by_driver(int id, void *pointer, const void *caller)
{
    if (!hook_functions[id] || resolve_library_of(caller, RESOLVE_DRIVER_FILE))
        return pointer;
    if (!real_find(false)) {
        const char *path = resolve_library_of(pointer, RESOLVE_DRIVER_FILE);
        if (!path || !real_adopt(path))
            return pointer;
    }
    if (pointer != real_driver_function(id) && !is_driver_copy(id, pointer))
        return pointer;
    return real_is_next(id, caller) ? pointer : hook_functions[id];
}

static void *exported_by_nvml(int id, void *pointer, const void *caller)
{
    if (!hook_nvml_functions[id] || resolve_library_of(caller, RESOLVE_NVML_FILE))
        return pointer;
    if (!real_nvml_find(false)) {
        const char *path = resolve_library_of(pointer, RESOLVE_NVML_FILE);
        if (!path || !real_nvml_adopt(path))
            return pointer;
    }
    if (pointer != real_nvml_function(id) && !is_nvml_copy(id, pointer))
        return pointer;
    return real_nvml_is_next(id, caller) ? pointer : hook_nvml_functions[id];
}

/* What a driver exports that is newer than our table. */
static void *new_in_driver(const char *symbol, void *pointer, const void *caller)
{
    bool is_drivers = strncmp(symbol, "cu", 2) == 0 && resolve_library_of(pointer, RESOLVE_DRIVER_FILE) &&
                      !resolve_library_of(caller, RESOLVE_DRIVER_FILE);
    return is_drivers ? unknown_function(symbol, pointer) : pointer;
}

void *resolve_exported(const char *symbol, void *pointer, const void *caller)
{
    if (getauxval(AT_SECURE))
        return pointer;
    int id = cuda_entry_find(symbol);
    if (id >= 0)
        return exported_by_driver(id, pointer, caller);
    id = hook_nvml_find(symbol);
    return id >= 0 ? exported_by_nvml(id, pointer, caller) : new_in_driver(symbol, pointer, caller);
}

/* A failed lookup stays as it is, with its error. */
static void *answer(const char *symbol, void *pointer, const void *caller)
{
    return pointer ? resolve_exported(symbol, pointer, caller) : NULL;
}

void *resolve_dlsym(void *handle, const char *name)
{
    return answer(name, resolve_real_dlsym(handle, name), __builtin_return_address(0));
}

void *resolve_dlvsym(void *handle, const char *name, const char *version)
{
    return answer(name, resolve_real_dlvsym(handle, name, version), __builtin_return_address(0));
}
