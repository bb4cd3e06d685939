/* user_time.h - whose messages take the loop's time, so that no user takes more than a fair part while others wait.
 *
 * payer   who answers for a source of the loop: a user; or, because root and the daemon's own user make sessions for
 *         others, one session of theirs
 * part    how much time a payer's sources may take in a window of 100 ms and keep their priority: 10 ms
 * behind  a source whose payer has used up its part: for the rest of the window it runs when nothing else waits
 *
 * So nobody is slowed down while nobody else has work, and a user with a thousand connections has one part. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

struct daemon;
struct payer;

/* A source of the loop that a payer answers for; embedded in the object that the source belongs to, and zero at
 * first. */
struct paid_source {
    LIST_ENTRY(paid_source) next;
    struct payer *payer; /* NULL: there was no memory for one */
    sd_event_source *source;
    int64_t priority; /* the source's priority while it is not behind */
    bool is_behind;
};

/* Who pays for what is done for `uid`, in a session with this number (0: in none). Never 0 but for root without one. */
uint64_t user_time_key(uid_t uid, uint64_t session_number);

/* From now on `uid` answers for `source`; if that is root or the daemon's own user, the session with this
 * number does (0: none is known). `priority` becomes the source's. */
void user_time_watch(struct daemon *daemon, struct paid_source *paid, sd_event_source *source,
                     int64_t priority, uid_t uid, uint64_t session_number);
/* Stop watching the source. Nothing if it is not watched. */
void user_time_forget(struct paid_source *paid);

/* Call at the start of the source's callback: the time that the callback takes is charged to its payer. False:
 * the source was put behind, and the callback must return without doing anything; it will be called again. */
bool user_time_begin(struct daemon *daemon, struct paid_source *paid);
/* The callback has returned, after `took_usec`. */
void user_time_end(struct daemon *daemon, uint64_t took_usec);

void user_time_stop(struct daemon *daemon); /* when no source is watched any more */
