/* changes.h - what changes in the daemon, and who is told.
 *
 * change    something that has just happened in the core (changes.def). It is in force when it is published
 * observer  a part that follows changes: history keeps them as events, the store writes them down, the API
 *           answers requests that wait
 *
 * The core publishes changes and does not know the observers. An observer is called at once, in the loop's thread. It
 * may read what the change is about, and must not end a session or forget a process. */
#pragma once

#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct daemon;
struct gpu;
struct process;
struct session;

/* Whose request the loop is handling. */
struct requester {
    uid_t uid;
    pid_t pid; /* 0: not known, as over TCP */
    char command[16];
};

enum change_kind {
#define CHANGE(name, event, audience, rate) CHANGE_##name,
#include "daemon/loop/changes.def"
#undef CHANGE
    CHANGE_KINDS
};

struct change {
    enum change_kind kind;
    struct session *session; /* NULL: not about a session */
    struct process *process; /* NULL: not about a process, or about one that went while no daemon ran */
    const struct gpu *gpu;   /* NULL: not about a GPU */
    const char *message;     /* for people, one line; set by change_publish() */
    uid_t
        uid; /* SESSION_REFUSED: whose request it was; PROCESS_UNCOVERED, _WARNED, _STOPPED: whose process */
    pid_t pid;            /* PROCESS_*: of which process; the daemon may have no record of it */
    const char *command;  /* the name of its program; NULL: not known */
    uint64_t bytes;       /* PROCESS_ENDED: how many bytes came back; SESSION_SUSPENDED: how many left */
    uint64_t stays_bytes; /* SESSION_SUSPENDED: how many could not leave, contexts left out */
    double seconds;       /* LEASE_*, SESSION_WAITS: how long it took */
};

/* A change is committed (`result` 0), or could not be, and why. In the loop's thread. */
typedef void (*change_done)(void *argument, int result, const char *message);

struct observer {
    SLIST_ENTRY(observer) next;
    void (*take)(void *context, const struct change *change);
    /* Has `done` called when the session's last change is committed. Only one observer commits; NULL: this one does not. */
    void (*await)(void *context, const char *session_id, change_done done, void *argument);
    void *context;
};

/* Tell `observer` every change from now on. The caller owns it, and keeps it until change_observe_no_more(). */
void change_observe(struct daemon *daemon, struct observer *observer);
void change_observe_no_more(struct daemon *daemon, struct observer *observer);

/* Tell all observers. The message is cut at 512 bytes. */
__attribute__((format(printf, 3, 4))) void change_publish(struct daemon *daemon, const struct change *change,
                                                          const char *format, ...);

/* Have `done` called when the session's last change is committed; at once if no change is under way. Call right after making
 * the change. Those who wait for the same change are called in their order. */
void change_await(struct daemon *daemon, const char *session_id, change_done done, void *argument);

/* The name of the event; NULL: this change is not an event. */
const char *change_event(enum change_kind kind);
