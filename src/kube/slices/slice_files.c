#include "kube/slices/slice_files.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/session_fields.h"
#include "kube/grpc/messages.h"

const char *slice_file_name_at(const struct slice_file *file, size_t i)
{
    return session_text(json_array_get(file->devices, i), "name");
}

/* A session is named after its own slices. */
static size_t count_own(const struct slice_file *file)
{
    size_t all = json_array_size(file->devices), count;
    char name[SLICES_NAME_TEXT];
    cleanup_free const char **ids = message_array(all, sizeof(*ids));
    for (size_t i = 0; i < all; i++)
        ids[i] = slice_file_name_at(file, i);
    for (count = all; count > 0; count--) {
        slices_session_name(ids, count, name);
        if (strcmp(name, file->session) == 0)
            return count;
    }
    return all;
}

bool slice_file_read(const char *folder, const char *name, struct slice_file *found)
{
    char path[PATH_MAX];
    *found = (struct slice_file){.document = NULL};
    if (!slices_session_of(name, found->session))
        return false;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    slices_file_name(found->session, found->file);
    found->document = json_load_file(path, 0, NULL);
    found->devices = json_object_get(found->document, "devices");
    found->own_count = count_own(found);
    return true;
}

bool slice_files_are_left(const char *folder_path)
{
    char session[SLICES_NAME_TEXT];
    cleanup_dir DIR *folder = opendir(folder_path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (slices_session_of(entry->d_name, session))
            return true;
    return false;
}
