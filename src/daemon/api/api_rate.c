#include "daemon/api/api_rate.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "daemon/loop/daemon.h"

#define SECOND_USEC UINT64_C(1000000)

/* How many requests a user may make right now: the bucket fills at the allowed rate, up to what one second brings. A
 * full bucket is not kept. */
struct bucket {
    LIST_ENTRY(bucket) next;
    uid_t uid;
    uint64_t room_usec; /* a request takes SECOND_USEC / rate of it */
    uint64_t seen_usec;
};

static void fill(struct bucket *bucket, uint64_t now)
{
    uint64_t room = bucket->room_usec + (now - bucket->seen_usec);
    bucket->room_usec = room < SECOND_USEC ? room : SECOND_USEC;
    bucket->seen_usec = now;
}

/* The user's bucket, filled up to now; NULL: the user has none. Drops the buckets of others that have become full. */
static struct bucket *find(struct daemon *daemon, uid_t uid, uint64_t now)
{
    struct bucket *found = NULL, *next;
    for (struct bucket *at = LIST_FIRST(&daemon->request_buckets); at; at = next) {
        next = LIST_NEXT(at, next);
        fill(at, now);
        if (at->uid == uid) {
            found = at;
        } else if (at->room_usec == SECOND_USEC) {
            LIST_REMOVE(at, next);
            free(at);
        }
    }
    return found;
}

int api_rate_take(struct daemon *daemon, uid_t uid, struct error *error)
{
    uint32_t rate = daemon->config.daemon.requests_per_second;
    uint64_t now = daemon_now_usec();
    if (rate == 0)
        return 0;
    struct bucket *bucket = find(daemon, uid, now);
    if (!bucket) {
        bucket = malloc(sizeof(*bucket));
        if (!bucket)
            return error_set_errno(error, ENOMEM, "cannot count a request");
        *bucket = (struct bucket){.uid = uid, .room_usec = SECOND_USEC, .seen_usec = now};
        LIST_INSERT_HEAD(&daemon->request_buckets, bucket, next);
    }
    uint64_t price = SECOND_USEC / rate;
    if (bucket->room_usec < price)
        return error_set(error, EBUSY, "ERR_TOO_MANY",
                         "user %u makes more than %u requests a second; try again in a moment", (unsigned)uid,
                         rate);
    bucket->room_usec -= price;
    return 0;
}

void api_rate_free(struct daemon *daemon)
{
    struct bucket *bucket;
    while ((bucket = LIST_FIRST(&daemon->request_buckets))) {
        LIST_REMOVE(bucket, next);
        free(bucket);
    }
}
