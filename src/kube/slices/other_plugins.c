#include "kube/slices/other_plugins.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/session_fields.h"
#include "kube/grpc/messages.h"

#define TIMEOUT_USEC UINT64_C(3000000) /* a socket file may stay when nobody serves it any more */
#define RIVALS_MAX 32

static struct look {
    struct kubelet *kubelet;
    struct grpc_request *request;
    char name[NAME_MAX + 1];
} looks[RIVALS_MAX];
static unsigned look_count, looks_open;
static bool has_looked;

/* Our "GPU-8f2d..." may be "GPU-8f2d...::3" or "8f2d..." in another plug-in. */
static const char *gpu_in(const struct kubelet *kubelet, const char *device)
{
    size_t i;
    json_t *gpu;
    json_array_foreach(kubelet->gpus, i, gpu)
    {
        const char *uuid = session_text(gpu, "uuid"), *dash = strchr(uuid, '-');
        if (dash && strstr(device, dash + 1))
            return uuid;
    }
    return NULL;
}

static void end_look(struct look *look)
{
    look->request = NULL;
    if (--looks_open == 0)
        kubelet_look_soon(look->kubelet);
}

static void give_up(struct look *look)
{
    grpc_give_up(look->request);
    end_look(look);
}

static void on_list(void *context, const uint8_t *message, size_t bytes)
{
    struct look *look = context;
    Kubelet__DeviceList *list = kubelet__device_list__unpack(NULL, bytes, message);
    for (size_t i = 0; list && i < list->n_devices; i++) {
        const char *uuid = gpu_in(look->kubelet, list->devices[i]->id);
        if (!uuid)
            continue;
        fprintf(stderr,
                "gpuslice-kubelet: the device plug-in at %s offers %s too, and would give pods whole GPUs; "
                "remove it from this node, or use --mode dra\n",
                look->name, uuid);
        sd_event_exit(look->kubelet->loop, -EBUSY);
        break;
    }
    if (list)
        kubelet__device_list__free_unpacked(list, NULL);
    if (look->request)
        give_up(look); /* the first list is enough */
}

static void on_end(void *context, enum grpc_status status, const char *text)
{
    end_look(context);
}

static const struct grpc_answer on_answer = {on_list, on_end};

static void look_at(struct kubelet *kubelet, const char *folder, const char *name)
{
    struct look *look = &looks[look_count++];
    char path[PATH_MAX + NAME_MAX + 2];
    *look = (struct look){.kubelet = kubelet};
    snprintf(look->name, sizeof(look->name), "%s", name);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    looks_open++;
    look->request = grpc_ask(kubelet->loop, path, "/v1beta1.DevicePlugin/ListAndWatch", "", 0, TIMEOUT_USEC,
                             &on_answer, look);
}

bool other_plugins_are_absent(struct kubelet *kubelet, const char *own_socket)
{
    char folder_path[PATH_MAX];
    const char *own = strrchr(own_socket, '/');
    if (has_looked)
        return looks_open == 0;
    has_looked = true;
    if (kubelet_path(kubelet, folder_path, "device-plugins", NULL) < 0)
        return true;
    cleanup_dir DIR *folder = opendir(folder_path);
    for (struct dirent *entry; folder && look_count < RIVALS_MAX && (entry = readdir(folder));) {
        const char *end = strrchr(entry->d_name, '.');
        if (end && strcmp(end, ".sock") == 0 && strcmp(entry->d_name, "kubelet.sock") != 0 &&
            strcmp(entry->d_name, own ? own + 1 : own_socket) != 0)
            look_at(kubelet, folder_path, entry->d_name);
    }
    return looks_open == 0;
}

void other_plugins_stop(void)
{
    for (unsigned i = 0; i < look_count; i++)
        if (looks[i].request)
            give_up(&looks[i]);
}
