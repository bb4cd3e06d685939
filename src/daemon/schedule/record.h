/* record.h - the arbiter's records: of each session, process and GPU, one record a stage.
 *
 * facts → estimate → account → role → order → lease: a stage writes its own record, and reads those of the stages
 * before it. scripts/schedule-stages holds every file to that. Only arbiter.c sees them all. */
#pragma once

#include "daemon/schedule/account/record.h"
#include "daemon/schedule/estimate/record.h"
#include "daemon/schedule/facts/record.h"
#include "daemon/schedule/lease/record.h"
#include "daemon/schedule/order/record.h"
#include "daemon/schedule/role/record.h"

struct arbiter_process {
    struct arbiter_process *next;
    struct arbiter_session *session;
    void *owner;
    struct process_facts facts;
    struct process_estimate estimate;
    struct process_lease lease;
};

struct arbiter_session {
    struct arbiter_session *next;
    struct arbiter *arbiter;
    void *owner;
    uint64_t serial;
    struct arbiter_process *processes;
    struct session_facts facts;
    struct session_estimate estimate;
    struct session_account account;
    struct session_role role;
    struct session_order order;
    struct session_lease lease;
};

struct arbiter {
    const struct arbiter_calls *calls;
    void *context;
    uint64_t now;
    struct arbiter_session *sessions;
    struct arbiter_user *users;
    unsigned session_count;
    /* Room for a pointer to each session, for sorting. */
    struct arbiter_session **sorted;
    uint64_t serial, lease_number;
    /* GPUs on which shares count; and GPUs on which a session is being measured, or is to be next: no guest begins
     * there. */
    uint64_t shares, measured;
    struct {
        struct gpu_estimate estimate;
        struct gpu_account account;
        struct gpu_lease lease;
    } gpus[ARBITER_GPUS];
    uint64_t quantum_fixed_ns;
    double gap_ns;
    uint64_t next;
};
