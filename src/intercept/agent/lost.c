/* lost.c - a connection that is lost while the daemon goes on. The program may have closed the descriptor, or have none left for another
 * one. If its gate opened then, a program would have the GPU's time by closing descriptors. So the gate closes, and the agent connects
 * again. The gate opens once nobody is there, or the daemon shows no sign of life for as long as one that hangs (silence.c). */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "intercept/agent/agent_state.h"
#include "intercept/session/attach.h"
#include "intercept/session/session.h"
#include "intercept/submit/gate.h"

/* At once, but not again and again where connections are lost as soon as they are made. */
#define TRY_NS UINT64_C(50000000)
#define SILENCE_NS UINT64_C(2000000000)

/* The daemon's count in the ledger changes while it goes on. */
static bool is_silent(uint64_t now_ns)
{
    static uint64_t beats, heard_ns;
    uint64_t counted = atomic_load_explicit(&session_slot()->ledger.policy->beats, memory_order_relaxed);
    if (counted != beats || heard_ns < agent.lost_ns)
        heard_ns = now_ns;
    beats = counted;
    return now_ns - heard_ns >= SILENCE_NS;
}

/* Whether the failure is the program's own: the daemon may well be there. */
static bool may_be_there(int failure)
{
    return !attach_is_nobody_there(failure) && failure != -ENOTCONN;
}

void agent_serve_lost(struct gate *gate)
{
    static uint64_t tried_ns;
    uint64_t now_ns = monotonic_ns();
    if (!agent.lost_ns || now_ns - tried_ns < TRY_NS)
        return;
    tried_ns = now_ns;
    int result = agent_reach_daemon();
    if (result == 0) {
        agent.lost_ns = 0;
        agent_move_met(gate);
    } else if (!may_be_there(result) || is_silent(now_ns)) {
        agent_lose_daemon(gate, strerror(-result));
    }
}
