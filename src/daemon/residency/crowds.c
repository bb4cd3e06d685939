#include "daemon/residency/crowds.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/residency/seen.h"

#define WORDS (RESIDENCY_PLACES / 64)

/* The least of some sessions' values; and the least of those but for the session that has the first. */
struct least {
    uint64_t value, next;
    unsigned owner;
};

/* The sessions that have the same places. */
struct kind {
    uint64_t places[WORDS]; /* a bit for each */
    bool is_used;
    unsigned claimants;
    uint64_t promised;
    uint32_t least_promise;
    struct least waits_since_ns, held_ns;
};

static const struct kind nobody = {.least_promise = UINT32_MAX,
                                   .waits_since_ns = {UINT64_MAX, UINT64_MAX, UINT32_MAX},
                                   .held_ns = {UINT64_MAX, UINT64_MAX, UINT32_MAX}};

static void least_add(struct least *least, uint64_t value, unsigned owner)
{
    if (value < least->value) {
        least->next = least->value;
        least->value = value;
        least->owner = owner;
    } else if (value < least->next) {
        least->next = value;
    }
}

static void least_add_all(struct least *least, const struct least *others)
{
    least_add(least, others->value, others->owner);
    least_add(least, others->next, UINT32_MAX); /* it is never asked whose the second is */
}

static uint64_t least_without(const struct least *least, unsigned owner)
{
    return least->owner == owner ? least->next : least->value;
}

static bool is_rival(const struct residency_session *session)
{
    return session->waits || (!session->idle_since_ns && session->can_leave);
}

static void kind_add(struct kind *kind, const struct residency_session *session, unsigned number)
{
    if (is_rival(session)) {
        kind->claimants++;
        kind->promised += session->min_share;
        if (session->min_share < kind->least_promise)
            kind->least_promise = session->min_share;
    }
    if (session->waits) {
        least_add(&kind->waits_since_ns, session->waits_since_ns, number);
        least_add(&kind->held_ns, session->held_ns, number);
    }
}

static void kind_add_all(struct kind *kind, const struct kind *other)
{
    kind->claimants += other->claimants;
    kind->promised += other->promised;
    if (other->least_promise < kind->least_promise)
        kind->least_promise = other->least_promise;
    least_add_all(&kind->waits_since_ns, &other->waits_since_ns);
    least_add_all(&kind->held_ns, &other->held_ns);
}

static void find_places(const struct residency_session *session, uint64_t places[WORDS])
{
    memset(places, 0, WORDS * sizeof(*places));
    for (unsigned i = 0; i < session->part_count; i++)
        places[session->parts[i].gpu / 64] |= UINT64_C(1) << session->parts[i].gpu % 64;
}

static bool overlap(const uint64_t a[WORDS], const uint64_t b[WORDS])
{
    bool any = false;
    for (unsigned i = 0; i < WORDS; i++)
        any |= (a[i] & b[i]) != 0;
    return any;
}

/* All kinds; a hash table, and half of it at least is free. */
struct kinds {
    struct kind *table;
    unsigned size;  /* a power of two */
    unsigned *used; /* which of the table's places, in the order of their first sessions */
    unsigned used_count;
    unsigned *of_session;
};

static unsigned find_kind(struct kinds *kinds, const uint64_t places[WORDS])
{
    uint64_t hash = 0;
    for (unsigned i = 0; i < WORDS; i++)
        hash = (hash ^ places[i]) * UINT64_C(0x9e3779b97f4a7c15);
    unsigned at = (unsigned)(hash >> 32) & (kinds->size - 1);
    while (kinds->table[at].is_used && memcmp(kinds->table[at].places, places, sizeof(nobody.places)) != 0)
        at = (at + 1) & (kinds->size - 1);
    if (!kinds->table[at].is_used) {
        kinds->table[at] = nobody;
        kinds->table[at].is_used = true;
        memcpy(kinds->table[at].places, places, sizeof(nobody.places));
        kinds->used[kinds->used_count++] = at;
    }
    return at;
}

static bool kinds_begin(struct kinds *kinds, unsigned count)
{
    *kinds = (struct kinds){.size = 4};
    while (kinds->size < 2 * count)
        kinds->size *= 2;
    kinds->table = calloc(kinds->size, sizeof(*kinds->table));
    kinds->used = calloc((size_t)count + 1, sizeof(*kinds->used));
    kinds->of_session = calloc((size_t)count + 1, sizeof(*kinds->of_session));
    return kinds->table && kinds->used && kinds->of_session;
}

static void kinds_end(struct kinds *kinds)
{
    free(kinds->table);
    free(kinds->used);
    free(kinds->of_session);
}

/* All that share a place with a kind, itself too. */
static struct kind company_of(const struct kinds *kinds, const struct kind *kind)
{
    struct kind company = nobody;
    for (unsigned i = 0; i < kinds->used_count; i++) {
        const struct kind *other = &kinds->table[kinds->used[i]];
        if (overlap(kind->places, other->places))
            kind_add_all(&company, other);
    }
    return company;
}

static struct residency_crowd without(const struct kind *company, const struct residency_session *session,
                                      unsigned number)
{
    unsigned own = session->part_count && is_rival(session);
    return (struct residency_crowd){
        .claimants = company->claimants - own,
        .promised = company->promised - own * session->min_share,
        .least_promise =
            company->least_promise < session->min_share ? company->least_promise : session->min_share,
        .waits_since_ns = least_without(&company->waits_since_ns, number),
        .least_held_ns = least_without(&company->held_ns, number),
    };
}

/* Take each session out of its kind's company, which is found once for each kind. */
static bool set_crowds(const struct kinds *kinds, const struct residency_session *sessions, unsigned count,
                       struct residency_crowd *crowds)
{
    struct kind *companies = calloc(kinds->size, sizeof(*companies));
    for (unsigned i = 0; i < kinds->used_count && companies; i++)
        companies[kinds->used[i]] = company_of(kinds, &kinds->table[kinds->used[i]]);
    for (unsigned i = 0; i < count && companies; i++)
        crowds[i] = without(&companies[kinds->of_session[i]], &sessions[i], i);
    free(companies);
    return companies != NULL;
}

bool residency_find_crowds(const struct residency_session *sessions, unsigned count,
                           struct residency_crowd *crowds)
{
    struct kinds kinds;
    bool is_done = kinds_begin(&kinds, count);
    for (unsigned i = 0; i < count && is_done; i++) {
        uint64_t places[WORDS];
        find_places(&sessions[i], places);
        kinds.of_session[i] = find_kind(&kinds, places);
        kind_add(&kinds.table[kinds.of_session[i]], &sessions[i], i);
    }
    is_done = is_done && set_crowds(&kinds, sessions, count, crowds);
    kinds_end(&kinds);
    return is_done;
}
