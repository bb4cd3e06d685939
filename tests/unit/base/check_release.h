/* check_release.h - GS_CHECK as a release build has it, for test_check.c. */
#pragma once

/* Runs a check that does not hold. Returns how often its condition was evaluated. */
unsigned check_release_evaluated(void);
