/* ledgers.h - a session's usage region, as the daemon holds it.
 *
 * usage    the file ledgers/ID, which programs map writable: neither its contents nor its length can be trusted
 * broken   a ledger whose file a program cut or damaged. Touching what was cut off would end the daemon with SIGBUS:
 *          instead the mapping is replaced by zeros, and the session gets no new process and no new memory
 *
 * The region beside it, the policy, is in policy.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/error.h"
#include "ledger/ledger.h"

/* A file as /proc/PID/maps names it, which may differ from what stat says (btrfs, overlayfs). */
struct ledgers_maps_name {
    unsigned major, minor;
    unsigned long inode;
};

struct session_ledger {
    struct ledger_policy *policy; /* written by the loop's thread alone */
    int policy_fd;                /* opened read-only; this is what clients get */
    struct ledger_usage *usage;
    int usage_fd;
    char *usage_path;
    struct ledgers_maps_name maps_name;
    volatile bool broken;
    /* The room that programs added to the file is being taken back (ledger_room.h). */
    bool is_being_freed;
    LIST_ENTRY(session_ledger) next; /* in the list of all mapped ledgers, for the signal handler */
};

/* Handle SIGBUS in a usage region; other faults end the process as before. Call once, before the first ledger. */
void ledgers_catch_sigbus(void);

/* Make a usage file for a new session, or (`existing`) take over the file that an earlier daemon left: if that is
 * missing a new one is made, and if it is damaged the ledger is broken. Then set the ledger's epoch to `epoch`;
 * LEDGERS_EPOCH_KEPT leaves that of an existing one as it is. */
#define LEDGERS_EPOCH_KEPT 0
int ledgers_usage_open(struct session_ledger *ledger, const char *directory, const char *session_id,
                       uint64_t epoch, bool existing, struct error *error);

/* Whether an earlier daemon left a usage file for this session. */
bool ledgers_usage_exists(const char *directory, const char *session_id);

/* Have the file system set aside what processes of a session with `gpu_count` GPUs will touch: a full file system then
 * refuses the session now, instead of ending its programs by SIGBUS later. */
int ledgers_usage_reserve(struct session_ledger *ledger, unsigned gpu_count, struct error *error);

/* Whether the file still has its length; if not, the ledger becomes broken. */
bool ledgers_check_length(struct session_ledger *ledger);

/* Whether the file takes more room than the ledger of a session with `gpu_count` GPUs needs: a program made the file
 * longer, or wrote where the session has no GPU. */
bool ledgers_has_excess(const struct session_ledger *ledger, unsigned gpu_count);
/* Give that room back to the file system, at most `most` bytes (0: all, however long that takes). Any thread may call. */
void ledgers_free_excess(int usage_fd, unsigned gpu_count, uint64_t most);

/* Unmap and close; with `remove`, remove the file too. */
void ledgers_usage_close(struct session_ledger *ledger, bool remove);

/* Whether process `pid` maps the usage file. Take LEDGERS_UNKNOWN for yes: the list of mappings cannot be read, the
 * process is ending, or it has more than a thousand mappings and the file is not among the first (a program that has
 * just exec'd has few). */
enum ledgers_mapped { LEDGERS_NOT_MAPPED, LEDGERS_MAPPED, LEDGERS_UNKNOWN };
enum ledgers_mapped ledgers_is_mapped_by(const struct session_ledger *ledger, pid_t pid);

/* The same for any number of mappings (`lines_max` 0); that may take a while. Any thread may call. */
enum ledgers_mapped ledgers_look_in_maps(const struct ledgers_maps_name *name, pid_t pid, unsigned lines_max);
