/* kept_handles.h - the structs of destroyed handles of one kind.
 *
 * A destroyed handle does not become another object's until many more were destroyed: a program that uses it meanwhile
 * gets an error. */
#ifndef GPUSLICE_SIMGPU_DRIVER_KEPT_HANDLES_H
#define GPUSLICE_SIMGPU_DRIVER_KEPT_HANDLES_H

#include <pthread.h>
#include <sys/queue.h>

/* A member of the struct that is kept. */
struct kept_handle {
    STAILQ_ENTRY(kept_handle) entry;
    void *handle;
};

struct kept_handles {
    pthread_mutex_t lock;
    STAILQ_HEAD(, kept_handle) oldest_first;
    unsigned count;
};

#define KEPT_HANDLES_INITIALIZER(handles)                                                                    \
    {                                                                                                        \
        .lock = PTHREAD_MUTEX_INITIALIZER, .oldest_first = STAILQ_HEAD_INITIALIZER((handles).oldest_first)   \
    }

/* The handle that was destroyed longest ago, its struct as it was left; NULL while too few have been. */
void *kept_handles_take(struct kept_handles *handles);
/* `place` is in the struct of `handle`. */
void kept_handles_add(struct kept_handles *handles, void *handle, struct kept_handle *place);

#endif
