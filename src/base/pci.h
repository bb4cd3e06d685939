/* pci.h - where a card is in the machine, read from sysfs. `sysfs` is "/sys", `address` like "0000:3b:00.0". */
#pragma once

#include <stdbool.h>

/* The NUMA node that the card is nearest to; -1 when it is unknown or the machine has no nodes. */
int pci_numa_node(const char *sysfs, const char *address);

/* The PCI root that the card hangs on, as Kubernetes writes it in resource.kubernetes.io/pcieRoot: "pci0000:00".
 * False when sysfs does not tell. */
#define PCI_ROOT_TEXT 64
bool pci_root(const char *sysfs, const char *address, char root[static PCI_ROOT_TEXT]);
