#include "intercept/memory/code_room.h"

#include "intercept/agent/agent.h"
#include "intercept/memory/charge.h"

/* What is asked for first: the code of most modules is less. It doubles with each attempt, up to what local memory may take. */
#define FIRST_BYTES (UINT64_C(32) << 20)
#define MOST_DOUBLINGS 5u

bool code_wait_for_room(unsigned attempt)
{
    struct charge charge;
    unsigned doublings = attempt < MOST_DOUBLINGS ? attempt : MOST_DOUBLINGS;
    return charge_place_current(&charge) == PLACE_ON_GPU &&
           agent_wait_for_room(charge.gpu, FIRST_BYTES << doublings, false, attempt);
}
