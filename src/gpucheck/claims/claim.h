/* claim.h - what the simulated GPU claims about NVIDIA's driver, one call for each claim, to be run on both.
 *
 * claim      a name, what the simulation says the driver answers, and what it answered here
 * group      claims that share a process: each group runs in a forked child, so that it may break its context or die
 * verified   somebody saw the claim hold on a card (verified.def); all others are unverified */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/driver.h"
#include "cuda/prototypes.h"

#define MIB ((uint64_t)1 << 20)

/* A group starts before cuInit, without a context. */
struct group {
    const char *name;
    void (*run)(void);
};
/* each ends with a NULL name */
extern const struct group groups_of_contexts[], groups_of_memory[], groups_of_streams[], groups_of_graphs[];

void claim_result(const char *name, CUresult claimed, CUresult observed);
void claim_number(const char *name, uint64_t claimed, uint64_t observed);
void claim_true(const char *name, const char *claimed, bool observed);

/* For calls that a group needs but that are not a claim: unless `result` is success, records that and ends the group. */
void need(const char *what, CUresult result);

/* Whether the driver is of this CUDA version or a later one: what an older one lacks cannot be compared. */
bool driver_is_since(int version);

/* Call cuInit, create a context of device 0 and make it current. */
CUcontext need_context(void);

/* Load a module with gs_fill_u32(address, value, count), which stores `value` at `address` (count is 1). */
CUfunction need_store_kernel(void);

/* A host function that holds its stream until gate_open(). */
struct gate {
    _Atomic int is_open;
};
void gate_close(struct gate *gate, CUstream stream);
void gate_open(struct gate *gate);
