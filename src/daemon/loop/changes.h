/* changes.h - what changes in the daemon, and who is told.
 *
 * change    one thing that has just happened in the core (changes.def). It is in force when it is published
 * observer  a part that follows changes: history keeps them as events, the store writes them down, requests
 *           that wait are answered
 *
 * The core publishes and knows no observer. An observer is called at once, in the loop's thread; it may read
 * what the change is about, and must not make a session or process go away. */
#pragma once

#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct daemon;
struct gpu;
struct process;
struct session;

enum change_kind {
#define CHANGE(name, event, audience, rate) CHANGE_##name,
#include "daemon/loop/changes.def"
#undef CHANGE
    CHANGE_KINDS
};

struct change {
    enum change_kind kind;
    struct session *session; /* NULL: it is about none */
    struct process *process; /* NULL: about none, or one that went while no daemon ran */
    const struct gpu *gpu;   /* NULL: about none */
    const char *message;     /* for people, one line; set by change_publish() */
    uid_t uid;               /* SESSION_REFUSED: whose request it was */
    pid_t pid;               /* PROCESS_*: whose; there may be no record of it */
    const char *command;     /* its name; NULL: not known */
    uint64_t bytes;          /* PROCESS_ENDED: what came back */
    double seconds;          /* LEASE_*: how long it took */
};

struct observer {
    SLIST_ENTRY(observer) next;
    void (*take)(void *context, const struct change *change);
    void *context;
};

/* Have `observer` told of every change from now on. It is the caller's, and lives until it is taken out. */
void change_observe(struct daemon *daemon, struct observer *observer);
void change_observe_no_more(struct daemon *daemon, struct observer *observer);

/* Tell all observers. The message is cut at 512 bytes. */
__attribute__((format(printf, 3, 4))) void change_publish(struct daemon *daemon, const struct change *change,
                                                          const char *format, ...);

/* The name of the event; NULL for an inner matter. */
const char *change_event(enum change_kind kind);
