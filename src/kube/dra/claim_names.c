#include "kube/dra/claim_names.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"

#define NAMES_MOST 128u

static int names_path(const struct kubelet *kubelet, const char *uid, char path[static PATH_MAX],
                      struct error *error)
{
    int length =
        snprintf(path, PATH_MAX, "%s/" CLAIM_NAMES_FOLDER "/%.60s", kubelet->options.kubelet_dir, uid);
    return length < PATH_MAX ? 0 : error_set_errno(error, ENAMETOOLONG, "cannot keep the claim's names");
}

unsigned claim_names_count(const struct kubelet *kubelet, const char *uid)
{
    char path[PATH_MAX];
    unsigned count = 0;
    if (names_path(kubelet, uid, path, NULL) < 0)
        return 0;
    cleanup_file FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "%9u", &count) != 1)
        return 0;
    return count < NAMES_MOST ? count : NAMES_MOST;
}

int claim_names_keep(const struct kubelet *kubelet, const char *uid, unsigned count, struct error *error)
{
    char path[PATH_MAX], draft[PATH_MAX + 8];
    int result = names_path(kubelet, uid, path, error);
    if (result < 0)
        return result;
    snprintf(draft, sizeof(draft), "%s.new", path);
    FILE *file = fopen(draft, "we");
    bool is_written =
        file && fprintf(file, "%u\n", count) > 0 && fflush(file) == 0 && fsync(fileno(file)) == 0;
    if (file)
        is_written &= fclose(file) == 0;
    return is_written && rename(draft, path) == 0 ? 0
                                                  : error_set_errno(error, errno, "cannot write %s", path);
}

bool claim_names_are_kept(const struct kubelet *kubelet, const char *uid)
{
    char path[PATH_MAX];
    return names_path(kubelet, uid, path, NULL) == 0 && access(path, F_OK) == 0;
}

void claim_names_forget(const struct kubelet *kubelet, const char *uid)
{
    char path[PATH_MAX];
    if (names_path(kubelet, uid, path, NULL) == 0)
        unlink(path);
}

bool claim_names_are_left(const struct kubelet *kubelet)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%.3000s/" CLAIM_NAMES_FOLDER, kubelet->options.kubelet_dir);
    cleanup_dir DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            return true;
    return false;
}
