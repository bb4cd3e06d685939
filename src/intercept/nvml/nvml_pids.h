/* nvml_pids.h - who NVML's pids are: it and the ledger have those of the daemon's pid namespace, the caller
 * knows processes by those of its own. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "ledger/ledger.h"

/* This process as the ledger has it. False when it has lost its slot. */
bool nvml_pid_own(struct ledger_owner *own);

/* What the caller calls the slot's owner; the daemon's pid for it where that cannot be found out. `own`: of
 * nvml_pid_own(). Slow: may read /proc. */
pid_t nvml_pid_here(const struct ledger_owner *own, const struct ledger_owner *owner);
