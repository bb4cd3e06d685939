/* when_full.h - what becomes of a session when memory is short. */
#pragma once

#include <stdbool.h>

enum when_full {
    WHEN_FULL_UNSAID,        /* one that does not fit is refused; its programs wait for others to leave */
    WHEN_FULL_REFUSE,        /* nobody waits: neither it nor, but for what was promised, its programs */
    WHEN_FULL_WAIT,          /* it waits in line, and its programs wait until others have ended */
    WHEN_FULL_OVERSUBSCRIBE, /* its memory can leave the card */
    WHEN_FULL_COUNT,
};

/* "refuse", "wait", "oversubscribe"; false when `text` is none of them. */
bool when_full_parse(const char *text, enum when_full *when_full);
/* NULL of WHEN_FULL_UNSAID. */
const char *when_full_name(enum when_full when_full);
