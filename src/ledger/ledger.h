/* ledger.h - who holds how many bytes.
 *
 * A ledger is the shared accounting of one session. Each attached process owns one slot, and no other process takes
 * bytes out of it. What the session uses is the sum over slots and joint places, and is stored nowhere.
 *
 * policy        a region that the daemon writes and everyone else maps read-only: which GPUs, which limits
 * usage         a region that all processes of the session map read-write: slots, and the request being decided
 * slot          one process's granted bytes, per GPU, and its request being decided; never moves; its generation
 *               changes with every new owner
 * joint memory  memory that several processes of the session hold; it is charged once
 * joint place   the account of one allocation of joint memory: like a slot, but of an allocation instead of a process
 * GPU           an index into the policy's table; the table's UUIDs are the only names that all processes know
 *
 * A request is decided by its owner, or by any process that finds it in the way, so that a process that is stopped
 * or dead never blocks another. Nothing here blocks on another process or allocates. The kernel is called only where
 * threads of one process wait for the lock of their slot.
 *
 * The usage region is writable by hostile processes: every function here is safe on arbitrary contents of
 * it (wrong answers, but no fault, no endless loop and no write outside the two regions). */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/engine.h"
#include "base/lock.h"

#define LEDGER_MAGIC UINT64_C(0x52454744454c5347) /* "GSLEDGER" */
#define LEDGER_LAYOUT 1
#define LEDGER_SLOTS 1024u
#define LEDGER_JOINT_PLACES 255u /* allocations that several processes of a session hold */
#define LEDGER_JOINT_HOLDERS 64u /* holds on each of them */
#define LEDGER_GPUS 64u          /* each MIG instance counts: eight cards with seven instances each */
#define LEDGER_SESSION_ID_BYTES 16
#define LEDGER_UNLIMITED UINT64_MAX

/* One GPU that the session may use. Written by the daemon, read by all; limits change live. */
struct ledger_policy_gpu {
    /* As cuDeviceGetUuid_v2 gives it; fixed. */
    uint8_t uuid[16];
    /* The most bytes that the session may hold; never LEDGER_UNLIMITED from the daemon. */
    _Atomic uint64_t limit_bytes;
    /* What a context costs on this GPU; 0 while unknown. */
    _Atomic uint64_t context_bytes;
    /* The card's memory. */
    _Atomic uint64_t total_bytes;
    /* What the driver took for the session's processes beyond what they charged. */
    _Atomic uint64_t driver_bytes;
    /* What the card still holds for processes of the session that have died. */
    _Atomic uint64_t orphan_bytes;
    /* Not 0: a MIG instance, whose UUID is written "MIG-..."; fixed. */
    uint32_t is_mig;
    /* NVML's figure for how busy everybody keeps the GPU, in percent, plus 1; 0: unknown. Written with each sample. */
    _Atomic uint32_t busy;
};

/* Who gave the session its limits, and so what its user can do to have more. */
enum ledger_limit_from {
    LEDGER_LIMIT_FROM_SESSION, /* the session, which lives on: `gpuslice set` */
    LEDGER_LIMIT_FROM_RUN,     /* the command that it ends with: `gpuslice run --memory` */
    LEDGER_LIMIT_FROM_FILE,    /* sessions.conf */
    LEDGER_LIMIT_FROM_POD,     /* a Kubernetes pod's slices or claim */
    LEDGER_LIMIT_FROM_JOB,     /* root, for a job of the user */
};

struct ledger_policy {
    uint64_t magic;
    uint32_t layout;
    uint32_t gpu_count; /* 0 .. LEDGER_GPUS; fixed */
    uint64_t epoch;     /* of this policy, which is in force while ledger_epoch() says the same; fixed */
    char session_id[LEDGER_SESSION_ID_BYTES];
    _Atomic uint32_t closed; /* not 0: no new memory (released or expired) */
    uint32_t engine;         /* enum ledger_engine; fixed */
    /* The daemon's heartbeat: its loop adds 1 twice a second. */
    _Atomic uint64_t beats;
    uint32_t may_pass_card; /* not 0: limits may be more than the card has; fixed */
    uint32_t limit_from;    /* enum ledger_limit_from; fixed */
    struct ledger_policy_gpu gpus[LEDGER_GPUS];
};

struct ledger_usage; /* its layout is in usage.h, for this room and its model alone */

/* One mapped ledger. */
struct ledger {
    const struct ledger_policy *policy;
    struct ledger_usage *usage;
};

/* A process's own slot. One per process and ledger; shared by its threads. */
struct ledger_slot {
    struct ledger ledger;
    uint32_t index;
    uint64_t generation;
    /* Process-private: held by the thread that requests or releases. */
    struct lock *lock;
};

