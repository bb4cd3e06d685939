#include "intercept/agent/agent_state.h"

struct agent_state agent;
