/* shared_fabric.h - fabric handles: 64 bytes by which another process reaches memory, without a descriptor.
 *
 * The bytes name a file of their maker's process. The file says what the memory is, and which other file of that
 * process the memory is. So the memory can be imported as long as its maker has it, by processes that may look into
 * the maker's files: those of the same user, or root. A card's driver asks for an IMEX channel instead; whether the
 * process may use one is a constant (IMEX). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "simgpu/memory/shared_descriptor.h"

#define FABRIC_HANDLE_BYTES 64

/* Whether memory of a device (else of the host) can have these handle types: NOT_SUPPORTED where nothing here has
 * them, NOT_PERMITTED for fabric handles without an IMEX channel. */
CUresult shared_handle_types_check(unsigned long long types, bool is_device);

/* The same of the one type that memory is exported or imported by; INVALID_VALUE for none. */
CUresult shared_handle_type_check(CUmemAllocationHandleType type);

/* Make the file that a handle names. It is kept open as long as the memory can be imported. -1 if the kernel
 * refuses. */
int shared_fabric_make(const struct shared_descriptor *what, int memory);
/* The handle that names it. */
void shared_fabric_name(int file, unsigned char handle[static FABRIC_HANDLE_BYTES]);

/* What a handle brings; false if it is not one of these, or its maker has gone. The caller closes `*memory`. */
bool shared_fabric_read(const unsigned char handle[static FABRIC_HANDLE_BYTES],
                        struct shared_descriptor *what, int *memory);
