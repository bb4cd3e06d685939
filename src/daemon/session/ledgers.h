/* ledgers.h - a session's usage region, as the daemon holds it.
 *
 * usage    the file ledgers/ID, which programs map writable: its contents are hostile, and so is its length
 * broken   what a ledger is whose file a program cut or damaged. Touching what was cut off would end the
 *          daemon with SIGBUS: instead the mapping is replaced by zeros, and the session gets no new process
 *          and no new memory
 *
 * The region beside it, the policy, is policy.h's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/error.h"
#include "ledger/ledger.h"

/* A file as /proc/PID/maps names it, which need not be what stat says (btrfs, overlayfs). */
struct ledgers_maps_name {
    unsigned major, minor;
    unsigned long inode;
};

struct session_ledger {
    struct ledger_policy *policy; /* written by the loop's thread alone */
    int policy_fd;                /* read-only; what clients get */
    struct ledger_usage *usage;
    int usage_fd;
    char *usage_path;
    struct ledgers_maps_name maps_name;
    volatile bool broken;
    bool is_being_freed;             /* of what programs wrote beyond it (ledger_room.h) */
    LIST_ENTRY(session_ledger) next; /* of all that are mapped, for the signal handler */
};

/* Answer SIGBUS in a usage region; other faults keep ending the process. Once, before the first ledger. */
void ledgers_catch_sigbus(void);

/* Make a usage file for a new session, or (`existing`) take over the one that an earlier daemon left: when
 * that is missing a new one is made, and when it is damaged the ledger is broken. From then on the ledger is
 * of `epoch`, unless that is LEDGERS_EPOCH_KEPT: then an existing one stays as it is. */
#define LEDGERS_EPOCH_KEPT 0
int ledgers_usage_open(struct session_ledger *ledger, const char *directory, const char *session_id,
                       uint64_t epoch, bool existing, struct error *error);

/* Whether there is one that an earlier daemon left. */
bool ledgers_usage_exists(const char *directory, const char *session_id);

/* Have the file system set aside what processes of a session with `gpu_count` GPUs will touch: a full one
 * refuses the session, instead of ending its programs by SIGBUS later. */
int ledgers_usage_reserve(struct session_ledger *ledger, unsigned gpu_count, struct error *error);

/* Whether the file still has its length; else it is broken. */
bool ledgers_check_length(struct session_ledger *ledger);

/* Whether the file takes more room than the ledger of a session with `gpu_count` GPUs needs: a program made it longer, or wrote
 * where no GPU of the session is. */
bool ledgers_has_excess(const struct session_ledger *ledger, unsigned gpu_count);
/* Give that room back, `most` bytes of it at most (0: all, however long that takes). Any thread may call. */
void ledgers_free_excess(int usage_fd, unsigned gpu_count, uint64_t most);

/* Unmap and close; `remove` the file too. */
void ledgers_usage_close(struct session_ledger *ledger, bool remove);

/* Whether process `pid` maps the usage file. LEDGERS_UNKNOWN is to be taken for yes: it cannot be read, the process is
 * ending, or it has more than a thousand mappings and the file is not among the first (a program that has just
 * exec'd has few). */
enum ledgers_mapped { LEDGERS_NOT_MAPPED, LEDGERS_MAPPED, LEDGERS_UNKNOWN };
enum ledgers_mapped ledgers_is_mapped_by(const struct session_ledger *ledger, pid_t pid);

/* The same however many mappings there are (`lines_max` 0); it may take a while. Any thread may call. */
enum ledgers_mapped ledgers_look_in_maps(const struct ledgers_maps_name *name, pid_t pid, unsigned lines_max);
