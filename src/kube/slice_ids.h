/* slice_ids.h - what slices are called, and whose they are.
 *
 * A slice's ID is UUID-slice-N. What a container is given together is one session, which is called after those IDs. */
#pragma once

#include "kube/kubelet.h"

#define SLICES_PREFIX "slices-" /* of the names of their sessions */
#define SLICES_NAME_TEXT 32
#define SLICE_ID_TEXT 96

void slice_ids_format(const char *uuid, unsigned number, char id[static SLICE_ID_TEXT]);

/* The GPU whose slice this is; NULL: of none here. */
json_t *slice_ids_gpu(const struct kubelet *kubelet, const char *id);

/* The memory of each of its slices. */
uint64_t slice_bytes(const struct kubelet *kubelet, const json_t *gpu);

/* How many of the slices are this GPU's. */
size_t slice_ids_count(const struct kubelet *kubelet, const json_t *gpu, char *const *ids, size_t count);

bool slice_ids_have(char *const *ids, size_t count, const char *id);

/* What the session of these slices is called, in whatever order they come. */
void slices_session_name(const char *const *ids, size_t count, char name[static SLICES_NAME_TEXT]);

/* The file of its CDI specification, without ".json". */
#define SLICES_FILE_TEXT 64
void slices_file_name(const char *session, char file[static SLICES_FILE_TEXT]);

/* Whose CDI specification the file is, of one in their folder; false where it is not a session's of slices. */
bool slices_session_of(const char *file, char session[static SLICES_NAME_TEXT]);
