/* http_tcp.h - HTTP over TCP: where to listen, and which requests are admitted.
 *
 * There are two addresses. metrics-address shows metrics and health to anybody. http-address has the whole API, for
 * programs of this machine that cannot open a Unix socket (browsers). It is behind a token, because any user of the machine
 * can reach a port, and takes only requests that name this machine, because the owner of a web page can have the page's own
 * name lead here. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/paths.h"

/* Make a listening socket at `address` (HOST:PORT, IPv6 in brackets), the value of `setting`. With `loopback_only`,
 * every address that other machines can reach is refused. Returns a descriptor, or a negative errno. */
int http_tcp_listen(const char *setting, const char *address, bool loopback_only, struct error *error);

/* "HOST:PORT" of a listening socket, as a URL has it. */
#define HTTP_ADDRESS_TEXT 64
void http_tcp_address(int fd, char text[static HTTP_ADDRESS_TEXT]);

#define HTTP_TOKEN_TEXT 65
/* Make a token and write it to RUNTIME_DIR/http-token (0600), in place of an earlier daemon's. */
int http_tcp_make_token(const struct paths *paths, char token[static HTTP_TOKEN_TEXT], struct error *error);

/* Whether a Host header (NULL: none) names this machine: localhost, 127.x.y.z or [::1], with or without a port. */
bool http_tcp_is_local_host(const char *host);

/* The same for a request to `address`, which other machines can reach too: any number, a name without a dot, the
 * machine's own name, or the name in `address`. The name of another site's page has a dot. */
bool http_tcp_is_own_host(const char *host, const char *address);
