/* when_full.h - what happens to a session when memory is short. */
#pragma once

#include <stdbool.h>

enum when_full {
    /* a session that does not fit is refused; its programs wait for others to leave */
    WHEN_FULL_UNSAID,
    /* nobody waits: not the session, nor its programs, except for memory that was promised */
    WHEN_FULL_REFUSE,
    /* the session waits in the queue, and its programs wait until others have ended */
    WHEN_FULL_WAIT,
    WHEN_FULL_OVERSUBSCRIBE, /* the session's memory can leave the card */
    WHEN_FULL_COUNT,
};

/* By value; NULL for WHEN_FULL_UNSAID, and at the end. */
extern const char *const when_full_words[WHEN_FULL_COUNT + 1];

/* "refuse", "wait", "oversubscribe"; false when `text` is none of them. */
bool when_full_parse(const char *text, enum when_full *when_full);
/* NULL for WHEN_FULL_UNSAID. */
const char *when_full_name(enum when_full when_full);
