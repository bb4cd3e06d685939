/* led_session.h - a session of one process in the daemon of led_daemon.h, with a ledger of its own. */
#pragma once

#include <stdlib.h>
#include <sys/mman.h>

#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "led_daemon.h"

#define LIMIT 1000 /* bytes */

static struct session session;
static struct process process;
static struct ledger_policy *policy;
static struct ledger_slot slot;
static struct lock lock;

/* The daemon is started; `pid` is attached, holds 150 bytes by NVML, and the session's limit is LIMIT. */
static void make_session(pid_t pid)
{
    policy = calloc(1, sizeof(*policy));
    struct ledger_usage *usage =
        mmap(NULL, ledger_usage_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ledger_policy_init(policy, "0123456789ab", 1);
    ledger_usage_init(usage, 1);
    policy->gpu_count = 1;
    policy->gpus[0].limit_bytes = LIMIT;
    session = (struct session){.daemon = &daemon_state, .gpu_count = 1};
    session.gpus[0].limit_bytes = LIMIT;
    session.ledger.policy = policy;
    session.ledger.usage = usage;
    process = (struct process){.session = &session, .pid = pid, .start_ticks = 1};
    slot = (struct ledger_slot){.ledger = {policy, usage}, .lock = &lock};
    slot.index = (uint32_t)ledger_slot_claim(usage, (struct ledger_owner){.pid = pid, .start_ticks = 1},
                                             &slot.generation);
    process.slot = slot.index;
    daemon_state.sessions = &session;
    LEAD(led->first_pid = (unsigned)pid; led->process_count = 1; led->bytes_of_each = 150);
}

static void forget_session(void)
{
    munmap(session.ledger.usage, ledger_usage_bytes());
    free(policy);
}
