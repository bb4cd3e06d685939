#include "daemon/session/unclaimed_ledgers.h"

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/loop/peer.h"
#include "daemon/session/identity.h"
#include "daemon/session/ledgers.h"
#include "daemon/session/session_find.h"

/* A process that, as far as can be told, owns a slot of the ledger and maps it. Both are checked because any program of
 * the session may write any pid into a slot. 0: there is none. */
static pid_t find_living(const struct session_ledger *ledger)
{
    struct ledger_owner owner, last = {0};
    uint64_t generation;
    for (uint32_t slot = 0; slot < LEDGER_SLOTS && !ledger->broken; slot++) {
        if (!ledger_slot_owner(ledger->usage, slot, &owner, &generation) || owner.pid == last.pid)
            continue;
        last = owner;
        cleanup_close int pidfd = peer_open(owner.pid, owner.start_ticks);
        if (pidfd != -ESRCH && ledgers_is_mapped_by(ledger, owner.pid) != LEDGERS_NOT_MAPPED)
            return owner.pid;
    }
    return 0;
}

static void settle(const struct daemon *daemon, const char *id)
{
    struct session_ledger ledger = {.policy_fd = -1};
    struct error error;
    if (ledgers_usage_open(&ledger, daemon->paths.ledgers_dir, id, LEDGERS_EPOCH_KEPT, true, &error) < 0) {
        log_warning("cannot keep the ledger of session %s, which is not in the state file: %s", id,
                    error.message);
        return;
    }
    pid_t pid = find_living(&ledger);
    if (pid)
        log_warning(
            "session %s is not in the state file, but process %d still runs in it: it goes on under the "
            "limits that it knows, and this daemon does not count it; end it, or put the state file back",
            id, (int)pid);
    ledgers_usage_close(&ledger, !pid);
}

int unclaimed_ledgers_sort(struct daemon *daemon, struct error *error)
{
    cleanup_dir DIR *folder = opendir(daemon->paths.ledgers_dir);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (identity_is_id(entry->d_name) && !session_find_id(daemon, entry->d_name))
            settle(daemon, entry->d_name);
    return 0;
}
