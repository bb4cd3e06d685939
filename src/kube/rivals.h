/* rivals.h - other device plug-ins that offer this node's GPUs: containers would get them whole, beside ours. */
#pragma once

#include "kube/kubelet.h"

/* Look at every other plug-in's list, once; called every second. True when it is known that there is none. Where there is one
 * it is said, and the loop ends with -EBUSY. */
bool rivals_are_absent(struct kubelet *kubelet, const char *own_socket);
void rivals_stop(void);
