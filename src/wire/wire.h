/* wire.h - the messages between the interceptor and the daemon on attach.sock (SOCK_SEQPACKET).
 *
 * One packet is one message: a header and, for its type, one fixed structure in host byte order (both ends
 * share the machine; both are 64-bit). A packet of another length, magic or version is refused whole.
 * Structures only grow with the version; reserved bytes are zero.
 *
 *   client                          daemon
 *   HELLO                  ->
 *                          <-       WELCOME with two descriptors {policy, usage}, or REFUSED; then the
 *                                   daemon keeps the connection open for as long as the client does
 *   CONTEXT_CREATED        ->       a context came to be while its cost was not known
 *                          <-       CONTEXT_COST
 *   NOTICE                 ->       the driver has just taken memory of its own accord, or a request was
 *                                   refused: compare with the card soon. No answer, and nobody waits
 *
 * There the client speaks when it has something to ask, and waits for that answer alone, or gives notice: the
 * daemon never sends unasked. End of file tells the daemon to look whether the process lives (DESIGN of
 * death: only the pidfd means death); it tells the client that the daemon is gone.
 *
 * A second connection, since version 2, is the process's agent's: about the GPUs' time. Both sides send there
 * when they have something to say.
 *
 *   agent                           daemon
 *   AGENT                  ->       the process that holds this slot
 *                          <-       GRANT or REVOKE, which is the state to begin with, or REFUSED
 *   WANT                   ->       work waits at the closed gate, or has begun on more GPUs
 *                          <-       GRANT: open the gate
 *                          <-       REVOKE: close it, wait out what was submitted
 *   CLOSED                 ->       it is closed, and so long it takes until nothing is before the GPUs; without a
 *                                   REVOKE where the process leaves of itself and a thread is still loading code
 *   RETURNED               ->       it is closed and nothing is before the GPUs, or that cannot be had
 *   REPORT                 ->       how busy the process kept the GPUs, now and then, where GRANT asks for it
 *   PROGRESS               ->       the same and how many calls were done, where GRANT asks for that
 *   WORK                   ->       the same, and what calls took at least, where GRANT asks for that
 *   BURST                  ->       work begins after a rest, or is over, where GRANT asks for it
 *   WAITS                  ->       how long threads waited at the gate, each time, where GRANT asks for it
 *
 * and in a session whose memory can leave the card (the policy's engine is LEDGER_ENGINE_SWAP):
 *
 *   MOVED                  ->       how much of the process's memory is where: at first, when that has changed, now and
 *                                   then while it moves, and as the answer to an order
 *                          <-       ARENA with a descriptor: host memory for what leaves the card
 *                          <-       EVICT: close the gate, wait out what was submitted, and take all that can move off
 *                                   the card
 *                          <-       RESTORE: bring it back, and go on
 *                          <-       RESTORE_PART: bring so much of one GPU's back, and stay away
 *
 *   NEED                   ->       the card had no room for what a thread asks for, which waits (any session, where the
 *                                   policy says `gives_room`)
 *                          <-       ROOM: try again, or there will be none
 *
 * An order that is carried out already is answered all the same, so it may be given again at any time.
 *
 * HELLO and AGENT travel in the oldest version, so that any daemon can read which ones the client knows; the
 * daemon answers in the newest that both know, and both keep to that. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/waits.h"

#define WIRE_MAGIC 0x43494c53u /* "SLIC" */
/* What a build speaks. One of an older version is built for the tests of upgrades, by setting it. */
#ifndef WIRE_VERSION
#define WIRE_VERSION 2
#endif
#define WIRE_VERSION_OLDEST 1
#define WIRE_VERSION_AGENT 2     /* from which on there are agents */
#define WIRE_SESSION_ID_BYTES 16 /* 12 hex digits and zeros */
#define WIRE_TOKEN_BYTES 72      /* 64 hex digits and zeros */
#define WIRE_NO_SLOT UINT32_MAX

