/* faults.h - faults on demand, for tests of what programs do then: FAKECUDA_FAULT, a list with commas of
 *
 * oom@N    this process's Nth request for device memory does not fit (contexts and pools ask too); oom@N+:
 *          all from there
 * xid@N    its Nth work for the compute engine faults: CUDA_ERROR_LAUNCH_FAILED, for good, in that context
 * lost@N   at its Nth work for the compute engine the GPU falls off the bus, for every process, until none
 *          is left
 * hang@N   from its Nth work for the compute engine on, NVML answers nobody about GPUs, until this process
 *          has gone
 * checkpoint-kills@N  its Nth checkpoint ends the process
 * restore-fails@N     from its Nth restore for which the GPU has no room, none succeeds: OPERATING_SYSTEM (seen with driver 580:
 *                     cuda-checkpoint issue 44)
 * peers@N             it has peers, of the same N, with which it shares what a checkpoint does not keep: when one of them is
 *                     checkpointed, those that nobody has locked never get out of their next call, and cannot be locked any more
 * record@N its Nth recording of an event outside a capture fails, as for want of something that comes back; the next one does not;
 *          record@N+: all from there
 * wrong@N  its Nth kernel that sums up memory (checksums and digests) has one wrong bit in its result
 *
 * Each process counts for itself, from 1. */
#pragma once

#include "simgpu/driver/sim.h"

/* Read the environment; once, before anything below. */
int faults_init(struct error *error);

/* Whether this request for memory shall not fit. */
bool fault_of_memory(void);

/* What happens to this work of the compute engine, as its context is told later; CUDA_SUCCESS nearly always.
 */
CUresult fault_of_work(unsigned gpu);

/* The context's work touched addresses with nothing there: it is over for good, and each later call says so. */
void fault_page(CUcontext context);

/* How this process's checkpoints go, as above; 0: well. */
struct checkpoint_faults {
    uint32_t kills_at, restore_fails_at, peers;
};
struct checkpoint_faults faults_of_checkpoint(void);

/* Whether this recording of an event shall fail. */
bool fault_of_record(void);

/* What is wrong in the result of this kernel that sums up memory, as bits; 0 nearly always. */
unsigned fault_of_sum(void);
