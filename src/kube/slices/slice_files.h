/* slice_files.h - the CDI specifications of slices, which say on the node which slices each session has. */
#pragma once

#include "kube/slices/slice_ids.h"

/* First the names of the session's own slices, then names that it inherited. */
struct slice_file {
    char session[SLICES_NAME_TEXT], file[SLICES_FILE_TEXT];
    json_t *document; /* the caller drops it */
    json_t *devices;  /* in the document */
    size_t own_count;
};

/* Read `name` in `folder`. False if it is not a specification of slices. */
bool slice_file_read(const char *folder, const char *name, struct slice_file *found);

/* The name of the file's device `i`: a slice's ID. */
const char *slice_file_name_at(const struct slice_file *file, size_t i);

/* Whether the folder has one of them. */
bool slice_files_are_left(const char *folder);
