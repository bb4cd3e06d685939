#include "daemon/process/driver_line.h"

#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "base/saturating.h"
#include "daemon/gpu/card.h"
#include "daemon/gpu/nvml.h"
#include "daemon/gpu/sampler.h"
#include "daemon/loop/changes.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/log.h"
#include "daemon/process/driver_left.h"
#include "daemon/session/policy.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"

/* How many dead processes of one session are remembered; each is forgotten with the next sample that does not show it.
 * Further ones are not looked for. */
#define ORPHANS_MAX 4096

void driver_line_hold(struct process *process, bool is_held)
{
    process->driver_parts_held = is_held;
    for (unsigned i = 0; is_held && process->driver_parts && i < process->session->gpu_count; i++)
        process->driver_parts[i].looked = false;
}

/* --- Before a sample ------------------------------------------------------------------------------- */

static struct driver_part *parts_of(struct process *process)
{
    if (!process->driver_parts)
        process->driver_parts = calloc(process->session->gpu_count, sizeof(*process->driver_parts));
    return process->driver_parts;
}

/* Note the state of all slots. */
static void note_slots(struct daemon *daemon)
{
    driver_left_begin(daemon);
    for (struct session *session = daemon->sessions; session; session = session->next) {
        struct orphan *orphan;
        LIST_FOREACH (orphan, &session->orphans, next)
            orphan->is_new = false;
        for (unsigned i = 0; session->ledger.usage && i < session->gpu_count; i++)
            session->gpus[i].joint_before = ledger_joint_stamp(session->ledger.usage, i);
        for (unsigned i = 0; i < session->gpu_count; i++)
            session->gpus[i].has_moved = false;
        for (struct process *process = session->processes; process; process = process->next) {
            struct driver_part *parts = parts_of(process);
            for (unsigned i = 0; parts && i < session->gpu_count; i++) {
                parts[i].before = ledger_slot_sample(session->ledger.usage, process->slot, i);
                parts[i].looked = !process->driver_parts_held;
            }
        }
    }
}

/* --- After a sample -------------------------------------------------------------------------------- */

/* What NVML showed under one pid, and what slots say of that process; a process has two slots if it has loaded two
 * copies of our library. */
struct row {
    pid_t pid;
    uint64_t shown_bytes, charged_bytes;
    uint64_t most_bytes; /* the most that can have been charged at the moment of the sample */
    uint64_t dead_bytes; /* of processes that had the pid before */
    bool is_unknown;     /* NVML has no figure for it: the last value stays */
    bool is_attached, has_moved, is_given, is_counted;
};

struct table {
    struct row *rows;
    size_t count;
};

static int compare_rows(const void *a, const void *b)
{
    const struct row *one = a, *other = b;
    return (one->pid > other->pid) - (one->pid < other->pid);
}

/* Make one row per process: NVML lists a process once for each compute instance that it is on. */
static bool make_table(const struct gpu *card, struct table *table)
{
    *table =
        (struct table){.rows = calloc(card->process_count ? card->process_count : 1, sizeof(struct row))};
    if (!table->rows)
        return false;
    for (unsigned i = 0; i < card->process_count; i++)
        table->rows[i] = (struct row){.pid = card->processes[i].pid,
                                      .shown_bytes = card->processes[i].used_bytes,
                                      .dead_bytes = card->processes[i].dead_bytes,
                                      .is_unknown = !card->processes[i].is_known};
    qsort(table->rows, card->process_count, sizeof(struct row), compare_rows);
    for (unsigned i = 0; i < card->process_count; i++) {
        struct row *last = table->count ? &table->rows[table->count - 1] : NULL;
        if (last && last->pid == table->rows[i].pid) {
            last->shown_bytes = saturating_add(last->shown_bytes, table->rows[i].shown_bytes);
            last->dead_bytes = saturating_add(last->dead_bytes, table->rows[i].dead_bytes);
            last->is_unknown |= table->rows[i].is_unknown;
        } else {
            table->rows[table->count++] = table->rows[i];
        }
    }
    return true;
}

static struct row *find_row(const struct table *table, pid_t pid)
{
    struct row key = {.pid = pid};
    return table->count ? bsearch(&key, table->rows, table->count, sizeof(struct row), compare_rows) : NULL;
}

/* Add what the slot has charged to the process's row. Returns whether the sample is valid for the process: its slot is
 * as it was before, and its memory did not move meanwhile. */
static bool add_charged(const struct process *process, unsigned policy_gpu, struct row *row)
{
    const struct driver_part *part = &process->driver_parts[policy_gpu];
    struct ledger_slot_sample after =
        ledger_slot_sample(process->session->ledger.usage, process->slot, policy_gpu);
    bool rested = part->looked && ledger_slot_rested(&part->before, &after);
    if (row) {
        row->charged_bytes = saturating_add(row->charged_bytes, after.bytes - after.hidden_bytes);
        row->most_bytes = saturating_add(row->most_bytes,
                                         part->looked ? ledger_slot_most(&part->before, &after) : UINT64_MAX);
        row->is_attached = true;
        row->has_moved |= !rested;
    }
    return rested;
}

