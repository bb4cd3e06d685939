/* nvml.h - what NVML says, asked outside any session: the truth that the ledger is compared with. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* The GPU's memory in use: by process `pid` if NVML lists it with a figure, else by everyone (as in a
 * container, where NVML's pids are others). Once decided for a pid, it stays so in this process, that
 * differences mean something. Ends the check as failed where there is no NVML. */
uint64_t nvml_used_bytes(pid_t pid);
/* Which of the two it was: "process" or "device". */
const char *nvml_used_source(void);

/* Ask for the list of processes once, as a sample does. */
void nvml_list(void);

/* "580.65.06" */
const char *nvml_driver_version(void);
/* The GPU's memory in the whole, and what nobody uses. */
uint64_t nvml_total_bytes(void);
uint64_t nvml_free_bytes(void);
