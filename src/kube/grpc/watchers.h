/* watchers.h - calls that stay open, from clients that follow something. */
#pragma once

#include <sys/queue.h>

#include "kube/grpc/grpc.h"

struct watcher;
LIST_HEAD(watchers, watcher);

/* Call `tell` for the call now, and at each watchers_tell(), until the client goes. */
void watchers_add(struct watchers *watchers, struct grpc_call *call,
                  void (*tell)(void *context, struct grpc_call *call), void *context);
void watchers_tell(struct watchers *watchers, void (*tell)(void *context, struct grpc_call *call),
                   void *context);
