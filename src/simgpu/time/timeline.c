#include "simgpu/time/timeline.h"
#include "base/check.h"

#include <string.h>

/* timeline_advance() goes no further than this at once; change_begin() goes round until it is there. */
#define ADVANCE_STEPS 4096u
/* Nobody needs to know more than this ahead when something ends. */
#define FORESIGHT_NS UINT64_C(200000000)

/* --- The rules: pure, over a private copy of the state --------------------------------------------- */

static const struct timeline_operation *queue_head(const struct timeline_slot *slots,
                                                   const struct timeline_entry *entry, unsigned engine)
{
    return &slots[entry->slot].ring[engine][entry->engine[engine].served % TIMELINE_RING];
}

static bool head_is_ready(const struct timeline_slot *slots, const struct timeline_entry *entry,
                          unsigned engine)
{
    if (entry->engine[engine].served >= entry->engine[engine].submitted)
        return false;
    const struct timeline_operation *operation = queue_head(slots, entry, engine);
    for (unsigned other = 0; other < TIMELINE_ENGINES; other++)
        if (operation->after.at[other] > entry->engine[other].served)
            return false;
    return true;
}

/* Whose operation the engine works on next: the entry whose turn it is, else the next in the order of slots.
 * Starts a new slice when the turn goes round. Sets `*alone` if nobody else has something ready. */
static struct timeline_entry *turn_take(struct timeline_state *state, const struct timeline *timeline,
                                        unsigned engine, bool *alone)
{
    const struct timeline_rules *rules = &timeline->rules;
    struct timeline_entry *holder = NULL, *first = NULL, *next = NULL;
    unsigned ready = 0;
    uint32_t turn = state->turn[engine].slot;
    for (uint32_t i = 0; i < state->entry_count; i++) {
        struct timeline_entry *entry = &state->entries[i];
        if (!head_is_ready(timeline->slots, entry, engine))
            continue;
        ready++;
        if (entry->slot == turn)
            holder = entry;
        else if (!first)
            first = entry;
        if (entry->slot > turn && !next)
            next = entry;
    }
    *alone = ready == 1;
    if (holder && (state->turn[engine].left_ns > 0 || *alone)) {
        if (state->turn[engine].left_ns == 0)
            state->turn[engine].left_ns = rules->slice_ns;
        return holder;
    }
    if (!next)
        next = first;
    if (next) {
        /* Slot 0 has the first turn of all without a switch: no matter. */
        if (engine == TIMELINE_COMPUTE && next->slot != turn)
            state->turn[engine].switching_ns = holder ? rules->switch_ns : rules->switch_idle_ns;
        state->turn[engine].slot = next->slot;
        state->turn[engine].left_ns = rules->slice_ns;
    }
    return next;
}

static uint64_t length_of(const struct timeline_operation *operation)
{
    return __atomic_load_n(&operation->duration_ns, __ATOMIC_RELAXED) & ~TIMELINE_BY_CLOCK;
}

/* The entry's first operation is served now. Returns its length. */
static uint64_t begin_operation(const struct timeline_state *state, const struct timeline_slot *slots,
                                struct timeline_entry *entry, unsigned engine)
{
    const struct timeline_operation *operation = queue_head(slots, entry, engine);
    if (engine == TIMELINE_COMPUTE && (operation->duration_ns & TIMELINE_BY_CLOCK)) {
        if (!entry->begun_ns)
            entry->begun_ns = state->time_ns;
        entry->engine[engine].progress_ns = state->time_ns - entry->begun_ns;
    }
    return length_of(operation);
}

static void operation_complete(struct timeline_state *state, struct timeline_entry *entry, unsigned engine)
{
    struct timeline_progress *progress = &entry->engine[engine];
    state->completions[state->completion_count++] = (struct timeline_completion){
        .slot = entry->slot,
        .engine = engine,
        .position = progress->served,
        .time_ns = state->time_ns,
        .computed_ns = entry->computed_ns,
    };
    progress->served++;
    progress->progress_ns = 0;
    if (engine == TIMELINE_COMPUTE)
        entry->begun_ns = 0;
}

static bool entry_is_idle(const struct timeline_entry *entry)
{
    for (unsigned engine = 0; engine < TIMELINE_ENGINES; engine++)
        if (entry->engine[engine].served < entry->engine[engine].submitted)
            return false;
    return true;
}

