/* Whether it is of use that others hold still for the bursts of a session of a higher priority. */
#include "daemon/schedule/role/role.h"

/* For so long, sessions that hold still keep the GPU busy, with what they may have before it and one piece of work. */
#define STILL_FOR_OTHERS_NS (2.0 * (double)AHEAD_BELOW_NS)

void role_favour_begin(struct arbiter_session *session)
{
    session->role.favour = (struct favour){.from = session->arbiter->now, .pause.length = BACKOFF_FIRST_NS};
}

/* The time in which others hold still counts only once the GPU has done what they had before it. */
void role_favour_count(struct arbiter_session *session, double passed_ns)
{
    struct favour *favour = &session->role.favour;
    double before = fmax(favour->still_ns, STILL_FOR_OTHERS_NS);
    favour->still_ns = session->facts.is_favoured ? favour->still_ns + passed_ns : 0;
    if (favour->still_ns > before)
        favour->ns += favour->still_ns - before;
}

/* Others hold still for a session's bursts only as long as that leaves the GPU idle for a small part of the time.
 * So they do not for a program whose short gaps look like the ends of bursts. */
void role_favour_judge(struct arbiter_session *session)
{
    struct favour *favour = &session->role.favour;
    uint64_t now = session->arbiter->now, passed = now - favour->from;
    if (passed < (uint64_t)WINDOW_NS)
        return;
    bool is_wasted = favour->ns - favour->used_ns > FAVOUR_WASTE * (double)passed;
    if (is_on(favour_waste) && is_wasted && favour->was_wasted) {
        backoff_begin(&favour->pause, now);
    } else if (!is_wasted && favour->ns > 0) {
        favour->pause.length = BACKOFF_FIRST_NS;
    }
    favour->was_wasted = is_wasted && !favour->was_wasted;
    favour->ns = favour->used_ns = 0;
    favour->from = now;
}

void role_favour_use(struct arbiter_session *session, double used_ns)
{
    session->role.favour.used_ns += used_ns;
}

bool role_is_favoured(const struct arbiter_session *session)
{
    return !backoff_lasts(&session->role.favour.pause, session->arbiter->now);
}
