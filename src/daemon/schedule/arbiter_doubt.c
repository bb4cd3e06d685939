/* Compares what the daemon itself sees of sessions' work with what their agents say. A session whose agents claim
 * little while NVML shows its processes busy is charged by what NVML shows. It takes turns, which are charged by
 * the clock. */
#include <math.h>

#include "daemon/schedule/arbiter.h" /* arbiter_seen() and arbiter_look_is_over() */
#include "daemon/schedule/arbiter_state.h"

/* NVML's figure covers a second or two up to now, and these are not the seconds by which sessions are charged. So
 * it is compared with the session's busiest recent second. It must be this many times as much, and more by this
 * part of the GPU, for a session to be doubted. */
#define DOUBT_TIMES 4.0
#define DOUBT_LEAST 0.2
/* Looks count only if they are this far apart. One look charges for no more than LOOK_CHARGES_MOST_NS. */
#define LOOKS_APART_NS UINT64_C(1000000000)
#define LOOK_CHARGES_MOST_NS 6000000000.0
/* After so many doubtful looks in a row, a session understates; after so many looks in a row at which its agents
 * are believed, it does not. */
#define LOOKS_TO_DOUBT 2u
#define LOOKS_TO_TRUST 6u

void arbiter_seen(struct arbiter_session *session, unsigned gpu, double part)
{
    session->use[gpu].seen_part += part;
}

/* The most that the session used in one of the last four seconds, as a part of a second. The running one counts as
 * it has been so far. */
static double busiest_second(const struct arbiter_session *session, unsigned gpu)
{
    double most = 0;
    for (unsigned back = 0; back < 4; back++) {
        double ns = arbiter_used_in_second(session, gpu, back);
        most = ns > most ? ns : most;
    }
    return most / 1e9;
}

/* Compare what was seen of one session with what its agents said. `seen`: what was seen of all sessions, by GPU. */
static void compare(struct arbiter_session *session, const double *seen)
{
    double missing[ARBITER_GPUS] = {0};
    bool is_doubtful = false, is_believed = true;
    double passed = (double)(session->arbiter->now - session->looked_at);
    FOR_GPUS (gpu, session->gpus) {
        /* Should NVML count waiting for others' slices as busy, all sessions together exceed the whole, and are
         * scaled down to it. */
        double part = session->use[gpu].seen_part / (seen[gpu] > 1 ? seen[gpu] : 1);
        double said = busiest_second(session, (unsigned)gpu);
        /* A turn is charged for when a piece of work, or the turn, ends. Who has one for long has said so. */
        if (is_exclusive(session))
            said = fmax(said, fmin(session->use[gpu].open_ns / passed, 1));
        /* A session that is charged by the clock may have been charged for that much already, so what counts here
         * is only what its agents said. */
        if (part > 0 && part >= DOUBT_TIMES * session->said_ns / passed)
            is_believed = false;
        if (part >= DOUBT_LEAST + said && part >= DOUBT_TIMES * said) {
            is_doubtful = true;
            missing[gpu] = part - said;
        }
    }
    session->doubts = is_doubtful ? session->doubts + 1 : 0;
    session->trusts = is_believed ? session->trusts + 1 : 0;
    if (session->doubts >= LOOKS_TO_DOUBT) {
        if (!session->understates)
            arbiter_tell(session, ARBITER_UNDERSTATED);
        session->understates = true;
        passed = passed < LOOK_CHARGES_MOST_NS ? passed : LOOK_CHARGES_MOST_NS;
        FOR_GPUS (gpu, session->gpus)
            if (missing[gpu] > 0)
                arbiter_charge_unsaid(session, (unsigned)gpu, missing[gpu] * passed);
    } else if (session->trusts >= LOOKS_TO_TRUST) {
        session->understates = false;
    }
    session->looked_at = session->arbiter->now;
    session->said_ns = 0;
}

void arbiter_look_is_over(struct arbiter *arbiter, uint64_t now)
{
    double seen[ARBITER_GPUS] = {0};
    arbiter_settle(arbiter, now);
    for (const struct arbiter_session *at = arbiter->sessions; at; at = at->next)
        FOR_GPUS (gpu, at->gpus)
            seen[gpu] += at->use[gpu].seen_part;
    for (struct arbiter_session *at = arbiter->sessions; at; at = at->next) {
        if (at->gpus && now - at->looked_at >= LOOKS_APART_NS)
            compare(at, seen);
        for (unsigned gpu = 0; gpu < ARBITER_GPUS; gpu++)
            at->use[gpu].seen_part = 0;
    }
    arbiter_decide(arbiter);
}
