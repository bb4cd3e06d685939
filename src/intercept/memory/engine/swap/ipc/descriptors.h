/* descriptors.h - hands out descriptors of this process to others of the same user (or root), by a number that they
 * were told.
 *
 * From the first descriptor on, a thread of ours serves a socket. The socket's name has the process and a random number in
 * it, only its user may connect, and the kernel names the caller. So a process fetches only what was handed out, and only a
 * process that could read this process's memory anyway can fetch anything, or keep the thread from serving others. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Where to fetch a descriptor. */
struct descriptor_place {
    uint64_t secret, number;
    int32_t pid;
};

/* Hand out `fd`. It becomes ours even if this fails. 0 or a negative errno. */
int descriptors_add(int fd, struct descriptor_place *place);
void descriptors_remove(uint64_t number);

/* Whether this process has handed it out itself. */
bool descriptors_is_own(const struct descriptor_place *place);

/* Fetch another process's descriptor. Returns it, or a negative errno; waits for some seconds at most. */
int descriptors_fetch(const struct descriptor_place *place);
