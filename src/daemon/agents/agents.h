/* agents.h - the agents' sockets: each process of a session has an agent, which tells of its work and its memory, and is
 * told what may happen to them. Nothing is decided here. Whoever decides something listens (schedule, residency).
 *
 * An agent that sends too much, or whose socket is full or broken, is cut off. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct daemon;
struct process;
struct wire_message;

enum agent_subject {
    AGENTS_TIME,   /* all messages but those about memory */
    AGENTS_MEMORY, /* MOVED and NEED */
    AGENT_SUBJECTS,
};

/* Called in the loop's thread. None of them may drop an agent. */
struct agent_listener {
    /* The process's agent has connected. Returns false if it cannot be served. May be NULL. */
    bool (*come)(struct process *process);
    /* Returns false if that is no message of an agent: the agent is cut off. */
    bool (*take)(struct process *process, const struct wire_message *message);
    void (*gone)(struct process *process);
};

int agents_start(struct daemon *daemon, struct error *error);
void agents_stop(struct daemon *daemon); /* every session was removed before */

/* Messages on the subject go to `listener`, which stays. Of agents that come or go, listeners are told in the order of
 * subjects. */
void agents_listen(struct daemon *daemon, enum agent_subject subject, const struct agent_listener *listener);

/* The process's agent has connected, on `fd` (taken over, also on failure). It replaces an earlier agent of the
 * process. */
void agents_enter(struct process *process, int fd);

/* Send the process's agent a message, with descriptor `fd` unless that is -1. Never waits. Returns false if no
 * agent can be told; the next one that comes says how its process stands. */
bool agents_send(struct process *process, struct wire_message *message, int fd);
