#include "daemon/http/http_crowd.h"

#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define KEY_BYTES 16u
#define NETWORK_BYTES 8u /* the network part of an IPv6 address: one machine can have all addresses in it */

enum list { SILENT, ASKING, LISTS };

/* An address that guests come from. */
struct origin {
    LIST_ENTRY(origin) next;
    uint8_t key[KEY_BYTES];
    unsigned count[LISTS], gone;
};

struct http_guest {
    TAILQ_ENTRY(http_guest) next; /* in its list, oldest first; in none when it is gone */
    struct http_crowd *crowd;
    struct origin *origin;
    int fd;
    enum list list;
    bool is_gone; /* its connection is shut down, and it has not left yet */
};

struct http_crowd {
    TAILQ_HEAD(, http_guest) lists[LISTS];
    LIST_HEAD(, origin) origins;
    unsigned count; /* without the guests that are gone */
};

struct http_crowd *http_crowd_new(void)
{
    struct http_crowd *crowd = calloc(1, sizeof(*crowd));
    if (crowd) {
        TAILQ_INIT(&crowd->lists[SILENT]);
        TAILQ_INIT(&crowd->lists[ASKING]);
        LIST_INIT(&crowd->origins);
    }
    return crowd;
}

void http_crowd_free(struct http_crowd *crowd)
{
    free(crowd);
}

/* --- Where guests come from ------------------------------------------------------------------------ */

static void make_key(const struct sockaddr *address, uint8_t key[static KEY_BYTES])
{
    memset(key, 0, KEY_BYTES);
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)address;
        memcpy(key + KEY_BYTES - sizeof(four->sin_addr), &four->sin_addr, sizeof(four->sin_addr));
    } else if (address->sa_family == AF_INET6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;
        memcpy(key, six, IN6_IS_ADDR_V4MAPPED(six) || IN6_IS_ADDR_LOOPBACK(six) ? KEY_BYTES : NETWORK_BYTES);
    }
}

static struct origin *find_origin(struct http_crowd *crowd, const struct sockaddr *address)
{
    uint8_t key[KEY_BYTES];
    struct origin *at;
    make_key(address, key);
    LIST_FOREACH (at, &crowd->origins, next) {
        if (memcmp(at->key, key, KEY_BYTES) == 0)
            return at;
    }
    at = calloc(1, sizeof(*at));
    if (at) {
        memcpy(at->key, key, KEY_BYTES);
        LIST_INSERT_HEAD(&crowd->origins, at, next);
    }
    return at;
}

static const struct origin *origin_with_most(const struct http_crowd *crowd, enum list list)
{
    const struct origin *most = NULL, *at;
    LIST_FOREACH (at, &crowd->origins, next) {
        if (at->count[list] > (most ? most->count[list] : 0))
            most = at;
    }
    return most;
}

/* --- Coming and going ------------------------------------------------------------------------------ */

static void put(struct http_guest *guest, enum list list)
{
    guest->list = list;
    TAILQ_INSERT_TAIL(&guest->crowd->lists[list], guest, next);
    guest->origin->count[list]++;
}

static void take_from_list(struct http_guest *guest)
{
    TAILQ_REMOVE(&guest->crowd->lists[guest->list], guest, next);
    guest->origin->count[guest->list]--;
}

static void make_room(struct http_crowd *crowd)
{
    enum list list = TAILQ_EMPTY(&crowd->lists[SILENT]) ? ASKING : SILENT;
    const struct origin *most = origin_with_most(crowd, list);
    struct http_guest *guest;
    TAILQ_FOREACH (guest, &crowd->lists[list], next) {
        if (guest->origin == most)
            break;
    }
    if (!guest)
        return;
    take_from_list(guest);
    guest->is_gone = true;
    guest->origin->gone++;
    crowd->count--;
    shutdown(guest->fd, SHUT_RDWR);
}

struct http_guest *http_crowd_enter(struct http_crowd *crowd, int fd, const struct sockaddr *address)
{
    struct origin *origin = find_origin(crowd, address);
    struct http_guest *guest = origin ? calloc(1, sizeof(*guest)) : NULL;
    if (!guest)
        return NULL;
    while (crowd->count >= HTTP_CROWD_MAX)
        make_room(crowd);
    *guest = (struct http_guest){.crowd = crowd, .origin = origin, .fd = fd};
    put(guest, SILENT);
    crowd->count++;
    return guest;
}

void http_crowd_leave(struct http_guest *guest)
{
    struct origin *origin = guest->origin;
    if (guest->is_gone) {
        origin->gone--;
    } else {
        take_from_list(guest);
        guest->crowd->count--;
    }
    if (origin->count[SILENT] + origin->count[ASKING] + origin->gone == 0) {
        LIST_REMOVE(origin, next);
        free(origin);
    }
    free(guest);
}

void http_crowd_set_asking(struct http_guest *guest, bool asks)
{
    enum list list = asks ? ASKING : SILENT;
    if (guest->is_gone || guest->list == list)
        return;
    take_from_list(guest);
    put(guest, list);
}
