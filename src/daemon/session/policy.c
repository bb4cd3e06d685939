#include "daemon/session/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "daemon/gpu/card.h"
#include "daemon/loop/daemon.h"
#include "daemon/session/session.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

static enum ledger_limit_from limit_from(const struct session *session)
{
    if (session->is_declared)
        return LEDGER_LIMIT_FROM_FILE;
    if (session->properties.pod[0])
        return LEDGER_LIMIT_FROM_POD;
    if (session->is_managed)
        return LEDGER_LIMIT_FROM_JOB;
    return session->runner.pid ? LEDGER_LIMIT_FROM_RUN : LEDGER_LIMIT_FROM_SESSION;
}

int policy_make(struct session *session, struct error *error)
{
    char name[48], path[48];
    snprintf(name, sizeof(name), "gpuslice-policy-%s", session->id);
    cleanup_close int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return error_set_errno(error, errno, "cannot make a policy region (memfd_create)");
    if (ftruncate(fd, (off_t)LEDGER_POLICY_BYTES) < 0 || fchmod(fd, 0400) < 0)
        return error_set_errno(error, errno, "cannot size a policy region");

    struct ledger_policy *policy = mmap(NULL, LEDGER_POLICY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (policy == MAP_FAILED)
        return error_set_errno(error, errno, "cannot map a policy region");
    /* FUTURE_WRITE forbids write(), new writable mappings and punching holes for everybody who opens the memfd, root
     * too, and leaves the mapping above. It also takes VM_MAYWRITE from later mappings, so mprotect() is not a way
     * around it. */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int read_only = -1;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0 ||
        (read_only = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
        int status = errno;
        munmap(policy, LEDGER_POLICY_BYTES);
        return error_set_errno(error, status, "cannot seal a policy region (needs Linux 5.1 and /proc)");
    }
    ledger_policy_init(policy, session->id, session->daemon->epoch);
    policy->engine = session->properties.engine;
    policy->may_pass_card = session->properties.may_pass_card;
    policy->limit_from = limit_from(session);
    session->ledger.policy = policy;
    session->ledger.policy_fd = read_only;
    policy_beat(session); /* not 0 from the first moment */
    policy_publish(session);
    return 0;
}

void policy_unmake(struct session *session)
{
    struct session_ledger *ledger = &session->ledger;
    if (!ledger->policy)
        return;
    munmap(ledger->policy, LEDGER_POLICY_BYTES);
    close(ledger->policy_fd);
    ledger->policy = NULL;
}

static void publish_busy(const struct session *session)
{
    struct ledger_policy *policy = session->ledger.policy;
    for (unsigned i = 0; i < session->gpu_count; i++) {
        const int card = session->gpus[i].gpu;
        const int percent = card >= 0 ? session->daemon->gpus[card].busy_percent : -1;
        /* Relaxed: programs read this value on its own. */
        atomic_store_explicit(&policy->gpus[i].busy, percent >= 0 ? (uint32_t)percent + 1 : 0,
                              memory_order_relaxed);
    }
}

void policy_publish(struct session *session)
{
    struct ledger_policy *policy = session->ledger.policy;
    if (!policy)
        return;
    GS_CHECK(session->gpu_count <= LEDGER_GPUS &&
             (!policy->gpu_count || policy->gpu_count == session->gpu_count));
    for (unsigned i = 0; i < session->gpu_count; i++) {
        struct session_gpu *gpu = &session->gpus[i];
        struct ledger_policy_gpu *published = &policy->gpus[i];
        const struct gpu *card = gpu->gpu >= 0 ? &session->daemon->gpus[gpu->gpu] : NULL;
        memcpy(published->uuid, gpu->uuid, sizeof(published->uuid));
        published->is_mig = gpu->is_mig;
        atomic_store_explicit(&published->total_bytes, card ? card->total_bytes : gpu->limit_bytes,
                              memory_order_relaxed);
        atomic_store_explicit(&published->context_bytes, card ? card->context_bytes : 0,
                              memory_order_release);
        /* Pairs with the load in ledger_reserve(). */
        atomic_store_explicit(&published->limit_bytes, gpu->limit_bytes, memory_order_release);
    }
    publish_busy(session);
    policy->gpu_count = session->gpu_count;
    atomic_store_explicit(&policy->closed,
                          session->state == SESSION_EXPIRED || session->release || session->ledger.broken,
                          memory_order_release);
}

void policy_publish_sample(struct session *session)
{
    struct ledger_policy *policy = session->ledger.policy;
    if (!policy)
        return;
    publish_busy(session);
    for (unsigned i = 0; i < session->gpu_count; i++) {
        /* Pairs with the loads in ledger_unseen(). */
        atomic_store_explicit(&policy->gpus[i].driver_bytes, session->gpus[i].driver_bytes,
                              memory_order_release);
        atomic_store_explicit(&policy->gpus[i].orphan_bytes, session->gpus[i].orphan_bytes,
                              memory_order_release);
    }
}

void policy_close(struct session *session)
{
    if (session->ledger.policy)
        atomic_store_explicit(&session->ledger.policy->closed, 1,
                              memory_order_release); /* pairs with ledger_reserve() */
}

void policy_beat(struct session *session)
{
    struct ledger_policy *policy = session->ledger.policy;
    if (policy) /* pairs with agent_daemon_is_silent() */
        atomic_fetch_add_explicit(&policy->beats, 1, memory_order_relaxed);
}
