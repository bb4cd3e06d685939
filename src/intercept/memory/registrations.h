/* registrations.h - memory that other devices reach by a registration that no call of the driver shows: a network card's by
 * ibv_reg_mr() and nvidia-peermem, a copy through the BAR by gdrcopy. Nobody tells which memory it is, so all memory of such a
 * process stays on the card as long as it may have a registration. */
#pragma once

#include <stdbool.h>

/* Whether the process may have registrations. `looks`: look at the process now, else what the last look found holds for a second.
 * One thread at a time. */
bool registrations_may_exist(bool looks);

/* The program has set CU_CTX_SYNC_MEMOPS for a context: all its memory may be registered from now on. */
void registrations_note_flag(void);

/* What a look does, with other folders for /proc/self and /sys/module: whether the process has libibverbs while a module is loaded that
 * registers the GPU's memory for it, or has gdrcopy's device open. */
bool registrations_are_possible(const char *process, const char *modules);
