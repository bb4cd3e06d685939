#include "kube/dra/dra_forgotten.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/cdi.h"
#include "client/session_fields.h"
#include "kube/dra/claim_names.h"
#include "kube/dra/claim_prepare.h"
#include "kube/dra/claim_words.h"
#include "kube/node/node.h"
#include "kube/node/tasks.h"
#include "kube/slices/lost_containers.h"

#define AGAIN_NS (UINT64_C(5) * 1000000000)

/* The UID of the claim whose session this is; NULL: it is not one of ours. */
static const char *claim_of(const json_t *session)
{
    const char *name = session_text(session, "name");
    bool is_ours = strncmp(name, CLAIM_PREFIX, strlen(CLAIM_PREFIX)) == 0 &&
                   session_number(session, "owner_uid") == getuid() && *session_text(session, "own_socket");
    return is_ours ? name + strlen(CLAIM_PREFIX) : NULL;
}

/* Under the claim's lock. A record is written before its session is made, so a session without a record is of a claim
 * that nobody will unprepare. Its containers may run all the same: then its pod is still there, or its programs are, and
 * the daemon ends no session that has programs. False: it must be looked at again. */
static bool end_if_forgotten(struct kubelet *kubelet, const json_t *session, const char *uid)
{
    char file[CLAIM_FILE_TEXT];
    struct error error;
    const char *name = session_text(session, "name");
    if (claim_names_are_kept(kubelet, uid))
        return true;
    if (*session_text(session, "pod") && lost_containers_ask_about_pod(kubelet, session) != 1)
        return false;
    if (node_request_session(kubelet, "DELETE", name, "", NULL, NULL, &error) < 0)
        return false;
    claim_file_name(uid, file);
    if (cdi_remove(kubelet->options.cdi_dir, file, &error) < 0)
        fprintf(stderr, "gpuslice-kubelet: %s\n", error.message);
    fprintf(stderr, "gpuslice-kubelet: session %s ended: the kubelet has forgotten its claim\n", name);
    return true;
}

static bool is_looking, is_done;

static void look_for_forgotten(void *context)
{
    struct kubelet *kubelet = context;
    json_t *sessions = NULL, *session;
    size_t i;
    is_done = node_request(kubelet, "GET", "/v1/sessions", NULL, &sessions, NULL) == 0;
    json_array_foreach(sessions, i, session)
    {
        const char *uid = claim_of(session);
        struct task_lock lock;
        if (!uid)
            continue;
        task_lock(&lock, uid);
        is_done &= end_if_forgotten(kubelet, session, uid);
        task_unlock(&lock);
    }
    json_decref(sessions);
    is_looking = false;
}

void dra_forgotten_tick(struct kubelet *kubelet)
{
    static uint64_t looked_ns;
    if (is_done || is_looking || (looked_ns && monotonic_ns() - looked_ns < AGAIN_NS))
        return;
    looked_ns = monotonic_ns();
    is_looking = true;
    if (!task_start(look_for_forgotten, kubelet))
        is_looking = false;
}
