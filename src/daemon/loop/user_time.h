/* user_time.h - whose messages take the loop's time, so that no user takes more than its part while others wait.
 *
 * payer   who answers for a source of the loop: a user, or one session of root's or of the daemon's own user, who make
 *         sessions for others
 * part    what a payer's sources may take in a window of 100 ms and keep their places
 * behind  where they are for the rest of the window: they are taken up when nothing else waits
 *
 * So nobody is slowed down while nobody else has work, and a thousand connections have one part. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

struct daemon;
struct payer;

/* A source of the loop that somebody answers for; embedded in what the source is of, and zero at first. */
struct paid_source {
    LIST_ENTRY(paid_source) next;
    struct payer *payer; /* NULL: none, without memory for it */
    sd_event_source *source;
    int64_t priority; /* its place while it is not behind */
    bool is_behind;
};

/* From now on `uid` answers for `source`, and where that is root or the daemon's own user the session of this number (0: none
 * is known). `priority` is the source's then. */
void user_time_watch(struct daemon *daemon, struct paid_source *paid, sd_event_source *source,
                     int64_t priority, uid_t uid, uint64_t session_number);
/* The source goes. Nothing if it is not watched. */
void user_time_forget(struct paid_source *paid);

/* At the begin of the source's callback: what the callback takes is its payer's. False: it was put behind, and the callback
 * is to return with nothing done; it comes again. */
bool user_time_begin(struct daemon *daemon, struct paid_source *paid);
/* The callback has returned, and took so long. */
void user_time_end(struct daemon *daemon, uint64_t took_usec);

void user_time_stop(struct daemon *daemon); /* no source is watched any more */
