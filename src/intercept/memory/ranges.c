#include "intercept/memory/ranges.h"

#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

#define FIRST_CAPACITY 128u

struct range_node {
    struct range range;
    uint32_t left, right; /* indices; 0: none */
};

static size_t node_bytes(uint32_t capacity)
{
    return (size_t)capacity * sizeof(struct range_node);
}

/* A node is above those of lower priority. */
static uint64_t priority(const struct range_node *node)
{
    uint64_t mixed = (node->range.begin ^ node->range.begin >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return mixed ^ mixed >> 32;
}

static uint64_t end_of(const struct range_node *node)
{
    return node->range.begin + node->range.bytes;
}

/* --- Nodes ----------------------------------------------------------------------------------------- */

static bool grow(struct ranges *ranges)
{
    uint32_t capacity = ranges->capacity ? ranges->capacity * 2 : FIRST_CAPACITY;
    void *memory =
        mmap(NULL, node_bytes(capacity), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    /* A forked child holds nothing and never looks here. */
    madvise(memory, node_bytes(capacity), MADV_DONTFORK);
    if (ranges->nodes) {
        memcpy(memory, ranges->nodes, node_bytes(ranges->used));
        munmap(ranges->nodes, node_bytes(ranges->capacity));
    } else {
        ranges->used = 1;
    }
    ranges->nodes = memory;
    ranges->capacity = capacity;
    return true;
}

/* A node for a new range; 0 without memory. */
static uint32_t take_node(struct ranges *ranges)
{
    uint32_t index = ranges->spare;
    if (index) {
        ranges->spare = ranges->nodes[index].left;
        return index;
    }
    if (ranges->used == ranges->capacity && !grow(ranges))
        return 0;
    return ranges->used++;
}

static void give_node_back(struct ranges *ranges, uint32_t index)
{
    GS_CHECK(index && index < ranges->used);
    ranges->nodes[index].left = ranges->spare;
    ranges->spare = index;
}

/* --- The tree -------------------------------------------------------------------------------------- */

/* Make one tree of two; all of `left` begins below all of `right`. */
static uint32_t merge(struct range_node *nodes, uint32_t left, uint32_t right)
{
    uint32_t root, *link = &root;
    while (left && right) {
        if (priority(&nodes[left]) >= priority(&nodes[right])) {
            *link = left;
            link = &nodes[left].right;
            left = *link;
        } else {
            *link = right;
            link = &nodes[right].left;
            right = *link;
        }
    }
    *link = left ? left : right;
    return root;
}

/* Make two trees of one: what begins below `begin`, and the rest. */
static void split(struct range_node *nodes, uint32_t tree, uint64_t begin, uint32_t *below, uint32_t *rest)
{
    while (tree) {
        struct range_node *node = &nodes[tree];
        if (node->range.begin < begin) {
            *below = tree;
            below = &node->right;
            tree = *below;
        } else {
            *rest = tree;
            rest = &node->left;
            tree = *rest;
        }
    }
    *below = *rest = 0;
}

/* The link to the node that begins exactly at `begin`, or NULL. */
static uint32_t *link_to(struct ranges *ranges, uint64_t begin)
{
    uint32_t *link = &ranges->root;
    while (*link) {
        struct range_node *node = &ranges->nodes[*link];
        if (node->range.begin == begin)
            return link;
        link = begin < node->range.begin ? &node->left : &node->right;
    }
    return NULL;
}

static void remove_at(struct ranges *ranges, uint32_t *link)
{
    uint32_t index = *link;
    const struct range_node *node = &ranges->nodes[index];
    *link = merge(ranges->nodes, node->left, node->right);
    give_node_back(ranges, index);
}

/* The last node that begins at `address` or below; the first that begins at `address` or above. 0: none. */
static uint32_t last_up_to(const struct ranges *ranges, uint64_t address)
{
    uint32_t best = 0;
    for (uint32_t at = ranges->root; at;) {
        bool is_below = ranges->nodes[at].range.begin <= address;
        if (is_below)
            best = at;
        at = is_below ? ranges->nodes[at].right : ranges->nodes[at].left;
    }
    return best;
}

static uint32_t first_from(const struct ranges *ranges, uint64_t address)
{
    uint32_t best = 0;
    for (uint32_t at = ranges->root; at;) {
        bool is_above = ranges->nodes[at].range.begin >= address;
        if (is_above)
            best = at;
        at = is_above ? ranges->nodes[at].left : ranges->nodes[at].right;
    }
    return best;
}

static void remove_overlapping(struct ranges *ranges, const struct range *range)
{
    uint32_t index = last_up_to(ranges, range->begin);
    if (index && end_of(&ranges->nodes[index]) > range->begin)
        remove_at(ranges, link_to(ranges, ranges->nodes[index].range.begin));
    while ((index = first_from(ranges, range->begin)) != 0 &&
           ranges->nodes[index].range.begin - range->begin < range->bytes)
        remove_at(ranges, link_to(ranges, ranges->nodes[index].range.begin));
}

static void enter(struct ranges *ranges, uint32_t index, const struct range *range)
{
    struct range_node *nodes = ranges->nodes, *node = &nodes[index];
    *node = (struct range_node){.range = *range};
    uint64_t own = priority(node);
    uint32_t *link = &ranges->root;
    while (*link && priority(&nodes[*link]) >= own)
        link = range->begin < nodes[*link].range.begin ? &nodes[*link].left : &nodes[*link].right;
    split(nodes, *link, range->begin, &node->left, &node->right);
    *link = index;
}

/* --- For everyone ---------------------------------------------------------------------------------- */

bool ranges_put(struct ranges *ranges, struct range range)
{
    GS_CHECK(range.bytes && range.begin + range.bytes - 1 >= range.begin);
    lock_take(&ranges->lock);
    uint32_t index = take_node(ranges);
    if (index) {
        remove_overlapping(ranges, &range);
        enter(ranges, index, &range);
    }
    lock_leave(&ranges->lock);
    return index != 0;
}

void ranges_remove(struct ranges *ranges, uint64_t begin, unsigned kind)
{
    lock_take(&ranges->lock);
    uint32_t *link = link_to(ranges, begin);
    if (link && ranges->nodes[*link].range.kind == kind)
        remove_at(ranges, link);
    lock_leave(&ranges->lock);
}

bool ranges_find(struct ranges *ranges, uint64_t address, struct range *found)
{
    lock_take(&ranges->lock);
    uint32_t index = last_up_to(ranges, address);
    bool is_inside = index && address - ranges->nodes[index].range.begin < ranges->nodes[index].range.bytes;
    if (is_inside)
        *found = ranges->nodes[index].range;
    lock_leave(&ranges->lock);
    return is_inside;
}

bool ranges_next(struct ranges *ranges, uint64_t address, struct range *found)
{
    lock_take(&ranges->lock);
    uint32_t index = first_from(ranges, address);
    if (index)
        *found = ranges->nodes[index].range;
    lock_leave(&ranges->lock);
    return index != 0;
}
