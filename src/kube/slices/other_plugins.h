/* other_plugins.h - finds other device plug-ins that offer this node's GPUs: their containers would get whole GPUs beside
 * ours. */
#pragma once

#include "kube/kubelet.h"

/* Ask every other plug-in for its list, once; called every second. True once it is known that no other plug-in
 * offers our GPUs. If one does, it is reported, and the loop ends with -EBUSY. */
bool other_plugins_are_absent(struct kubelet *kubelet, const char *own_socket);
void other_plugins_stop(void);