/* --- Making and checking regions ------------------------------------------------------------------- */

#define LEDGER_POLICY_BYTES sizeof(struct ledger_policy)
size_t ledger_usage_bytes(void); /* a multiple of 4096 */

/* How many bytes from its beginning a usage region of `gpu_count` GPUs touches. A sparse file should have disk space
 * for these: on a full disk, the first touch of a page that has none is a fault. */
size_t ledger_usage_touched_bytes(unsigned gpu_count);

/* Fill zeroed, page-aligned memory (a mapping; a fresh sparse file will do). Called before anyone else maps
 * it. The policy has no GPUs yet: the caller fills `gpus` and `gpu_count`. Every later policy for the same
 * usage region must give each GPU the index it has in this one. */
void ledger_policy_init(struct ledger_policy *policy, const char *session_id, uint64_t epoch);
void ledger_usage_init(struct ledger_usage *usage, uint64_t epoch);

/* Whether a mapped region is what it should be: magic, layout, counts. */
bool ledger_policy_is_valid(const struct ledger_policy *policy, size_t mapped_bytes);
bool ledger_usage_is_valid(const struct ledger_usage *usage, size_t mapped_bytes);

/* The epoch of the policy that is in force. A process whose policy has another epoch must map the new policy. Until
 * it does, its own requests are judged by the limits that it knows, and it judges other processes' requests by the
 * limits that those processes read when they asked. */
uint64_t ledger_epoch(const struct ledger_usage *usage);
void ledger_epoch_set(struct ledger_usage *usage,
                      uint64_t epoch); /* the daemon, after it made a new policy */

/* Index in the policy of the GPU with this UUID; -1: the session does not name that GPU, so its limit is 0. */
int ledger_gpu_find(const struct ledger_policy *policy, const uint8_t uuid[static 16]);

/* --- The owner of a slot --------------------------------------------------------------------------- */

/* Reserve `bytes` on GPU `gpu` for the slot's process, before the driver is asked. Returns true and charges
 * the slot if they fit beside all bytes granted in the session; false changes nothing, and says that at some
 * moment of the call they did not fit (or that the policy is closed, or the slot was cleared meanwhile). The
 * limit is that of some moment of the call. 0 bytes always fit unless the policy is closed. Undo with
 * ledger_release(). Thread-safe. */
bool ledger_reserve(struct ledger_slot *slot, unsigned gpu, uint64_t bytes);

/* Count a request that the driver refused although it fitted. Thread-safe. */
void ledger_count_refused(struct ledger_slot *slot, unsigned gpu);

/* Charge `bytes` whether or not they fit: for what the driver took already and cannot give back (the cost of a
 * context that was unknown when it was made). The session may then be above its limit; only new requests are refused.
 * Thread-safe. */
void ledger_charge(struct ledger_slot *slot, unsigned gpu, uint64_t bytes);

/* Give `bytes` back, at most as many as the slot holds. If it holds fewer, we made a mistake or a hostile neighbour
 * changed the slot; neither is a reason to end the program. Thread-safe. */
void ledger_release(struct ledger_slot *slot, unsigned gpu, uint64_t bytes);

/* Bytes that the session holds on `gpu` and that stand in no slot and no joint place: the driver line and the
 * orphans, by the policy. A request must fit beside these and all granted bytes. Saturates at UINT64_MAX. */
uint64_t ledger_unseen(const struct ledger_policy *policy, unsigned gpu);

/* --- What the owner tells the daemon, which compares the ledger with the card ---------------------- */

/* Of the slot's bytes, `bytes` more (or fewer) are managed memory, which the card's figure for a process leaves out.
 * Call this in addition to ledger_reserve() and ledger_release(), never instead of them. Thread-safe. */
void ledger_hide(struct ledger_slot *slot, unsigned gpu, uint64_t bytes);
void ledger_unhide(struct ledger_slot *slot, unsigned gpu, uint64_t bytes);

/* A thread calls these before and after it changes what the slot and the card hold. In between the two may differ, as
 * one of them changes first, so the daemon concludes nothing from a sample taken meanwhile. A thread must not nest
 * them; any number of threads may be in between. `mover` is the calling thread's number among those of its process:
 * no two threads may have the same number below LEDGER_MOVERS; the numbers from there on are all alike.
 * Thread-safe. */
#define LEDGER_MOVERS 6u
void ledger_move_begin(struct ledger_slot *slot, unsigned mover);
void ledger_move_end(struct ledger_slot *slot, unsigned mover);

