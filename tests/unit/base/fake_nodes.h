/* fake_nodes.h - a folder that stands for /sys, with the NUMA nodes that a test puts there. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FAKE_NODES_PATH 64

static inline bool fake_nodes_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    bool is_written = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && is_written;
}

static inline int fake_nodes_begin(char sysfs[static FAKE_NODES_PATH])
{
    char command[256];
    strcpy(sysfs, "/tmp/gpuslice-nodes-XXXXXX");
    if (!mkdtemp(sysfs))
        return -1;
    snprintf(command, sizeof(command), "mkdir -p %s/devices/system/node", sysfs);
    return system(command);
}

static inline int fake_nodes_end(const char *sysfs)
{
    char command[256];
    snprintf(command, sizeof(command), "rm -rf %s", sysfs);
    return system(command);
}

/* `name` is has_memory or has_cpu; `list` as in "0-1,4\n". */
static inline bool fake_nodes_list(const char *sysfs, const char *name, const char *list)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/devices/system/node/%s", sysfs, name);
    return fake_nodes_write(path, list);
}

static inline bool fake_node(const char *sysfs, int node, unsigned long long total_kib,
                             unsigned long long free_kib, unsigned long long files_kib)
{
    char path[256], text[512];
    snprintf(path, sizeof(path), "%s/devices/system/node/node%d", sysfs, node);
    mkdir(path, 0755);
    strcat(path, "/meminfo");
    snprintf(text, sizeof(text),
             "Node %d MemTotal:       %llu kB\nNode %d MemFree:        %llu kB\nNode %d Active:   77 kB\n"
             "Node %d Active(file):   0 kB\nNode %d Inactive(file): %llu kB\n",
             node, total_kib, node, free_kib, node, node, node, files_kib);
    return fake_nodes_write(path, text);
}
