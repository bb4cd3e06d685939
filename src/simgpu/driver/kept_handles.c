#include "simgpu/driver/kept_handles.h"

#include <stddef.h>

#define LEAST_KEPT 1024u

void *kept_handles_take(struct kept_handles *handles)
{
    struct kept_handle *oldest = NULL;
    pthread_mutex_lock(&handles->lock);
    if (handles->count > LEAST_KEPT) {
        oldest = STAILQ_FIRST(&handles->oldest_first);
        STAILQ_REMOVE_HEAD(&handles->oldest_first, entry);
        handles->count--;
    }
    pthread_mutex_unlock(&handles->lock);
    return oldest ? oldest->handle : NULL;
}

void kept_handles_add(struct kept_handles *handles, void *handle, struct kept_handle *place)
{
    place->handle = handle;
    pthread_mutex_lock(&handles->lock);
    STAILQ_INSERT_TAIL(&handles->oldest_first, place, entry);
    handles->count++;
    pthread_mutex_unlock(&handles->lock);
}