/* --- What processes of a session hand to each other ------------------------------------------------ */

/* Memory that one process exports and another imports is charged to the exporter, so the importer must know whether
 * the exporter is in its session. The owner of a slot notes the name of what it exports: a hash, not 0, of what the
 * importer will have in hand. The note ends with its owner, when that says so, or when its place is needed for
 * another. ledger_is_exported() says whether a living process of the session has noted that name. Thread-safe; notes may get
 * lost when many are made at once. */
void ledger_export(const struct ledger_slot *slot, uint64_t name);
bool ledger_is_exported(const struct ledger *ledger, uint64_t name);
/* The owner of the slot has nothing any more that it exported: its notes end. Who imports it from now on is charged. */
void ledger_forget_exports(const struct ledger_slot *slot);
/* Whether the owner of a slot has noted any export: other processes may then hold memory that it is charged for. */
bool ledger_slot_has_exported(const struct ledger_usage *usage, uint32_t slot);

/* An allocation with a name of its own gets a joint place instead of a note. Its bytes are charged once in the
 * session, and to no slot, as long as any process holds it.
 *
 * Join the joint place of this name. The name is one that the driver made, and not 0. Where there is no such place,
 * make it, if `make`. Returns the place's index; -1 where there is none, no room for one, or no free hold on it.
 * `*is_new` says whether this call made the place; a new place has no bytes yet. A process may join any number of
 * times, and must leave as often; its holds end with it. Thread-safe. */
int ledger_joint_join(const struct ledger_slot *slot, uint64_t name, bool make, bool *is_new);
void ledger_joint_leave(const struct ledger_slot *slot, uint32_t joint);
/* The same for memory that a descriptor may keep: what a place had that ends so counts as let go of. */
void ledger_joint_let_go(const struct ledger_slot *slot, uint32_t joint);

/* Raise the bytes of a joint place that this process has joined to at least `bytes` on `gpu`: reserved as by
 * ledger_reserve(), charged as by ledger_charge(). False if they do not fit; the place then keeps what it has. To
 * move bytes there from its slot, a process raises the joint place first and then releases them from the slot: they
 * count twice for a moment, but there is no moment in which they do not count. */
bool ledger_joint_reserve(const struct ledger_slot *slot, uint32_t joint, unsigned gpu, uint64_t bytes);
void ledger_joint_charge(const struct ledger_slot *slot, uint32_t joint, unsigned gpu, uint64_t bytes);

bool ledger_joint_is_named(const struct ledger *ledger, uint32_t joint, uint64_t name);

/* One above the highest index of a joint place that was ever used. */
uint32_t ledger_joint_end(const struct ledger_usage *usage);

/* Bytes of one joint place, and of all of them, on `gpu`. */
uint64_t ledger_joint_bytes(const struct ledger_usage *usage, uint32_t joint, unsigned gpu);
uint64_t ledger_joint_total_bytes(const struct ledger_usage *usage, unsigned gpu);

/* Whether the slot's hold on a joint place is the first one. Of all holders one says so, the maker as long as it lives. */
bool ledger_joint_is_first(const struct ledger_slot *slot, uint32_t joint);

/* The slots that hold a joint place, one for each hold. Returns how many. */
unsigned ledger_joint_holders(const struct ledger_usage *usage, uint32_t joint,
                              uint32_t slots[static LEDGER_JOINT_HOLDERS]);

/* A number that is another after each change of any joint place's bytes on `gpu`. */
uint64_t ledger_joint_stamp(const struct ledger_usage *usage, unsigned gpu);

/* Bytes of this slot, and of the whole session, on `gpu`. The sum saturates. It is the sum at one moment of the call,
 * unless other processes keep changing what they hold: then it adds up what each slot held at some moment of the
 * call. */
uint64_t ledger_slot_used(const struct ledger_slot *slot, unsigned gpu);
uint64_t ledger_used(const struct ledger *ledger, unsigned gpu);

/* A number that is another after each change of any slot's or joint place's bytes on `gpu`. What is added up between
 * two equal stamps is the sum at one moment. Otherwise it may count bytes that one process freed and that another got
 * in their place. */
uint64_t ledger_stamp(const struct ledger_usage *usage, unsigned gpu);
/* How often to add up again before a sum that is not of one moment has to do. */
#define LEDGER_SUMS 16u

/* --- Memory that processes let go of, and that a descriptor may keep ------------------------------- */

/* Count `bytes` as let go of. They count in the session until the card shows them gone, or shows who has them. Call it
 * before they are taken out of a slot. */