static void entry_remove(struct timeline_state *state, uint32_t index)
{
    memmove(&state->entries[index], &state->entries[index + 1],
            (state->entry_count - index - 1) * sizeof(state->entries[0]));
    state->entry_count--;
}

/* Keep what the entry had of the engine's time. */
static void entry_drop(struct timeline_state *state, uint32_t index)
{
    state->completions[state->completion_count++] = (struct timeline_completion){
        .slot = state->entries[index].slot,
        .engine = TIMELINE_ENGINES,
        .computed_ns = state->entries[index].computed_ns,
    };
    entry_remove(state, index);
}

static void entries_tidy(struct timeline_state *state)
{
    for (uint32_t i = 0; i < state->entry_count;)
        if (entry_is_idle(&state->entries[i]))
            entry_remove(state, i);
        else
            i++;
}

/* One step: everything that ends now ends, or all engines work until the next thing happens. False when
 * nothing more can happen before `until_ns`. */
static bool advance_step(struct timeline_state *state, const struct timeline *timeline, uint64_t until_ns)
{
    const struct timeline_slot *slots = timeline->slots;
    struct timeline_entry *running[TIMELINE_HOST];
    bool alone[TIMELINE_HOST];
    uint64_t step_ns = until_ns - state->time_ns;
    bool busy = false;
    for (unsigned engine = 0; engine < TIMELINE_HOST; engine++) {
        running[engine] = turn_take(state, timeline, engine, &alone[engine]);
        if (!running[engine])
            continue;
        busy = true;
        if (state->turn[engine].switching_ns > 0) {
            if (state->turn[engine].switching_ns < step_ns)
                step_ns = state->turn[engine].switching_ns;
            continue;
        }
        uint64_t duration_ns = begin_operation(state, slots, running[engine], engine);
        uint64_t progress_ns = running[engine]->engine[engine].progress_ns;
        uint64_t left_ns = duration_ns > progress_ns ? duration_ns - progress_ns : 0;
        if (left_ns == 0) {
            /* Other operations may be ready by this: look at all engines anew. */
            operation_complete(state, running[engine], engine);
            return true;
        }
        if (left_ns < step_ns)
            step_ns = left_ns;
        if (!alone[engine] && state->turn[engine].left_ns < step_ns)
            step_ns = state->turn[engine].left_ns;
    }
    if (!busy || step_ns == 0) {
        if (!busy)
            state->time_ns = until_ns;
        return false;
    }
    state->time_ns += step_ns;
    for (unsigned engine = 0; engine < TIMELINE_HOST; engine++) {
        if (!running[engine])
            continue;
        if (state->turn[engine].switching_ns > 0) {
            state->turn[engine].switching_ns -= step_ns;
            continue;
        }
        struct timeline_progress *progress = &running[engine]->engine[engine];
        progress->progress_ns += step_ns;
        if (engine == TIMELINE_COMPUTE)
            running[engine]->computed_ns += step_ns;
        uint64_t *left_ns = &state->turn[engine].left_ns;
        *left_ns = *left_ns > step_ns ? *left_ns - step_ns : 0;
        /* Complete it now, not when its turn comes again. */
        if (progress->progress_ns >= length_of(queue_head(slots, running[engine], engine)))
            operation_complete(state, running[engine], engine);
    }
    return true;
}

bool timeline_advance(struct timeline_state *state, const struct timeline *timeline, uint64_t until_ns)
{
    if (until_ns < state->time_ns)
        until_ns = state->time_ns;
    bool arrived = false;
    for (unsigned step = 0;
         step < ADVANCE_STEPS && state->completion_count + TIMELINE_ENGINES <= TIMELINE_COMPLETIONS; step++)
        if (!advance_step(state, timeline, until_ns)) {
            arrived = true;
            break;
        }
    entries_tidy(state);
    return arrived;
}

/* --- What must hold -------------------------------------------------------------------------------- */

static bool entry_is_valid(const struct timeline_entry *entry)
{
    for (unsigned engine = 0; engine < TIMELINE_ENGINES; engine++) {
        const struct timeline_progress *progress = &entry->engine[engine];
        if (progress->served > progress->submitted ||
            progress->submitted - progress->served > TIMELINE_RING ||
            (progress->progress_ns && progress->served == progress->submitted))
            return false;
    }
    return entry->slot < TIMELINE_SLOTS && !entry_is_idle(entry);
}

