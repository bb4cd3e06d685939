/* Adds up what is where, by what processes said last. */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/saturating.h"
#include "base/units.h"
#include "daemon/loop/daemon.h"
#include "daemon/residency/arena.h"
#include "daemon/residency/moves_state.h"
#include "daemon/session/ceilings.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_show.h"

/* How long to wait for a process that has said nothing: agents look for a new daemon every second. */
#define HEARD_USEC UINT64_C(5000000)

bool process_move_is_away(const struct process_move *move)
{
    return (move->now.flags & WIRE_MOVED_AWAY) && move->now.resident_bytes == 0;
}

bool process_move_is_partly_away(const struct process_move *move)
{
    return move->now.flags & WIRE_MOVED_AWAY;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t moves_most_bytes(const struct session *session, unsigned policy_gpu)
{
    const struct session_gpu *gpu = &session->gpus[policy_gpu];
    return saturating_add(larger(gpu->limit_bytes, gpu->shown_bytes),
                          saturating_add(gpu->driver_bytes, gpu->orphan_bytes));
}

uint64_t moves_there_at_most(const struct session *session, unsigned policy_gpu)
{
    uint64_t there = larger(session_used(session, policy_gpu), session->gpus[policy_gpu].shown_bytes);
    return moves_at_most(there, moves_most_bytes(session, policy_gpu));
}

uint64_t moves_most_of_process(const struct session *session)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < session->gpu_count; i++) {
        const struct session_gpu *gpu = &session->gpus[i];
        uint64_t card = gpu->gpu >= 0 ? session->daemon->gpus[gpu->gpu].total_bytes : 0;
        sum = saturating_add(sum, larger(gpu->limit_bytes, card));
    }
    return sum < MOVES_BYTES_MOST ? sum : MOVES_BYTES_MOST;
}

uint64_t moves_sum_of(const struct session *session, size_t offset)
{
    uint64_t sum = 0;
    for (const struct process *process = session->processes; process; process = process->next)
        if (process->move)
            sum = saturating_add(
                sum, *(const uint64_t *)(const void *)((const char *)&process->move->now + offset));
    return sum;
}

static bool has_said(const struct process *process)
{
    return process->move && process->move->has_said;
}

uint64_t moves_charged_to(const struct process *process)
{
    const struct session *session = process->session;
    uint64_t sum = 0;
    for (unsigned i = 0; i < session->gpu_count && session->ledger.usage; i++)
        sum = saturating_add(sum, ledger_slot_bytes(session->ledger.usage, process->slot, i));
    return sum;
}

/* Of a process that has said nothing yet: it has a context on each GPU that it uses, and no more is known. */
static uint64_t contexts_of(const struct process *process)
{
    const struct session *session = process->session;
    uint64_t sum = 0;
    for (unsigned i = 0; i < session->gpu_count && session->ledger.usage; i++)
        if (session->gpus[i].gpu >= 0)
            sum =
                saturating_add(sum, moves_at_most(ledger_slot_bytes(session->ledger.usage, process->slot, i),
                                                  session->daemon->gpus[session->gpus[i].gpu].context_bytes));
    return sum;
}

/* A process that says nothing is not told to leave either: what it holds while its session is away has stayed. */
static void add_untold(const struct process *process, bool is_away, uint64_t bytes[static WIRE_STAYS_COUNT])
{
    uint64_t contexts = contexts_of(process), charged = moves_charged_to(process);
    bytes[WIRE_STAYS_CONTEXT] = saturating_add(bytes[WIRE_STAYS_CONTEXT], contexts);
    if (is_away && charged > contexts)
        bytes[WIRE_STAYS_UNTOLD] = saturating_add(bytes[WIRE_STAYS_UNTOLD], charged - contexts);
}

