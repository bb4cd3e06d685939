#include "daemon/residency/residency.h"

#include <string.h>

#define LONGER_TURNS 8u /* a turn is this many times as long as the shortest at most, for what was promised */
#define TURNS_A_MOVE 9u /* a turn is this many times as long as the moves that it costs */
#define PAUSE_PART 10u  /* a turn is longer by this part of it, to wait for the program to pause, */
#define PAUSE_TURNS 8u  /* if the program has paused within this many turns, */
#define AHEAD_TURNS 2u  /* and by up to a whole turn, while it is not ahead of others by this many */

/* What is free in each place; and what will be when those that leave have left. */
struct room {
    int64_t now[RESIDENCY_PLACES], soon[RESIDENCY_PLACES];
};

/* All that the caller asks about. */
struct question {
    struct residency_session *sessions;
    unsigned count;
    const struct residency_turns *turns;
    uint64_t now_ns;
    uint64_t again_ns;             /* the answer so far */
    bool is_taken[RESIDENCY_GPUS]; /* the link to it is in use: a session comes, or has some come ahead */
};

bool residency_share_place(const struct residency_session *a, const struct residency_session *b)
{
    for (unsigned i = 0; i < a->part_count; i++)
        for (unsigned j = 0; j < b->part_count; j++)
            if (a->parts[i].gpu == b->parts[j].gpu)
                return true;
    return false;
}

/* Whether both may want the same GPU now. */
static bool compete(const struct residency_session *a, const struct residency_session *b)
{
    return a != b && (b->waits || (!b->idle_since_ns && b->can_leave)) && residency_share_place(a, b);
}

/* How many times as long the session's turn is as the shortest turn of those it competes with: each should get what it
 * was promised and an equal part of the rest. */
static double stretch(const struct residency_session *session, const struct residency_session *sessions,
                      unsigned count)
{
    double promised = session->min_share, least = session->min_share, rest;
    unsigned others = 0;
    for (unsigned i = 0; i < count; i++) {
        if (!compete(session, &sessions[i]))
            continue;
        others++;
        promised += sessions[i].min_share;
        least = sessions[i].min_share < least ? sessions[i].min_share : least;
    }
    rest = promised < RESIDENCY_SHARE_WHOLE ? (RESIDENCY_SHARE_WHOLE - promised) / (others + 1) : 0;
    if (session->min_share + rest >= LONGER_TURNS * (least + rest))
        return least < session->min_share ? LONGER_TURNS : 1;
    return (session->min_share + rest) / (least + rest);
}

uint64_t residency_turn_ns(const struct residency_session *session, const struct residency_session *sessions,
                           unsigned count, const struct residency_turns *turns)
{
    uint64_t ns = session->move_ns * TURNS_A_MOVE;
    ns = ns < turns->least_ns ? turns->least_ns : ns > turns->most_ns ? turns->most_ns : ns;
    return (uint64_t)((double)ns * stretch(session, sessions, count));
}

static uint64_t turn_of(const struct question *question, const struct residency_session *session)
{
    return residency_turn_ns(session, question->sessions, question->count, question->turns);
}

static bool is_recent(const struct question *question, uint64_t when_ns, uint64_t turn_ns)
{
    return when_ns && question->now_ns - when_ns < PAUSE_TURNS * turn_ns;
}

/* Of the sessions that wait for what this one has, the least that one has held; UINT64_MAX: none waits. */
static uint64_t least_held_ns(const struct question *question, const struct residency_session *session)
{
    uint64_t least_ns = UINT64_MAX;
    for (unsigned i = 0; i < question->count; i++) {
        const struct residency_session *at = &question->sessions[i];
        if (at != session && at->waits && at->held_ns < least_ns && residency_share_place(at, session))
            least_ns = at->held_ns;
    }
    return least_ns;
}

/* How much longer a turn may be so that the program pauses by itself. A program that is sent away just before its pause
 * has to come back for the rest, and pauses later. */
