#include "kube/grpc/watchers.h"

#include <stdlib.h>

struct watcher {
    LIST_ENTRY(watcher) next;
    struct grpc_call *call;
};

static void on_gone(void *context, struct grpc_call *call)
{
    struct watcher *watcher = context;
    LIST_REMOVE(watcher, next);
    free(watcher);
}

void watchers_add(struct watchers *watchers, struct grpc_call *call,
                  void (*tell)(void *context, struct grpc_call *call), void *context)
{
    struct watcher *watcher = calloc(1, sizeof(*watcher));
    if (!watcher) {
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    watcher->call = call;
    LIST_INSERT_HEAD(watchers, watcher, next);
    grpc_call_watch(call, on_gone, watcher);
    tell(context, call);
}

void watchers_tell(struct watchers *watchers, void (*tell)(void *context, struct grpc_call *call),
                   void *context)
{
    struct watcher *watcher, *next;
    for (watcher = LIST_FIRST(watchers); watcher; watcher = next) {
        next = LIST_NEXT(watcher, next);
        tell(context, watcher->call);
    }
}
