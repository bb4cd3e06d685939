/* http_relay.h - relays between clients of the control socket and libmicrohttpd, where the kernel cannot refuse descriptors.
 *
 * libmicrohttpd reads with recv(). The kernel closes the descriptors that a client sent along in that call, in the loop: a
 * socket that lingers would hold it (connection_closer.h). So before Linux 6.16, and for connections that were made before the daemon
 * listened, libmicrohttpd gets one end of a socket pair of ours. The loop passes bytes between the other end and the client.
 * It first looks whether descriptors came along, and cuts off a client that sends any. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct daemon;
struct http_relay;

/* Whether a client can send descriptors along on this connection. */
bool http_relay_is_needed(int client);

/* Relay the connection `client` (taken over on success), which counts as one of `uid`'s while it is open. `*served` is
 * the end for libmicrohttpd. NULL: it cannot be done. */
struct http_relay *http_relay_begin(struct daemon *daemon, int client, uid_t uid, int *served);
/* Call when libmicrohttpd has closed its end: the client still gets what was written before. The client's connection
 * stays open at least until this call, so its descriptor is not used for anything else. */
void http_relay_end(struct http_relay *relay);

/* The client's connection, for peer_identity(). */
int http_relay_client(const struct http_relay *relay);