/* The row of each slot's process; NULL if the slot is free, or NVML does not show its process. */
static void rows_by_slot(const struct session *session, const struct table *table,
                         struct row *rows[static LEDGER_SLOTS])
{
    memset(rows, 0, LEDGER_SLOTS * sizeof(rows[0]));
    for (const struct process *process = session->processes; process; process = process->next)
        rows[process->slot] = find_row(table, process->pid);
}

/* NVML shows memory that several processes hold whole for one of them: its maker, and when that has let go another (to
 * be measured); or for none here, while a process of another session holds it too. So it is taken off whatever is shown
 * for any of its holders beyond their own memory, and never counts twice. If it is shown for none of them, what the
 * driver holds for them may come out too small. */
static void add_joint(const struct session *session, unsigned policy_gpu, uint32_t joint,
                      struct row *const rows[static LEDGER_SLOTS])
{
    uint32_t slots[LEDGER_JOINT_HOLDERS];
    uint64_t left = ledger_joint_bytes(session->ledger.usage, joint, policy_gpu);
    unsigned count = left ? ledger_joint_holders(session->ledger.usage, joint, slots) : 0;
    for (unsigned i = 0; i < count; i++) {
        /* A program may have written any slot number. */
        struct row *row = slots[i] < LEDGER_SLOTS ? rows[slots[i]] : NULL;
        if (row)
            row->most_bytes =
                saturating_add(row->most_bytes, ledger_joint_bytes(session->ledger.usage, joint, policy_gpu));
        if (!row || row->shown_bytes <= row->charged_bytes)
            continue;
        uint64_t more = row->shown_bytes - row->charged_bytes;
        uint64_t taken = more < left ? more : left;
        row->charged_bytes += taken;
        left -= taken;
    }
}

/* Add all joint memory. False if it changed while the sample was taken: then the sample is not valid for this session. */
static bool add_all_joint(const struct session *session, unsigned policy_gpu, const struct table *table)
{
    struct row *rows[LEDGER_SLOTS];
    uint32_t publish_sums = ledger_joint_end(session->ledger.usage);
    if (publish_sums)
        rows_by_slot(session, table, rows);
    bool rested =
        session->gpus[policy_gpu].joint_before == ledger_joint_stamp(session->ledger.usage, policy_gpu);
    for (uint32_t joint = 0; rested && joint < publish_sums; joint++)
        add_joint(session, policy_gpu, joint, rows);
    for (const struct process *process = session->processes; process && !rested; process = process->next) {
        struct row *row = find_row(table, process->pid);
        if (!row)
            continue;
        row->has_moved = true;
        row->most_bytes =
            saturating_add(row->most_bytes, ledger_joint_total_bytes(session->ledger.usage, policy_gpu));
    }
    return rested;
}

/* A process that holds memory has a context, which takes some too. So 0 from NVML is not a figure. NVML shows it for
 * processes of other pid namespaces, and on MIG instances without the rights to look. */
static bool is_known(const struct row *row)
{
    return !row->is_unknown && (row->shown_bytes || !row->charged_bytes);
}

/* Without a figure the last one stays. */
static void note_shown(struct driver_part *part, struct row *row)
{
    if (row && row->is_unknown)
        return;
    part->shown_bytes = row && !row->is_counted ? row->shown_bytes : 0;
    if (row)
        row->is_counted = true;
}

static uint64_t beyond(uint64_t shown_bytes, uint64_t charged_bytes)
{
    return shown_bytes > charged_bytes ? shown_bytes - charged_bytes : 0;
}

/* The slot changed around the sample. Whatever is shown beyond the most that it can have had is the driver's, and the driver
 * has no more than what is shown. One sample does not suffice: some things are charged once the driver has taken them. */
static void bound(struct driver_part *part, struct row *row)
{
    if (row->most_bytes == UINT64_MAX)
        return;
    uint64_t least = beyond(row->shown_bytes, row->most_bytes);
    uint64_t twice = least < part->least_bytes ? least : part->least_bytes;
    part->least_bytes = least;
    if (part->bytes < twice)
        part->bytes = twice;
    if (part->bytes > row->shown_bytes)
        part->bytes = row->shown_bytes;
}

static void conclude(struct process *process, unsigned policy_gpu, struct row *row)
{
    struct driver_part *part = &process->driver_parts[policy_gpu];
    if (!row) {
        part->bytes = 0;
    } else if (is_known(row)) {
        if (row->is_given)
            part->bytes = 0;
        else if (row->has_moved)
            bound(part, row);
        else
            part->bytes = part->least_bytes = beyond(row->shown_bytes, row->charged_bytes);
        row->is_given = true;
    }
}