void ledger_let_go(struct ledger_usage *usage, unsigned gpu, uint64_t bytes);
/* How many bytes of the session still count so. */
uint64_t ledger_left(const struct ledger_usage *usage, unsigned gpu);

/* For the daemon: all bytes that were ever let go of. Take over what was let go of up to `total`; returns what is left, with
 * that. And set what is left, after a look at the card. */
uint64_t ledger_let_go_total(const struct ledger_usage *usage, unsigned gpu);
uint64_t ledger_left_take(struct ledger_usage *usage, unsigned gpu, uint64_t total);
void ledger_left_set(struct ledger_usage *usage, unsigned gpu, uint64_t bytes);

/* Count `bytes` that the driver has just taken for this process, until the daemon has compared with the card. All that was ever
 * counted so, and how much of that the driver line has by now, as the daemon says. */
void ledger_count_ahead(struct ledger_usage *usage, unsigned gpu, uint64_t bytes);
uint64_t ledger_ahead_total(const struct ledger_usage *usage, unsigned gpu);
uint64_t ledger_ahead_seen_total(const struct ledger_usage *usage, unsigned gpu);
void ledger_ahead_seen(struct ledger_usage *usage, unsigned gpu, uint64_t total);

/* --- Handing slots out and taking them back -------------------------------------------------------- */
/* For the daemon; without a daemon, for any process that maps the region. Several processes may call these at once,
 * and may die inside them. */

struct ledger_owner {
    pid_t pid;            /* in the claimer's pid namespace */
    uint64_t start_ticks; /* base/process.h */
};

/* Take a free slot for a process. Returns its index and sets `*generation`, or -1 when all are taken. */
int ledger_slot_claim(struct ledger_usage *usage, struct ledger_owner owner, uint64_t *generation);

/* Clear a slot whose owner is dead or gave it up. Takes its bytes back on every GPU and ends its holds on joint
 * places; a helper that read the slot before cannot grant it more afterwards. Adds the bytes to
 * `recovered_bytes[gpu]` (of LEDGER_GPUS) if that is not NULL. Returns false if the slot was free already. When a
 * process dies while it clears a slot, the slot counts as owned until the next call finishes the work. Clears the
 * slot whoever owns it: only the one process that also claims slots may call it. */
bool ledger_slot_clear(struct ledger_usage *usage, uint32_t index, uint64_t *recovered_bytes);

/* The same, but only for the owner with this generation: where several processes reap, the slot may belong to the
 * next owner by the time that one of them acts. Returns false if another generation, or nobody, owns the slot. When
 * several processes reap at once, each adds what it took back itself. */
bool ledger_slot_reap(struct ledger_usage *usage, uint32_t index, uint64_t generation,
                      uint64_t *recovered_bytes);

/* Who holds a slot; false when it is free. Hostile contents give a wrong owner, never a fault: the daemon
 * trusts its own record and uses this only to find processes again after a restart. */
bool ledger_slot_owner(const struct ledger_usage *usage, uint32_t index, struct ledger_owner *owner,
                       uint64_t *generation);

/* Bytes that slot `index` holds on `gpu`. */
uint64_t ledger_slot_bytes(const struct ledger_usage *usage, uint32_t index, unsigned gpu);

/* The same plus the bytes of each joint place whose first holder this slot is: each joint place is shown for one process. */
uint64_t ledger_slot_shown_bytes(const struct ledger_usage *usage, uint32_t index, unsigned gpu);

/* How many requests were refused, and granted, in this slot on this GPU since it was claimed (for metrics). */
struct ledger_counts {
    uint64_t granted, refused;
};
struct ledger_counts ledger_slot_counts(const struct ledger_usage *usage, uint32_t index, unsigned gpu);

/* A slot at one moment, for the daemon, which compares it with the card. It takes one sample before it asks the card
 * and one after. What they say held for the whole time between if ledger_slot_rested(). */
struct ledger_slot_sample {
    uint64_t bytes;
    uint64_t hidden_bytes; /* of these; not above them */
    uint64_t stamp;        /* another number after each change of `bytes` */
    uint64_t
        granted_bytes; /* of all slots and joint places, ever; refused requests count while they are decided */
    bool moving;       /* between ledger_move_begin() and ledger_move_end(), or changed meanwhile */
};
struct ledger_slot_sample ledger_slot_sample(const struct ledger_usage *usage, uint32_t index, unsigned gpu);
bool ledger_slot_rested(const struct ledger_slot_sample *before, const struct ledger_slot_sample *after);
/* The most bytes, without hidden ones, that the slot can have had between the two; UINT64_MAX if that is not known. */
uint64_t ledger_slot_most(const struct ledger_slot_sample *before, const struct ledger_slot_sample *after);
