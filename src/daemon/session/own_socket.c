#include "daemon/session/own_socket.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/listener.h"
#include "daemon/loop/log.h"
#include "daemon/loop/runtime.h"
#include "daemon/session/session.h"
#include "daemon/session/session_find.h"
#include "daemon/users/descriptor_bounds.h"

#define SILENT_MAX 64 /* how many connections of one session may wait to send their first message */

struct own_socket {
    struct listener *listener;
    char id[SESSION_ID_TEXT];
    struct daemon *daemon;
    char folder[PATHS_SOCKET_BYTES], path[PATHS_SOCKET_BYTES];
};

static void on_connect(void *context, int fd)
{
    const struct own_socket *own = context;
    own->daemon->on_own_socket(own->daemon, fd, own->id);
}

static int fill_paths(struct own_socket *own, const struct session *session, struct error *error)
{
    const struct paths *paths = &session->daemon->paths;
    char path[PATH_MAX + 64];
    int length = snprintf(path, sizeof(path), "%s/s/%s/attach.sock", paths->runtime_dir, session->id);
    if (length >= (int)sizeof(own->path))
        return error_set(error, ENAMETOOLONG, "ERR_INTERNAL",
                         "the session's socket path %.200s has %d bytes; expected at most 107; set "
                         "GPUSLICE_RUNTIME_DIR to a shorter path",
                         path, length);
    strcpy(own->path, path);
    snprintf(own->folder, sizeof(own->folder), "%.*s", length - (int)strlen("/attach.sock"), path);
    return 0;
}

/* Those who are given a folder can pass through it; nobody can list it. */
static int make_folder(const char *path, struct error *error)
{
    if ((mkdir(path, 0711) < 0 && errno != EEXIST) || chmod(path, 0711) < 0)
        return error_set_errno(error, errno, "cannot make the folder %s", path);
    return 0;
}

static int make_socket(struct own_socket *own, int *fd, struct error *error)
{
    char parent[PATH_MAX + 8];
    snprintf(parent, sizeof(parent), "%s/s", own->daemon->paths.runtime_dir);
    int result = make_folder(parent, error);
    if (result == 0)
        result = make_folder(own->folder, error);
    return result < 0 ? result : runtime_make_socket(own->path, SOCK_SEQPACKET, 0666, (gid_t)-1, fd, error);
}

int own_socket_open(struct session *session, struct error *error)
{
    struct daemon *daemon = session->daemon;
    if (session->own_socket || !daemon->on_own_socket)
        return 0;
    cleanup_close int fd = -1;
    int result = user_check(daemon, session->owner, USER_OWN_SOCKET, error);
    if (result < 0)
        return result;
    struct own_socket *own = calloc(1, sizeof(*own));
    if (!own)
        return error_set_errno(error, ENOMEM, "cannot make the session's socket");
    own->daemon = daemon;
    strcpy(own->id, session->id);
    result = fill_paths(own, session, error);
    if (result == 0)
        result = make_socket(own, &fd, error);
    if (result == 0)
        result = listener_open(daemon, fd, own->path, on_connect, own, &own->listener, error);
    if (result < 0) {
        free(own);
        return result;
    }
    steal_fd(&fd);
    session->own_socket = own;
    user_add(daemon, session->owner, USER_OWN_SOCKET);
    return 0;
}

void own_socket_close(struct session *session, bool remove)
{
    struct own_socket *own = session->own_socket;
    if (!own)
        return;
    session->own_socket = NULL;
    listener_close(own->listener);
    unlink(own->path);
    if (remove)
        rmdir(own->folder);
    user_remove(own->daemon, session->owner, USER_OWN_SOCKET);
    free(own);
}

static void remove_strays(const struct daemon *daemon)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof(path), "%s/s", daemon->paths.runtime_dir);
    cleanup_dir DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const struct session *session = session_find_id(daemon, entry->d_name);
        char stray[PATH_MAX + NAME_MAX + 32];
        if (!identity_is_id(entry->d_name) || (session && session->has_own_socket))
            continue;
        snprintf(stray, sizeof(stray), "%s/%s/attach.sock", path, entry->d_name);
        unlink(stray);
        *strrchr(stray, '/') = '\0';
        rmdir(stray);
    }
}

int own_sockets_start(struct daemon *daemon,
                      void (*enter)(struct daemon *daemon, int fd, const char *session_id),
                      struct error *error)
{
    daemon->on_own_socket = enter;
    remove_strays(daemon);
    for (struct session *session = daemon->sessions; session; session = session->next) {
        struct error why;
        int result = session->has_own_socket ? own_socket_open(session, &why) : 0;
        if (error_is_scarcity(result))
            return error_set(error, why.status, NULL, "%s", why.message);
        if (result < 0)
            log_error("session %s: %s", session->id, why.message);
    }
    return 0;
}

void own_sockets_make_anew(struct daemon *daemon)
{
    for (struct session *session = daemon->sessions; session; session = session->next) {
        struct error error;
        if (!session->has_own_socket || session->state == SESSION_QUEUED)
            continue;
        own_socket_close(session, false);
        if (own_socket_open(session, &error) < 0)
            log_error("session %s: %s", session->id, error.message);
    }
}

bool own_socket_take_silent(struct session *session)
{
    if (session->own_socket_silent >= SILENT_MAX)
        return false;
    session->own_socket_silent++;
    return true;
}

void own_socket_drop_silent(struct session *session)
{
    GS_CHECK(session->own_socket_silent > 0);
    session->own_socket_silent--;
}

const char *own_socket_path(const struct session *session)
{
    return session->own_socket ? session->own_socket->path : NULL;
}
