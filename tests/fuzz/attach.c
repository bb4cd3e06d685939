/* Clients of attach.sock: packets on up to four connections, as the daemon's loop takes them.
 *
 * An input is a row of steps: one byte of what to do (the low two bits say on which connection, bit 2 hangs
 * up instead, bit 3 connects first), one byte of length, and the packet. There is a session of ID
 * "0123456789ab" on GPU 0, whose slots begin at generation 1 with each input, and one of ID "0123456789ac" there, whose memory
 * can leave the card. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/agents/agents.h"
#include "daemon/process/attach.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/session/session_life.h"
#include "daemon/session/session_show.h"
#include "daemon/store/store.h"
#include "fuzz.h"
#include "small_daemon.h"

#define CLIENTS 4u
#define STEPS_MAX 64u
#define SESSION_ID "0123456789ab"
#define MOVABLE_ID "0123456789ac"

enum step { STEP_CLIENT = 3, STEP_HANG_UP = 4, STEP_CONNECT = 8 };

static void listen_for_clients(struct daemon *daemon)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct error error;
    strcpy(address.sun_path, daemon->paths.attach_socket);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    fuzz_require(fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    fuzz_require(listen(fd, 16) == 0);
    fuzz_require(attach_start(daemon, fd, agents_enter, &error) == 0);
    fuzz_require(store_open(daemon, &error) == 0);
}

static struct session *begin_session(struct daemon *daemon, const char *id, const char *name,
                                     enum ledger_engine engine)
{
    struct error error;
    struct session *session = calloc(1, sizeof(*session));
    fuzz_require(session);
    strcpy(session->id, id);
    strcpy(session->name, name);
    session->properties.engine = engine;
    strcpy(session->token, "token");
    session->owner = geteuid();
    session->properties.compute = (struct share){2000, 6000};
    session->properties.priority = PRIORITY_NORMAL;
    session->gpu_count = 1;
    session->gpus[0].limit_bytes = 1 << 20;
    memcpy(session->gpus[0].uuid, daemon->gpus[0].uuid, sizeof(session->gpus[0].uuid));
    fuzz_require(session_restore(daemon, session, &error) == 0);
    return session;
}

static int connect_client(const struct daemon *daemon)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, daemon->paths.attach_socket);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    fuzz_require(fd >= 0);
    fuzz_require(connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

static void hang_up(int *client)
{
    if (*client >= 0)
        close(*client);
    *client = -1;
}

static size_t take_step(struct daemon *daemon, int clients[static CLIENTS], const uint8_t *data, size_t bytes)
{
    int *client = &clients[data[0] & STEP_CLIENT];
    size_t length = data[1] < bytes - 2 ? data[1] : bytes - 2;
    if (data[0] & (STEP_HANG_UP | STEP_CONNECT))
        hang_up(client);
    if (!(data[0] & STEP_HANG_UP)) {
        if (*client < 0)
            *client = connect_client(daemon);
        if (send(*client, data + 2, length, MSG_NOSIGNAL) <
            0) /* it was hung up on, or the daemon reads nothing */
            hang_up(client);
    }
    small_daemon_run(daemon);
    return 2 + length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct daemon *daemon = small_daemon();
    int clients[CLIENTS] = {-1, -1, -1, -1};
    if (!daemon->attach)
        listen_for_clients(daemon);
    struct session *session = begin_session(daemon, SESSION_ID, "fuzzed", LEDGER_ENGINE_PLAIN);
    struct session *movable = begin_session(daemon, MOVABLE_ID, "movable", LEDGER_ENGINE_SWAP);
    for (unsigned step = 0; step < STEPS_MAX && bytes > 2; step++) {
        size_t taken = take_step(daemon, clients, data, bytes);
        data += taken;
        bytes -= taken;
    }
    fuzz_require(session_find_id(daemon, SESSION_ID) == session && !session->ledger.broken);
    fuzz_require(session_find_id(daemon, MOVABLE_ID) == movable && !movable->ledger.broken);
    fuzz_require(session_used(session, 0) == 0 &&
                 session_used(movable, 0) == 0); /* nobody wrote into the ledgers */
    for (unsigned i = 0; i < CLIENTS; i++)
        hang_up(&clients[i]);
    small_daemon_run(daemon);
    session_end(session, "the input has ended");
    session_end(movable, "the input has ended");
    small_daemon_run(daemon);
    return 0;
}
