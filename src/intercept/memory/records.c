#include "intercept/memory/records.h"

#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

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

/* --- The range map --------------------------------------------------------------------------------- */

static bool enter_range(struct records *records, const struct record *record)
{
    if (!(record->flags & RECORD_IN_RANGES))
        return true;
    GS_CHECK(record->kind == RECORD_POINTER || record->kind == RECORD_MAPPING);
    uint64_t bytes = record->kind == RECORD_MAPPING ? record->hold.length : record->charged.bytes;
    return ranges_put(&records->ranges, (struct range){record->key, bytes, record->kind});
}

static void leave_range(struct records *records, const struct record *record)
{
    if (record->flags & RECORD_IN_RANGES)
        ranges_remove(&records->ranges, record->key, record->kind);
}

/* --- Places ---------------------------------------------------------------------------------------- */

/* Empty a place and move back the records that had been pushed past it: a search may stop at the first empty place. */
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
    GS_CHECK(shard->count);
    shard->count--;
}

/* Make room for one more record; grow at three quarters full. */
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
    displaced->kind = RECORD_FREE;
    lock_take(&shard->lock);
    struct record *place = place_of(shard, hash, record->kind, record->key);
    bool has_room = (place || make_room(shard)) && enter_range(records, record);
    if (has_room && place) {
        *displaced = *place;
        *place = *record;
    } else if (has_room) {
        insert(shard, record);
    }
    lock_leave(&shard->lock);
    return has_room;
}

bool records_restore(struct records *records, const struct record *record)
{
    uint64_t hash = hash_of(record->kind, record->key);
    struct record_shard *shard = shard_of(records, hash);
    lock_take(&shard->lock);
    bool done =
        !place_of(shard, hash, record->kind, record->key) && make_room(shard) && enter_range(records, record);
    if (done)
        insert(shard, record);
    lock_leave(&shard->lock);
    return done;
}

bool records_take(struct records *records, enum record_kind kind, uint64_t key, struct record *taken)
{
    uint64_t hash = hash_of(kind, key);
    struct record_shard *shard = shard_of(records, hash);
    lock_take(&shard->lock);
    struct record *place = place_of(shard, hash, kind, key);
    if (place) {
        *taken = *place;
        leave_range(records, place);
        erase(shard, place);
    }
    lock_leave(&shard->lock);
    return place != NULL;
}

bool records_find(struct records *records, enum record_kind kind, uint64_t key, struct record *found)
{
    uint64_t hash = hash_of(kind, key);
    struct record_shard *shard = shard_of(records, hash);
    lock_take(&shard->lock);
    const struct record *place = place_of(shard, hash, kind, key);
    if (place)
        *found = *place;
    lock_leave(&shard->lock);
    return place != NULL;
}

bool records_find_around(struct records *records, uint64_t address, struct record *found)
{
    struct range range;
    return ranges_find(&records->ranges, address, &range) &&
           records_find(records, range.kind, range.begin, found);
}

bool records_find_between(struct records *records, uint64_t begin, uint64_t end, struct record *found)
{
    struct range range;
    return ranges_next(&records->ranges, begin, &range) && range.begin < end &&
           records_find(records, range.kind, range.begin, found);
}

bool records_count(struct records *records, enum record_kind kind, uint64_t key, int change,
                   struct record *after)
{
    uint64_t hash = hash_of(kind, key);
    struct record_shard *shard = shard_of(records, hash);
    lock_take(&shard->lock);
    struct record *place = place_of(shard, hash, kind, key);
    if (place) {
        GS_CHECK(kind != RECORD_LIMIT && (int64_t)place->references + change >= 0);
        uint32_t references = (uint32_t)((int64_t)place->references + change);
        *after = *place;
        after->references = references;
        if (references) {
            place->references = references;
        } else {
            leave_range(records, place);
            erase(shard, place);
        }
    }
    lock_leave(&shard->lock);
    return place != NULL;
}

void records_count_back(struct records *records, const struct record *after)
{
    struct record record = *after;
    if (after->references) {
        records_count(records, after->kind, after->key, 1, &record);
        return;
    }
    record.references = 1;
    records_restore(records, &record);
}

uint64_t records_grow(struct records *records, enum record_kind kind, uint64_t key, uint64_t bytes)
{
    uint64_t hash = hash_of(kind, key), growth = 0;
    struct record_shard *shard = shard_of(records, hash);
    lock_take(&shard->lock);
    struct record *place = place_of(shard, hash, kind, key);
    GS_CHECK(record_is_charged(kind));
    if (place && place->charged.bytes < bytes) {
        growth = bytes - place->charged.bytes;
        place->charged.bytes = bytes;
    }
    lock_leave(&shard->lock);
    return growth;
}

bool records_make_joint(struct records *records, enum record_kind kind, uint64_t key, uint64_t bytes,
                        uint8_t joint)
{
    uint64_t hash = hash_of(kind, key);
    struct record_shard *shard = shard_of(records, hash);
    lock_take(&shard->lock);
    struct record *place = place_of(shard, hash, kind, key);
    bool is_taken = place && !place->joint && place->charged.bytes == bytes;
    if (is_taken)
        place->joint = joint;
    lock_leave(&shard->lock);
    return is_taken;
}

bool records_set_flags(struct records *records, enum record_kind kind, uint64_t key, uint8_t flags,
                       bool are_set)
{
    uint64_t hash = hash_of(kind, key);
    struct record_shard *shard = shard_of(records, hash);
    lock_take(&shard->lock);
    struct record *place = place_of(shard, hash, kind, key);
    if (place)
        place->flags = (uint8_t)(are_set ? place->flags | flags : place->flags & ~flags);
    lock_leave(&shard->lock);
    return place != NULL;
}

void records_leave_joint(struct records *records)
{
    for (unsigned i = 0; i < RECORD_SHARDS; i++) {
        struct record_shard *shard = &records->shards[i];
        lock_take(&shard->lock);
        for (uint32_t at = 0; at < shard->capacity; at++)
            shard->places[at].joint = 0;
        lock_leave(&shard->lock);
    }
}

void records_sweep(struct records *records, bool (*match)(const struct record *, void *),
                   void (*taken)(const struct record *, void *), void *argument)
{
    for (unsigned i = 0; i < RECORD_SHARDS; i++) {
        struct record_shard *shard = &records->shards[i];
        lock_take(&shard->lock);
        /* Erasing moves a later record into the place just looked at, so that place is looked at again. A record that
         * moves from the end of the table to its beginning was looked at before it moved, unless its place was still
         * ahead; then the second round meets it at the beginning. */
        for (unsigned round = 0; round < 2; round++) {
            for (uint32_t at = 0; shard->count && at < shard->capacity;) {
                struct record *place = &shard->places[at];
                if (place->kind == RECORD_FREE || !match(place, argument)) {
                    at++;
                    continue;
                }
                struct record copy = *place;
                leave_range(records, place);
                erase(shard, place);
                taken(&copy, argument);
            }
        }
        lock_leave(&shard->lock);
    }
}

void records_each(struct records *records, void (*see)(const struct record *, void *), void *argument)
{
    for (unsigned i = 0; i < RECORD_SHARDS; i++) {
        struct record_shard *shard = &records->shards[i];
        lock_take(&shard->lock);
        for (uint32_t at = 0; at < shard->capacity; at++)
            if (shard->places[at].kind != RECORD_FREE)
                see(&shard->places[at], argument);
        lock_leave(&shard->lock);
    }
}
