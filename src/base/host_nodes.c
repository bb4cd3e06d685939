#include "base/host_nodes.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* Set a bit for each number in a list such as "0-3,8", as sysfs has them. False where there is no such file. */
static bool read_list(const char *sysfs, const char *name, uint64_t bits[static HOST_NODE_WORDS])
{
    char path[PATH_MAX];
    unsigned first, last;
    int more = ',';
    snprintf(path, sizeof(path), "%s/devices/system/node/%s", sysfs, name);
    cleanup_file FILE *file = fopen(path, "re");
    while (file && more == ',' && fscanf(file, "%u", &first) == 1) {
        last = first;
        more = fgetc(file);
        if (more == '-' && fscanf(file, "%u", &last) == 1)
            more = fgetc(file);
        for (unsigned node = first; node <= last && node < HOST_NODES_MAX; node++)
            bits[node / 64] |= UINT64_C(1) << (node % 64);
    }
    return file;
}

void host_nodes_read(const char *sysfs, struct host_nodes *nodes)
{
    uint64_t with_memory[HOST_NODE_WORDS] = {0}, with_cpus[HOST_NODE_WORDS] = {0};
    *nodes = (struct host_nodes){0};
    if (!read_list(sysfs, "has_memory", with_memory) || !read_list(sysfs, "has_cpu", with_cpus))
        return;
    for (unsigned i = 0; i < HOST_NODE_WORDS; i++) {
        nodes->home[i] = with_memory[i] & with_cpus[i];
        nodes->has_others |= (with_memory[i] & ~with_cpus[i]) != 0;
    }
}

bool host_nodes_has(const struct host_nodes *nodes, int node)
{
    return node >= 0 && node < (int)HOST_NODES_MAX && nodes->home[node / 64] >> (node % 64) & 1;
}

/* --- Bytes ----------------------------------------------------------------------------------------- */

/* The sum of the lines with these words, which the kernel has in kB: "MemFree:  1234 kB", or "Node 0 MemFree: ...". */
static bool read_sum(const char *path, const char *const words[], uint64_t *bytes)
{
    char line[256];
    bool found = false;
    cleanup_file FILE *file = fopen(path, "re");
    *bytes = 0;
    while (file && fgets(line, sizeof(line), file)) {
        uint64_t kilobytes;
        for (const char *const *word = words; *word; word++) {
            const char *at = strstr(line, *word);
            if (!at || (at > line && at[-1] != ' ') ||
                sscanf(at + strlen(*word), "%" SCNu64, &kilobytes) != 1)
                continue;
            *bytes += kilobytes << 10;
            found = true;
        }
    }
    return found;
}

static bool read_of_node(const char *sysfs, int node, const char *const words[], uint64_t *bytes)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/devices/system/node/node%d/meminfo", sysfs, node);
    return read_sum(path, words, bytes);
}

uint64_t host_node_room(const char *sysfs, int node)
{
    static const char *const words[] = {"MemFree:", "Active(file):", "Inactive(file):", NULL};
    uint64_t bytes;
    return read_of_node(sysfs, node, words, &bytes) ? bytes : 0;
}

/* The kernel's own figure of what is available is for all nodes together. */
static void leave_out_others(const char *sysfs, const struct host_nodes *nodes, uint64_t *total_bytes,
                             uint64_t *available_bytes)
{
    static const char *const words[] = {"MemTotal:", NULL};
    uint64_t total = 0, room = 0, bytes;
    for (int node = 0; node < (int)HOST_NODES_MAX; node++) {
        if (!host_nodes_has(nodes, node))
            continue;
        total += read_of_node(sysfs, node, words, &bytes) ? bytes : 0;
        room += host_node_room(sysfs, node);
    }
    *total_bytes = total < *total_bytes ? total : *total_bytes;
    *available_bytes = room < *available_bytes ? room : *available_bytes;
}

bool host_memory_read(const char *sysfs, uint64_t *total_bytes, uint64_t *available_bytes)
{
    static const char *const total_words[] = {"MemTotal:", NULL}, *const room_words[] = {"MemAvailable:",
                                                                                         NULL};
    struct host_nodes nodes;
    if (!read_sum("/proc/meminfo", total_words, total_bytes) ||
        !read_sum("/proc/meminfo", room_words, available_bytes))
        return false;
    host_nodes_read(sysfs, &nodes);
    if (nodes.has_others)
        leave_out_others(sysfs, &nodes, total_bytes, available_bytes);
    return true;
}