enum wire_type {
    WIRE_HELLO = 1,
    WIRE_WELCOME = 2,
    WIRE_REFUSED = 3,
    WIRE_CONTEXT_CREATED = 4,
    WIRE_CONTEXT_COST = 5,
    WIRE_NOTICE = 6,
    /* since version 2 */
    WIRE_AGENT = 7,
    WIRE_WANT = 8,
    WIRE_GRANT = 9,
    WIRE_REVOKE = 10,
    WIRE_RETURNED = 11,
    WIRE_REPORT = 12,
    WIRE_CLOSED = 13,
    /* of version 2, but only where a GRANT asks for it: daemons and agents that do not know them never meet */
    WIRE_PROGRESS = 14,
    WIRE_BURST = 15,
    WIRE_WAITS = 20,
    WIRE_WORK = 23,
    /* of version 2, but only where the policy's engine asks for it */
    WIRE_ARENA = 16,
    WIRE_EVICT = 17,
    WIRE_RESTORE = 18,
    WIRE_MOVED = 19,
    WIRE_NEED = 21,
    WIRE_ROOM = 22,
    WIRE_RESTORE_PART = 25, /* where MOVED says that it is known; 24 was one that named no GPU */
};

struct wire_header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
};

/* Ask for a slot in a session. Without an ID: in the one that a rule of the daemon names for this process;
 * the session's ID is then found in the policy region. WIRE_REFUSED_NO_SESSION says that there is no rule
 * (and is what daemons answer that know none), anything else that there is one, or may be. A client that
 * reattaches after a daemon restart names the slot and generation it holds, and keeps both if the daemon
 * finds the same process in it. */
struct wire_hello {
    uint16_t version_oldest, version_newest;
    uint32_t layout_oldest, layout_newest;  /* ledger layouts the client can map */
    uint32_t slot;                          /* held before, or WIRE_NO_SLOT */
    uint64_t generation;                    /* of that slot; 0 without one */
    char session_id[WIRE_SESSION_ID_BYTES]; /* zero-terminated; empty: what the rules say */
    char token[WIRE_TOKEN_BYTES];           /* zero-terminated; empty when none was given */
};

struct wire_welcome {
    uint32_t slot;                      /* 0 .. LEDGER_SLOTS-1 */
    uint32_t layout;                    /* of both regions */
    uint64_t generation;                /* of the slot */
    uint64_t epoch;                     /* as in the usage header */
    uint64_t policy_bytes, usage_bytes; /* how much of each descriptor to map */
};

enum wire_refusal {
    WIRE_REFUSED_NO_SESSION = 1, /* unknown, released or expired; to HELLO without an ID: no rule names one */
    WIRE_REFUSED_NOT_OWNER = 2,  /* the session is another user's */
    WIRE_REFUSED_FULL = 3,       /* all slots taken */
    WIRE_REFUSED_VERSION = 4,    /* no common version or layout */
    WIRE_REFUSED_TOKEN = 5,      /* missing or wrong */
    WIRE_REFUSED_BROKEN = 6,     /* the session's ledger was damaged */
    WIRE_REFUSED_INTERNAL = 7,
    WIRE_REFUSED_RULE = 8, /* the session that a rule names is not there, or takes nobody now */
};

struct wire_refused {
    uint32_t reason;   /* enum wire_refusal */
    char message[252]; /* for people, zero-terminated: what is wrong and what to do */
};

/* Sent right after a process's first context on a GPU, when the policy's context_bytes was 0. */
struct wire_context_created {
    uint32_t gpu; /* index in the policy region */
};

/* What the daemon's NVML says that context costs; 0: could not be measured now. The client charges it. */
struct wire_context_cost {
    uint32_t gpu;
    uint32_t reserved;
    uint64_t bytes;
};

/* Why the card is worth a look. */
enum wire_notice_kind {
    WIRE_NOTICE_CONTEXT = 1, /* a context was made */
    WIRE_NOTICE_MODULE = 2,  /* a module was loaded or unloaded */
    WIRE_NOTICE_LIMIT = 3,   /* cuCtxSetLimit changed what a context keeps */
    WIRE_NOTICE_DENIED = 4,  /* a request for memory was refused */
};

