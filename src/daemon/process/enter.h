/* enter.h - decides whether a program may enter a session, and which slot it gets there. It only decides: attach.c sends
 * the answers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

struct daemon;
struct process;

/* What a HELLO or an AGENT asks for. */
struct enter_request {
    int socket; /* the program is at the other end */
    /* The session whose own socket the program connected to (own_socket.h); empty: attach.sock. */
    const char *own_session;
    const char *session_id, *token;
    uint16_t version_oldest, version_newest; /* of the wire protocol */
    uint32_t layout_oldest, layout_newest;   /* of ledgers */
    uint32_t slot;                           /* the slot that it held before, or WIRE_NO_SLOT */
    uint64_t generation;
};

/* Why a program was refused. */
struct refusal {
    enum wire_refusal reason;
    bool is_quiet; /* do not count or log this refusal */
    char message[sizeof(((struct wire_refused *)NULL)->message)];
};

/* Both return 0, or -EACCES with `refusal`. `version` is set as soon as it is known. */

/* Find the slot of the program in the session that it names, or that a rule names: the slot it held, or a new one. */
int enter_session(struct daemon *daemon, const struct enter_request *request, uint16_t *version,
                  struct process **process, struct refusal *refusal);

/* Find the process that this agent belongs to. */
int enter_as_agent(struct daemon *daemon, const struct enter_request *request, uint16_t *version,
                   struct process **process, struct refusal *refusal);
