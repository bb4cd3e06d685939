/* pci.h - where a card is in the machine, by sysfs. `sysfs` is "/sys", `address` like "0000:3b:00.0". */
#pragma once

#include <stdbool.h>

/* The memory node that it is nearest to; -1: not known, or of no importance. */
int pci_numa_node(const char *sysfs, const char *address);

/* What it hangs on, as Kubernetes' resource.kubernetes.io/pcieRoot has it: "pci0000:00". */
#define PCI_ROOT_TEXT 64
bool pci_root(const char *sysfs, const char *address, char root[static PCI_ROOT_TEXT]);
