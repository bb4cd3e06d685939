/* rivals.h - finds other device plug-ins that offer this node's GPUs: their containers would get whole GPUs beside
 * ours. */
#pragma once

#include "kube/kubelet.h"

/* Ask every other plug-in for its list, once; called every second. True once it is known that no other plug-in
 * offers our GPUs. If one does, it is reported, and the loop ends with -EBUSY. */
bool rivals_are_absent(struct kubelet *kubelet, const char *own_socket);
void rivals_stop(void);
