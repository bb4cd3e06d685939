/* full_card.h - the driver has no room for what the session's limit allows. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Wait until the daemon has made room on a GPU of the session, as agent_wait_for_room() does. True: repeat the call. False:
 * the card has no room, and the program has been told so. `told_bytes`: how many bytes it asked for; 0: not known. */
bool full_card_wait(uint32_t gpu, uint64_t bytes, uint64_t told_bytes, bool is_charged, unsigned attempt);