static uint64_t longer_ns(const struct question *question, const struct residency_session *session,
                          uint64_t turn_ns)
{
    uint64_t least_ns = least_held_ns(question, session), tenth_ns = turn_ns / PAUSE_PART,
             over_ns = session->came_ns + turn_ns;
    bool pauses = is_recent(question, session->paused_ns, turn_ns);
    if (!pauses || least_ns == UINT64_MAX)
        return pauses || is_recent(question, session->began_ns, turn_ns) ? tenth_ns : 0;
    uint64_t may_hold_ns = least_ns + AHEAD_TURNS * turn_ns,
             left_ns = may_hold_ns > session->held_ns ? may_hold_ns - session->held_ns : 0,
             until_ns = question->now_ns + left_ns, more_ns = until_ns > over_ns ? until_ns - over_ns : 0;
    more_ns = more_ns < turn_ns ? more_ns : turn_ns;
    return more_ns > tenth_ns ? more_ns : tenth_ns;
}

/* When the session's time to work ends, in its turn. */
static uint64_t turn_end_ns(const struct question *question, const struct residency_session *session)
{
    uint64_t turn_ns = turn_of(question, session);
    return session->came_ns + turn_ns + longer_ns(question, session, turn_ns);
}

/* Whether it has waited for longer than the others' part of the time beside its turns. */
static bool is_owed(const struct question *question, const struct residency_session *session)
{
    double waited =
        question->now_ns > session->waits_since_ns ? (double)(question->now_ns - session->waits_since_ns) : 0;
    uint32_t share = session->min_share;
    return session->waits && share && share < RESIDENCY_SHARE_WHOLE &&
           waited * share >= (double)turn_of(question, session) * (RESIDENCY_SHARE_WHOLE - share);
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

/* Count the session as leaving (sign 1), or as staying after all (-1). */
static void add_soon(const struct residency_session *session, struct room *room, int64_t sign)
{
    for (unsigned i = 0; i < session->part_count; i++)
        room->soon[session->parts[i].gpu] += sign * (int64_t)session->parts[i].here_bytes;
}

/* Whether `first`, which lacks room, would be helped if `session` left. */
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

/* Whether it is working in its turn: then what it asks for now is part of that turn. */
static bool has_turn(const struct question *question, const struct residency_session *session)
{
    bool is_here = false;
    for (unsigned i = 0; i < session->part_count; i++)
        is_here |= session->parts[i].here_bytes > 0;
    return is_here && session->can_leave && !session->is_ahead && !session->idle_since_ns &&
           turn_end_ns(question, session) > question->now_ns;
}

/* Whether `a` comes before `b`; both wait. */
static bool is_before(const struct question *question, const struct residency_session *a,
                      const struct residency_session *b)
{
    bool a_has_turn = has_turn(question, a), b_has_turn = has_turn(question, b);
    if (a_has_turn != b_has_turn)
        return a_has_turn;
    bool a_is_owed = is_owed(question, a), b_is_owed = is_owed(question, b);
    if (a_is_owed != b_is_owed)
        return a_is_owed;
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a->waits_since_ns != b->waits_since_ns ? a->waits_since_ns < b->waits_since_ns : a < b;
}

/* Whether `a` leaves before `b`; both may leave. */
static bool leaves_before(const struct residency_session *a, const struct residency_session *b)
{
    if (a->is_ahead != b->is_ahead)
        return a->is_ahead;
    if (!a->idle_since_ns != !b->idle_since_ns)
        return a->idle_since_ns != 0;
    if (a->idle_since_ns)
        return a->idle_since_ns < b->idle_since_ns;
    if (a->priority != b->priority)
        return a->priority < b->priority;
    return a->came_ns < b->came_ns;
}

/* Whether `session` may not be sent away for `first`: it has work and a higher priority; or, if its memory came ahead,
 * it comes before `first`. */
static bool is_kept_from(const struct question *question, const struct residency_session *session,
                         const struct residency_session *first)
{
    if (session->is_ahead)
        return is_before(question, session, first);
    return !session->idle_since_ns && session->priority > first->priority && !is_owed(question, first);
}

/* Whether all of it is coming now; after that it has its turn. */
static bool is_to_work(const struct residency_session *session)
{
    return session->is_coming && !session->waits;
}

/* Whether it has no turn, or its turn is over. Else sets when the turn should be over; that may be later if the program
 * does not pause by then. */
static bool may_leave(const struct question *question, const struct residency_session *session,
                      uint64_t *over_ns)
{
    uint64_t turn_ns = turn_of(question, session), end_ns = turn_end_ns(question, session);
    if (is_to_work(session)) {
        *over_ns = question->now_ns + session->come_ns + turn_ns;
        return false;
    }
    if (session->idle_since_ns || session->is_ahead || end_ns <= question->now_ns)
        return true;
    *over_ns = session->came_ns + turn_ns > question->now_ns ? session->came_ns + turn_ns : end_ns;
    return false;
}

/* The next session that may leave for `first`; NULL: none. `*end_ns`: lowered to when a turn ends that is in the way
 * now. */
static struct residency_session *find_victim(const struct question *question,
                                             const struct residency_session *first, const struct room *room,
                                             uint64_t *end_ns)
{
    struct residency_session *best = NULL;
    for (unsigned i = 0; i < question->count; i++) {
        struct residency_session *at = &question->sessions[i];
        if (at == first || !(at->can_leave || is_to_work(at)) || at->is_leaving ||
            at->verdict != RESIDENCY_STAYS || !helps(at, first, room) || is_kept_from(question, at, first))
            continue;
        uint64_t over_ns;
        if (!may_leave(question, at, &over_ns))
            *end_ns = over_ns < *end_ns ? over_ns : *end_ns;
        else if (!best || leaves_before(at, best))
            best = at;
    }
    return best;
}

/* Let those stay that need not leave, beginning with the one that was chosen last. */
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

/* Have just enough sessions leave for `first`; none if that is not enough. Returns when there may be enough: now, when
 * a turn is over, or UINT64_MAX: not known. */
static uint64_t make_room(const struct question *question, const struct residency_session *first,
                          struct room *room)
{
    struct residency_session *victims[RESIDENCY_GPUS * 4], *victim;
    unsigned chosen = 0;
    uint64_t end_ns = UINT64_MAX;
    while (!fits(first, room->soon) && chosen < sizeof(victims) / sizeof(victims[0]) &&
           (victim = find_victim(question, first, room, &end_ns))) {
        victim->verdict = RESIDENCY_LEAVES;
        add_soon(victim, room, 1);
        victims[chosen++] = victim;
    }
    if (fits(first, room->soon)) {
        spare(victims, chosen, first, room);
        return question->now_ns;
    }
    while (chosen--) {
        victims[chosen]->verdict = RESIDENCY_STAYS;
        add_soon(victims[chosen], room, -1);
    }
    return end_ns;
}

static void take_way(struct question *question, const struct residency_session *session)
{
    for (unsigned i = 0; i < session->part_count; i++)
        if (session->parts[i].gpu < RESIDENCY_GPUS)
            question->is_taken[session->parts[i].gpu] = true;
}

/* Have memory of a session come ahead into what is free, while the session waits for more, there or on another GPU. */
static void come_ahead(struct question *question, struct residency_session *session, const struct room *room)
{
    for (unsigned i = 0; i < session->part_count && session->can_come_ahead; i++) {
        struct residency_part *part = &session->parts[i];
        if (part->gpu >= RESIDENCY_GPUS || !part->missing_bytes || room->now[part->gpu] <= 0 ||
            question->is_taken[part->gpu])
            continue;
        session->verdict = RESIDENCY_COMES_AHEAD;
        part->ahead_bytes = (uint64_t)room->now[part->gpu];
        question->is_taken[part->gpu] = true;
    }
}

/* The session that comes next after `before` (NULL: the first). */
static struct residency_session *next_in_line(const struct question *question,
                                              const struct residency_session *before)
{
    struct residency_session *best = NULL;
    for (unsigned i = 0; i < question->count; i++) {
        struct residency_session *at = &question->sessions[i];
        if (!at->waits || at == before || (before && !is_before(question, before, at)))
            continue;
        if (!best || is_before(question, at, best))
            best = at;
    }
    return best;
}

/* When the turns of all sessions that come before it on its GPUs are over; 0: there are none, or it is not known. */
static uint64_t line_end_ns(const struct question *question, const struct residency_session *session)
{
    uint64_t last_ns = 0;
    for (unsigned i = 0; i < question->count; i++) {
        const struct residency_session *at = &question->sessions[i];
        if (!at->due_ns || at->verdict == RESIDENCY_COMES || !residency_share_place(at, session))
            continue;
        uint64_t end_ns = at->due_ns + turn_of(question, at);
        last_ns = end_ns > last_ns ? end_ns : last_ns;
    }
    return last_ns;
}

static void serve(struct question *question, struct residency_session *session, struct room *room)
{
    uint64_t begin_ns = question->now_ns;
    if (fits(session, room->now)) {
        session->verdict = RESIDENCY_COMES;
        take_way(question, session);
    } else {
        begin_ns = make_room(question, session, room);
        if (begin_ns != question->now_ns && begin_ns < question->again_ns)
            question->again_ns = begin_ns;
        come_ahead(question, session, room);
        uint64_t line_ns = line_end_ns(question, session);
        if (line_ns && (begin_ns == UINT64_MAX || begin_ns < line_ns))
            begin_ns = line_ns;
    }
    if (begin_ns != UINT64_MAX)
        session->due_ns = begin_ns + session->come_ns;
    take_room(session, room); /* what it has, or will have, is not for sessions that come later */
}

/* Whether `a` makes way before `b` where more is there than fits: the one that came later, where both have work and the
 * same priority. */
static bool makes_way_before(const struct residency_session *a, const struct residency_session *b)
{
    bool are_alike =
        !a->is_ahead && !b->is_ahead && !a->idle_since_ns && !b->idle_since_ns && a->priority == b->priority;
    return are_alike ? a->came_ns > b->came_ns : leaves_before(a, b);
}

/* More is there than fits: the session that came last leaves, and waits for its turn. */
static void relieve(const struct question *question, unsigned place, struct room *room)
{
    struct residency_session *last = NULL;
    unsigned there = 0;
    for (unsigned i = 0; i < question->count; i++) {
        struct residency_session *at = &question->sessions[i];
        bool has_some = false;
        for (unsigned j = 0; j < at->part_count; j++)
            has_some |= at->parts[j].gpu == place && at->parts[j].here_bytes;
        there += has_some;
        if (has_some && at->can_leave && !at->is_leaving && at->verdict == RESIDENCY_STAYS &&
            (!last || makes_way_before(at, last)))
            last = at;
    }
    if (!last || there < 2) /* a session that is larger than the card stays */
        return;
    last->verdict = RESIDENCY_LEAVES;
    add_soon(last, room, 1);
    if (room->soon[place] < 0)
        relieve(question, place, room);
}

uint64_t residency_decide(struct residency_session *sessions, unsigned count,
                          const int64_t free_bytes[RESIDENCY_PLACES], const struct residency_turns *turns,
                          uint64_t now_ns)
{
    struct question question = {sessions, count, turns, now_ns, .again_ns = UINT64_MAX};
    struct room room;
    memcpy(room.now, free_bytes, sizeof(room.now));
    memcpy(room.soon, free_bytes, sizeof(room.soon));
    for (unsigned i = 0; i < count; i++) {
        sessions[i].verdict = RESIDENCY_STAYS;
        sessions[i].due_ns = 0;
        for (unsigned j = 0; j < sessions[i].part_count; j++)
            sessions[i].parts[j].ahead_bytes = 0;
        if (sessions[i].is_leaving)
            add_soon(&sessions[i], &room, 1);
        if (sessions[i].is_coming)
            take_way(&question, &sessions[i]);
    }
    for (unsigned place = 0; place < RESIDENCY_PLACES; place++)
        if (room.soon[place] < 0)
            relieve(&question, place, &room);
    for (struct residency_session *at = NULL; (at = next_in_line(&question, at));)
        if (at->verdict != RESIDENCY_LEAVES) /* else it leaves for one that comes before it */
            serve(&question, at, &room);
    return question.again_ns;
}