/* The pid may belong to another process by now. */
static void take_orphan(struct orphan *orphan, unsigned policy_gpu, const struct row *row)
{
    uint64_t ticks;
    if (orphan->is_new)
        return;
    bool is_other = !row || row->is_attached ||
                    (process_start_time(orphan->pid, &ticks) == 0 && ticks != orphan->start_ticks);
    orphan->bytes[policy_gpu] = !row ? 0 : is_other ? row->dead_bytes : row->shown_bytes;
}

static void take_orphans(struct session *session, unsigned policy_gpu, const struct table *table)
{
    struct orphan *orphan;
    LIST_FOREACH (orphan, &session->orphans, next)
        take_orphan(orphan, policy_gpu, find_row(table, orphan->pid));
}

/* Call `see` for each process on the card, of all sessions. */
static void each_part(struct daemon *daemon, unsigned gpu, struct table *table,
                      void (*see)(struct process *, unsigned policy_gpu, struct row *, void *),
                      void *argument)
{
    for (struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count; i++)
            for (struct process *process = session->processes; process && session->gpus[i].gpu == (int)gpu;
                 process = process->next)
                if (process->driver_parts)
                    see(process, i, find_row(table, process->pid), argument);
}

static void see_charged(struct process *process, unsigned policy_gpu, struct row *row, void *argument)
{
    bool *any_moved = argument;
    if (!add_charged(process, policy_gpu, row) && row && !process->driver_parts_held)
        *any_moved = true;
}

static void see_concluded(struct process *process, unsigned policy_gpu, struct row *row, void *argument)
{
    if (row && !row->is_unknown && !is_known(row) && !process->driver_parts_held)
        gpu_tell_silence(argument, "it shows 0 bytes for a process that holds memory");
    if (row && row->has_moved)
        process->session->gpus[policy_gpu].has_moved = true;
    conclude(process, policy_gpu, row);
    note_shown(&process->driver_parts[policy_gpu], row);
}

/* On a card that lists no processes nobody can tell what dead processes left: it counts as nothing. */
static void drop_orphans_bytes(struct daemon *daemon, unsigned gpu)
{
    const struct table nobody = {.rows = NULL};
    for (struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count; i++)
            if (session->gpus[i].gpu == (int)gpu)
                take_orphans(session, i, &nobody);
}

/* Returns whether another sample would tell more of what processes have let go of. */
static bool take_left(struct daemon *daemon, unsigned gpu, const struct table *table)
{
    uint64_t shown_bytes = 0;
    for (size_t i = 0; i < table->count; i++) {
        shown_bytes = saturating_add(shown_bytes,
                                     saturating_add(table->rows[i].shown_bytes, table->rows[i].dead_bytes));
        if (!is_known(&table->rows[i])) {
            driver_left_forget(daemon, gpu);
            return false;
        }
    }
    return driver_left_take(daemon, gpu, shown_bytes);
}

/* Take in what NVML showed on one GPU. Returns whether any process's memory changed meanwhile: then another sample
 * would tell more. */
static bool take_gpu(struct daemon *daemon, unsigned gpu)
{
    struct table table;
    bool any_moved = false;
    if (daemon->gpus[gpu].healthy && daemon->gpus[gpu].no_processes) {
        drop_orphans_bytes(daemon, gpu);
        driver_left_forget(daemon, gpu);
    }
    if (!daemon->gpus[gpu].healthy || daemon->gpus[gpu].no_processes ||
        !make_table(&daemon->gpus[gpu], &table))
        return false;
    each_part(daemon, gpu, &table, see_charged, &any_moved);
    for (const struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count; i++)
            if (session->ledger.usage && session->gpus[i].gpu == (int)gpu &&
                !add_all_joint(session, i, &table))
                any_moved = true;
    each_part(daemon, gpu, &table, see_concluded, &daemon->gpus[gpu]);
    for (struct session *session = daemon->sessions; session; session = session->next)
        for (unsigned i = 0; i < session->gpu_count; i++)
            if (session->gpus[i].gpu == (int)gpu)
                take_orphans(session, i, &table);
    any_moved |= take_left(daemon, gpu, &table);
    free(table.rows);
    return any_moved;
}

static bool is_over(const struct session *session, const struct orphan *orphan)
{
    for (unsigned i = 0; i < session->gpu_count; i++)
        if (orphan->bytes[i])
            return false;
    return !orphan->is_new;
}

static void drop_orphan(struct session *session, struct orphan *orphan)
{
    LIST_REMOVE(orphan, next);
    session->orphan_count--;
    free(orphan);
}

