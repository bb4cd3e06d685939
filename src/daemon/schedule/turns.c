#include "daemon/schedule/turns.h"

#include <stdlib.h>

struct turns {
    struct turn kept[TURNS_KEPT]; /* a ring */
    uint64_t count;               /* how many there ever were */
    struct turn *open;
    unsigned open_count, open_room;
};

struct turns *turns_new(void)
{
    return calloc(1, sizeof(struct turns));
}

void turns_free(struct turns *turns)
{
    if (turns)
        free(turns->open);
    free(turns);
}

static struct turn *find_open(const struct turns *turns, uint64_t session)
{
    for (unsigned i = 0; i < turns->open_count; i++)
        if (turns->open[i].session == session)
            return &turns->open[i];
    return NULL;
}

/* Whether `open` and `news` are one turn. A turn that was asked back, and is held again without that, is a new one. */
static bool is_same(const struct turn *open, const struct turn *news)
{
    return open->lease == news->lease && open->gpus == news->gpus &&
           (!open->asked_ns || open->asked_ns == news->asked_ns);
}

static void end_turn(struct turns *turns, struct turn *turn, uint64_t now)
{
    turn->end_ns = now;
    turns->kept[turns->count++ % TURNS_KEPT] = *turn;
    *turn = turns->open[--turns->open_count];
}

void turns_note(struct turns *turns, const struct turn *news, uint64_t now)
{
    struct turn *open = find_open(turns, news->session);
    if (open && is_same(open, news)) {
        open->asked_ns = news->asked_ns;
        open->steps = news->steps;
        return;
    }
    if (open)
        end_turn(turns, open, now);
    if (news->lease == LEASE_NONE || news->lease == LEASE_FREE)
        return;
    if (turns->open_count == turns->open_room) {
        unsigned room = 2 * turns->open_room + 8;
        struct turn *grown = reallocarray(turns->open, room, sizeof(*grown));
        if (!grown)
            return;
        turns->open = grown;
        turns->open_room = room;
    }
    struct turn *turn = &turns->open[turns->open_count++];
    *turn = *news;
    turn->begin_ns = now;
    turn->end_ns = 0;
}

void turns_list(const struct turns *turns, uint64_t since_ns,
                void (*take)(const struct turn *turn, void *context), void *context)
{
    uint64_t first = turns->count > TURNS_KEPT ? turns->count - TURNS_KEPT : 0;
    for (uint64_t i = first; i < turns->count; i++)
        if (turns->kept[i % TURNS_KEPT].end_ns > since_ns)
            take(&turns->kept[i % TURNS_KEPT], context);
    for (unsigned i = 0; i < turns->open_count; i++)
        take(&turns->open[i], context);
}
