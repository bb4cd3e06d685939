/* attach.h - the client's end of attach.sock (messages: wire/wire.h). */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "intercept/session/attachment.h"

/* A descriptor of ours, with the file that it must be: programs close descriptors that they do not know, and reuse
 * the numbers. */
struct attach_descriptor {
    int fd;
    bool open;
    dev_t device;
    ino_t inode;
};

/* Take over `fd`, moved out of the way of programs that expect low numbers. */
void attach_keep(struct attach_descriptor *descriptor, int fd);
bool attach_is_ours(const struct attach_descriptor *descriptor);
/* Close the descriptor, if it still is ours. Async-signal-safe. */
void attach_let_go(struct attach_descriptor *descriptor);

/* Whether a failure to connect means that no daemon serves there, or none that this process may reach. */
bool attach_is_nobody_there(int result);

/* Make a new connection to the daemon; sending and receiving on it wait for at most `timeout_ms`. Returns its
 * descriptor, or a negative errno. */
int attach_connect(const struct session_settings *settings, int timeout_ms, struct error *error);

/* Ask the daemon for a slot and map its ledger. `previous` is what the process holds, or NULL. The connection stays
 * open, at a high number: when it ends, the daemon looks what became of the process. Fills `*attachment` (but for its
 * `lock`). Waits for at most `timeout_ms` for each answer. Returns 0 or a negative errno. Where the settings name no
 * session, -ENOENT means that there is no daemon, or that no rule of the daemon names a session for this process. */
int attach_open(const struct session_settings *settings, const struct attachment *previous, int timeout_ms,
                struct attachment *attachment, struct error *error);

/* Close the connection, if its descriptor is still ours. Async-signal-safe. */
void attach_close(void);

/* Send a notice, without waiting; it is lost if there is no connection, or no room in the socket. */
void attach_notice(const struct wire_notice *notice);

/* The same: tell the daemon of the functions that the program asked for and that nobody here knows, if there are any. */
void attach_tell_unknown(void);

/* Tell the daemon that this process made its first context on a GPU, and wait for what the context costs. Returns 0
 * if that takes longer than `timeout_ms` or there is no connection. */
uint64_t attach_context_cost(uint32_t gpu, int timeout_ms);
