/* attach.h - the client's end of attach.sock (messages: wire/wire.h). */
#pragma once

#include "intercept/session.h"

/* Ask the daemon for a slot and map its ledger. `previous` is what the process holds, or NULL. The connection
 * is kept open, at a high number: the daemon looks after us when it ends. Fills `*attachment` (but for its
 * `turn`). Waits for at most `timeout_ms` for each answer. 0 or a negative errno. */
int attach_open(const struct session_settings *settings, const struct attachment *previous, int timeout_ms,
                struct attachment *attachment, struct error *error);

/* Close the connection, if its descriptor is still ours. Async-signal-safe. */
void attach_close(void);

/* Give notice, without waiting; lost where there is no connection or no room in it. */
void attach_notice(enum wire_notice_kind kind);

/* Say that this process made its first context on a GPU, and wait for what it costs; 0 if that takes longer
 * than `timeout_ms` or there is no connection. */
uint64_t attach_context_cost(uint32_t gpu, int timeout_ms);
