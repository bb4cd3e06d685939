/* wire.h - the messages between the interceptor and the daemon on attach.sock (SOCK_SEQPACKET).
 *
 * One packet is one message: a header and, for its type, one fixed structure in host byte order (both ends
 * share the machine; both are 64-bit). A packet of another length, magic or version is refused whole.
 * Within a version no structure changes; reserved bytes are zero.
 *
 *   client                          daemon
 *   HELLO                  ->
 *                          <-       WELCOME with two descriptors {policy, usage}, or REFUSED; then the
 *                                   daemon keeps the connection open for as long as the client does
 *   CONTEXT_CREATED        ->       a context came to be while its cost was not known
 *                          <-       CONTEXT_COST
 *   UNKNOWN                ->       the program asks for functions of the driver that the client does not know. There is
 *                                   no answer
 *   NOTICE                 ->       the driver has just taken memory on its own, or a request was refused: compare
 *                                   with the card soon. There is no answer, and nobody waits
 *
 * On this connection the client asks and waits for that one answer, or gives notice; the daemon never sends unasked.
 * End of file tells the daemon to look whether the process still lives (only the pidfd means death), and tells the
 * client that the daemon is gone.
 *
 * The process's agent has a second connection, about the GPUs' time and memory. Both sides send there when they have
 * something to say.
 *
 *   agent                           daemon
 *   AGENT                  ->       the agent of the process that holds this slot opens the connection
 *                          <-       GRANT or REVOKE, which is the state to begin with, or REFUSED
 *   WANT                   ->       work waits at the closed gate, or the process begins to use more GPUs
 *                          <-       GRANT: open the gate
 *                          <-       REVOKE: close the gate, and drain
 *   CLOSED                 ->       the gate is closed, and draining should take this long. Without a REVOKE, where the
 *                                   process gives the lease back on its own while a thread still loads code
 *   RETURNED               ->       the gate is closed and the process has drained; or it could not drain
 *   REPORT                 ->       how busy the process kept the GPUs, and how many calls finished; before RETURNED, and
 *                                   now and then where GRANT asks for it
 *   WAITS                  ->       how long threads waited at the gate, each time; before REPORT
 *   BURST                  ->       work begins after a rest, or has ended; where GRANT asks for it
 *
 * and in a session whose memory can leave the card (the policy's engine is LEDGER_ENGINE_SWAP):
 *
 *   MOVED                  ->       how much of the process's memory is where: at first, after a change, now and then
 *                                   while it moves, and as the answer to an order
 *                          <-       ARENA with a descriptor: host memory for what leaves the card
 *                          <-       KEEP: give host memory that holds nothing back to the system
 *                          <-       EVICT: close the gate, drain, and take all memory that can move off the card
 *                          <-       RESTORE: bring it back, and go on
 *                          <-       RESTORE_PART: bring so much of one GPU's memory back; the gate stays closed
 *
 *   NEED                   ->       the card had no room for what a thread asks for; the thread waits (in any session)
 *                          <-       ROOM: try again, or there will be none
 *                          <-       TELL: a line for the program's stderr, as about what it waits for
 *
 * An order that was carried out already is answered all the same, so the daemon may repeat any order at any time.
 *
 * HELLO, AGENT and REFUSED are the same in every release, and always say WIRE_VERSION_HELLO: so any daemon can read
 * which versions a client knows, and any client can read why it was refused. The daemon answers in the newest version
 * that both know, and both keep to that. docs/compatibility.md says how a new version is made. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/waits.h"

#define WIRE_MAGIC 0x43494c53u /* "SLIC" */
/* The versions that this build speaks, and the version in which HELLO, AGENT and REFUSED travel. */
#define WIRE_VERSION 1
#define WIRE_VERSION_OLDEST 1
#define WIRE_VERSION_HELLO 1
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
    WIRE_UNKNOWN = 7,
    /* the GPUs' time */
    WIRE_AGENT = 8,
    WIRE_WANT = 9,
    WIRE_GRANT = 10,
    WIRE_REVOKE = 11,
    WIRE_CLOSED = 12,
    WIRE_RETURNED = 13,
    WIRE_REPORT = 14,
    WIRE_WAITS = 15,
    WIRE_BURST = 16,
    /* memory that can leave the card */
    WIRE_MOVED = 17,
    WIRE_ARENA = 18,
    WIRE_KEEP = 19,
    WIRE_EVICT = 20,
    WIRE_RESTORE = 21,
    WIRE_RESTORE_PART = 22,
    WIRE_NEED = 23,
    WIRE_ROOM = 24,
    WIRE_TELL = 25,
};