struct wire_notice {
    uint32_t kind; /* enum wire_notice_kind */
    /* Entry points so far that the driver answered with a function unknown to us;
     * older interceptors send 0. */
    uint32_t unknown_pointers;
};

/* Open the agent's connection of the process that holds this slot. */
struct wire_agent {
    uint16_t version_oldest, version_newest;
    uint32_t slot;
    uint64_t generation;
    char session_id[WIRE_SESSION_ID_BYTES]; /* zero-terminated */
    char token[WIRE_TOKEN_BYTES];           /* zero-terminated; empty when none was given */
};

/* Sent by a process without a lease when work comes to its gate, and by one that holds a lease when it begins
 * to use another GPU. */
struct wire_want {
    uint64_t gpus; /* a bit for each GPU of the policy on which the process has a context; 0: none yet */
};

/* An agent does what it knows of these, and ignores the others. */
enum wire_lease_flags {
    /* No share counts on these GPUs: the gate is open, and nothing is to be bounded. */
    WIRE_LEASE_FREE = 1,
    /* Others wait: give the lease back when there has been nothing to do for a while. */
    WIRE_LEASE_WANTED = 2,
    /* Report how busy the process is, every WIRE_REPORT_NS in which it was at all. */
    WIRE_LEASE_REPORT = 4,
    /* Do so by PROGRESS, also before RETURNED; REPORT is not sent then, and RETURNED tells of no time. */
    WIRE_LEASE_PROGRESS = 8,
    /* Tell by BURST when work begins after a rest, and when it is over. */
    WIRE_LEASE_BURSTS = 16,
    /* Tell by WAITS, before PROGRESS and RETURNED, of the waits at the gate that have ended. */
    WIRE_LEASE_WAITS = 256,
    /* Instead of PROGRESS: WORK. */
    WIRE_LEASE_WORK = 512,
    /* Other sessions compute on these GPUs, now and then: what a call took may be time that they had. */
    WIRE_LEASE_COMPANY = 1024,
    /* Hold still: keep the lease, and submit nothing until a GRANT without this flag. What is in flight goes on. */
    WIRE_LEASE_STILL = 32,
    /* Told to close, say so by CLOSED with WIRE_LEFT_ENDLESS, again and again, while what is in flight does not end. */
    WIRE_LEASE_STALLS = 64,
    /* Let one call pass, of whichever thread waits; the gate stays closed to all others. A REVOKE follows at once, which is
     * answered when that call's work is done. */
    WIRE_LEASE_STEP = 128,
    /* It is found out what the process's calls take, while nobody else computes: measure many of them, and forget what was measured
     * before. */
    WIRE_LEASE_MEASURE = 2048,
    /* Who comes next begins a little before what is in flight ends, by what CLOSED said of it: RETURNED may be a moment late. */
    WIRE_LEASE_OVERLAPS = 4096,
};
_Static_assert((WIRE_LEASE_FREE | WIRE_LEASE_WANTED | WIRE_LEASE_REPORT | WIRE_LEASE_PROGRESS |
                WIRE_LEASE_BURSTS | WIRE_LEASE_STILL | WIRE_LEASE_STALLS | WIRE_LEASE_STEP |
                WIRE_LEASE_WAITS | WIRE_LEASE_WORK | WIRE_LEASE_COMPANY | WIRE_LEASE_MEASURE |
                WIRE_LEASE_OVERLAPS) == 8191,
               "each flag has a bit of its own");
#define WIRE_REPORT_NS UINT64_C(20000000)

/* The gate may be open. Sent again under the same number when the flags change; that number is void once the
 * process has returned it, so a GRANT that crossed with RETURNED(WIRE_OUTCOME_IDLE) opens nothing. */