bool timeline_state_is_valid(const struct timeline_state *state)
{
    for (uint32_t i = 0; i < state->entry_count && i < TIMELINE_SLOTS; i++)
        if (!entry_is_valid(&state->entries[i]) ||
            (i > 0 && state->entries[i].slot <= state->entries[i - 1].slot) ||
            state->entries[i].begun_ns > state->time_ns)
            return false;
    for (uint32_t i = 0; i < state->completion_count && i < TIMELINE_COMPLETIONS; i++)
        if (state->completions[i].slot >= TIMELINE_SLOTS || state->completions[i].engine > TIMELINE_ENGINES ||
            state->completions[i].time_ns > state->time_ns)
            return false;
    return state->entry_count <= TIMELINE_SLOTS && state->completion_count <= TIMELINE_COMPLETIONS;
}

/* --- Changing the shared state --------------------------------------------------------------------- */

/* Copy what is current into `copy`; false if it may be torn. */
static bool state_copy(const struct timeline *timeline, uint64_t seen, struct timeline_state *copy)
{
    const struct timeline_state *state = &timeline->buffers[published_buffer(seen)];
    uint32_t entries = state->entry_count, completions = state->completion_count;
    if (entries > TIMELINE_SLOTS || completions > TIMELINE_COMPLETIONS)
        return false;
    copy->time_ns = state->time_ns;
    memcpy(copy->turn, state->turn, sizeof(copy->turn));
    memcpy(copy->completions, state->completions, completions * sizeof(copy->completions[0]));
    memcpy(copy->entries, state->entries, entries * sizeof(copy->entries[0]));
    copy->entry_count = entries;
    copy->completion_count = completions;
    return published_is_still(&timeline->current, seen);
}

