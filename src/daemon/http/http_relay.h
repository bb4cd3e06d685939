/* http_relay.h - between clients of the control socket and libmicrohttpd, where the kernel cannot refuse descriptors.
 *
 * libmicrohttpd reads with recv(), and what a client sent along with its bytes the kernel closes in that call, in the
 * loop: a socket that lingers would hold it (closer.h). So before Linux 6.16, and for connections that were made before
 * the daemon listened, libmicrohttpd gets one end of a pair of ours. The loop hands bytes on between the other end and the
 * client, looks first whether descriptors came along, and cuts off who sends any. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct daemon;
struct http_relay;

/* Whether descriptors can be sent along on this connection. */
bool http_relay_is_needed(int client);

/* Relay the connection `client` (taken over on success), which counts as one of `uid`'s while it is open: `*served` is for
 * libmicrohttpd. NULL: it cannot be done. */
struct http_relay *http_relay_begin(struct daemon *daemon, int client, uid_t uid, int *served);
/* libmicrohttpd has closed its end; the client gets what was said by then. The client's connection lives at least until
 * now, so that its descriptor stays its. */
void http_relay_end(struct http_relay *relay);

/* The client's connection, for peer_identity(). */
int http_relay_client(const struct http_relay *relay);
