#include "daemon/residency/residency.h"
#include "base/check.h"

#include <stdlib.h>
#include <string.h>

#define LONGER_TURNS 8u /* a turn is this many times as long as the shortest at most, for what was promised */
#define TURNS_A_MOVE 9u /* a turn is this many times as long as the moves that it costs */
#define PAUSE_PART 10u  /* a turn is longer by this part of it, to wait for the program to pause, */
#define PAUSE_TURNS 8u  /* if the program has paused within this many turns, */
#define AHEAD_TURNS 2u  /* and by up to a whole turn, while it is not ahead of others by this many */

/* What is free in each place; what will be when those that leave have left; and what will be at most, whoever leaves, for
 * sessions up to a rank (rank(); 0: that is not known). */
struct room {
    int64_t now[RESIDENCY_PLACES], soon[RESIDENCY_PLACES], most[RESIDENCY_PLACES];
    uint64_t most_rank[RESIDENCY_PLACES];
};

/* What follows from how a session and the others stand, and is needed again and again. */
struct standing {
    struct residency_session *session;
    uint64_t turn_ns;
    uint64_t end_ns; /* of its time to work, in its turn */
    bool has_turn, is_owed;
};

/* All that the caller asks about. */
struct question {
    struct residency_session *sessions;
    unsigned count;
    const struct residency_turns *turns;
    uint64_t now_ns;
    uint64_t again_ns;               /* the answer so far */
    bool is_taken[RESIDENCY_PLACES]; /* the link to it is in use: a session comes, or has some come ahead */
    /* When the turns of all are over that have been served so far and do not come now; 0: not known. */
    uint64_t line_end_ns[RESIDENCY_PLACES];
    struct standing *standings;
    struct residency_crowd *crowds;
    struct standing **line; /* those that wait, in the order in which they come */
    unsigned line_count;
    struct standing *
        *leavers; /* those that could leave now, or once they have come, in the order in which they leave */
    unsigned leaver_count;
    unsigned leavers_gone;              /* how many of the first leave already */
    struct residency_session **victims; /* room for all sessions */
};

/* How many times as long the session's turn is as the shortest turn of its claimants: each should get what it was promised
 * and an equal part of the rest. */
static double stretch(const struct residency_session *session, const struct residency_crowd *crowd)
{
    double promised = (double)session->min_share + (double)crowd->promised,
           least = crowd->least_promise < session->min_share ? crowd->least_promise : session->min_share;
    double rest =
        promised < RESIDENCY_SHARE_WHOLE ? (RESIDENCY_SHARE_WHOLE - promised) / (crowd->claimants + 1) : 0;
    if (session->min_share + rest >= LONGER_TURNS * (least + rest))
        return least < session->min_share ? LONGER_TURNS : 1;
    return (session->min_share + rest) / (least + rest);
}

uint64_t residency_turn_ns(const struct residency_session *session, const struct residency_crowd *crowd,
                           const struct residency_turns *turns)
{
    uint64_t ns = session->move_ns * TURNS_A_MOVE;
    ns = ns < turns->least_ns ? turns->least_ns : ns > turns->most_ns ? turns->most_ns : ns;
    return (uint64_t)((double)ns * stretch(session, crowd));
}

static bool is_recent(const struct question *question, uint64_t when_ns, uint64_t turn_ns)
{
    return when_ns && question->now_ns - when_ns < PAUSE_TURNS * turn_ns;
}

/* How much longer a turn may be so that the program pauses by itself. A program that is sent away just before its pause
 * has to come back for the rest, and pauses later. `least_ns`: the least that one has held that waits for its room. */
