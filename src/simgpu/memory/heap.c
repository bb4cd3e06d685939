#include "simgpu/memory/heap.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK_BITS HEAP_BLOCK_BITS
#define BLOCK_BYTES (UINT64_C(1) << BLOCK_BITS)
#define UNIT_BYTES UINT64_C(512)
#define CLASSES 36u
#define NO_INDEX UINT32_MAX
#define RESERVED_MOST (UINT64_C(1) << 45)     /* a quarter of a process's addresses */
#define ADDRESS_HINT UINT64_C(0x7e0000000000) /* where the driver's are: high, below the libraries */

enum block_kind { BLOCK_FREE, BLOCK_PIECES, BLOCK_LARGE, BLOCK_RETIRED };

struct piece {
    struct memory_allocation allocation;
    uint32_t next_free;
};

/* Of a run of blocks (a free one, a large allocation) only the first and the last say more than `run_head`.
 */
struct block {
    uint8_t kind;
    uint8_t class;
    bool is_abandoned;       /* in a run's first block: never to be used again */
    uint32_t run_head;       /* the run's first block */
    uint32_t run_count;      /* in the first block: how many */
    uint32_t next, previous; /* free runs; blocks of a class with a free piece */
    uint32_t piece_count, used_count, first_free;
    struct piece *pieces; /* of BLOCK_PIECES; of BLOCK_LARGE's first block its single one */
};

static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t heap_address;
static int heap_file = -1;
static uint32_t block_count, block_frontier; /* none from the frontier on was ever used */
static struct block *blocks;
static uint32_t free_runs = NO_INDEX;
static uint32_t class_blocks[CLASSES];
static uint64_t next_id;

/* --- Sizes of pieces: 512 to 4096 in steps of 512, then four sizes to each doubling ---------------- */

static uint64_t class_bytes(unsigned class)
{
    if (class < 8)
        return (class + 1) * UNIT_BYTES;
    unsigned doubling = (class - 8) / 4, step = (class - 8) % 4;
    return (UINT64_C(4096) << doubling) / 4 * (5 + step);
}

static unsigned class_of(uint64_t bytes)
{
    uint64_t units = (bytes + UNIT_BYTES - 1) / UNIT_BYTES;
    if (units <= 8)
        return (unsigned)units - 1;
    unsigned doubling = 60 - (unsigned)__builtin_clzll(units - 1); /* 9..16 units: 0 */
    unsigned class = 8 + doubling * 4;
    while (class_bytes(class) < bytes)
        class ++;
    return class;
}

/* --- Runs of blocks -------------------------------------------------------------------------------- */

static uint64_t block_address(uint32_t index)
{
    return heap_address + ((uint64_t)index << BLOCK_BITS);
}

static void list_push(uint32_t *list, uint32_t index)
{
    blocks[index].previous = NO_INDEX;
    blocks[index].next = *list;
    if (*list != NO_INDEX)
        blocks[*list].previous = index;
    *list = index;
}

static void list_remove(uint32_t *list, uint32_t index)
{
    struct block *block = &blocks[index];
    if (block->previous != NO_INDEX)
        blocks[block->previous].next = block->next;
    else
        *list = block->next;
    if (block->next != NO_INDEX)
        blocks[block->next].previous = block->previous;
}

static void run_mark(uint32_t head, uint32_t count, enum block_kind kind)
{
    for (uint32_t index = head; index < head + count; index++) {
        blocks[index].kind = (uint8_t)kind;
        blocks[index].run_head = head;
    }
    blocks[head].run_count = count;
}

