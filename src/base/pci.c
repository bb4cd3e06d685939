#include "base/pci.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

int pci_numa_node(const char *sysfs, const char *address)
{
    char path[PATH_MAX];
    int node = -1;
    snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/numa_node", sysfs, address);
    cleanup_file FILE *file = *address ? fopen(path, "re") : NULL;
    return file && fscanf(file, "%d", &node) == 1 && node >= 0 ? node : -1;
}

/* /sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0 */
bool pci_root(const char *sysfs, const char *address, char root[static PCI_ROOT_TEXT])
{
    char path[PATH_MAX], real[PATH_MAX];
    snprintf(path, sizeof(path), "%s/bus/pci/devices/%s", sysfs, address);
    const char *at = *address && realpath(path, real) ? strstr(real, "/pci") : NULL;
    if (!at || strcspn(at + 1, "/") >= PCI_ROOT_TEXT)
        return false;
    snprintf(root, PCI_ROOT_TEXT, "%.*s", (int)strcspn(at + 1, "/"), at + 1);
    return true;
}
