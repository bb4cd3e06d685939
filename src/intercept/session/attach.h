/* attach.h - the client's end of attach.sock (messages: wire/wire.h). */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "intercept/session/attachment.h"

/* A descriptor of ours, and which file it is: programs close descriptors that they do not know, and reuse the
 * numbers. */
struct attach_descriptor {
    int fd;
    bool open;
    dev_t device;
    ino_t inode;
};

/* Take `fd`, moved out of the way of programs that expect low numbers. */
void attach_keep(struct attach_descriptor *descriptor, int fd);
bool attach_is_ours(const struct attach_descriptor *descriptor);
/* Close it, if it still is ours. Async-signal-safe. */
void attach_let_go(struct attach_descriptor *descriptor);

/* A new connection to the daemon, on which sending and receiving wait for at most `timeout_ms`. Its
 * descriptor, or a negative errno. */
int attach_connect(const struct session_settings *settings, int timeout_ms, struct error *error);

/* Ask the daemon for a slot and map its ledger. `previous` is what the process holds, or NULL. The connection
 * is kept open, at a high number: the daemon looks after us when it ends. Fills `*attachment` (but for its
 * `lock`). Waits for at most `timeout_ms` for each answer. 0 or a negative errno;
 * where the settings name no session, -ENOENT says that there is no daemon, or no rule of its names one. */
int attach_open(const struct session_settings *settings, const struct attachment *previous, int timeout_ms,
                struct attachment *attachment, struct error *error);

/* Close the connection, if its descriptor is still ours. Async-signal-safe. */
void attach_close(void);

/* Give notice, without waiting; lost where there is no connection or no room in it. */
void attach_notice(enum wire_notice_kind kind);

/* Say that this process made its first context on a GPU, and wait for what it costs; 0 if that takes longer
 * than `timeout_ms` or there is no connection. */
uint64_t attach_context_cost(uint32_t gpu, int timeout_ms);
