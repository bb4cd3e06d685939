/* http_crowd.h - the connections over TCP, where nobody knows which user is at the other end.
 *
 * guest   a connection. It is asking from when its request has come whole until it has been answered, and silent otherwise
 *
 * When there is no room for one more, the oldest silent guest has to go; if all are asking, the oldest of those. It is one
 * from the address that has the most such guests. So a client that holds connections, or sends and reads a byte at a time,
 * cannot keep others out. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

#define HTTP_CROWD_MAX 512u

struct http_crowd;
struct http_guest;

struct http_crowd *http_crowd_new(void);
/* Call when all guests have left. NULL does nothing. */
void http_crowd_free(struct http_crowd *crowd);

/* A guest comes, by the connection `fd`, which the caller keeps open until the guest leaves. If another has to go for
 * it, that one's connection is shut down, and it leaves when libmicrohttpd sees the end of the connection. NULL: no
 * memory. */
struct http_guest *http_crowd_enter(struct http_crowd *crowd, int fd, const struct sockaddr *address);
void http_crowd_leave(struct http_guest *guest);

void http_crowd_set_asking(struct http_guest *guest, bool asks);
