/* uuid.h - a GPU's name among processes: 16 bytes, written GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx (or
 * MIG-...). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define GPU_UUID_BYTES 16
#define GPU_UUID_TEXT 41 /* "GPU-", 36 characters, zero */

/* Write "GPU-..." in lower case. Returns `text`. */
const char *gpu_uuid_format(const uint8_t uuid[static GPU_UUID_BYTES], char text[static GPU_UUID_TEXT]);

/* Make that "MIG-...", of a MIG instance. Returns `text`. */
const char *gpu_uuid_set_mig(char text[static GPU_UUID_TEXT]);

/* Read "GPU-...", "MIG-..." or the bare UUID, in either case. False, with nothing changed, for anything else.
 */
bool gpu_uuid_parse(const char *text, uint8_t uuid[static GPU_UUID_BYTES]);
