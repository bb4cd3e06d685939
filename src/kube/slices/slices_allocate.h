/* slices_allocate.h - the kubelet gives slices to containers: makes their session, and says what to start each
 * container with. */
#pragma once

#include "kube/grpc/grpc.h"
#include "kube/kubelet.h"

/* A method (grpc.h) whose context begins with a `struct kubelet *`. */
void slices_allocate(void *context, struct grpc_call *call, const uint8_t *message, size_t bytes);
