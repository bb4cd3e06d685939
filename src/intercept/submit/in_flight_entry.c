/* in_flight_entry.c - entries: which thread owns one, and which stream of which context it is for. */
#include "intercept/submit/in_flight_entry.h"

#include "intercept/resolve/guard.h"
#include "intercept/resolve/own_calls.h"
#include "intercept/resolve/real.h"

/* A thread makes entries anew, instead of taking further places, where so many of all places are taken and it has so many. */
#define PLACES_MANY (IN_FLIGHT_ENTRIES / 4 * 3)
#define OWN_MANY 16u

CUcontext in_flight_stream_context(CUstream stream)
{
    CUcontext context = NULL;
    if (in_flight_is_default(stream))
        real(cuCtxGetCurrent)(&context);
    else if (!real(cuStreamGetCtx) || real(cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS)
        return NULL;
    return context;
}

/* Take a place that is free, or that belongs to a thread that has ended and whose work is done. NULL: there is none. */
static struct in_flight_entry *take_place(struct gate *gate, int32_t tid)
{
    for (uint32_t i = 0; i < IN_FLIGHT_ENTRIES; i++) {
        struct in_flight_entry *entry = &gate->entries[i];
        int32_t owner =
            atomic_load_explicit(&entry->tid, memory_order_acquire); /* in_flight_thread_ended() */
        if (owner > 0 || (owner < 0 && !in_flight_entry_ask(gate, entry)) ||
            !atomic_compare_exchange_strong_explicit(&entry->tid, &owner, tid, memory_order_acquire,
                                                     memory_order_relaxed))
            continue;
        uint32_t count = atomic_load_explicit(&gate->entry_count, memory_order_relaxed);
        while (count <= i &&
               !atomic_compare_exchange_weak_explicit(&gate->entry_count, &count, i + 1, memory_order_release,
                                                      memory_order_relaxed))
            ;
        return entry;
    }
    return NULL;
}

void in_flight_entry_drop_events(struct in_flight_entry *entry)
{
    for (unsigned i = 0; i < IN_FLIGHT_MARKS; i++) {
        if (entry->ring[i].event && real(cuEventDestroy_v2))
            real(cuEventDestroy_v2)(entry->ring[i].event);
        entry->ring[i] = (struct in_flight_mark){0};
    }
    if (entry->last && real(cuEventDestroy_v2))
        real(cuEventDestroy_v2)(entry->last);
    entry->last = NULL;
    entry->last_at = 0;
    entry->first = 0;
    atomic_store_explicit(&entry->marks, 0, memory_order_relaxed);
}

/* Of this thread's entries, one whose work is done, and whose stream was destroyed unless `any`. */
static struct in_flight_entry *find_idle(struct gate *gate, bool any)
{
    struct in_flight_entry *entry = gate_self.entries;
    while (entry && ((!any && atomic_load_explicit(&entry->stream, memory_order_relaxed)) ||
                     !in_flight_entry_ask(gate, entry)))
        entry = entry->next;
    return entry;
}

/* Whether this thread leaves the places that are still free to others. */
static bool leaves_places(const struct gate *gate)
{
    unsigned own = 0;
    for (const struct in_flight_entry *at = gate_self.entries; at && own < OWN_MANY; at = at->next)
        own++;
    return own == OWN_MANY && atomic_load_explicit(&gate->entry_count, memory_order_relaxed) >= PLACES_MANY;
}

/* Under the gate's lock: an entry of this thread that is not needed any more, or a new entry. NULL: there is none. */
static struct in_flight_entry *free_entry(struct gate *gate)
{
    struct gate_self *self = &gate_self;
    struct in_flight_entry *entry = find_idle(gate, leaves_places(gate));
    if (entry)
        return entry;
    entry = take_place(gate, atomic_load_explicit(&self->thread->tid, memory_order_relaxed));
    if (!entry)
        return find_idle(gate, true);
    entry->next = self->entries;
    self->entries = entry;
    return entry;
}

/* Under the gate's lock. */
static struct in_flight_entry *make_entry(struct gate *gate, CUstream stream, CUcontext context)
{
    struct in_flight_entry *entry = free_entry(gate);
    if (!entry)
        return NULL;
    CUcontext before = in_flight_entry_context(entry);
    if (before != context && before) {
        bool pushed = own_calls_push(before);
        in_flight_entry_drop_events(entry);
        if (pushed)
            own_calls_pop();
    }
    atomic_store_explicit(&entry->context, context, memory_order_relaxed);
    entry->refused_until_ns = entry->refused_ns = 0;
    entry->left = 1;
    entry->quick = 0;
    entry->burst = IN_FLIGHT_BURST_UNKNOWN;
    entry->burst_from = atomic_load_explicit(&entry->submitted, memory_order_relaxed);
    entry->bursts_told = atomic_load_explicit(&entry->bursts, memory_order_relaxed);
    entry->is_behind_copy = entry->is_parted = entry->is_put_off = false;
    entry->overlaps = 0;
    in_flight_forget_late_of(entry);
    atomic_store_explicit(&entry->sync_copies.covered,
                          atomic_load_explicit(&entry->sync_copies.made, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&entry->async_copies.covered,
                          atomic_load_explicit(&entry->async_copies.made, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&entry->stuck, false, memory_order_relaxed);
    atomic_store_explicit(&entry->varies, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->mean_ns, 0, memory_order_relaxed);
    work_estimate_reset(&entry->estimate);
    atomic_store_explicit(&entry->stream, stream, memory_order_relaxed);
    return entry;
}

static struct in_flight_entry *new_entry(struct gate *gate, CUstream stream)
{
    struct own_calls calls;
    own_calls_begin(&calls, NULL);
    CUcontext context = in_flight_stream_context(stream);
    guard_lock(&gate->lock);
    struct in_flight_entry *entry = context ? make_entry(gate, stream, context) : NULL;
    guard_unlock(&gate->lock);
    own_calls_end(&calls);
    return entry;
}

struct in_flight_entry *in_flight_entry_find(struct gate *gate, CUstream stream)
{
    struct gate_self *self = &gate_self;
    struct in_flight_entry *entry = gate_entry(self, stream);
    if (entry)
        return entry;
    if (in_flight_is_default(stream)) {
        self->context = in_flight_stream_context(stream);
        entry = gate_find_entry(self, stream);
    }
    if (!entry)
        self->entry = entry = new_entry(gate, stream);
    return entry;
}

void in_flight_thread_ended(int32_t tid)
{
    struct private_area *area = atomic_load_explicit(&private_area, memory_order_acquire);
    uint32_t count = atomic_load_explicit(&gate_in(area)->entry_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct in_flight_entry *entry = &gate_in(area)->entries[i];
        if (atomic_load_explicit(&entry->tid, memory_order_relaxed) == tid)
            atomic_store_explicit(&entry->tid, -1, memory_order_release); /* take_place() */
    }
}