struct wire_header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
};

/* Ask for a slot in a session. Without an ID: in the session that a rule of the daemon names for this process; the
 * client then finds the session's ID in the policy region. WIRE_REFUSED_NO_SESSION says that there is no rule; any
 * other refusal says that there is a rule, or may be. A client that reattaches after
 * a daemon restart names the slot and generation that it holds, and keeps both if the daemon finds the same process
 * in that slot. */
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
    /* unknown, released or expired; to HELLO without an ID: no rule names one; to AGENT: or it holds no such slot, and
     * should say HELLO again */
    WIRE_REFUSED_NO_SESSION = 1,
    WIRE_REFUSED_NOT_OWNER = 2, /* the session is another user's */
    WIRE_REFUSED_FULL = 3,      /* all slots taken */
    WIRE_REFUSED_VERSION = 4,   /* no common version or layout */
    WIRE_REFUSED_TOKEN = 5,     /* missing or wrong */
    WIRE_REFUSED_BROKEN = 6,    /* the session's ledger was damaged */
    WIRE_REFUSED_INTERNAL = 7,
    WIRE_REFUSED_RULE = 8, /* the session that a rule names does not exist, or takes nobody now */
};

struct wire_refused {
    uint32_t reason;   /* enum wire_refusal */
    char message[252]; /* for people, zero-terminated: what is wrong and what to do */
};

/* Sent right after a process's first context on a GPU, when the policy's context_bytes was 0. */
struct wire_context_created {
    uint32_t gpu; /* index in the policy region */
};

/* What that context costs, by the daemon's NVML; 0: it could not be measured now. The client charges it. */
struct wire_context_cost {
    uint32_t gpu;
    uint32_t reserved;
    uint64_t bytes;
};

/* Why the daemon should compare the ledger with the card. */
enum wire_notice_kind {
    WIRE_NOTICE_CONTEXT = 1, /* a context was made */
    WIRE_NOTICE_MODULE = 2,  /* a module was loaded or unloaded */
    WIRE_NOTICE_LIMIT = 3,   /* cuCtxSetLimit changed what a context keeps */
    WIRE_NOTICE_DENIED = 4,  /* a request for memory was refused */
};

/* Why memory was refused. */
enum wire_refusal_cause {
    WIRE_REFUSAL_NONE,     /* nothing was */
    WIRE_REFUSAL_BY_LIMIT, /* it is more than the session's limit leaves */
    WIRE_REFUSAL_BY_CARD,  /* the limit allows it, but the driver has no room on the card */
};

/* A request for memory, at the moment at which it was refused. */
struct wire_refusal_told {
    uint32_t cause;                                /* enum wire_refusal_cause */
    uint32_t gpu;                                  /* index in the policy region */
    uint64_t asked_bytes, used_bytes, limit_bytes; /* asked for: 0 where nobody knows */
};

struct wire_notice {
    uint32_t kind; /* enum wire_notice_kind */
    /* Entry points so far for which the driver returned a function that the interceptor does not know. */
    uint32_t unknown_pointers;
    struct wire_refusal_told refusal; /* with WIRE_NOTICE_DENIED */
};