void moves_stays(const struct session *session, uint64_t bytes[static WIRE_STAYS_COUNT])
{
    bool is_away = session->move && session->move->state == MOVE_AWAY;
    memset(bytes, 0, WIRE_STAYS_COUNT * sizeof(*bytes));
    for (const struct process *process = session->processes; process; process = process->next) {
        if (!has_said(process))
            add_untold(process, is_away, bytes);
        for (unsigned why = 0; has_said(process) && why < WIRE_STAYS_COUNT; why++)
            bytes[why] = saturating_add(bytes[why], process->move->now.stays_bytes[why]);
    }
}

uint64_t moves_stay_bytes(const struct session *session)
{
    uint64_t bytes[WIRE_STAYS_COUNT];
    moves_stays(session, bytes);
    return wire_stays_sum(bytes);
}

/* What has been freed and is told later is taken off the reasons; contexts go last. */
static void cut_stays(uint64_t bytes[static WIRE_STAYS_COUNT], uint64_t most_bytes)
{
    uint64_t sum = wire_stays_sum(bytes), excess = sum > most_bytes ? sum - most_bytes : 0;
    for (unsigned left = WIRE_STAYS_COUNT; left-- > 0 && excess;) {
        uint64_t off = moves_at_most(excess, bytes[left]);
        bytes[left] -= off;
        excess -= off;
    }
}

void moves_fit(struct moves_memory *memory, uint64_t used_bytes)
{
    cut_stays(memory->stays_bytes, used_bytes);
    used_bytes -= wire_stays_sum(memory->stays_bytes);
    memory->evicted_bytes = moves_at_most(memory->evicted_bytes, used_bytes);
    memory->movable_bytes = moves_at_most(memory->movable_bytes, used_bytes - memory->evicted_bytes);
}

/* Processes tell a while later what they have allocated or freed; the ledger knows it at once. */
void moves_look(const struct session *session, struct moves_memory *memory)
{
    bool is_resident = !session->move || session->move->state == MOVE_RESIDENT;
    uint64_t charged = 0, used = 0;
    for (unsigned i = 0; i < session->gpu_count; i++) {
        charged = saturating_add(charged, session_charged(session, i));
        used = saturating_add(used, session_used(session, i));
    }
    *memory = (struct moves_memory){.evicted_bytes = MOVES_SUM(session, evicted_bytes),
                                    .movable_bytes = MOVES_SUM(session, resident_bytes)};
    moves_stays(session, memory->stays_bytes);
    uint64_t others = saturating_add(wire_stays_sum(memory->stays_bytes), memory->evicted_bytes);
    if (is_resident)
        memory->movable_bytes = charged > others ? charged - others : 0;
    moves_fit(memory, used);
}

static uint64_t arena_of_processes(const struct session *session)
{
    uint64_t sum = 0;
    for (const struct process *process = session->processes; process; process = process->next)
        sum += process->move ? process->move->given_bytes + process->move->kept_bytes : 0;
    return sum;
}

uint64_t moves_arena_bytes(const struct session *session)
{
    return arena_of_processes(session) + (session->move ? session->move->left_bytes : 0);
}

uint64_t moves_all_arena_bytes(const struct moves *moves)
{
    return moves->given_bytes + moves->kept_bytes + moves->left_bytes;
}

void moves_set_given(struct process *process, uint64_t bytes)
{
    struct moves *moves = process->session->daemon->moves;
    moves->given_bytes += bytes - process->move->given_bytes;
    process->move->given_bytes = bytes;
    GS_CHECK(bytes <= moves->given_bytes);
    moves_count_kept(process);
}

void moves_note_chunk(struct process *process, uint64_t bytes)
{
    moves_set_given(process, process->move->given_bytes + bytes);
    process->move->sent_bytes += bytes;
    GS_CHECK(process_move_is_valid(process));
}

uint64_t process_move_lacks_bytes(const struct process_move *move)
{
    uint64_t needed = move->now.resident_bytes + move->now.evicted_bytes + move->extra_bytes;
    return needed > move->given_bytes ? needed - move->given_bytes : 0;
}

