/* descriptors.h - descriptors of this process that others of the same user may fetch, by a number that they were told.
 *
 * A thread of ours serves a socket from the first one on: its name has the process and a random number in it, and it asks
 * the kernel who calls. So nothing is fetched that was not handed out, and by nobody who could not look into this process's
 * memory anyway. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* Where to fetch one. */
struct descriptor_place {
    uint64_t secret, number;
    int32_t pid;
};

/* Hand out `fd`, which becomes ours also where that fails. 0 or a negative errno. */
int descriptors_add(int fd, struct descriptor_place *place);
void descriptors_remove(uint64_t number);

/* Fetch another process's. The descriptor or a negative errno; waits for some seconds at most. */
int descriptors_fetch(const struct descriptor_place *place);
