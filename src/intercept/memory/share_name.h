/* share_name.h - the name under which the processes of a session know memory that they hand to each other: a hash of what
 * the driver gives for it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of an IPC handle, a fabric handle, or a pool's export data. Never 0. */
uint64_t share_name_of_bytes(const void *bytes, size_t count);

/* Of the file behind a descriptor; 0: `fd` is not a descriptor. `*is_its_own`: no other memory has that name. */
uint64_t share_name_of_file(int fd, bool *is_its_own);
