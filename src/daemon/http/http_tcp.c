#include "daemon/http/http_tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/session/identity.h"

#define HOST_TEXT 256

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static int look_up(const char *setting, const char *address, struct addrinfo **found, struct error *error)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    size_t length = colon ? (size_t)(colon - address) : 0;
    if (!colon || length >= sizeof(host) || !colon[1])
        return error_set(error, EINVAL, NULL, "%s is '%.100s'; expected HOST:PORT", setting, address);
    memcpy(host, address, length);
    host[length] = '\0';
    if (length > 2 && host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = '\0';
        memmove(host, host + 1, length - 1);
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    int result = getaddrinfo(*host ? host : NULL, colon + 1, &hints, found);
    return result ? error_set(error, EINVAL, NULL, "%s '%.100s': %s; expected HOST:PORT", setting, address,
                              gai_strerror(result))
                  : 0;
}

int http_tcp_listen(const char *setting, const char *address, bool loopback_only, struct error *error)
{
    struct addrinfo *found;
    int result = look_up(setting, address, &found, error);
    if (result < 0)
        return result;
    if (loopback_only && !is_loopback(found->ai_addr)) {
        freeaddrinfo(found);
        return error_set(error, EINVAL, NULL,
                         "%s '%.100s' can be reached from other machines; expected an address of this "
                         "machine alone, like 127.0.0.1:8080",
                         setting, address);
    }
    cleanup_close int fd =
        socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, found->ai_protocol);
    int on = 1;
    int status = 0;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0)
        status = errno;
    freeaddrinfo(found);
    if (status)
        return error_set(
            error, status, NULL,
            "cannot listen on %s %.100s: %s; expected an address of this machine and a port that is "
            "free; choose another",
            setting, address, strerror(status));
    return steal_fd(&fd);
}

void http_tcp_address(int fd, char text[static HTTP_ADDRESS_TEXT])
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof(address);
    char host[INET6_ADDRSTRLEN] = "127.0.0.1";
    getsockname(fd, (struct sockaddr *)&address, &length);
    if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&address;
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof(host));
        snprintf(text, HTTP_ADDRESS_TEXT, "[%s]:%u", host, ntohs(six->sin6_port));
    } else {
        const struct sockaddr_in *four = (const struct sockaddr_in *)&address;
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof(host));
        snprintf(text, HTTP_ADDRESS_TEXT, "%s:%u", host, ntohs(four->sin_port));
    }
}

int http_tcp_make_token(const struct paths *paths, char token[static HTTP_TOKEN_TEXT], struct error *error)
{
    char path[PATH_MAX + 16], fresh[PATH_MAX + 24];
    snprintf(path, sizeof(path), "%s/http-token", paths->runtime_dir);
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    identity_random_hex(token, HTTP_TOKEN_TEXT - 1);
    unlink(fresh);
    cleanup_close int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || dprintf(fd, "%s\n", token) != HTTP_TOKEN_TEXT || rename(fresh, path) < 0)
        return error_set_errno(error, errno, "cannot write the token for HTTP over TCP into %s", path);
    return 0;
}

/* The host without its port. A port is the digits after the last colon, unless that colon is inside the brackets of an
 * IPv6 address. */
static bool split_host(const char *host, char name[static HOST_TEXT])
{
    const char *colon = host ? strrchr(host, ':') : NULL;
    size_t length = host ? strlen(host) : HOST_TEXT;
    if (colon && !strchr(colon, ']')) {
        length = (size_t)(colon - host);
        size_t digits = strspn(colon + 1, "0123456789");
        if (digits < 1 || digits > 5 || colon[1 + digits])
            return false;
    }
    if (length >= HOST_TEXT)
        return false;
    memcpy(name, host, length);
    name[length] = '\0';
    return true;
}

bool http_tcp_is_local_host(const char *host)
{
    char name[HOST_TEXT];
    struct in_addr number;
    if (!split_host(host, name))
        return false;
    return strcasecmp(name, "localhost") == 0 || strcmp(name, "[::1]") == 0 ||
           (inet_pton(AF_INET, name, &number) == 1 && ntohl(number.s_addr) >> 24 == IN_LOOPBACKNET);
}

static bool is_six(const char *name)
{
    struct in6_addr number;
    char inner[INET6_ADDRSTRLEN];
    size_t length = strlen(name);
    if (length < 3 || length > sizeof(inner) || name[0] != '[' || name[length - 1] != ']')
        return false;
    memcpy(inner, name + 1, length - 2);
    inner[length - 2] = '\0';
    return inet_pton(AF_INET6, inner, &number) == 1;
}

bool http_tcp_is_own_host(const char *host, const char *address)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    char name[HOST_TEXT], other[HOST_TEXT];
    struct in_addr number;
    if (!split_host(host, name) || !*name)
        return false;
    if (inet_pton(AF_INET, name, &number) == 1 || is_six(name) || name[strspn(name, letters)] == '\0')
        return true;
    if (gethostname(other, sizeof(other)) == 0 && memchr(other, '\0', sizeof(other)) &&
        strcasecmp(name, other) == 0)
        return true;
    return split_host(address, other) && strcasecmp(name, other) == 0;
}
