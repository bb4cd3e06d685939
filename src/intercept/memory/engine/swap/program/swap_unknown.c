#include "intercept/memory/engine/swap/program/swap_unknown.h"

#include "intercept/memory/engine/swap/extents/resident.h"
#include "intercept/memory/engine/swap/program/swap_program.h"
#include "intercept/resolve/guard.h"
#include "intercept/resolve/report.h"
#include "intercept/resolve/unknown.h"

/* Under the lock, with all memory on the card. */
static void pin_all(void)
{
    struct extents *extents = &swap_state()->extents;
    atomic_store_explicit(&swap_state()->is_pinned, true, memory_order_relaxed);
    for (struct extent *extent = extents_next(extents, NULL); extent; extent = extents_next(extents, extent))
        extent_pin(extent, WIRE_STAYS_UNKNOWN);
}

/* Before the program's call. */
static void meet(const char *name, uint64_t arguments[static UNKNOWN_ARGUMENTS])
{
    if (!memory_area_if_any()) /* a forked child */
        return;
    bool is_first = !swap_is_pinned();
    if (is_first)
        program_lock_when_back();
    else
        guard_lock(&swap_state()->lock);
    is_first = !swap_is_pinned();
    if (is_first)
        pin_all();
    for (unsigned i = 0; i < UNKNOWN_ARGUMENTS; i++)
        arguments[i] = program_drivers_handle(arguments[i]);
    guard_unlock(&swap_state()->lock);
    if (is_first)
        report_line(
            "the program calls %s, a function of the driver that this GPU Slice does not know; its memory "
            "stays on the card from now on",
            name);
}

void swap_unknown_begin(void)
{
    unknown_find_linked();
    if (!unknown_when_called(meet))
        return;
    atomic_store_explicit(&swap_state()->is_pinned, true, memory_order_relaxed);
    report_line("the program calls functions of the driver that this GPU Slice does not know; its memory "
                "stays on the "
                "card");
}
