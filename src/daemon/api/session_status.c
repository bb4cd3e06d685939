#include "daemon/api/session_status.h"

#include "daemon/residency/moves.h"
#include "daemon/schedule/standing.h"
#include "daemon/session/session.h"
#include "daemon/session/session_life.h"

static const struct {
    const char *word, *tone, *text;
} rows[] = {
#define STATUS(name, word, tone, text) {word, tone, text},
#include "daemon/api/statuses.def"
#undef STATUS
};

static enum session_status status_away(enum move_cause cause)
{
    static const enum session_status by_cause[] = {
        [MOVE_BY_USER] = STATUS_SUSPENDED, [MOVE_BY_NEED] = STATUS_AWAY, [MOVE_BY_IDLE] = STATUS_ASLEEP};
    return by_cause[cause];
}

/* On the card as a whole, and nothing to wait for there. */
static enum session_status status_resident(const struct session *session)
{
    if (standing_of(session).is_undrainable)
        return STATUS_UNDRAINABLE;
    return session->process_count ? STATUS_ACTIVE : STATUS_IDLE;
}

enum session_status session_status(const struct session *session)
{
    if (session->state == SESSION_QUEUED)
        return STATUS_QUEUED;
    if (session->state == SESSION_EXPIRED)
        return session_is_removed(session) ? STATUS_REMOVED : STATUS_EXPIRED;
    struct moves_standing memory = moves_standing(session);
    if (memory.state == MOVE_LEAVING)
        return STATUS_LEAVING;
    if (memory.state == MOVE_COMING)
        return STATUS_COMING;
    if (memory.waits)
        return STATUS_NO_ROOM;
    if (memory.state == MOVE_PARTLY_AWAY)
        return STATUS_PARTLY_AWAY;
    return memory.state == MOVE_AWAY ? status_away(memory.cause) : status_resident(session);
}

const char *session_status_word(enum session_status status)
{
    return rows[status].word;
}

const char *session_status_tone(enum session_status status)
{
    return rows[status].tone;
}

const char *session_status_text(enum session_status status)
{
    return rows[status].text;
}
