/* procaddress.c - hooks the driver's own resolver, in its three forms.
 *
 * The real resolver gets the caller's own arguments, so every failure, NULL argument and status is answered by it. We
 * look only at a pointer that it has written. */
#include <sys/auxv.h>

#include "intercept/resolve/hooks.h"
#include "intercept/resolve/real.h"
#include "intercept/resolve/report.h"
#include "intercept/resolve/resolve.h"
#include "intercept/resolve/unknown.h"

typedef CUresult resolver(const char *name, void **function, int version, cuuint64_t flags);

/* Whether the driver exports `pointer` as a function that the table lacks. */
static bool is_exported_as_new(const void *pointer)
{
    Dl_info info;
    return resolve_libc()->dladdr(pointer, &info) && info.dli_saddr == pointer && info.dli_sname &&
           cuda_entry_find(info.dli_sname) < 0;
}

/* Whether a function that is none of those that we know of this name still means the form that we know: a version that the
 * table does not know yet then gives the same pointer as the newest that it knows. If not, it is a new form, perhaps with
 * another signature, and no hook of ours may replace it. */
static bool is_known_form(resolver *ask, const char *name, const void *pointer, int version, cuuint64_t flags)
{
    void *known = NULL;
    if (is_exported_as_new(pointer))
        return false;
    return version <= CUDA_ENTRY_NEWEST ||
           (ask(name, &known, CUDA_ENTRY_NEWEST, flags) == CUDA_SUCCESS && known == pointer);
}

static void choose(const char *name, void **function, int version, cuuint64_t flags, resolver *ask,
                   const void *caller)
{
    static const struct resolve_tables tables = {.hooks = hook_functions,
                                                 .driver_function = real_driver_function};
    if (!name || !function || !*function || getauxval(AT_SECURE) ||
        resolve_library_of(caller, RESOLVE_DRIVER_FILE))
        return;

    struct resolve_choice choice = resolve_choose(&tables, name, version, flags, *function);
    if (choice.is_new || (choice.unknown && !is_known_form(ask, name, *function, version, flags))) {
        *function = unknown_function(name, *function);
        return;
    }
    if (choice.id < 0)
        return;
    if (choice.unknown)
        report_unknown_pointer(cuda_entries[choice.id].symbol);
    if (!real_is_next(choice.id, caller))
        *function = hook_functions[choice.id];
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
    real_needed(cuGetProcAddress);
    CUresult result = real(cuGetProcAddress)(name, function, version, flags);
    if (result == CUDA_SUCCESS)
        choose(name, function, version, flags, real(cuGetProcAddress), __builtin_return_address(0));
    return result;
}

static CUresult ask_v2(const char *name, void **function, int version, cuuint64_t flags)
{
    return real(cuGetProcAddress_v2)(name, function, version, flags, NULL);
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    real_needed(cuGetProcAddress_v2);
    CUresult result = real(cuGetProcAddress_v2)(name, function, version, flags, status);
    if (result == CUDA_SUCCESS)
        choose(name, function, version, flags, ask_v2, __builtin_return_address(0));
    return result;
}

static CUresult ask_v2_ptsz(const char *name, void **function, int version, cuuint64_t flags)
{
    return real(cuGetProcAddress_v2_ptsz)(name, function, version, flags, NULL);
}

/* In this form, no flag means the per-thread functions. */
CUresult cuGetProcAddress_v2_ptsz(const char *name, void **function, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status)
{
    real_needed(cuGetProcAddress_v2_ptsz);
    CUresult result = real(cuGetProcAddress_v2_ptsz)(name, function, version, flags, status);
    if (result == CUDA_SUCCESS)
        choose(name, function, version,
               flags == CU_GET_PROC_ADDRESS_DEFAULT ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : flags,
               ask_v2_ptsz, __builtin_return_address(0));
    return result;
}
