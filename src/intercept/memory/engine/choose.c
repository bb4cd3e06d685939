#include "intercept/memory/engine/choose.h"

#include "intercept/memory/engine/engine.h"
#include "intercept/memory/engine/managed.h"
#include "intercept/memory/engine/swap/swap.h"
#include "intercept/session/session.h"

void engine_choose(CUcontext context)
{
    if (engine_of_process() != &engine_plain)
        return;
    switch (session_slot()->ledger.policy->engine) {
    case LEDGER_ENGINE_SWAP:
        swap_begin();
        break;
    case LEDGER_ENGINE_MANAGED:
        managed_begin(context);
        break;
    default:
        break;
    }
}