struct wire_grant {
    uint64_t lease; /* number, new each time the gate is to open; rises; 0 with WIRE_LEASE_FREE */
    uint32_t flags; /* enum wire_lease_flags */
    /* How much work a stream may have before it when a thread adds to it, but where threads are late in coming back;
     * 0: the agent decides. Older agents take no notice. */
    uint32_t ahead_us;
};

/* The gate must close. Answered by RETURNED once, also where it was closed already, or never open. */
struct wire_revoke {
    uint64_t lease;       /* what is revoked; what RETURNED names. 0: what was free, or the state at first */
    uint64_t patience_ns; /* how long to wait for the work in flight, beyond the longest piece seen */
};

enum wire_outcome {
    WIRE_OUTCOME_DRAINED = 1,   /* the gate is closed and all that was submitted is done */
    WIRE_OUTCOME_IDLE = 2,      /* the same, unasked: there was nothing to do for a while */
    WIRE_OUTCOME_UNDRAINED = 3, /* work in flight did not end in time: the gate is open again */
};

struct wire_returned {
    uint64_t lease;
    uint64_t
        busy_ns; /* how long this process had work before the GPUs since GRANT, or since its last REPORT */
    uint64_t longest_ns; /* the longest that one piece of work took so far */
    uint32_t outcome;    /* enum wire_outcome */
    uint32_t ended_us;   /* how long ago the last work ended, about; agents of before tell 0 */
    uint64_t waited_ns;  /* how long its threads waited at the gate since the last of these, all together */
};

/* The same while the lease goes on. */
struct wire_report {
    uint64_t lease;
    uint64_t busy_ns, longest_ns, waited_ns;
};

/* Since GRANT or the last of these. */
struct wire_progress {
    uint64_t lease;
    uint64_t busy_ns, longest_ns, waited_ns;
    uint64_t calls; /* that gave the GPUs work, and whose work is done */
};

struct wire_work {
    struct wire_progress progress;
    /* Of calls whose time was measured by itself, or with few others: the least that one took, or such a group for each of its
     * calls, waiting for others included; and how many were measured. */
    uint64_t least_ns, measured;
};

struct wire_burst {
    uint64_t lease;
    uint32_t begins; /* 1: work has begun; 0: there is none any more */
    uint32_t reserved;
};

/* How many waits at the gate ended since the last of these, by their length (base/waits.h). */
struct wire_waits {
    uint32_t counts[WAITS_BUCKETS];
};

/* Between REVOKE and RETURNED, where it can be told: no thread submits any more. Another session's gate may
 * open when nearly all is done, so that the GPUs always have something before them. */
struct wire_closed {
    uint64_t lease;
    uint64_t left_ns; /* how long what was submitted should still take: a guess */
};
#define WIRE_LEFT_ENDLESS UINT64_MAX /* longer than it should: it may wait for work of another process */

/* One chunk of the session's arena: a memfd of that size, sealed, whose memory is there. It is the process's until its
 * end. */
struct wire_arena {
    uint64_t bytes;
};

struct wire_evict {
    uint64_t order;       /* a number that MOVED tells; not 0 */
    uint64_t patience_ns; /* how long to wait for the work in flight, beyond the longest piece seen */
    /* Not 0: only if the process is idle (WIRE_MOVED_IDLE), and has given the GPU nothing for so long. */
    uint64_t idle_ns;
};

struct wire_restore {
    uint64_t order;
};

struct wire_restore_part {
    uint64_t order;
    uint64_t most_bytes;
    uint32_t gpu; /* index in the policy region */
    uint32_t reserved;
};

enum wire_move {
    WIRE_MOVE_DONE = 0,    /* or, without an order: this is how it stands */
    WIRE_MOVE_GOES_ON = 1, /* not the answer yet */
    WIRE_MOVE_BUSY = 2,    /* what was submitted did not end in time, or there was work of late */
    WIRE_MOVE_NO_ROOM = 3, /* EVICT: in the arena; RESTORE: on the card */
    WIRE_MOVE_FAILED = 4,  /* the driver refused */
};

