/* cleanup.h - variables that clean up after themselves when they leave scope.
 *
 *   cleanup_free char *text = strdup(...);
 *   cleanup_close int fd = open(...);
 *
 * Give one away with steal_pointer() or steal_fd(). */
#pragma once

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free_at(void *pointer_address)
{
    free(*(void **)pointer_address);
}

static inline void cleanup_close_at(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void cleanup_file_at(FILE **file)
{
    if (*file)
        fclose(*file);
}

static inline void cleanup_dir_at(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

#define cleanup_free __attribute__((cleanup(cleanup_free_at)))
#define cleanup_close __attribute__((cleanup(cleanup_close_at)))
#define cleanup_file __attribute__((cleanup(cleanup_file_at)))
#define cleanup_dir __attribute__((cleanup(cleanup_dir_at)))

static inline int steal_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

#define steal_pointer(variable)                                                                              \
    ({                                                                                                       \
        __typeof__(variable) taken_ = (variable);                                                            \
        (variable) = NULL;                                                                                   \
        taken_;                                                                                              \
    })
