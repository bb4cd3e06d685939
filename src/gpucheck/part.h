/* part.h - the processes that a check starts and talks with: one line each way at a time. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Where a part runs: in a new session of `quota_bytes` (part_start() writes its name to `session`), in another
 * part's session, or outside. */
struct part_place {
    uint64_t quota_bytes; /* 0: outside, or in `session` */
    const char *session;  /* NULL: in a new one, or outside */
    bool standalone;      /* `quota_bytes` is the process's own limit, without a session */
    const char *compute;  /* the new session's share; NULL: none */
    bool moves;           /* the new session's memory can leave the card */
};
#define PART_OUTSIDE ((struct part_place){.quota_bytes = 0})
#define PART_IN_SESSION ((struct part_place){.quota_bytes = CHECK_QUOTA_BYTES})
#define PART_STANDALONE ((struct part_place){.quota_bytes = CHECK_QUOTA_BYTES, .standalone = true})
#define PART_SHARE(share) ((struct part_place){.quota_bytes = CHECK_QUOTA_BYTES, .compute = (share)})
#define PART_MOVES(bytes) ((struct part_place){.quota_bytes = (bytes), .moves = true})
#define PART_BESIDE(part) ((struct part_place){.session = (part)->session})

struct part {
    pid_t pid;
    FILE *to, *from;
    char name[24], session[32];
    char line[512];
};

/* Start a part of parts.def; the part reads `argument`. */
void part_start(struct part *part, struct part_place place, const char *name, const char *argument);
/* The same for another program. */
void part_start_program(struct part *part, struct part_place place, const char *const *words);
void part_say(struct part *part, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The next line without its end, valid until the next call. If the part has ended instead, the check fails. */
const char *part_hear(struct part *part);
/* Hear a line that is a number. */
double part_hear_number(struct part *part);
void part_end(struct part *part);  /* close its input; it must end well */
void part_kill(struct part *part); /* end it by SIGKILL, and reap it */

/* For the part's side. */
void part_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *part_listen(void); /* the next line; at end of file the process ends well */

struct part_role {
    const char *name;
    void (*run)(const char *argument);
};
extern const struct part_role part_roles[]; /* ends with a NULL name */

/* The path of one of our own programs. */
void find_program(const char *name, char path[static PATH_MAX]);

/* Run another program to its end, in a session (if `quota_bytes`) or outside. Returns its wait status. `output`
 * gets what it prints, with standard error if `with_errors`, or the end of that if `size` is too small. */
int program_run(char *const *words, uint64_t quota_bytes, bool with_errors, char *output, size_t size);

/* The daemon's figures for a session. */
struct session_use {
    uint64_t charged_bytes; /* what programs asked for */
    uint64_t driver_bytes;  /* what the driver took in addition */
};
struct session_use session_use(const char *session);

/* Where a session's memory is, by the daemon. */
struct session_memory {
    uint64_t charged_bytes;
    uint64_t context_bytes; /* what its programs' contexts cost, one each */
    uint64_t evicted_bytes;
};
struct session_memory session_memory(const char *session);

/* The GPU time that the daemon has counted for these parts' sessions, all at one moment; NAN for a session that it
 * does not list. */
void sessions_gpu_seconds(const struct part *parts, unsigned count, double *seconds);

/* How many entry points the interceptor knew only by name, in all processes of a session. */
uint64_t session_unknown_pointers(const char *session);

/* Set the length of turns: "1ms", "auto". */
void scheduler_quantum(const char *quantum);

/* How often the daemon has seen a GPU go from one session to another. */
uint64_t lease_handovers(void);
/* How often gates have closed since the daemon had seen that many. If hardly ever, what went on meanwhile proves nothing,
 * and the check has failed. */
void tell_closings(uint64_t handovers_before);
