#include "simgpu/device/costs.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "simgpu/device/shared.h"

#define SLEEP_LATE_NS UINT64_C(80000) /* a sleep ends that much late; the rest is spun */
#define GIB_BYTES (UINT64_C(1) << 30)

static pthread_mutex_t loader_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint loading;         /* threads that hold or want the loader's lock */
static __thread unsigned suspended; /* cost_suspend() that were not resumed */

static _Atomic uint64_t registered_ns; /* when the last that page-locks is done; 0: it was seen to be */

static void forget_in_child(void)
{
    atomic_store(&registered_ns, 0);
    pthread_mutex_init(&loader_lock, NULL);
    atomic_store(&loading, 0);
}

static void prepare(void)
{
    pthread_atfork(NULL, NULL, forget_in_child);
}

/* The C library's clock_nanosleep() is a cancellation point: a thread cancelled here would leave the caller's locks locked.
 * A card's driver spends this time in ioctl(), which is not a cancellation point. */
static void wait_until(uint64_t until_ns)
{
    uint64_t now_ns = monotonic_ns();
    if (until_ns > now_ns + 2 * SLEEP_LATE_NS) {
        uint64_t wake_ns = until_ns - SLEEP_LATE_NS;
        const struct timespec wake = {.tv_sec = (time_t)(wake_ns / 1000000000u),
                                      .tv_nsec = (long)(wake_ns % 1000000000u)};
        while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL) < 0 &&
               errno == EINTR)
            continue;
    }
    while (monotonic_ns() < until_ns)
        continue;
}

void cost_pay_something(enum sim_constant row)
{
    if (suspended > 0)
        return;
    if (atomic_load_explicit(&loading, memory_order_relaxed) > 0) {
        pthread_mutex_lock(&loader_lock);
        pthread_mutex_unlock(&loader_lock);
    }
    uint64_t ns = constant_whole(row);
    if (ns > 0)
        wait_until(monotonic_ns() + ns);
}

void cost_of_waking(void)
{
    uint64_t ns = constant_whole(SIM_WAKE_NS);
    if (ns > 0 && suspended == 0)
        wait_until(monotonic_ns() + ns);
}

/* A place in a queue instead of a lock: it passes by itself, whatever becomes of its owner. */
static void hold(_Atomic uint64_t *free_ns, uint64_t ns)
{
    uint64_t seen = atomic_load(free_ns), end_ns;
    do {
        uint64_t now_ns = monotonic_ns();
        end_ns = (seen > now_ns ? seen : now_ns) + ns;
    } while (!atomic_compare_exchange_weak(free_ns, &seen, end_ns));
    wait_until(end_ns);
}

void cost_hold_kernel_lock(uint64_t ns)
{
    if (ns > 0 && suspended == 0)
        hold(&shared_view()->header->kernel_lock_free_ns, ns);
}

void cost_of_memory(uint64_t bytes)
{
    uint64_t counted = bytes < GIB_BYTES ? bytes : GIB_BYTES;
    cost_hold_kernel_lock(constant_whole(SIM_ALLOC_NS) +
                          (uint64_t)((double)counted / (double)GIB_BYTES * constant(SIM_ALLOC_GIB_NS)));
}

void cost_of_bytes(enum sim_constant each_gib, uint64_t bytes)
{
    uint64_t ns = (uint64_t)((double)bytes / (double)GIB_BYTES * constant(each_gib));
    if (ns > 0 && suspended == 0)
        wait_until(monotonic_ns() + ns);
}

/* How much of a range of addresses is in huge pages, by what the kernel says of the mappings around it. */
static double huge_part(uint64_t address, uint64_t bytes)
{
    char line[256];
    uint64_t begin, end, kib, all_kib = 0, huge_kib = 0;
    bool is_around = false;
    FILE *file = fopen("/proc/self/smaps", "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2)
            is_around = begin < address + bytes && address < end;
        else if (is_around && sscanf(line, "Size: %" SCNu64, &kib) == 1)
            all_kib += kib;
        else if (is_around && (sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1 ||
                               sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1 ||
                               sscanf(line, "Shared_Hugetlb: %" SCNu64, &kib) == 1 ||
                               sscanf(line, "Private_Hugetlb: %" SCNu64, &kib) == 1))
            huge_kib += kib;
    }
    if (file)
        fclose(file);
    return all_kib > 0 ? (double)huge_kib / (double)all_kib : 0;
}

void cost_of_registering(uint64_t address, uint64_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    double small_ns = constant(SIM_REGISTER_GIB_NS), huge_ns = constant(SIM_REGISTER_HUGE_GIB_NS);
    double part = small_ns == huge_ns ? 0 : huge_part(address, bytes);
    uint64_t ns = (uint64_t)((double)bytes / (double)GIB_BYTES * (part * huge_ns + (1 - part) * small_ns));
    if (ns == 0 || suspended > 0)
        return;
    pthread_once(&once, prepare);
    hold(&registered_ns, ns);
}

void cost_wait_for_registering(void)
{
    uint64_t until_ns = atomic_load_explicit(&registered_ns, memory_order_relaxed);
    if (until_ns == 0)
        return;
    wait_until(until_ns);
    atomic_compare_exchange_strong(&registered_ns, &until_ns, 0);
}

void cost_load_code(enum sim_constant row)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t ns = constant_whole(row);
    if (ns == 0 || suspended > 0)
        return;
    pthread_once(&once, prepare);
    atomic_fetch_add(&loading, 1);
    pthread_mutex_lock(&loader_lock);
    wait_until(monotonic_ns() + ns);
    pthread_mutex_unlock(&loader_lock);
    atomic_fetch_sub(&loading, 1);
}

void cost_suspend(void)
{
    suspended++;
}

void cost_resume(void)
{
    suspended--;
}