/* Functions of the driver that the program asked for so far and that are in no table of ours, in the order in which it did:
 * names with a space between two. Each message repeats those before it. */
#define WIRE_UNKNOWN_BYTES 1000
struct wire_unknown {
    char names[WIRE_UNKNOWN_BYTES]; /* zero-terminated */
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

/* An agent does what it knows of these, and ignores the rest. */
enum wire_lease_flags {
    /* No share counts on these GPUs: the gate is open, and only a process whose memory moves bounds what it submits. */
    WIRE_LEASE_FREE = 1,
    /* Other sessions wait: give the lease back when there has been nothing to do for a while. */
    WIRE_LEASE_WANTED = 2,
    /* Report how busy the process is, every WIRE_REPORT_NS in which it had any work. */
    WIRE_LEASE_REPORT = 4,
    /* Tell by BURST when work begins after a rest, and when it is over. */
    WIRE_LEASE_BURSTS = 8,
    /* Hold still: keep the lease, and submit nothing until a GRANT without this flag. What is in flight goes on. */
    WIRE_LEASE_STILL = 16,
    /* If what is in flight does not end after a REVOKE, say so by CLOSED with WIRE_LEFT_ENDLESS, again and again. */
    WIRE_LEASE_STALLS = 32,
    /* Let one call pass, of any thread that waits; the gate stays closed to all others. A REVOKE follows at once;
     * answer it when that call's work is done. */
    WIRE_LEASE_STEP = 64,
    /* Other sessions may compute beside this one: the time of a call may include time that they had the GPU. Not in a turn without
     * guests. */
    WIRE_LEASE_COMPANY = 128,
    /* The daemon is learning what the process's calls take, while no other session computes: measure many of them, and forget what
     * was measured before. */
    WIRE_LEASE_MEASURE = 256,
    /* The next session's gate opens a little before this process has drained, at the time that CLOSED told: RETURNED
     * may come a moment late. */
    WIRE_LEASE_OVERLAPS = 512,
};
_Static_assert((WIRE_LEASE_FREE | WIRE_LEASE_WANTED | WIRE_LEASE_REPORT | WIRE_LEASE_BURSTS |
                WIRE_LEASE_STILL | WIRE_LEASE_STALLS | WIRE_LEASE_STEP | WIRE_LEASE_COMPANY |
                WIRE_LEASE_MEASURE | WIRE_LEASE_OVERLAPS) == 1023,
               "each flag has a bit of its own");
#define WIRE_REPORT_NS UINT64_C(20000000)

/* The gate may be open. Sent again with the same number when the flags change. Once the process has returned a lease,
 * its number is void: a GRANT that crossed with RETURNED(WIRE_OUTCOME_IDLE) opens nothing. */
struct wire_grant {
    uint64_t lease; /* a number, new each time the gate is to open; rises; 0 with WIRE_LEASE_FREE */
    uint32_t flags; /* enum wire_lease_flags */
    /* How much work a stream may have before it when a thread adds to it, in microseconds; more, where threads are
     * late in coming back. 0: the agent decides. */
    uint32_t ahead_us;
};

/* The gate must close. The agent answers once, by RETURNED, even if the gate was closed already or never open. */
struct wire_revoke {
    uint64_t lease;       /* the lease to end; RETURNED names it. 0: a free one, or the state at first */
    uint64_t patience_ns; /* how long to wait for the work in flight, beyond the longest piece seen */
};

enum wire_outcome {
    WIRE_OUTCOME_DRAINED = 1,   /* the gate is closed and all that was submitted is done */
    WIRE_OUTCOME_IDLE = 2,      /* the same, without a REVOKE: there was nothing to do for a while */
    WIRE_OUTCOME_UNDRAINED = 3, /* work in flight did not end in time: the gate is open again */
};

struct wire_returned {
    uint64_t lease;
    uint64_t longest_ns; /* the longest that one piece of work took so far */
    /* How long its threads waited at the gate, all together, since that was told last. */
    uint64_t waited_ns;
    uint32_t outcome;  /* enum wire_outcome */
    uint32_t ended_us; /* how long ago the last work ended, about */
};

/* Since GRANT, or since the last REPORT. */
struct wire_report {
    uint64_t lease;
    uint64_t busy_ns;    /* how long this process had work before the GPUs */
    uint64_t longest_ns; /* the longest that one piece of work took so far */
    uint64_t waited_ns;  /* as in RETURNED */
    uint64_t calls;      /* that gave the GPUs work, and whose work is done */
    /* The part of `busy_ns` in which the GPU had begun with the work: without the time that calls waited before it reached
     * them, as far as that is known. */
    uint64_t begun_ns;
    /* Of the calls that were measured, singly or a few at a time: the least time that one took (in a group, the
     * group's time for each of its calls), with the waiting for other work. `measured`: how many such measurements
     * there were. */
    uint64_t least_ns, measured;
};

struct wire_burst {
    uint64_t lease;
    uint32_t begins; /* 1: work has begun; 0: there is none any more */
    uint32_t reserved;
};

/* How many waits at the gate have ended since the last WAITS, by their length (base/waits.h). */
struct wire_waits {
    uint32_t counts[WAITS_BUCKETS];
};

/* Sent between REVOKE and RETURNED, if the agent can tell: no thread submits any more. Another session's gate may
 * open when nearly all is done, so that the GPUs always have something before them. */
struct wire_closed {
    uint64_t lease;
    uint64_t left_ns; /* how long what was submitted should still take: an estimate */
};
#define WIRE_LEFT_ENDLESS UINT64_MAX /* longer than it should: it may wait for another process's work */

/* One chunk of the session's arena: a sealed memfd of that size whose memory is allocated. The process keeps it until
 * it ends or gives it back. */
struct wire_arena {
    uint64_t bytes;
};

/* Others need host memory: give back the chunks beyond `most_bytes` in which nothing is that is away, as far as that can
 * be done. Each is told of by MOVED. An EVICT that comes later ends this. */
struct wire_keep {
    uint64_t most_bytes;
};

/* It takes as much as the arena has room for, and the rest with the next EVICT: so it may be given before the process
 * has all chunks. */
struct wire_evict {
    uint64_t order;       /* a number that MOVED names; not 0 */
    uint64_t patience_ns; /* how long to wait for the work in flight, beyond the longest piece seen */
    /* Not 0: evict only if the process is idle (WIRE_MOVED_IDLE) and has given the GPU nothing for this long. */
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
    WIRE_MOVE_DONE = 0,    /* the order is carried out; without an order: this is the present state */
    WIRE_MOVE_GOES_ON = 1, /* not the answer yet */
    WIRE_MOVE_BUSY = 2,    /* what was submitted did not end in time; or not idle for `idle_ns` */
    WIRE_MOVE_NO_ROOM = 3, /* EVICT: in the arena, for all or some of it; RESTORE: on the card */
    WIRE_MOVE_FAILED = 4,  /* the driver refused */
};

/* Why memory stays on the card. */
enum wire_stays {
#define STAYS(name, word, text) WIRE_STAYS_##name,
#include "wire/stays.def"
    WIRE_STAYS_COUNT
};
/* How many reasons MOVED has room for. A reason that the other side does not know is 0 from it, or nothing to it. */
#define WIRE_STAYS_MOST 24
_Static_assert(WIRE_STAYS_COUNT <= WIRE_STAYS_MOST, "each reason has its place");

/* The word of stays.def, and its text; "unknown" for a number that is not in the table. */
const char *wire_stays_word(enum wire_stays why);
const char *wire_stays_text(enum wire_stays why);
/* The sum over all reasons; UINT64_MAX where it is more than that. */
uint64_t wire_stays_sum(const uint64_t bytes[static WIRE_STAYS_COUNT]);

/* After a move that failed, all is as it was before, unless `evicted_bytes` and the flags say otherwise. */
struct wire_moved {
    uint64_t order;                         /* the order that this answers; 0: none */
    uint64_t resident_bytes, evicted_bytes; /* of memory that can move: on the card, and in the arena */
    uint64_t stays_bytes[WIRE_STAYS_MOST];  /* of memory that cannot move, by why */
    uint64_t arena_bytes;                   /* of the chunks that the process has */
    uint32_t result;                        /* enum wire_move */
    uint32_t flags;                         /* enum wire_moved_flags */
};

struct wire_need {
    uint64_t number; /* a number that ROOM names; rises */
    uint64_t bytes;
    uint32_t gpu; /* index in the policy region */
    /* How often the thread was told that there is room and then found none; and the flag WIRE_NEED_CHARGED. */
    uint32_t attempt;
};

#define WIRE_NEED_CHARGED 0x80000000u /* the bytes are in the ledger already */

struct wire_room {
    uint64_t number;
    uint32_t has_room; /* 0: there is none, and there will be none soon */
    uint32_t reserved;
};

#define WIRE_TELL_BYTES 512
struct wire_tell {
    char text[WIRE_TELL_BYTES]; /* zero-terminated */
};

enum wire_moved_flags {
    WIRE_MOVED_AWAY = 1,  /* the gate is closed until RESTORE */
    WIRE_MOVED_WAITS = 2, /* and a thread waits for that */
    /* All work is done, no thread waits, and going by its gaps so far that will stay so for some time. */
    WIRE_MOVED_IDLE = 4,
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
        struct wire_unknown unknown;
        struct wire_agent agent;
        struct wire_want want;
        struct wire_grant grant;
        struct wire_revoke revoke;
        struct wire_returned returned;
        struct wire_report report;
        struct wire_closed closed;
        struct wire_burst burst;
        struct wire_waits waits;
        struct wire_arena arena;
        struct wire_keep keep;
        struct wire_evict evict;
        struct wire_restore restore;
        struct wire_restore_part restore_part;
        struct wire_moved moved;
        struct wire_need need;
        struct wire_room room;
        struct wire_tell tell;
    };
};

