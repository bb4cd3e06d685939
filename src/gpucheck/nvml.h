/* nvml.h - NVML's figures, from outside any session: the truth with which the ledger is compared. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The GPU's memory in use: by process `pid` if NVML lists it with a figure, else by everyone, as in a container,
 * where NVML has other pids. The choice is made once for the whole process, so that differences mean something.
 * Fails the check if there is no NVML. */
uint64_t nvml_used_bytes(pid_t pid);
/* Which of the two it is: "process" or "device". */
const char *nvml_used_source(void);

/* Ask for the list of processes once, as the daemon's sample does. */
void nvml_list(void);

/* "580.65.06" */
const char *nvml_driver_version(void);
/* The UUID of the GPU: "GPU-...", or "MIG-..." if it is a MIG instance. */
const char *nvml_uuid(void);
bool nvml_is_instance(void);
/* Whether NVML tells what this process has of the GPU, and how much that is. */
bool nvml_own_bytes(uint64_t *bytes);
/* "on", "off", or that NVML does not tell: without it, the driver unloads with the last program. */
const char *nvml_persistence(void);
/* Whether NVML tells what the GPU has, and how much that is. */
bool nvml_tells_memory(uint64_t *total_bytes);
/* The GPU's memory in total, and what is free. A check for which NVML does not tell that is not run. */
uint64_t nvml_total_bytes(void);
uint64_t nvml_free_bytes(void);