uint64_t moves_chunk_bytes(const struct session *session)
{
    uint64_t sum = 0;
    if (session->properties.engine != LEDGER_ENGINE_SWAP) /* the driver keeps its host memory */
        return 0;
    for (const struct process *process = session->processes; process; process = process->next)
        sum += process->move ? arena_chunks_bytes(process_move_lacks_bytes(process->move)) : 0;
    return sum;
}

static uint64_t arena_of_owner(const struct daemon *daemon, uid_t owner)
{
    uint64_t sum = moves_left_by_owner(daemon->moves, owner);
    for (const struct session *session = daemon->sessions; session; session = session->next)
        sum += session->owner == owner ? arena_of_processes(session) : 0;
    return sum;
}

/* What is left of it once the sessions on the card have given back what they need not keep. */
static uint64_t left_after(uint64_t held_bytes, uint64_t back_bytes)
{
    return held_bytes > back_bytes ? held_bytes - back_bytes : 0;
}

/* Whether memory of other sessions is away, so that resuming one gives host memory back. `owner`: of these; NULL: of all. */
static bool others_are_away(const struct session *session, const uid_t *owner)
{
    for (const struct session *at = session->daemon->sessions; at; at = at->next)
        if (at != session && (!owner || at->owner == *owner) && MOVES_SUM(at, evicted_bytes))
            return true;
    return false;
}

/* Check what the owner's sessions may have together. */
static int check_ceiling(const struct session *session, uint64_t bytes, uint64_t back_bytes,
                         struct error *error)
{
    const struct daemon *daemon = session->daemon;
    struct ceilings ceilings;
    char needed[UNITS_BYTES_TEXT], bound[UNITS_BYTES_TEXT], held[UNITS_BYTES_TEXT];
    ceilings_find(&daemon->config, session->owner, &ceilings);
    const struct config_ceiling *ceiling = ceilings.of[PROPERTY_HOST_MEMORY];
    if (!ceiling)
        return 0;
    uint64_t most = ceiling->properties.host_memory_bytes,
             kept = left_after(arena_of_owner(daemon, session->owner), back_bytes);
    if (kept + bytes <= most)
        return 0;
    return error_set(
        error, EBUSY, "ERR_HOST_MEMORY",
        "session %s needs %s of host memory, and its owner's sessions keep %s of the %s that [%s:%s] in "
        "gpuslice.conf allows%s",
        session->id, units_format_bytes(bytes, needed), units_format_bytes(kept, held),
        units_format_bytes(most, bound), ceiling->is_group ? "group" : "user", ceiling->name,
        others_are_away(session, &session->owner) ? "; resume or release a session that is suspended" : "");
}

uint64_t moves_host_memory_bytes(const struct daemon *daemon)
{
    return moves_all_arena_bytes(daemon->moves);
}

uint64_t moves_host_memory_most(const struct session *session)
{
    const struct daemon *daemon = session->daemon;
    struct ceilings ceilings;
    uint64_t own = session->properties.host_memory_bytes,
             most = moves_at_most(arena_bound_bytes(daemon), arena_machine_bytes(daemon));
    if (session->properties.engine != LEDGER_ENGINE_SWAP)
        return UINT64_MAX;
    ceilings_find(&daemon->config, session->owner, &ceilings);
    const struct config_ceiling *ceiling = session->is_declared ? NULL : ceilings.of[PROPERTY_HOST_MEMORY];
    if (ceiling)
        most = moves_at_most(most, ceiling->properties.host_memory_bytes);
    return own ? moves_at_most(most, own) : most;
}

