/* nvml_pids.h - which processes NVML's pids mean. NVML and the ledger use pids of the daemon's pid namespace; the
 * caller knows processes by those of its own. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "ledger/ledger.h"

/* This process as the ledger names it. False when it has lost its slot. */
bool nvml_pid_own(struct ledger_owner *own);

/* The pid of the slot's owner in the caller's namespace; the daemon's pid for it where that cannot be found out.
 * `own`: from nvml_pid_own(). Slow: may read /proc. */
pid_t nvml_pid_here(const struct ledger_owner *own, const struct ledger_owner *owner);
