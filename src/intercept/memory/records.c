#include "intercept/memory/records.h"

#include <string.h>
#include <sys/mman.h>

#define FIRST_CAPACITY 128u /* one page */

/* Addresses differ in their middle bits; a multiplication brings those to the top. */
static uint64_t hash_of(enum record_kind kind, uint64_t key)
{
    return (key + (uint64_t)kind * 0x9E37u) * UINT64_C(0x9E3779B97F4A7C15);
}

static struct record_shard *shard_of(struct records *records, uint64_t hash)
{
    return &records->shards[hash >> 59];
}

static uint32_t home_of(const struct record_shard *shard, uint64_t hash)
{
    return (uint32_t)(hash >> 24) & (shard->capacity - 1);
}

static size_t table_bytes(uint32_t capacity)
{
    return (size_t)capacity * sizeof(struct record);
}

/* The place of a record, or NULL. */
static struct record *place_of(const struct record_shard *shard, uint64_t hash, enum record_kind kind,
                               uint64_t key)
{
    if (shard->count == 0)
        return NULL;
    for (uint32_t at = home_of(shard, hash);; at = (at + 1) & (shard->capacity - 1)) {
        struct record *place = &shard->places[at];
        if (place->kind == RECORD_FREE)
            return NULL;
        if (place->key == key && place->kind == (uint8_t)kind)
            return place;
    }
}

static void insert(struct record_shard *shard, const struct record *record)
{
    uint32_t at = home_of(shard, hash_of(record->kind, record->key));
    while (shard->places[at].kind != RECORD_FREE)
        at = (at + 1) & (shard->capacity - 1);
    shard->places[at] = *record;
    shard->count++;
}

/* Empty a place and move up what had been pushed past it, so that a search may stop at the first empty place.
 */
static void erase(struct record_shard *shard, struct record *place)
{
    uint32_t mask = shard->capacity - 1;
    uint32_t hole = (uint32_t)(place - shard->places);
    for (uint32_t at = (hole + 1) & mask; shard->places[at].kind != RECORD_FREE; at = (at + 1) & mask) {
        uint32_t home = home_of(shard, hash_of(shard->places[at].kind, shard->places[at].key));
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            shard->places[hole] = shard->places[at];
            hole = at;
        }
    }
    shard->places[hole].kind = RECORD_FREE;
    shard->count--;
}

