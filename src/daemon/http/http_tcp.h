/* http_tcp.h - HTTP over TCP: where to listen, and who may ask there.
 *
 * Two addresses. metrics-address shows metrics and health to anybody. http-address has the whole API for
 * programs of this machine that cannot open a Unix socket (browsers): behind a token, because any user of the
 * machine reaches a port, and for requests that name this machine alone, because a web page can have its own
 * name lead here. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/paths.h"
#include "daemon/session/identity.h"

/* A listening socket at `address` (HOST:PORT, IPv6 in brackets), which was given as `setting`. With
 * `loopback_only` every address that others can reach is refused. A descriptor, or a negative errno. */
int http_tcp_listen(const char *setting, const char *address, bool loopback_only, struct error *error);

/* "HOST:PORT" of a listening socket, as a URL has it. */
#define HTTP_ADDRESS_TEXT 64
void http_tcp_address(int fd, char text[static HTTP_ADDRESS_TEXT]);

/* Make a token and leave it in RUNTIME_DIR/http-token (0600), in place of an earlier daemon's. */
int http_tcp_make_token(const struct paths *paths, char token[static SESSION_TOKEN_TEXT],
                        struct error *error);

/* Whether a Host header (NULL: none) names this machine: localhost, 127.x.y.z or [::1], with a port or
 * without. */
bool http_tcp_is_local_host(const char *host);

/* The same of one that comes to `address`, which others reach too: any number, a name without a dot, the machine's own
 * name, or the one in `address`. Another site's page has a name with a dot. */
bool http_tcp_is_own_host(const char *host, const char *address);