/* Forget the dead processes that NVML no longer shows, and publish the sums. */
static void publish_sums(struct daemon *daemon)
{
    for (struct session *session = daemon->sessions; session; session = session->next) {
        for (struct orphan *at = LIST_FIRST(&session->orphans), *next; at; at = next) {
            next = LIST_NEXT(at, next);
            if (is_over(session, at))
                drop_orphan(session, at);
        }
        for (struct process *process = session->processes; process; process = process->next)
            for (unsigned i = 0; process->driver_parts && i < session->gpu_count; i++)
                process->driver_parts[i].looked = false;
        driver_line_publish(session);
        driver_left_published(session);
    }
}

/* --- Sums ------------------------------------------------------------------------------------------ */

uint64_t driver_line_process_bytes(const struct process *process, unsigned policy_gpu)
{
    return process->driver_parts ? process->driver_parts[policy_gpu].bytes : 0;
}

static uint64_t sum_of_processes(const struct session *session, unsigned policy_gpu)
{
    uint64_t sum = 0;
    for (const struct process *process = session->processes; process; process = process->next)
        sum = saturating_add(sum, driver_line_process_bytes(process, policy_gpu));
    return sum;
}

static uint64_t sum_of_shown(const struct session *session, unsigned policy_gpu)
{
    uint64_t sum = 0;
    for (const struct process *process = session->processes; process; process = process->next)
        sum = saturating_add(sum, process->driver_parts ? process->driver_parts[policy_gpu].shown_bytes : 0);
    return sum;
}

static uint64_t sum_of_orphans(const struct session *session, unsigned policy_gpu)
{
    uint64_t sum = 0;
    const struct orphan *orphan;
    LIST_FOREACH (orphan, &session->orphans, next)
        sum = saturating_add(sum, orphan->bytes[policy_gpu]);
    return sum;
}

void driver_line_publish(struct session *session)
{
    for (unsigned i = 0; i < session->gpu_count; i++) {
        session->gpus[i].driver_bytes = sum_of_processes(session, i);
        session->gpus[i].orphan_bytes = sum_of_orphans(session, i);
        session->gpus[i].shown_bytes = sum_of_shown(session, i);
    }
    policy_publish_sample(session);
}

/* --- Processes that die ---------------------------------------------------------------------------- */

void driver_line_died(struct session *session, uint32_t slot, pid_t pid, uint64_t start_ticks)
{
    if (session->orphan_count == ORPHANS_MAX)
        return;
    struct orphan *orphan = calloc(1, sizeof(*orphan) + session->gpu_count * sizeof(orphan->bytes[0]));
    if (!orphan)
        return;
    orphan->pid = pid;
    orphan->start_ticks = start_ticks;
    orphan->is_new = true;
    if (ledger_slot_has_exported(session->ledger.usage, slot))
        for (unsigned i = 0; i < session->gpu_count; i++)
            ledger_let_go(session->ledger.usage, i, ledger_slot_bytes(session->ledger.usage, slot, i));
    LIST_INSERT_HEAD(&session->orphans, orphan, next);
    session->orphan_count++;
    gpu_sample_soon(session->daemon);
}

/* --- In the loop ----------------------------------------------------------------------------------- */

struct driver_line {
    struct daemon *daemon;
    struct observer observer;
};

static void take_sample(struct daemon *daemon)
{
    bool any_moved = false;
    for (unsigned i = 0; i < daemon->gpu_count; i++)
        any_moved |= take_gpu(daemon, i);
    publish_sums(daemon);
    if (any_moved)
        gpu_sample_again(daemon);
}

static void on_change(void *context, const struct change *change)
{
    struct driver_line *line = context;
    switch (change->kind) {
    case CHANGE_SAMPLE_BEGINS:
        note_slots(line->daemon);
        break;
    case CHANGE_GPUS_SAMPLED:
        take_sample(line->daemon);
        break;
    case CHANGE_PROCESS_GONE:
        free(change->process->driver_parts);
        change->process->driver_parts = NULL;
        break;
    case CHANGE_SESSION_GONE:
        while (!LIST_EMPTY(&change->session->orphans))
            drop_orphan(change->session, LIST_FIRST(&change->session->orphans));
        break;
    default:
        break;
    }
}

int driver_line_start(struct daemon *daemon, struct error *error)
{
    struct driver_line *line = calloc(1, sizeof(*line));
    if (!line)
        return error_set_errno(error, ENOMEM, "cannot watch what the driver holds");
    line->daemon = daemon;
    line->observer = (struct observer){.take = on_change, .context = line};
    change_observe(daemon, &line->observer);
    daemon->driver_line = line;
    return 0;
}

void driver_line_stop(struct daemon *daemon)
{
    if (!daemon->driver_line)
        return;
    change_observe_no_more(daemon, &daemon->driver_line->observer);
    free(daemon->driver_line);
    daemon->driver_line = NULL;
}
