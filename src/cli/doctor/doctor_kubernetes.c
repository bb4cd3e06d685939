/* The check of a Kubernetes node: who offers its GPUs. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/doctor_run.h"

/* The socket of another plug-in whose name suggests GPUs; "" if there is none. */
static void find_rival(const char *folder_path, char rival[static 128])
{
    cleanup_dir DIR *folder = opendir(folder_path);
    rival[0] = '\0';
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (strstr(entry->d_name, ".sock") && strstr(entry->d_name, "gpu") &&
            !strstr(entry->d_name, "gpuslice"))
            snprintf(rival, 128, "%.120s", entry->d_name);
}

static bool has_slices(const char *folder_path)
{
    cleanup_dir DIR *folder = opendir(folder_path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (strstr(entry->d_name, ".sock") && strstr(entry->d_name, "gpuslice"))
            return true;
    return false;
}

/* containerd 1.7 accepts CDI names from a kubelet only if its configuration says so. */
static bool is_cdi_off(void)
{
    char *const words[] = {"containerd", "config", "dump", NULL};
    char text[65536];
    return doctor_run(words, DOCTOR_PLAIN, text, sizeof(text)) == 0 && strstr(text, "enable_cdi = false");
}

/* The first of the notes that gpuslice-kubelet has for whoever runs the node; "" if there is none. */
static void read_note(const char *kubelet, char note[static 700])
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/plugins/gpu.gpuslice.io/notes", kubelet);
    cleanup_file FILE *file = fopen(path, "re");
    note[0] = '\0';
    if (file && fgets(note, 700, file))
        note[strcspn(note, "\n")] = '\0';
}

void doctor_kubernetes(const struct doctor *doctor, struct doctor_finding *finding)
{
    char kubelet[PATH_MAX], plugins[PATH_MAX + 32], registration[PATH_MAX + 64], rival[128], note[700];
    snprintf(kubelet, sizeof(kubelet), "%s/var/lib/kubelet", doctor->root);
    snprintf(plugins, sizeof(plugins), "%s/device-plugins", kubelet);
    snprintf(registration, sizeof(registration), "%s/plugins_registry/gpu.gpuslice.io-reg.sock", kubelet);
    if (access(kubelet, F_OK) != 0) {
        doctor_say(finding, DOCTOR_OK, "", "this is not a Kubernetes node");
        return;
    }
    if (access(plugins, R_OK | X_OK) != 0) {
        doctor_say(finding, DOCTOR_OK, "", "a Kubernetes node; only root sees what it offers");
        return;
    }
    bool is_driver = access(registration, F_OK) == 0, is_plugin = has_slices(plugins);
    find_rival(plugins, rival);
    read_note(kubelet, note);
    if (rival[0] && (is_driver || is_plugin))
        doctor_say(finding, DOCTOR_WARNING, "remove it from this node",
                   "a Kubernetes node with the device plug-in at %s beside GPU Slice's: pods that ask for "
                   "its devices get whole GPUs",
                   rival);
    else if (is_driver && is_cdi_off())
        doctor_say(finding, DOCTOR_WARNING,
                   "set 'enable_cdi = true' in containerd's configuration (share/doc/gpuslice/kubernetes.md)",
                   "a Kubernetes node whose containerd ignores the CDI names of pods ('enable_cdi = false'): "
                   "pods with claims start without a GPU");
    else if ((is_driver || is_plugin) && note[0])
        doctor_say(finding, DOCTOR_WARNING, "see the node's events and share/doc/gpuslice/kubernetes.md",
                   "a Kubernetes node; gpuslice-kubelet says: %s", note);
    else if (is_driver || is_plugin)
        doctor_say(finding, DOCTOR_OK, "", "a Kubernetes node; pods get sessions by %s%s%s",
                   is_driver ? "DRA" : "", is_driver && is_plugin ? " and " : "",
                   is_plugin ? "the device plug-in" : "");
    else
        doctor_say(finding, DOCTOR_WARNING, "see share/doc/gpuslice/kubernetes.md",
                   "a Kubernetes node without gpuslice-kubelet: its pods do not get sessions");
}
