/* Whether it is of use that others hold still for the bursts of a session of a higher priority. */
#include "daemon/schedule/role/role.h"

/* The part of a window of WINDOW_NS for which others may hold still in vain. If they do for longer in two windows
 * in a row, they do not hold still for FIRST_NS after that, and for twice as long each next time, up to MOST_NS. */
#define WASTE 0.05
#define WINDOW_NS UINT64_C(200000000)
#define FIRST_NS UINT64_C(4000000000)
#define MOST_NS UINT64_C(64000000000)
/* For so long, sessions that hold still keep the GPU busy, with what they may have before it and one piece of work. */
#define STILL_FOR_OTHERS_NS (2.0 * (double)AHEAD_BELOW_NS)

void role_favour_begin(struct arbiter_session *session)
{
    session->role.favour = (struct favour){.from = session->arbiter->now, .every = FIRST_NS};
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
    if (passed < WINDOW_NS)
        return;
    bool is_wasted = favour->ns - favour->used_ns > WASTE * (double)passed;
    if (is_wasted && favour->was_wasted) {
        favour->again_at = now + favour->every;
        favour->every *= favour->every < MOST_NS ? 2 : 1;
    } else if (!is_wasted && favour->ns > 0) {
        favour->every = FIRST_NS;
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
    return session->arbiter->now >= session->role.favour.again_at;
}