#define WIRE_FDS_MAX 2

/* The version that both sides speak, from a client's range; 0: there is none. */
uint16_t wire_common_version(uint16_t oldest, uint16_t newest);

/* Send `message`, with `fd_count` descriptors. The caller sets type and version; version 0 means our own. Never
 * raises SIGPIPE; retries on EINTR. Returns 0 or a negative errno (-EAGAIN on a full non-blocking socket). */
int wire_send(int socket, struct wire_message *message, const int *fds, unsigned fd_count);

/* The same without descriptors, or with one. Never waits, whatever the socket: -EAGAIN when it is full. */
int wire_post(int socket, struct wire_message *message);
int wire_post_descriptor(int socket, struct wire_message *message, int fd);

/* Receive one message. Descriptors that came along are stored in `fds` (close-on-exec; the caller owns them) and
 * counted in `*fd_count`; descriptors beyond WIRE_FDS_MAX, and all that come with a bad message, are closed. Returns
 * 0; -ENOTCONN at end of file; -EPROTO for anything that is not exactly one well-formed message; -EAGAIN when a
 * non-blocking socket has none; or another negative errno. */
int wire_receive(int socket, struct wire_message *message, int fds[static WIRE_FDS_MAX], unsigned *fd_count);

/* The same from a peer that has no descriptors to send: a packet with descriptors is -EPROTO, and stays in the socket
 * unread. */
int wire_receive_plain(int socket, struct wire_message *message);

/* Check a packet of `length` bytes already in memory, as wire_receive() does. 0 or -EPROTO. The text fields
 * of an accepted message are zero-terminated. */
int wire_check(const struct wire_message *message, size_t length);