/* `count` blocks in a row, marked as `kind`; NO_INDEX when the reservation is used up. */
static uint32_t run_take(uint32_t count, enum block_kind kind)
{
    for (uint32_t head = free_runs; head != NO_INDEX; head = blocks[head].next) {
        uint32_t free_count = blocks[head].run_count;
        if (free_count < count)
            continue;
        list_remove(&free_runs, head);
        if (free_count > count) {
            run_mark(head + count, free_count - count, BLOCK_FREE);
            list_push(&free_runs, head + count);
        }
        run_mark(head, count, kind);
        return head;
    }
    if (block_count - block_frontier < count)
        return NO_INDEX;
    uint32_t head = block_frontier;
    block_frontier += count;
    run_mark(head, count, kind);
    return head;
}

static void run_give_back(uint32_t head)
{
    uint32_t count = blocks[head].run_count;
    if (blocks[head].is_abandoned) {
        run_mark(head, count, BLOCK_RETIRED);
        return;
    }
    /* The pages go back to the machine; what is not touched again costs nothing. */
    madvise((void *)(uintptr_t)block_address(head), (uint64_t)count << BLOCK_BITS, MADV_REMOVE);
    if (head + count < block_frontier && blocks[head + count].kind == BLOCK_FREE) {
        uint32_t after = head + count;
        list_remove(&free_runs, after);
        count += blocks[after].run_count;
    }
    if (head > 0 && blocks[head - 1].kind == BLOCK_FREE) {
        uint32_t before = blocks[head - 1].run_head;
        list_remove(&free_runs, before);
        count += head - before;
        head = before;
    }
    run_mark(head, count, BLOCK_FREE);
    list_push(&free_runs, head);
}

/* --- Pieces ---------------------------------------------------------------------------------------- */

