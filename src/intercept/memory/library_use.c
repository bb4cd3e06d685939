#include "intercept/memory/library_use.h"

#include <time.h>

#include "base/clock.h"
#include "intercept/memory/charge.h"
#include "intercept/memory/refusal.h"
#include "intercept/resolve/real.h"
#include "intercept/session/session.h"
#include "intercept/submit/gate.h"

/* How far loaded code may take a session above its limit: by a fiftieth of the limit, or by ALLOWED_LEAST_BYTES. */
#define ALLOWED_PART 50u
#define ALLOWED_LEAST_BYTES (UINT64_C(4) << 20)

/* The daemon looks at the card within 100 ms of a notice, and later where NVML is slow. */
#define LOOK_MOST_NS UINT64_C(2000000000)

static bool is_far_above_limit(uint32_t gpu)
{
    const struct ledger *ledger = &session_slot()->ledger;
    uint64_t limit = atomic_load_explicit(&ledger->policy->gpus[gpu].limit_bytes, memory_order_relaxed);
    uint64_t used = ledger_used(ledger, gpu) + ledger_unseen(ledger->policy, gpu),
             allowed = limit / ALLOWED_PART;
    if (allowed < ALLOWED_LEAST_BYTES)
        allowed = ALLOWED_LEAST_BYTES;
    return used > limit && used - limit > allowed;
}

/* Other processes may have taken what seems to be this library's: so let the daemon look. */
static bool is_still_far_above_limit(uint32_t gpu)
{
    struct ledger_usage *usage = session_slot()->ledger.usage;
    uint64_t counted = ledger_ahead_total(usage, gpu), until_ns = monotonic_ns() + LOOK_MOST_NS;
    while (ledger_ahead_seen_total(usage, gpu) < counted && monotonic_ns() < until_ns)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    return is_far_above_limit(gpu);
}

/* Whether the library may stay. */
static bool fits(struct ahead *ahead)
{
    if (ahead_end(ahead))
        return true;
    ledger_count_ahead(session_slot()->ledger.usage, ahead->gpu, ahead->found_bytes);
    session_notice(WIRE_NOTICE_MODULE);
    if (!is_far_above_limit(ahead->gpu) || !is_still_far_above_limit(ahead->gpu))
        return true;
    refusal_by_limit(ahead->gpu, ahead->found_bytes);
    return false;
}

static bool unload(CUlibrary library)
{
    if (!library || !real(cuLibraryUnload) || real(cuLibraryUnload)(library) != CUDA_SUCCESS)
        return false;
    if (gate_of())
        gate_forget_functions(gate_of());
    return true;
}

CUresult library_used(struct ahead *ahead, CUresult result, CUlibrary library)
{
    return result == CUDA_SUCCESS && !fits(ahead) && unload(library) ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

CUresult library_use_kernel(CUfunction *function, CUkernel kernel)
{
    CUlibrary library = NULL;
    struct ahead ahead;
    ahead_begin(&ahead);
    CUresult result = real(cuKernelGetFunction)(function, kernel);
    if (real(cuKernelGetLibrary) && real(cuKernelGetLibrary)(&library, kernel) != CUDA_SUCCESS)
        library = NULL;
    return library_used(&ahead, result, library);
}
