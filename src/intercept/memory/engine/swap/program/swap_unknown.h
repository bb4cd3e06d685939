/* swap_unknown.h - a program that calls functions of the driver that nobody here knows (unknown.h).
 *
 * Such a function may take addresses that the driver would not know while memory is away, or keep them for later. So with the
 * first call all memory comes back and stays on the card, and what is made from then on is made to stay. Handles of ours among
 * the arguments become the driver's; those that a structure holds cannot be found, but what the program makes after its first
 * such call has the driver's own handle. */
#pragma once

/* Call this once, when the engine begins. */
void swap_unknown_begin(void);