static void count_computed(struct timeline_slot *slot, uint64_t computed_ns)
{
    uint64_t seen = __atomic_load_n(&slot->computed_ns, __ATOMIC_RELAXED);
    while (seen < computed_ns && !__atomic_compare_exchange_n(&slot->computed_ns, &seen, computed_ns, true,
                                                              __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
}

/* Write completion times to the rings. All processes that do write the same. A process that comes late, when the place
 * has a later operation's, leaves that. */
static void completions_flush(struct timeline *timeline, const struct timeline_state *state)
{
    for (uint32_t i = 0; i < state->completion_count; i++) {
        const struct timeline_completion *completion = &state->completions[i];
        count_computed(&timeline->slots[completion->slot], completion->computed_ns);
        if (completion->engine == TIMELINE_ENGINES)
            continue;
        struct word128 *done = &timeline->slots[completion->slot]
                                    .ring[completion->engine][completion->position % TIMELINE_RING]
                                    .done;
        struct word128 seen = word128_load(done);
        struct word128 time = {.low = completion->time_ns, .high = completion->position + 1};
        while (seen.high < time.high && !word128_compare_exchange(done, &seen, time))
            continue;
    }
}

/* Begin a change: our buffer, with the state advanced to `now_ns` and the last change's completions flushed. */
static struct timeline_state *change_begin(struct timeline *timeline, uint32_t slot, uint64_t now_ns,
                                           uint64_t *seen)
{
    for (;;) {
        *seen = published_load(&timeline->current);
        struct timeline_state *own = &timeline->buffers[published_own_buffer(*seen, slot)];
        if (!state_copy(timeline, *seen, own))
            continue;
        completions_flush(timeline, own);
        own->completion_count = 0;
        GS_CHECK(timeline_state_is_valid(own));
        if (timeline_advance(own, timeline, now_ns))
            return own;
        published_replace(&timeline->current, *seen, published_own_buffer(*seen, slot));
    }
}

static bool change_end(struct timeline *timeline, uint32_t slot, uint64_t seen)
{
    GS_CHECK(timeline_state_is_valid(&timeline->buffers[published_own_buffer(seen, slot)]));
    return published_replace(&timeline->current, seen, published_own_buffer(seen, slot));
}

static int entry_find(const struct timeline_state *state, uint32_t slot)
{
    for (uint32_t i = 0; i < state->entry_count; i++)
        if (state->entries[i].slot == slot)
            return (int)i;
    return -1;
}

/* How far the slot's queues are: all that was submitted, where the state has no entry. */
static void state_served(const struct timeline *timeline, const struct timeline_state *state, uint32_t slot,
                         struct timeline_marks *served)
{
    int index = entry_find(state, slot);
    for (unsigned engine = 0; engine < TIMELINE_ENGINES; engine++)
        served->at[engine] = index >= 0 ? state->entries[index].engine[engine].served
                                        : timeline->slots[slot].submitted[engine];
}

/* The time of the slot's earlier entries, of which only the state's completions may still have some. */
static uint64_t computed_by_others(const struct timeline *timeline, const struct timeline_state *state,
                                   uint32_t slot)
{
    uint64_t computed_ns = __atomic_load_n(&timeline->slots[slot].computed_ns, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < state->completion_count; i++)
        if (state->completions[i].slot == slot && state->completions[i].computed_ns > computed_ns)
            computed_ns = state->completions[i].computed_ns;
    return computed_ns;
}

static struct timeline_entry *entry_add(struct timeline *timeline, struct timeline_state *state,
                                        uint32_t slot)
{
    uint32_t at = 0;
    while (at < state->entry_count && state->entries[at].slot < slot)
        at++;
    struct timeline_entry *entry = &state->entries[at];
    memmove(entry + 1, entry, (state->entry_count - at) * sizeof(*entry));
    state->entry_count++;
    memset(entry, 0, sizeof(*entry));
    entry->slot = slot;
    for (unsigned engine = 0; engine < TIMELINE_ENGINES; engine++)
        entry->engine[engine].served = entry->engine[engine].submitted =
            timeline->slots[slot].submitted[engine];
    entry->computed_ns = computed_by_others(timeline, state, slot);
    return entry;
}

void timeline_slot_begin(struct timeline *timeline, uint32_t slot, uint64_t now_ns)
{
    for (;;) {
        uint64_t seen;
        struct timeline_state *own = change_begin(timeline, slot, now_ns, &seen);
        int index = entry_find(own, slot);
        if (index < 0)
            break;
        if (own->completion_count < TIMELINE_COMPLETIONS)
            entry_drop(own, (uint32_t)index);
        if (change_end(timeline, slot, seen) && entry_find(own, slot) < 0)
            break;
    }
    /* The last owner may have died between submitting and counting; old positions must not come again. */
    for (unsigned engine = 0; engine < TIMELINE_ENGINES; engine++)
        timeline->slots[slot].known_served.at[engine] = timeline->slots[slot].submitted[engine] +=
            TIMELINE_RING;
}

bool timeline_submit(struct timeline *timeline, uint32_t slot, enum timeline_engine engine,
                     uint64_t duration_ns, const struct timeline_marks *after, uint64_t (*clock_ns)(void),
                     uint64_t *mark)
{
    struct timeline_slot *owner = &timeline->slots[slot];
    uint64_t position = owner->submitted[engine];
    if (position - owner->known_served.at[engine] >= TIMELINE_RING)
        return false;
    /* Other processes read it meanwhile to see how busy we were (timeline_busy_ns). */
    __atomic_store_n(&owner->ring[engine][position % TIMELINE_RING].duration_ns, duration_ns,
                     __ATOMIC_RELAXED);
    owner->ring[engine][position % TIMELINE_RING].after = *after;
    for (;;) {
        uint64_t seen;
        struct timeline_state *own = change_begin(timeline, slot, clock_ns(), &seen);
        /* A card begins with it at the doorbell, which a call rings last, after all that took time. */
        bool is_now = timeline_advance(own, timeline, clock_ns());
        int index = entry_find(own, slot);
        if (is_now) {
            struct timeline_entry *entry = index >= 0 ? &own->entries[index] : entry_add(timeline, own, slot);
            entry->engine[engine].submitted = position + 1;
        }
        if (change_end(timeline, slot, seen) && is_now)
            break;
    }
    __atomic_store_n(&owner->submitted[engine], position + 1, __ATOMIC_RELEASE);
    *mark = position + 1;
    return true;
}

void timeline_look(struct timeline *timeline, uint32_t slot, uint64_t now_ns, struct timeline_marks *served)
{
    for (;;) {
        uint64_t seen;
        struct timeline_state *own = change_begin(timeline, slot, now_ns, &seen);
        state_served(timeline, own, slot, served);
        if (change_end(timeline, slot, seen)) {
            completions_flush(timeline, own);
            timeline->slots[slot].known_served = *served;
            return;
        }
    }
}

uint64_t timeline_expect(struct timeline *timeline, uint32_t slot, const struct timeline_marks *marks,
                         uint64_t now_ns, struct timeline_state *scratch)
{
    while (!state_copy(timeline, published_load(&timeline->current), scratch))
        continue;
    uint64_t last_ns = scratch->time_ns;
    for (;;) {
        struct timeline_marks served;
        state_served(timeline, scratch, slot, &served);
        if (timeline_marks_reached(marks, &served))
            return scratch->time_ns > now_ns ? scratch->time_ns : now_ns;
        scratch->completion_count = 0;
        /* Far enough for the next thing to happen, wherever it is: a step stops where something does. */
        if (!advance_step(scratch, timeline, scratch->time_ns + (UINT64_C(1) << 60)))
            return UINT64_MAX;
        if (scratch->time_ns - last_ns > FORESIGHT_NS)
            return scratch->time_ns; /* soon enough to look again */
    }
}

uint64_t timeline_done_ns(const struct timeline *timeline, uint32_t slot, enum timeline_engine engine,
                          uint64_t mark)
{
    if (mark == 0)
        return 0;
    struct word128 done = word128_load(&timeline->slots[slot].ring[engine][(mark - 1) % TIMELINE_RING].done);
    return done.high == mark ? done.low : 0;
}

static bool waiting_ready(struct timeline *timeline, uint32_t slot, unsigned engine, uint64_t now_ns,
                          uint64_t *mark)
{
    for (;;) {
        uint64_t seen;
        struct timeline_state *own = change_begin(timeline, slot, now_ns, &seen);
        int index = entry_find(own, slot);
        bool ready = index >= 0 && head_is_ready(timeline->slots, &own->entries[index], engine);
        if (ready)
            *mark = own->entries[index].engine[engine].served + 1;
        if (change_end(timeline, slot, seen))
            return ready;
    }
}

static void waiting_done(struct timeline *timeline, uint32_t slot, unsigned engine, uint64_t now_ns)
{
    for (;;) {
        uint64_t seen;
        struct timeline_state *own = change_begin(timeline, slot, now_ns, &seen);
        int index = entry_find(own, slot);
        if (index < 0)
            return;
        if (own->completion_count == TIMELINE_COMPLETIONS) {
            change_end(timeline, slot, seen);
            continue;
        }
        operation_complete(own, &own->entries[index], engine);
        entries_tidy(own);
        if (change_end(timeline, slot, seen))
            return;
    }
}

bool timeline_host_ready(struct timeline *timeline, uint32_t slot, uint64_t now_ns, uint64_t *mark)
{
    return waiting_ready(timeline, slot, TIMELINE_HOST, now_ns, mark);
}

void timeline_host_done(struct timeline *timeline, uint32_t slot, uint64_t now_ns)
{
    waiting_done(timeline, slot, TIMELINE_HOST, now_ns);
}

bool timeline_gate_ready(struct timeline *timeline, uint32_t slot, unsigned gate, uint64_t now_ns,
                         uint64_t *mark)
{
    return waiting_ready(timeline, slot, TIMELINE_GATE + gate, now_ns, mark);
}

void timeline_gate_done(struct timeline *timeline, uint32_t slot, unsigned gate, uint64_t now_ns)
{
    waiting_done(timeline, slot, TIMELINE_GATE + gate, now_ns);
}

void timeline_drop(struct timeline *timeline, uint32_t slot, uint32_t gone,
                   const _Atomic uint64_t *generation, uint64_t generation_seen, uint64_t now_ns)
{
    for (;;) {
        uint64_t seen;
        struct timeline_state *own = change_begin(timeline, slot, now_ns, &seen);
        int index = entry_find(own, gone);
        /* A new owner raises the generation before it changes the state; if it does so after this look and
         * submits, change_end() fails. */
        if (index < 0 || atomic_load(generation) != generation_seen)
            return;
        if (own->completion_count < TIMELINE_COMPLETIONS)
            entry_drop(own, (uint32_t)index);
        if (change_end(timeline, slot, seen) && entry_find(own, gone) < 0)
            return;
    }
}

uint64_t timeline_computed_ns(const struct timeline *timeline, uint32_t slot, uint64_t now_ns,
                              struct timeline_state *scratch)
{
    for (;;) {
        uint64_t seen = published_load(&timeline->current), most_ns = 0;
        if (!state_copy(timeline, seen, scratch))
            continue;
        for (bool arrived = false; !arrived; arrived = timeline_advance(scratch, timeline, now_ns)) {
            uint64_t computed_ns = computed_by_others(timeline, scratch, slot);
            most_ns = computed_ns > most_ns ? computed_ns : most_ns;
            scratch->completion_count = 0;
        }
        int index = entry_find(scratch, slot);
        uint64_t computed_ns =
            index >= 0 ? scratch->entries[index].computed_ns : computed_by_others(timeline, scratch, slot);
        /* The rings that were read belonged to this state, if it is still the one. */
        if (published_is_still(&timeline->current, seen))
            return computed_ns > most_ns ? computed_ns : most_ns;
    }
}

uint32_t timeline_busy_slots(const struct timeline *timeline, uint32_t *slots, uint32_t capacity)
{
    for (;;) {
        uint64_t seen = published_load(&timeline->current);
        const struct timeline_state *state = &timeline->buffers[published_buffer(seen)];
        uint32_t count = state->entry_count;
        for (uint32_t i = 0; i < count && i < capacity; i++)
            slots[i] = state->entries[i].slot;
        if (published_is_still(&timeline->current, seen))
            return count;
    }
}

static uint64_t overlap_ns(uint64_t begin_ns, uint64_t end_ns, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t first = begin_ns > from_ns ? begin_ns : from_ns, last = end_ns < to_ns ? end_ns : to_ns;
    return last > first ? last - first : 0;
}

/* How long the operation that runs now has run so far. */
static uint64_t running_ns(const struct timeline *timeline, uint32_t slot, enum timeline_engine engine,
                           uint64_t from_ns, uint64_t to_ns)
{
    for (;;) {
        uint64_t seen = published_load(&timeline->current), busy_ns = 0;
        const struct timeline_state *state = &timeline->buffers[published_buffer(seen)];
        uint32_t count = state->entry_count < TIMELINE_SLOTS ? state->entry_count : TIMELINE_SLOTS;
        for (uint32_t i = 0; i < count; i++)
            if (state->entries[i].slot == slot)
                busy_ns = overlap_ns(state->time_ns - state->entries[i].engine[engine].progress_ns,
                                     state->time_ns, from_ns, to_ns);
        if (published_is_still(&timeline->current, seen))
            return busy_ns;
    }
}

uint64_t timeline_busy_ns(const struct timeline *timeline, uint32_t slot, enum timeline_engine engine,
                          uint64_t from_ns, uint64_t to_ns)
{
    const struct timeline_slot *queue = &timeline->slots[slot];
    uint64_t submitted = __atomic_load_n(&queue->submitted[engine], __ATOMIC_ACQUIRE);
    if (submitted == 0)
        return 0;
    uint64_t busy_ns = running_ns(timeline, slot, engine, from_ns, to_ns), oldest_ns = to_ns;
    bool is_full = true;
    for (uint64_t position = submitted; position-- > 0 && submitted - position <= TIMELINE_RING;) {
        const struct timeline_operation *operation = &queue->ring[engine][position % TIMELINE_RING];
        uint64_t duration_ns = length_of(operation);
        struct word128 done = word128_load(&operation->done);
        /* For an operation that is not done yet, its place has when the one before it there was; that took about as
         * long. */
        if (done.high != position + 1 && done.high + TIMELINE_RING != position + 1) {
            is_full = false; /* no operation ever had this number */
            if (position < __atomic_load_n(&queue->known_served.at[engine], __ATOMIC_RELAXED))
                break; /* nor, of this owner, a lower one: timeline_slot_begin() skips a ring of them */
            continue;
        }
        uint64_t begin_ns = done.low > duration_ns ? done.low - duration_ns : 0;
        oldest_ns = begin_ns < oldest_ns ? begin_ns : oldest_ns;
        if (done.high == position + 1 && done.low <= from_ns)
            break; /* an engine ends a slot's operations in their order: all before it ended earlier still */
        busy_ns += overlap_ns(begin_ns, done.low, from_ns, to_ns);
    }
    if (is_full && submitted >= TIMELINE_RING && oldest_ns > from_ns && oldest_ns < to_ns)
        busy_ns = (uint64_t)((double)busy_ns * (double)(to_ns - from_ns) / (double)(to_ns - oldest_ns));
    return busy_ns;
}
