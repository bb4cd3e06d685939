#include "daemon/residency/residency.h"

#include <string.h>

#define TURNS_A_MOVE 9u /* so much longer is a turn than the moves that it costs */

/* What is free of each GPU; and what will be, once those who leave have left. */
struct room {
    int64_t now[RESIDENCY_GPUS], soon[RESIDENCY_GPUS];
};

uint64_t residency_turn_ns(const struct residency_session *session, const struct residency_turns *turns)
{
    uint64_t ns = session->move_ns * TURNS_A_MOVE;
    return ns < turns->least_ns ? turns->least_ns : ns > turns->most_ns ? turns->most_ns : ns;
}

static bool fits(const struct residency_session *session, const int64_t room[RESIDENCY_GPUS])
{
    for (unsigned i = 0; i < session->part_count; i++)
        if (session->parts[i].missing_bytes &&
            (int64_t)session->parts[i].missing_bytes > room[session->parts[i].gpu])
            return false;
    return true;
}

static void take_room(const struct residency_session *session, struct room *room)
{
    for (unsigned i = 0; i < session->part_count; i++) {
        room->now[session->parts[i].gpu] -= (int64_t)session->parts[i].missing_bytes;
        room->soon[session->parts[i].gpu] -= (int64_t)session->parts[i].missing_bytes;
    }
}

/* It leaves, or stays after all. */
static void add_soon(const struct residency_session *session, struct room *room, int64_t sign)
{
    for (unsigned i = 0; i < session->part_count; i++)
        room->soon[session->parts[i].gpu] += sign * (int64_t)session->parts[i].here_bytes;
}

/* Whether its leaving would help `first`, which lacks room. */
static bool helps(const struct residency_session *session, const struct residency_session *first,
                  const struct room *room)
{
    for (unsigned i = 0; i < first->part_count; i++) {
        const struct residency_part *wanted = &first->parts[i];
        if (!wanted->missing_bytes || (int64_t)wanted->missing_bytes <= room->soon[wanted->gpu])
            continue;
        for (unsigned j = 0; j < session->part_count; j++)
            if (session->parts[j].gpu == wanted->gpu && session->parts[j].here_bytes)
                return true;
    }
    return false;
}

/* Who comes first of two that wait. */
static bool is_before(const struct residency_session *a, const struct residency_session *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a->waits_since_ns != b->waits_since_ns ? a->waits_since_ns < b->waits_since_ns : a < b;
}

/* Who leaves first of two that may. */
static bool leaves_before(const struct residency_session *a, const struct residency_session *b)
{
    if (!a->idle_since_ns != !b->idle_since_ns)
        return a->idle_since_ns != 0;
    if (a->idle_since_ns)
        return a->idle_since_ns < b->idle_since_ns;
    if (a->priority != b->priority)
        return a->priority < b->priority;
    return a->came_ns < b->came_ns;
}

/* The next that may leave for `first`; NULL: none. `*again_ns`: when a turn is over that is in the way now. */
static struct residency_session *find_victim(struct residency_session *sessions, unsigned count,
                                             const struct residency_session *first, const struct room *room,
                                             const struct residency_turns *turns, uint64_t now_ns,
                                             uint64_t *again_ns)
{
    struct residency_session *best = NULL;
    for (unsigned i = 0; i < count; i++) {
        struct residency_session *at = &sessions[i];
        bool is_busy = !at->idle_since_ns;
        if (at == first || !at->can_leave || at->is_leaving || at->verdict != RESIDENCY_STAYS ||
            !helps(at, first, room) || (is_busy && at->priority > first->priority))
            continue;
        uint64_t end_ns = at->came_ns + residency_turn_ns(at, turns);
        if (is_busy && end_ns > now_ns)
            *again_ns = end_ns < *again_ns ? end_ns : *again_ns;
        else if (!best || leaves_before(at, best))
            best = at;
    }
    return best;
}

/* Of those that leave, who need not? Looked at from the last that was chosen. */
static void spare(struct residency_session **victims, unsigned count, const struct residency_session *first,
                  struct room *room)
{
    while (count--) {
        add_soon(victims[count], room, -1);
        if (fits(first, room->soon))
            victims[count]->verdict = RESIDENCY_STAYS;
        else
            add_soon(victims[count], room, 1);
    }
}

/* Have just enough leave for `first`; nobody where that is not enough. Returns when to look again. */
static uint64_t make_room(struct residency_session *sessions, unsigned count,
                          const struct residency_session *first, struct room *room,
                          const struct residency_turns *turns, uint64_t now_ns)
{
    struct residency_session *victims[RESIDENCY_GPUS * 4], *victim;
    unsigned chosen = 0;
    uint64_t again_ns = UINT64_MAX;
    while (!fits(first, room->soon) && chosen < sizeof(victims) / sizeof(victims[0]) &&
           (victim = find_victim(sessions, count, first, room, turns, now_ns, &again_ns))) {
        victim->verdict = RESIDENCY_LEAVES;
        add_soon(victim, room, 1);
        victims[chosen++] = victim;
    }
    if (fits(first, room->soon)) {
        spare(victims, chosen, first, room);
        return UINT64_MAX;
    }
    while (chosen--) {
        victims[chosen]->verdict = RESIDENCY_STAYS;
        add_soon(victims[chosen], room, -1);
    }
    return again_ns;
}

/* The next in line behind `before` (NULL: the first). */
static struct residency_session *next_in_line(struct residency_session *sessions, unsigned count,
                                              const struct residency_session *before)
{
    struct residency_session *best = NULL;
    for (unsigned i = 0; i < count; i++) {
        struct residency_session *at = &sessions[i];
        if (!at->waits || at == before || (before && !is_before(before, at)))
            continue;
        if (!best || is_before(at, best))
            best = at;
    }
    return best;
}

uint64_t residency_decide(struct residency_session *sessions, unsigned count,
                          const uint64_t free_bytes[RESIDENCY_GPUS], const struct residency_turns *turns,
                          uint64_t now_ns)
{
    struct room room;
    uint64_t again_ns = UINT64_MAX;
    for (unsigned gpu = 0; gpu < RESIDENCY_GPUS; gpu++)
        room.now[gpu] = room.soon[gpu] = free_bytes[gpu] > INT64_MAX ? INT64_MAX : (int64_t)free_bytes[gpu];
    for (unsigned i = 0; i < count; i++) {
        sessions[i].verdict = RESIDENCY_STAYS;
        if (sessions[i].is_leaving)
            add_soon(&sessions[i], &room, 1);
    }
    for (struct residency_session *at = NULL; (at = next_in_line(sessions, count, at));) {
        if (at->verdict == RESIDENCY_LEAVES)
            continue; /* for one before it */
        if (fits(at, room.now)) {
            at->verdict = RESIDENCY_COMES;
        } else {
            uint64_t look_ns = make_room(sessions, count, at, &room, turns, now_ns);
            again_ns = look_ns < again_ns ? look_ns : again_ns;
        }
        take_room(at, &room); /* what it has, or will have, is not for those behind it */
    }
    return again_ns;
}
