/* Holding still for bursts of a higher priority: whether that is of use. */
#include <math.h>

#include "daemon/schedule/arbiter_state.h"

/* Part of the time that others may hold still in vain for its bursts, over such a window; and for how long they do not
 * after that, twice as long each next time. */
#define WASTE 0.05
#define WINDOW_NS UINT64_C(200000000)
#define FIRST_NS UINT64_C(4000000000)
#define MOST_NS UINT64_C(64000000000)
/* For so long those who hold still keep the GPU busy: with what they may have before it, and a piece. */
#define STILL_FOR_OTHERS_NS (2.0 * (double)AHEAD_BELOW_NS)

void arbiter_favour_begin(struct arbiter_session *session)
{
    session->favour = (struct favour){.from = session->arbiter->now, .every = FIRST_NS};
}

/* Others hold still, but what they have before the GPU goes on. */
void arbiter_favour_count(struct arbiter_session *session, double passed_ns)
{
    struct favour *favour = &session->favour;
    double before = fmax(favour->still_ns, STILL_FOR_OTHERS_NS);
    favour->still_ns = favour->is_given ? favour->still_ns + passed_ns : 0;
    if (favour->still_ns > before)
        favour->ns += favour->still_ns - before;
}

/* Others hold still for its bursts as long as that leaves the GPU idle for a small part of the time only: not for
 * those of a program whose short gaps look like work. */
void arbiter_favour_judge(struct arbiter_session *session)
{
    struct favour *favour = &session->favour;
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