/* Make room for one more at three quarters full. */
static bool make_room(struct record_shard *shard)
{
    if (shard->capacity && shard->count < shard->capacity / 4 * 3)
        return true;
    uint32_t capacity = shard->capacity ? shard->capacity * 2 : FIRST_CAPACITY;
    void *memory =
        mmap(NULL, table_bytes(capacity), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return shard->count + 1 < shard->capacity; /* one place stays empty: searches end there */
    /* A forked child holds nothing and never looks here. */
    madvise(memory, table_bytes(capacity), MADV_DONTFORK);

    struct record_shard bigger = {.places = memory, .capacity = capacity};
    for (uint32_t at = 0; at < shard->capacity; at++)
        if (shard->places[at].kind != RECORD_FREE)
            insert(&bigger, &shard->places[at]);
    if (shard->places)
        munmap(shard->places, table_bytes(shard->capacity));
    shard->places = bigger.places;
    shard->capacity = bigger.capacity;
    return true;
}

bool records_put(struct records *records, const struct record *record, struct record *displaced)
{
    uint64_t hash = hash_of(record->kind, record->key);
    struct record_shard *shard = shard_of(records, hash);
    bool done = true;
    displaced->kind = RECORD_FREE;
    lock_take(&shard->turn);
    struct record *place = place_of(shard, hash, record->kind, record->key);
    if (place) {
        *displaced = *place;
        *place = *record;
    } else if (make_room(shard)) {
        insert(shard, record);
    } else {
        done = false;
    }
    lock_leave(&shard->turn);
    return done;
}

bool records_restore(struct records *records, const struct record *record)
{
    uint64_t hash = hash_of(record->kind, record->key);
    struct record_shard *shard = shard_of(records, hash);
    lock_take(&shard->turn);
    bool done = !place_of(shard, hash, record->kind, record->key) && make_room(shard);
    if (done)
        insert(shard, record);
    lock_leave(&shard->turn);
    return done;
}

bool records_take(struct records *records, enum record_kind kind, uint64_t key, struct record *taken)
{
    uint64_t hash = hash_of(kind, key);
    struct record_shard *shard = shard_of(records, hash);
    lock_take(&shard->turn);
    struct record *place = place_of(shard, hash, kind, key);
    if (place) {
        *taken = *place;
        erase(shard, place);
    }
    lock_leave(&shard->turn);
    return place != NULL;
}

bool records_find(struct records *records, enum record_kind kind, uint64_t key, struct record *found)
{
    uint64_t hash = hash_of(kind, key);
    struct record_shard *shard = shard_of(records, hash);
    lock_take(&shard->turn);
    const struct record *place = place_of(shard, hash, kind, key);
    if (place)
        *found = *place;
    lock_leave(&shard->turn);
    return place != NULL;
}

bool records_count(struct records *records, enum record_kind kind, uint64_t key, int change,
                   struct record *after)
{
    uint64_t hash = hash_of(kind, key);
    struct record_shard *shard = shard_of(records, hash);
    lock_take(&shard->turn);
    struct record *place = place_of(shard, hash, kind, key);
    if (place) {
        place->references = (uint32_t)((int64_t)place->references + change);
        *after = *place;
        if (place->references == 0)
            erase(shard, place);
    }
    lock_leave(&shard->turn);
    return place != NULL;
}

uint64_t records_grow(struct records *records, enum record_kind kind, uint64_t key, uint64_t bytes)
{
    uint64_t hash = hash_of(kind, key), growth = 0;
    struct record_shard *shard = shard_of(records, hash);
    lock_take(&shard->turn);
    struct record *place = place_of(shard, hash, kind, key);
    if (place && place->bytes < bytes) {
        growth = bytes - place->bytes;
        place->bytes = bytes;
    }
    lock_leave(&shard->turn);
    return growth;
}

bool records_make_joint(struct records *records, enum record_kind kind, uint64_t key, uint64_t bytes,
                   uint8_t share)
{
    uint64_t hash = hash_of(kind, key);
    struct record_shard *shard = shard_of(records, hash);
    lock_take(&shard->turn);
    struct record *place = place_of(shard, hash, kind, key);
    bool is_taken = place && !place->share && place->bytes == bytes;
    if (is_taken)
        place->share = share;
    lock_leave(&shard->turn);
    return is_taken;
}

void records_leave_joint(struct records *records)
{
    for (unsigned i = 0; i < RECORD_SHARDS; i++) {
        struct record_shard *shard = &records->shards[i];
        lock_take(&shard->turn);
        for (uint32_t at = 0; at < shard->capacity; at++)
            shard->places[at].share = 0;
        lock_leave(&shard->turn);
    }
}

void records_sweep(struct records *records, bool (*match)(const struct record *, void *),
                   void (*taken)(const struct record *, void *), void *argument)
{
    for (unsigned i = 0; i < RECORD_SHARDS; i++) {
        struct record_shard *shard = &records->shards[i];
        lock_take(&shard->turn);
        /* Erasing moves later records up into the place just looked at, so that one is looked at again. A
         * record moved from the end to the beginning of the table was looked at before it moved, unless its
         * place was still ahead; then it is met at the beginning by the second round. */
        for (unsigned round = 0; round < 2; round++) {
            for (uint32_t at = 0; shard->count && at < shard->capacity;) {
                struct record *place = &shard->places[at];
                if (place->kind == RECORD_FREE || !match(place, argument)) {
                    at++;
                    continue;
                }
                struct record copy = *place;
                erase(shard, place);
                taken(&copy, argument);
            }
        }
        lock_leave(&shard->turn);
    }
}

void records_each(struct records *records, void (*see)(const struct record *, void *), void *argument)
{
    for (unsigned i = 0; i < RECORD_SHARDS; i++) {
        struct record_shard *shard = &records->shards[i];
        lock_take(&shard->turn);
        for (uint32_t at = 0; at < shard->capacity; at++)
            if (shard->places[at].kind != RECORD_FREE)
                see(&shard->places[at], argument);
        lock_leave(&shard->turn);
    }
}
