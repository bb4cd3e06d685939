/* slices_allocate.h - the kubelet gives slices to containers: makes their session, and says what to start each
 * container with. */
#pragma once

#include "kube/grpc/grpc.h"
#include "kube/kubelet.h"

/* A method (grpc.h) whose context begins with a `struct kubelet *`. */
void slices_allocate(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes);

/* Add to `body`, for the daemon, what a session of these slices asks for: memory on each GPU, time, and whether its
 * memory can leave. -EINVAL if one of them belongs to no GPU of this node. */
int slices_fill_wish(const struct kubelet *kubelet, char *const *ids, size_t count, json_t *body,
                     struct error *error);