static struct piece *pieces_make(uint32_t count)
{
    void *memory =
        mmap(NULL, count * sizeof(struct piece), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void block_release(uint32_t index)
{
    struct block *block = &blocks[index];
    munmap(block->pieces, block->piece_count * sizeof(struct piece));
    block->pieces = NULL;
    run_give_back(index);
}

static uint32_t block_make(enum block_kind kind, uint32_t run_count, uint32_t piece_count)
{
    struct piece *pieces = pieces_make(piece_count);
    if (!pieces)
        return NO_INDEX;
    uint32_t index = run_take(run_count, kind);
    if (index == NO_INDEX) {
        munmap(pieces, piece_count * sizeof(struct piece));
        return NO_INDEX;
    }
    struct block *block = &blocks[index];
    block->pieces = pieces;
    block->piece_count = piece_count;
    block->used_count = 0;
    block->is_abandoned = false;
    block->first_free = 0;
    for (uint32_t i = 0; i < piece_count; i++)
        pieces[i].next_free = i + 1 < piece_count ? i + 1 : NO_INDEX;
    return index;
}

static uint64_t piece_take(uint32_t index, uint64_t piece_bytes, const struct memory_allocation *like)
{
    struct block *block = &blocks[index];
    uint32_t number = block->first_free;
    struct piece *piece = &block->pieces[number];
    block->first_free = piece->next_free;
    block->used_count++;
    piece->allocation = *like;
    piece->allocation.address = block_address(index) + number * piece_bytes;
    piece->allocation.id = ++next_id;
    return piece->allocation.address;
}

static uint64_t allocate_small(const struct memory_allocation *like)
{
    unsigned class = class_of(like->bytes);
    uint32_t index = class_blocks[class];
    if (index == NO_INDEX) {
        index = block_make(BLOCK_PIECES, 1, (uint32_t)(BLOCK_BYTES / class_bytes(class)));
        if (index == NO_INDEX)
            return 0;
        blocks[index].class = (uint8_t) class;
        list_push(&class_blocks[class], index);
    }
    uint64_t address = piece_take(index, class_bytes(class), like);
    if (blocks[index].first_free == NO_INDEX)
        list_remove(&class_blocks[class], index);
    return address;
}

static uint64_t allocate_large(const struct memory_allocation *like)
{
    if (like->bytes > (uint64_t)block_count << BLOCK_BITS)
        return 0;
    uint32_t index = block_make(BLOCK_LARGE, (uint32_t)((like->bytes + BLOCK_BYTES - 1) >> BLOCK_BITS), 1);
    return index == NO_INDEX ? 0 : piece_take(index, 0, like);
}

/* The piece that holds `address`, used or not; NULL when it is in none. */
static struct piece *piece_find(uint64_t address, uint32_t *index_out)
{
    if (address < heap_address || address >= block_address(block_frontier))
        return NULL;
    uint32_t index = (uint32_t)((address - heap_address) >> BLOCK_BITS);
    uint64_t number = 0;
    if (blocks[index].kind == BLOCK_LARGE)
        index = blocks[index].run_head;
    else if (blocks[index].kind == BLOCK_PIECES)
        number = (address - block_address(index)) / class_bytes(blocks[index].class);
    else
        return NULL;
    *index_out = index;
    return number < blocks[index].piece_count ? &blocks[index].pieces[number] : NULL;
}

static void piece_give_back(uint32_t index, struct piece *piece)
{
    struct block *block = &blocks[index];
    block->is_abandoned |= piece->allocation.is_abandoned;
    piece->allocation.bytes = 0;
    if (block->kind == BLOCK_LARGE) {
        block_release(index);
        return;
    }
    block->used_count--;
    if (piece->allocation.is_abandoned && block->first_free == NO_INDEX) {
        if (block->used_count == 0)
            block_release(index); /* in no list: nothing in it can be used again */
        return;
    }
    if (!piece->allocation.is_abandoned) {
        bool was_full = block->first_free == NO_INDEX;
        piece->next_free = block->first_free;
        block->first_free = (uint32_t)(piece - block->pieces);
        if (was_full)
            list_push(&class_blocks[block->class], index);
    }
    /* Keep one block of a class, or a program that allocates and frees one piece would make a block each
     * time. */
    bool only_one = block->next == NO_INDEX && block->previous == NO_INDEX;
    if (block->used_count == 0 && !only_one) {
        list_remove(&class_blocks[block->class], index);
        block_release(index);
    }
}

/* --- What others call ------------------------------------------------------------------------------ */

/* A file, so that other processes can map what this one shares with them. */
static bool heap_file_map(void *memory, uint64_t bytes)
{
    uint64_t address = ((uint64_t)(uintptr_t)memory + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1);
    heap_file = memfd_create("simulated-gpu-heap", MFD_CLOEXEC);
    return heap_file >= 0 && ftruncate(heap_file, (off_t)bytes) == 0 &&
           mmap((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_NORESERVE | MAP_FIXED, heap_file, 0) != MAP_FAILED;
}

bool heap_init(uint64_t bytes)
{
    uint64_t reserved = (bytes * 4 + (UINT64_C(64) << 30) + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1);
    if (reserved > RESERVED_MOST)
        reserved = RESERVED_MOST;
    void *table = mmap(NULL, (reserved >> BLOCK_BITS) * sizeof(struct block), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED)
        return false;
    void *memory = mmap((void *)(uintptr_t)ADDRESS_HINT, reserved + BLOCK_BYTES, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || !heap_file_map(memory, reserved)) {
        munmap(table, (reserved >> BLOCK_BITS) * sizeof(struct block));
        return false;
    }
    /* A card's memory is neither in core files nor in forked children. */
    madvise(memory, reserved + BLOCK_BYTES, MADV_DONTDUMP);
    madvise(memory, reserved + BLOCK_BYTES, MADV_DONTFORK);
    blocks = table;
    heap_address = ((uint64_t)(uintptr_t)memory + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1);
    block_count = (uint32_t)(reserved >> BLOCK_BITS);
    for (unsigned class = 0; class < CLASSES; class ++)
        class_blocks[class] = NO_INDEX;
    return true;
}

uint64_t heap_allocate(const struct memory_allocation *like)
{
    pthread_mutex_lock(&heap_lock);
    uint64_t address = like->bytes <= HEAP_PIECE_BYTES ? allocate_small(like) : allocate_large(like);
    pthread_mutex_unlock(&heap_lock);
    return address;
}

bool heap_free(uint64_t address, unsigned kinds, struct memory_allocation *allocation)
{
    pthread_mutex_lock(&heap_lock);
    uint32_t index;
    struct piece *piece = piece_find(address, &index);
    bool found = piece && piece->allocation.bytes > 0 && piece->allocation.address == address &&
                 (kinds >> piece->allocation.kind & 1);
    if (found) {
        *allocation = piece->allocation;
        piece_give_back(index, piece);
    }
    pthread_mutex_unlock(&heap_lock);
    return found;
}

/* Under the lock: the piece of the allocation around the address. */
static struct piece *piece_around(uint64_t address)
{
    uint32_t index;
    struct piece *piece = piece_find(address, &index);
    return piece && piece->allocation.bytes > 0 &&
                   address - piece->allocation.address < piece->allocation.bytes
               ? piece
               : NULL;
}

bool heap_find(uint64_t address, struct memory_allocation *allocation)
{
    pthread_mutex_lock(&heap_lock);
    struct piece *piece = piece_around(address);
    if (piece)
        *allocation = piece->allocation;
    pthread_mutex_unlock(&heap_lock);
    return piece != NULL;
}

bool heap_set_synchronous(uint64_t address, bool is_synchronous)
{
    pthread_mutex_lock(&heap_lock);
    struct piece *piece = piece_around(address);
    if (piece)
        piece->allocation.is_synchronous = is_synchronous;
    pthread_mutex_unlock(&heap_lock);
    return piece != NULL;
}

void heap_free_each(bool (*visit)(struct memory_allocation *allocation, void *context), void *context)
{
    pthread_mutex_lock(&heap_lock);
    for (uint32_t index = 0; index < block_frontier; index++) {
        if (blocks[index].kind == BLOCK_FREE || blocks[index].kind == BLOCK_RETIRED ||
            blocks[index].run_head != index)
            continue;
        /* The last piece to go may take the table of pieces with it. */
        for (uint32_t number = 0, left = blocks[index].used_count; left > 0; number++) {
            struct piece *piece = &blocks[index].pieces[number];
            if (piece->allocation.bytes == 0)
                continue;
            left--;
            if (visit(&piece->allocation, context))
                piece_give_back(index, piece);
        }
    }
    pthread_mutex_unlock(&heap_lock);
}

/* The piece in use that begins at `address`. Under the lock. */
static struct piece *piece_at(uint64_t address, uint32_t *index)
{
    struct piece *piece = piece_find(address, index);
    return piece && piece->allocation.bytes > 0 && piece->allocation.address == address ? piece : NULL;
}

int heap_descriptor(void)
{
    return heap_file;
}

bool heap_place_of(uint64_t address, struct heap_place *place)
{
    uint32_t index;
    pthread_mutex_lock(&heap_lock);
    bool found = piece_at(address, &index);
    if (found)
        *place = (struct heap_place){.fd = heap_file,
                                     .first_block = index,
                                     .block_count = blocks[index].run_count,
                                     .inside_bytes = address - block_address(index)};
    pthread_mutex_unlock(&heap_lock);
    return found;
}

void heap_set_share(uint64_t address, struct device_share *share)
{
    uint32_t index;
    pthread_mutex_lock(&heap_lock);
    struct piece *piece = piece_at(address, &index);
    if (piece)
        piece->allocation.share = share;
    pthread_mutex_unlock(&heap_lock);
}

void heap_abandon(uint64_t address)
{
    uint32_t index;
    pthread_mutex_lock(&heap_lock);
    struct piece *piece = piece_at(address, &index);
    if (piece)
        piece->allocation.is_abandoned = true;
    pthread_mutex_unlock(&heap_lock);
}