int moves_check_bounds(const struct session *session, uint64_t bytes, uint64_t back_bytes,
                       uint64_t owner_back_bytes, struct error *error)
{
    const struct daemon *daemon = session->daemon;
    char needed[UNITS_BYTES_TEXT], bound[UNITS_BYTES_TEXT], held[UNITS_BYTES_TEXT];
    uint64_t own = moves_arena_bytes(session), most = arena_bound_bytes(daemon),
             kept = left_after(moves_all_arena_bytes(daemon->moves), back_bytes);
    if (session->properties.host_memory_bytes && own + bytes > session->properties.host_memory_bytes)
        return error_set(
            error, EBUSY, "ERR_HOST_MEMORY",
            "session %s needs %s of host memory, and may have %s; give it more with 'gpuslice set %s "
            "--host-memory SIZE'",
            session->id, units_format_bytes(own + bytes, needed),
            units_format_bytes(session->properties.host_memory_bytes, bound), session->id);
    if (kept + bytes > most)
        return error_set(
            error, EBUSY, "ERR_HOST_MEMORY",
            "session %s needs %s of host memory, and sessions keep %s of the %s that host-memory in "
            "gpuslice.conf allows; raise that%s",
            session->id, units_format_bytes(bytes, needed), units_format_bytes(kept, held),
            units_format_bytes(most, bound),
            others_are_away(session, NULL) ? ", or resume or release a session that is suspended" : "");
    return session->is_declared ? 0 : check_ceiling(session, bytes, owner_back_bytes, error);
}

/* Whether the process may still say where its memory is, as after a start of the daemon. */
static bool is_heard_soon(const struct process *process)
{
    return !has_said(process) && moves_charged_to(process) > contexts_of(process) &&
           daemon_now_usec() - process->session->move->began_usec < HEARD_USEC;
}

enum move_state moves_state_now(const struct session *session)
{
    bool all = true, any = false;
    for (const struct process *process = session->processes; process; process = process->next) {
        if (!has_said(process)) {
            all = all && !is_heard_soon(process);
            continue;
        }
        all = all && (session->move->is_ahead ? process_move_is_partly_away(process->move)
                                              : process_move_is_away(process->move));
        any = any || process_move_is_partly_away(process->move);
    }
    if (session->move->is_leaving)
        return all ? MOVE_AWAY : MOVE_LEAVING;
    return any ? MOVE_COMING : MOVE_RESIDENT;
}

uint64_t moves_part(const struct session *session, unsigned policy_gpu, uint64_t bytes)
{
    double all = 0;
    if (session->gpu_count == 1)
        return bytes;
    for (unsigned i = 0; i < session->gpu_count; i++)
        all += (double)session_charged(session, i);
    return all > 0 ? (uint64_t)((double)bytes * ((double)session_charged(session, policy_gpu) / all)) : 0;
}

/* What threads of the process wait for on one of its session's GPUs; NULL: they do not. */
static const struct wire_need *need_of(const struct process *process, unsigned policy_gpu)
{
    const struct wire_need *need = process->move ? &process->move->need : NULL;
    return need && need->number && need->gpu == policy_gpu ? need : NULL;
}

/* The most that the driver takes for a program without asking: such needs may pass a limit, as contexts and code do. */
static uint64_t unasked_bytes(const struct session *session, unsigned policy_gpu)
{
    int gpu = session->gpus[policy_gpu].gpu;
    return MOVES_SLACK_BYTES + (gpu >= 0 ? session->daemon->gpus[gpu].context_bytes : 0);
}

/* What a process may need beside all that its session uses: what it has charged for that already; else what the limit
 * leaves. */
static uint64_t need_at_most(const struct process *process, const struct wire_need *need, uint64_t left_bytes)
{
    const struct session *session = process->session;
    if (need->attempt & WIRE_NEED_CHARGED)
        return session->ledger.usage ? ledger_slot_bytes(session->ledger.usage, process->slot, need->gpu) : 0;
    return larger(left_bytes, unasked_bytes(session, need->gpu));
}

/* What the limit leaves beside what is used, of which needs have some charged ahead. */
static uint64_t left_of_limit(const struct session *session, unsigned policy_gpu)
{
    uint64_t used = session_used(session, policy_gpu), ahead = moves_charged_ahead(session, policy_gpu),
             limit = session->gpus[policy_gpu].limit_bytes;
    used = used > ahead ? used - ahead : 0;
    return limit > used ? limit - used : 0;
}

