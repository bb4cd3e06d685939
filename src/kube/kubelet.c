#include "kube/kubelet.h"

#include <errno.h>
#include <stdio.h>
#include <sys/un.h>

int kubelet_path(const struct kubelet *kubelet, char path[static PATH_MAX], const char *below,
                 struct error *error)
{
    int length = snprintf(path, PATH_MAX, "%s/%s", kubelet->options.kubelet_dir, below);
    if (length >= (int)sizeof(((struct sockaddr_un *)0)->sun_path))
        return error_set(error, ENAMETOOLONG, NULL,
                         "the socket's path %.200s has %d bytes; expected at most 107; use a kubelet with a "
                         "shorter --root-dir",
                         path, length);
    return 0;
}

void kubelet_look_in(struct kubelet *kubelet, uint64_t usec)
{
    sd_event_source_set_time_relative(kubelet->tick, usec);
    sd_event_source_set_enabled(kubelet->tick, SD_EVENT_ONESHOT);
}

void kubelet_look_soon(struct kubelet *kubelet)
{
    kubelet_look_in(kubelet, 0);
}
