/* http_crowd.h - who is connected over TCP, where nobody knows which user it is.
 *
 * guest   a connection; it asks from when its request has come whole until it is answered, and is silent else
 *
 * For one more than there is room for the oldest of the silent guests goes, or where all ask the oldest of those: of whichever
 * address has most of them. So whoever holds connections, or sends and reads a byte at a time, keeps nobody else out. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

#define HTTP_CROWD_MAX 512u

struct http_crowd;
struct http_guest;

struct http_crowd *http_crowd_new(void);
/* All have left. NULL is none. */
void http_crowd_free(struct http_crowd *crowd);

/* One more comes, by the connection `fd`, which stays the caller's and is open until it leaves. Whoever has to go for it is shut
 * down, and leaves when the end of the connection is seen. NULL: there is no memory. */
struct http_guest *http_crowd_enter(struct http_crowd *crowd, int fd, const struct sockaddr *address);
void http_crowd_leave(struct http_guest *guest);

void http_crowd_set_asking(struct http_guest *guest, bool asks);