/* How much more to make room for than was asked for, because the thread was told so often that there was, and found none. */
static uint64_t more_for_attempts(const struct process_move *move, uint64_t bytes)
{
    uint64_t said = move->need.attempt & ~WIRE_NEED_CHARGED, told = move->rooms_told,
             attempts = said < told ? said : told;
    return attempts * (bytes / 2 + MOVES_SLACK_BYTES);
}

uint64_t moves_needed_bytes(const struct session *session, unsigned policy_gpu, bool again)
{
    uint64_t sum = 0, left = UINT64_MAX;
    for (const struct process *process = session->processes; process; process = process->next) {
        const struct wire_need *need = need_of(process, policy_gpu);
        if (!need)
            continue;
        if (left == UINT64_MAX)
            left = left_of_limit(session, policy_gpu);
        uint64_t bytes = moves_at_most(need->bytes, need_at_most(process, need, left));
        bytes = moves_at_most(bytes, MOVES_BYTES_MOST);
        if (!(need->attempt & WIRE_NEED_CHARGED))
            left -= moves_at_most(bytes, left);
        sum = saturating_add(sum, bytes + (again ? more_for_attempts(process->move, bytes) : 0));
    }
    return sum;
}

uint64_t moves_use_mark(const struct process *process)
{
    const struct session *session = process->session;
    uint64_t sum = 0;
    for (unsigned i = 0; i < session->gpu_count; i++) {
        sum += session_used(session, i);
        if (session->ledger.usage)
            sum += ledger_slot_counts(session->ledger.usage, process->slot, i).granted;
    }
    return sum;
}

uint64_t moves_charged_ahead(const struct session *session, unsigned policy_gpu)
{
    uint64_t sum = 0;
    for (const struct process *process = session->processes; process; process = process->next) {
        const struct wire_need *need = need_of(process, policy_gpu);
        if (need && need->attempt & WIRE_NEED_CHARGED)
            sum = saturating_add(sum, need->bytes);
    }
    return sum;
}

uint64_t moves_needs_since(const struct session *session)
{
    uint64_t first = UINT64_MAX;
    for (const struct process *process = session->processes; process; process = process->next)
        if (process->move && process->move->need.number && process->move->need_usec < first)
            first = process->move->need_usec;
    return first;
}

uint64_t moves_idle_since(const struct session *session)
{
    uint64_t latest = 1;
    for (const struct process *process = session->processes; process; process = process->next) {
        uint64_t since = process->move && process->move->has_said ? process->move->idle_usec : 1;
        latest = since == 0 ? UINT64_MAX : since > latest ? since : latest;
    }
    return latest;
}

uint64_t moves_ahead_bytes(const struct session *session, unsigned policy_gpu)
{
    uint64_t sum = 0;
    if (session->gpu_count == 1)
        return MOVES_SUM(session, resident_bytes);
    for (const struct process *process = session->processes; process; process = process->next)
        sum += process->move ? process->move->gpus[policy_gpu].ahead_bytes : 0;
    return sum;
}

uint64_t moves_away_bytes(const struct session *session, unsigned policy_gpu)
{
    uint64_t evicted = MOVES_SUM(session, evicted_bytes), all, ahead;
    if (session->gpu_count == 1 || session->move->state != MOVE_AWAY)
        return moves_part(session, policy_gpu, evicted);
    all = moves_part(session, policy_gpu, evicted + MOVES_SUM(session, resident_bytes));
    ahead = moves_ahead_bytes(session, policy_gpu);
    return all > ahead ? all - ahead : 0;
}

bool moves_wants_back(const struct session *session)
{
    return session->move->state == MOVE_AWAY && session->move->wants_usec;
}

bool moves_has_part_order(const struct session *session)
{
    for (const struct process *process = session->processes; process; process = process->next)
        if (process->move && process->move->is_part)
            return true;
    return false;
}