static uint64_t longer_ns(const struct question *question, const struct residency_session *session,
                          uint64_t turn_ns, uint64_t least_ns)
{
    uint64_t tenth_ns = turn_ns / PAUSE_PART, over_ns = session->came_ns + turn_ns;
    bool pauses = is_recent(question, session->paused_ns, turn_ns);
    if (!pauses || least_ns == UINT64_MAX)
        return pauses || is_recent(question, session->began_ns, turn_ns) ? tenth_ns : 0;
    uint64_t may_hold_ns = least_ns + AHEAD_TURNS * turn_ns,
             left_ns = may_hold_ns > session->held_ns ? may_hold_ns - session->held_ns : 0,
             until_ns = question->now_ns + left_ns, more_ns = until_ns > over_ns ? until_ns - over_ns : 0;
    more_ns = more_ns < turn_ns ? more_ns : turn_ns;
    return more_ns > tenth_ns ? more_ns : tenth_ns;
}

/* Whether it has waited for longer than the others' part of the time beside its turns. */
static bool is_owed(const struct question *question, const struct residency_session *session,
                    uint64_t turn_ns)
{
    double waited =
        question->now_ns > session->waits_since_ns ? (double)(question->now_ns - session->waits_since_ns) : 0;
    uint32_t share = session->min_share;
    return session->waits && share && share < RESIDENCY_SHARE_WHOLE &&
           waited * share >= (double)turn_ns * (RESIDENCY_SHARE_WHOLE - share);
}

/* Whether it is working in its turn: then what it asks for now is part of that turn. */
static bool has_turn(const struct question *question, const struct residency_session *session,
                     uint64_t end_ns)
{
    bool is_here = false;
    for (unsigned i = 0; i < session->part_count; i++)
        is_here |= session->parts[i].here_bytes > 0;
    return is_here && session->can_leave && !session->is_ahead && !session->idle_since_ns &&
           end_ns > question->now_ns;
}

