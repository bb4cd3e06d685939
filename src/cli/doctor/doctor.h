/* doctor.h - checks of what may keep GPU Slice from working on this machine.
 *
 * check     one row of doctor_checks: what it looks at, and the function that does
 * finding   the result of a check: all is well, a warning (it works, but does less than it may seem) or a problem (it
 *           does not work), in a sentence, and what to do
 *
 * Checks change nothing. They see the machine as this user does. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

#include "base/paths.h"

enum doctor_level { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_PROBLEM };

#define DOCTOR_TEXT_BYTES 512

struct doctor_finding {
    enum doctor_level level;
    char what[DOCTOR_TEXT_BYTES];
    char todo[DOCTOR_TEXT_BYTES]; /* empty: nothing */
};

/* The facts that checks use, gathered before the first. */
struct doctor {
    const char *root; /* a folder that stands for the machine's root folder: "" but in tests */
    bool simulated;
    char *const *command; /* NULL: none was given, and sh is checked instead */
    struct paths paths;
    struct error no_paths;             /* status 0: `paths` is filled */
    struct error no_daemon;            /* status 0: the daemon answers */
    pid_t daemon_pid;                  /* 0 without a daemon */
    json_t *gpus, *sessions, *version; /* NULL without a daemon */
};

struct doctor_check {
    const char *id;
    const char *what; /* what it looks at */
    void (*look)(const struct doctor *doctor, struct doctor_finding *finding);
};

extern const struct doctor_check doctor_checks[]; /* ends with a NULL id */

/* Store a finding: the sentence, and what to do (may be ""). */
__attribute__((format(printf, 4, 5))) void doctor_say(struct doctor_finding *finding, enum doctor_level level,
                                                      const char *todo, const char *format, ...);

/* The checks. */
void doctor_driver(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_nvml(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_kernel(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_mps(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_containers(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_kubernetes(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_linger(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_other_daemons(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_daemon(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_access(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_kind(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_mig(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_health(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_uncovered(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_functions(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_pointers(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_disk(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_rules(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_library(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_program(const struct doctor *doctor, struct doctor_finding *finding);
