#include "intercept/resolve/unknown.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "intercept/resolve/report.h"

#define NAME_BYTES 80
#define THUNK_BYTES 16 /* of unknown.S */

extern __attribute__((visibility("hidden"))) char unknown_thunks[];

/* Taken one after the other by the thread that sets `function`, which then writes the name. Never given back. */
static struct unknown {
    _Atomic(void *) function;
    atomic_bool is_named;
    char name[NAME_BYTES];
} unknowns[UNKNOWN_MOST];

static _Atomic(unknown_meet *) meet_call;
static atomic_bool was_called;
static _Atomic(void (*)(void)) tell_asked;

static void note_call(const char *name, uint64_t arguments[static UNKNOWN_ARGUMENTS])
{
    /* Before `meet_call` is read, so that unknown_when_called() sees this call, or this call sees it. */
    atomic_store_explicit(&was_called, true, memory_order_seq_cst);
    unknown_meet *meet = atomic_load_explicit(&meet_call, memory_order_seq_cst);
    if (meet)
        meet(name, arguments);
}

void *unknown_called(unsigned number, uint64_t arguments[static UNKNOWN_ARGUMENTS])
{
    struct unknown *unknown = &unknowns[number];
    int saved_errno = errno;
    note_call(unknown->name, arguments);
    errno = saved_errno;
    return atomic_load_explicit(&unknown->function, memory_order_relaxed);
}

bool unknown_when_called(unknown_meet *meet)
{
    atomic_store_explicit(&meet_call, meet, memory_order_seq_cst); /* pairs with note_call() */
    return atomic_load_explicit(&was_called, memory_order_seq_cst);
}

void unknown_when_asked(void (*tell)(void))
{
    atomic_store_explicit(&tell_asked, tell, memory_order_release);
}

static void name_it(struct unknown *unknown, const char *name)
{
    strncpy(unknown->name, name, sizeof(unknown->name) - 1);
    atomic_store_explicit(&unknown->is_named, true, memory_order_release); /* unknown_names() */
    report_debug("%s: GPU Slice does not know this function of the driver", name);
    void (*tell)(void) = atomic_load_explicit(&tell_asked, memory_order_acquire);
    if (tell)
        tell();
}

/* The place of `function`, taken for it now if it has none; -1: none is left. */
static int find(const char *name, void *function)
{
    for (int number = 0; number < UNKNOWN_MOST; number++) {
        void *there = NULL;
        if (atomic_compare_exchange_strong_explicit(&unknowns[number].function, &there, function,
                                                    memory_order_acq_rel, memory_order_acquire))
            name_it(&unknowns[number], name);
        if (!there || there == function)
            return number;
    }
    return -1;
}

void unknown_linked(const char *name, void *function)
{
    uint64_t none[UNKNOWN_ARGUMENTS] = {0};
    find(name, function);
    note_call(name, none);
}

void *unknown_function(const char *name, void *function)
{
    int number = find(name, function);
    if (number >= 0)
        return unknown_thunks + (size_t)number * THUNK_BYTES;
    unknown_linked(name, function);
    return function;
}

unsigned unknown_names(char *text, size_t size)
{
    unsigned count = 0;
    size_t used = 0;
    if (size)
        text[0] = '\0';
    for (int number = 0; number < UNKNOWN_MOST; number++) {
        struct unknown *unknown = &unknowns[number];
        if (!atomic_load_explicit(&unknown->is_named, memory_order_acquire)) /* name_it() */
            break;
        size_t length = strlen(unknown->name), gap = used ? 1 : 0;
        if (used + gap + length + 1 > size)
            break;
        if (gap)
            text[used] = ' ';
        memcpy(text + used + gap, unknown->name, length + 1);
        used += gap + length;
        count++;
    }
    return count;
}