static struct standing find_standing(const struct question *question, struct residency_session *session,
                                     const struct residency_crowd *crowd)
{
    uint64_t turn_ns = residency_turn_ns(session, crowd, question->turns),
             end_ns =
                 session->came_ns + turn_ns + longer_ns(question, session, turn_ns, crowd->least_held_ns);
    return (struct standing){
        .session = session,
        .turn_ns = turn_ns,
        .end_ns = end_ns,
        .has_turn = has_turn(question, session, end_ns),
        .is_owed = is_owed(question, session, turn_ns),
    };
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
        unsigned place = session->parts[i].gpu;
        int64_t bytes = (int64_t)session->parts[i].missing_bytes;
        room->now[place] -= bytes;
        room->soon[place] -= bytes;
        room->most[place] -= bytes;
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

/* Whether `a` comes before `b`; both wait. */
static bool is_before(const struct standing *a, const struct standing *b)
{
    const struct residency_session *first = a->session, *second = b->session;
    if (first->comes_last != second->comes_last)
        return second->comes_last;
    if (a->has_turn != b->has_turn)
        return a->has_turn;
    if (a->is_owed != b->is_owed)
        return a->is_owed;
    if (first->priority != second->priority)
        return first->priority > second->priority;
    return first->waits_since_ns != second->waits_since_ns ? first->waits_since_ns < second->waits_since_ns
                                                           : first < second;
}

/* Whether `a` leaves before `b`; both may leave. */
static bool leaves_before(const struct residency_session *a, const struct residency_session *b)
{
    if (a->is_ahead != b->is_ahead)
        return a->is_ahead;
    if (!a->idle_since_ns != !b->idle_since_ns)
        return a->idle_since_ns != 0;
    if (a->idle_since_ns)
        return a->idle_since_ns != b->idle_since_ns ? a->idle_since_ns < b->idle_since_ns : a < b;
    if (a->priority != b->priority)
        return a->priority < b->priority;
    return a->came_ns != b->came_ns ? a->came_ns < b->came_ns : a < b;
}

/* Whether `session` may not be sent away for `first`: it has work and a higher priority; or, if its memory came ahead,
 * it comes before `first`. */
static bool is_kept_from(const struct standing *session, const struct standing *first)
{
    if (session->session->is_ahead)
        return is_before(session, first);
    return !session->session->idle_since_ns && session->session->priority > first->session->priority &&
           !first->is_owed;
}

/* For a session with a lower rank, or with the same, nobody leaves who would not for one with this rank that comes before
 * it. */
static uint64_t rank(const struct standing *first)
{
    return first->is_owed ? UINT64_MAX : (uint64_t)first->session->priority + 1;
}

/* Whether all of it is coming now; after that it has its turn. */
static bool is_to_work(const struct residency_session *session)
{
    return session->is_coming && !session->waits;
}

/* Whether it has no turn, or its turn is over. Else sets when the turn should be over; that may be later if the program
 * does not pause by then. */
static bool may_leave(const struct question *question, const struct standing *at, uint64_t *over_ns)
{
    const struct residency_session *session = at->session;
    if (is_to_work(session)) {
        *over_ns = question->now_ns + session->come_ns + at->turn_ns;
        return false;
    }
    if (session->idle_since_ns || session->is_ahead || at->end_ns <= question->now_ns)
        return true;
    *over_ns =
        session->came_ns + at->turn_ns > question->now_ns ? session->came_ns + at->turn_ns : at->end_ns;
    return false;
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

static bool lacks(const struct residency_part *wanted, const struct room *room)
{
    return wanted->missing_bytes && (int64_t)wanted->missing_bytes > room->soon[wanted->gpu];
}

/* Whether it is known that nobody can make room for `first`, so that nobody has to be looked for. */
static bool is_denied(const struct standing *first, const struct room *room)
{
    bool any = false;
    for (unsigned i = 0; i < first->session->part_count; i++) {
        const struct residency_part *wanted = &first->session->parts[i];
        any |= lacks(wanted, room) && room->most_rank[wanted->gpu] >= rank(first) &&
               (int64_t)wanted->missing_bytes > room->most[wanted->gpu];
    }
    return any;
}

/* All that can leave for `first` would, and it lacks room all the same: for those behind it, no more than that can leave,
 * and what `first` has itself. */
static void note_most(const struct standing *first, struct room *room)
{
    for (unsigned i = 0; i < first->session->part_count; i++) {
        const struct residency_part *wanted = &first->session->parts[i];
        if (!lacks(wanted, room))
            continue;
        room->most_rank[wanted->gpu] = rank(first);
        room->most[wanted->gpu] = room->soon[wanted->gpu] + (int64_t)wanted->here_bytes;
    }
}

/* Choose as many as have to leave for `first`, from those that may. Returns how many; `*end_ns`: lowered to when a turn
 * ends that is in the way now. */
static unsigned choose_victims(struct question *question, const struct standing *first, struct room *room,
                               uint64_t *end_ns)
{
    unsigned chosen = 0;
    while (question->leavers_gone < question->leaver_count &&
           question->leavers[question->leavers_gone]->session->verdict == RESIDENCY_LEAVES)
        question->leavers_gone++;
    for (unsigned i = question->leavers_gone; i < question->leaver_count && !fits(first->session, room->soon);
         i++) {
        const struct standing *at = question->leavers[i];
        struct residency_session *session = at->session;
        uint64_t over_ns;
        if (at == first || session->verdict != RESIDENCY_STAYS || !helps(session, first->session, room) ||
            is_kept_from(at, first))
            continue;
        if (!may_leave(question, at, &over_ns)) {
            *end_ns = over_ns < *end_ns ? over_ns : *end_ns;
            continue;
        }
        session->verdict = RESIDENCY_LEAVES;
        add_soon(session, room, 1);
        question->victims[chosen++] = session;
    }
    return chosen;
}

/* Have just enough sessions leave for `first`; none if that is not enough. Returns when there may be enough: now, when
 * a turn is over, or UINT64_MAX: not known. */
static uint64_t make_room(struct question *question, const struct standing *first, struct room *room)
{
    uint64_t end_ns = UINT64_MAX;
    if (is_denied(first, room))
        return UINT64_MAX;
    unsigned chosen = choose_victims(question, first, room, &end_ns);
    if (fits(first->session, room->soon)) {
        spare(question->victims, chosen, first->session, room);
        return question->now_ns;
    }
    note_most(first, room);
    while (chosen--) {
        question->victims[chosen]->verdict = RESIDENCY_STAYS;
        add_soon(question->victims[chosen], room, -1);
    }
    return end_ns;
}

static void take_way(struct question *question, const struct residency_session *session)
{
    for (unsigned i = 0; i < session->part_count; i++)
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

/* When the turns of all sessions that come before it on its GPUs are over; 0: there are none, or it is not known. */
static uint64_t line_end_ns(const struct question *question, const struct residency_session *session)
{
    uint64_t last_ns = 0;
    for (unsigned i = 0; i < session->part_count; i++) {
        uint64_t end_ns = question->line_end_ns[session->parts[i].gpu];
        last_ns = end_ns > last_ns ? end_ns : last_ns;
    }
    return last_ns;
}

/* It waits, for no longer than until it is due: those behind it wait for its turn too. */
static void lengthen_line(struct question *question, const struct standing *at)
{
    uint64_t end_ns = at->session->due_ns + at->turn_ns;
    for (unsigned i = 0; i < at->session->part_count; i++) {
        uint64_t *line_ns = &question->line_end_ns[at->session->parts[i].gpu];
        *line_ns = end_ns > *line_ns ? end_ns : *line_ns;
    }
}

static void serve(struct question *question, const struct standing *at, struct room *room)
{
    struct residency_session *session = at->session;
    uint64_t begin_ns = question->now_ns;
    if (fits(session, room->now)) {
        session->verdict = RESIDENCY_COMES;
        take_way(question, session);
    } else {
        begin_ns = make_room(question, at, room);
        if (begin_ns != question->now_ns && begin_ns < question->again_ns)
            question->again_ns = begin_ns;
        come_ahead(question, session, room);
        uint64_t line_ns = line_end_ns(question, session);
        if (line_ns && (begin_ns == UINT64_MAX || begin_ns < line_ns))
            begin_ns = line_ns;
    }
    if (begin_ns != UINT64_MAX)
        session->due_ns = begin_ns + session->come_ns;
    if (session->due_ns && session->verdict != RESIDENCY_COMES)
        lengthen_line(question, at);
    take_room(session, room); /* what it has, or will have, is not for sessions that come later */
}

/* Whether `a` makes way before `b` where more is there than fits: the one that came later, where both have work and the
 * same priority. */
static bool makes_way_before(const struct residency_session *a, const struct residency_session *b)
{
    bool are_alike =
        !a->is_ahead && !b->is_ahead && !a->idle_since_ns && !b->idle_since_ns && a->priority == b->priority;
    return are_alike && a->came_ns != b->came_ns ? a->came_ns > b->came_ns : leaves_before(a, b);
}

static int compare_ways(const void *a, const void *b)
{
    return makes_way_before(*(struct residency_session *const *)a, *(struct residency_session *const *)b) ? -1
                                                                                                          : 1;
}

static bool has_some(const struct residency_session *session, unsigned place)
{
    bool any = false;
    for (unsigned i = 0; i < session->part_count; i++)
        any |= session->parts[i].gpu == place && session->parts[i].here_bytes;
    return any;
}

/* More is there than fits: the sessions that came last leave, and wait for their turn. */
static void relieve(const struct question *question, unsigned place, struct room *room)
{
    unsigned there = 0, count = 0;
    for (unsigned i = 0; i < question->count; i++) {
        struct residency_session *at = &question->sessions[i];
        if (!has_some(at, place))
            continue;
        there++;
        if (at->can_leave && !at->is_leaving && at->verdict == RESIDENCY_STAYS)
            question->victims[count++] = at;
    }
    if (there < 2) /* a session that is larger than the card stays */
        return;
    qsort(question->victims, count, sizeof(*question->victims), compare_ways);
    for (unsigned i = 0; i < count && room->soon[place] < 0; i++) {
        question->victims[i]->verdict = RESIDENCY_LEAVES;
        add_soon(question->victims[i], room, 1);
    }
}

static int compare_in_line(const void *a, const void *b)
{
    return is_before(*(struct standing *const *)a, *(struct standing *const *)b) ? -1 : 1;
}

static int compare_leavers(const void *a, const void *b)
{
    return leaves_before((*(struct standing *const *)a)->session, (*(struct standing *const *)b)->session)
               ? -1
               : 1;
}

/* Find how all stand, who waits, and who could leave. */
static void find_standings(struct question *question)
{
    for (unsigned i = 0; i < question->count; i++) {
        struct residency_session *session = &question->sessions[i];
        struct standing *at = &question->standings[i];
        *at = find_standing(question, session, &question->crowds[i]);
        if (session->waits)
            question->line[question->line_count++] = at;
        if ((session->can_leave || is_to_work(session)) && !session->is_leaving)
            question->leavers[question->leaver_count++] = at;
    }
    qsort(question->line, question->line_count, sizeof(*question->line), compare_in_line);
    qsort(question->leavers, question->leaver_count, sizeof(*question->leavers), compare_leavers);
}

static void begin_answer(struct question *question, struct room *room)
{
    for (unsigned i = 0; i < question->count; i++) {
        struct residency_session *session = &question->sessions[i];
        session->verdict = RESIDENCY_STAYS;
        session->due_ns = 0;
        for (unsigned j = 0; j < session->part_count; j++)
            session->parts[j].ahead_bytes = 0;
        if (session->is_leaving)
            add_soon(session, room, 1);
        if (session->is_coming)
            take_way(question, session);
    }
}

static void answer(struct question *question, struct room *room)
{
    begin_answer(question, room);
    find_standings(question);
    for (unsigned place = 0; place < RESIDENCY_PLACES; place++)
        if (room->soon[place] < 0)
            relieve(question, place, room);
    for (unsigned i = 0; i < question->line_count; i++)
        if (question->line[i]->session->verdict != RESIDENCY_LEAVES) /* else for one that comes before it */
            serve(question, question->line[i], room);
}

/* --- What must hold -------------------------------------------------------------------------------- */

bool residency_session_is_valid(const struct residency_session *session)
{
    for (unsigned i = 0; i < session->part_count; i++) {
        const struct residency_part *part = &session->parts[i];
        if (part->gpu >= RESIDENCY_PLACES || (part->ahead_bytes && session->verdict != RESIDENCY_COMES_AHEAD))
            return false;
    }
    return session->min_share <= RESIDENCY_SHARE_WHOLE && session->verdict <= RESIDENCY_COMES_AHEAD &&
           (session->verdict != RESIDENCY_LEAVES || session->can_leave) &&
           (session->verdict < RESIDENCY_COMES || session->waits) && (!session->due_ns || session->waits);
}

bool residency_sessions_are_valid(const struct residency_session *sessions, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (!residency_session_is_valid(&sessions[i]))
            return false;
    return true;
}

/* --- The decision ---------------------------------------------------------------------------------- */

uint64_t residency_decide(struct residency_session *sessions, unsigned count,
                          const int64_t free_bytes[RESIDENCY_PLACES], const struct residency_turns *turns,
                          uint64_t now_ns)
{
    size_t size = (size_t)count + 1;
    struct question question = {
        .sessions = sessions,
        .count = count,
        .turns = turns,
        .now_ns = now_ns,
        .again_ns = UINT64_MAX,
        .standings = calloc(size, sizeof(*question.standings)),
        .crowds = calloc(size, sizeof(*question.crowds)),
        .line = calloc(size, sizeof(struct standing *)),
        .leavers = calloc(size, sizeof(struct standing *)),
        .victims = calloc(size, sizeof(struct residency_session *)),
    };
    struct room room = {.most_rank = {0}};
    memcpy(room.now, free_bytes, sizeof(room.now));
    memcpy(room.soon, free_bytes, sizeof(room.soon));
    if (question.standings && question.crowds && question.line && question.leavers && question.victims &&
        residency_find_crowds(sessions, count, question.crowds))
        answer(&question, &room);
    else
        begin_answer(&question, &room);
    GS_CHECK(residency_sessions_are_valid(sessions, count));
    free(question.victims);
    free(question.leavers);
    free(question.line);
    free(question.crowds);
    free(question.standings);
    return question.again_ns;
}