/* After one that failed, the process is what it was before, unless `evicted_bytes` and the flags say otherwise. */
struct wire_moved {
    uint64_t order;                         /* that this answers; 0: none */
    uint64_t resident_bytes, evicted_bytes; /* of memory that can move: on the card, and in the arena */
    uint64_t unmovable_bytes;
    uint64_t arena_bytes; /* of the chunks it has taken */
    uint32_t result;      /* enum wire_move */
    uint32_t flags;       /* enum wire_moved_flags */
};

struct wire_need {
    uint64_t number; /* that ROOM tells; rises */
    uint64_t bytes;
    uint32_t gpu; /* index in the policy region */
    uint32_t
        attempt; /* so often the thread was told that there is room, and there was none; and WIRE_NEED_CHARGED */
};

#define WIRE_NEED_CHARGED 0x80000000u /* the bytes stand in the ledger already */

struct wire_room {
    uint64_t number;
    uint32_t has_room; /* 0: there is none, and there will be none soon */
    uint32_t reserved;
};

enum wire_moved_flags {
    WIRE_MOVED_AWAY = 1,  /* the gate is closed until RESTORE */
    WIRE_MOVED_WAITS = 2, /* and work waits there */
    WIRE_MOVED_IDLE =
        4, /* all is done, no thread waits, and so it will be for some time, by its gaps so far */
    WIRE_MOVED_PARTS = 16, /* the process knows RESTORE_PART; 8 was one that names no GPU */
};

struct wire_message {
    struct wire_header header;
    union {
        struct wire_hello hello;
        struct wire_welcome welcome;
        struct wire_refused refused;
        struct wire_context_created context_created;
        struct wire_context_cost context_cost;
        struct wire_notice notice;
        struct wire_agent agent;
        struct wire_want want;
        struct wire_grant grant;
        struct wire_revoke revoke;
        struct wire_returned returned;
        struct wire_report report;
        struct wire_closed closed;
        struct wire_progress progress;
        struct wire_work work;
        struct wire_burst burst;
        struct wire_waits waits;
        struct wire_arena arena;
        struct wire_evict evict;
        struct wire_restore restore;
        struct wire_restore_part restore_part;
        struct wire_moved moved;
        struct wire_need need;
        struct wire_room room;
    };
};

#define WIRE_FDS_MAX 2

/* The version that both sides know, from a client's range; 0: there is none. */
uint16_t wire_common_version(uint16_t oldest, uint16_t newest);

/* Send `message` (type and version set by the caller, version 0 being our own), with `fd_count` descriptors.
 * Never raises SIGPIPE; retries on EINTR. Returns 0 or a negative errno (-EAGAIN on a full non-blocking
 * socket). */
int wire_send(int socket, struct wire_message *message, const int *fds, unsigned fd_count);

/* The same without descriptors, or with one, and never waiting, whatever the socket: -EAGAIN when it is full. */
int wire_post(int socket, struct wire_message *message);
int wire_post_descriptor(int socket, struct wire_message *message, int fd);

/* Receive one message. Descriptors that came along are stored in `fds` (close-on-exec; the caller owns
 * them) and counted in `*fd_count`; more than WIRE_FDS_MAX, or any with a bad message, are closed. Returns 0;
 * -ENOTCONN at end of file; -EPROTO for anything that is not exactly one well-formed message; -EAGAIN when a
 * non-blocking socket has none; or another negative errno. */
int wire_receive(int socket, struct wire_message *message, int fds[static WIRE_FDS_MAX], unsigned *fd_count);

/* The same from a stranger, who has no descriptors to send: a packet that has some is -EPROTO, and is left unread
 * with them. */
int wire_receive_plain(int socket, struct wire_message *message);

/* Check a packet of `length` bytes already in memory, as wire_receive() does. 0 or -EPROTO. The text fields
 * of an accepted message are zero-terminated. */
int wire_check(const struct wire_message *message, size_t length);
