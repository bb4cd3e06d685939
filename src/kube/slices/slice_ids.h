/* slice_ids.h - names of slices, and which GPU each belongs to.
 *
 * A slice's ID is UUID-HASH-slice-N, with the hash of the resource's name: where the resource is renamed, the kubelet gives
 * the new one's slices while containers still have the old one's. The slices that a container gets together are one
 * session, whose name is made from those IDs. */
#pragma once

#include "kube/kubelet.h"

#define SLICES_LOCK "slices"    /* the lock for giving, changing and ending these sessions (tasks.h) */
#define SLICES_PREFIX "slices-" /* how the names of their sessions begin */
#define SLICES_NAME_TEXT 32
#define SLICE_ID_TEXT 96

void slice_ids_format(const struct kubelet *kubelet, const char *uuid, unsigned number,
                      char id[static SLICE_ID_TEXT]);

/* The GPU that the slice belongs to; NULL: none of this node. */
json_t *slice_ids_gpu(const struct kubelet *kubelet, const char *id);

/* The memory of each slice of the GPU. */
uint64_t slice_bytes(const struct kubelet *kubelet, const json_t *gpu);

/* How many of the slices belong to this GPU. */
size_t slice_ids_count(const struct kubelet *kubelet, const json_t *gpu, char *const *ids, size_t count);

bool slice_ids_have(char *const *ids, size_t count, const char *id);

/* The name of the session of these slices; their order does not matter. */
void slices_session_name(const char *const *ids, size_t count, char name[static SLICES_NAME_TEXT]);

/* The name of the file with its CDI specification, without ".json". */
#define SLICES_FILE_TEXT 64
void slices_file_name(const char *session, char file[static SLICES_FILE_TEXT]);

/* The session whose CDI specification `file` is, the name of a file in their folder; false if it is not that of a
 * session of slices. */
bool slices_session_of(const char *file, char session[static SLICES_NAME_TEXT]);
