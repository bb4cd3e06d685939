/* enter.h - whether a program may enter a session, and which slot it has there. Verdicts alone: attach.c
 * answers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

struct daemon;
struct process;

/* What a HELLO or an AGENT asks for. */
struct enter_request {
    int socket;              /* that the program is at the other end of */
    const char *own_session; /* the session whose own socket it came by (own_socket.h); empty: attach.sock */
    const char *session_id, *token;
    uint16_t version_oldest, version_newest; /* of the wire */
    bool layout_is_known;                    /* it can map our ledgers */
    uint32_t slot;                           /* held before, or WIRE_NO_SLOT */
    uint64_t generation;
};

/* Why not. */
struct refusal {
    enum wire_refusal reason;
    bool is_quiet; /* an answer like any other, and nothing that is counted or logged */
    char message[sizeof(((struct wire_refused *)NULL)->message)];
};

/* All return 0, or -EACCES with `refusal`. `version` is set as soon as it is known. */

/* The slot of the program in the session that it names, or that a rule names: the one it held, or a new one. */
int enter_session(struct daemon *daemon, const struct enter_request *request, uint16_t *version,
                  struct process **process, struct refusal *refusal);

/* The process that this agent is of. */
int enter_as_agent(struct daemon *daemon, const struct enter_request *request, uint16_t *version,
                   struct process **process, struct refusal *refusal);
