/* Programs that wait for room on the card, in time that the test holds. What their processes are told is caught. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../wrong.h"
#include "daemon/loop/daemon.h"
#include "daemon/loop/deferred.h"
#include "daemon/residency/arena.h"
#include "daemon/residency/moves_state.h"
#include "daemon/residency/residency.h"
#include "daemon/schedule/schedule.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/users/lent_uids.h"

#define MIB (UINT64_C(1) << 20)
#define CARD (1024 * MIB)
#define PERCENT (CARD / 100)
#define MEMBERS 1000u

static struct daemon daemon_state;
static uint64_t now_ns;

/* A session of one process, and what that was told last: its order, and whether there is room. */
static struct member {
    struct session session;
    struct process process;
    struct wire_moved says;
    uint64_t order, evictions;
    uint64_t coming_bytes; /* RESTORE_PART has ordered so much back, and it has not come yet */
    bool brings_no_parts;
    int told_room; /* -1: nothing */
} members[MEMBERS];

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    *time =
        (struct timespec){.tv_sec = (time_t)(now_ns / 1000000000), .tv_nsec = (long)(now_ns % 1000000000)};
    return 0;
}

bool __wrap_agents_send(struct process *process, struct wire_message *message, int fd);
bool __wrap_agents_send(struct process *process, struct wire_message *message, int fd)
{
    struct member *member = (struct member *)((char *)process - offsetof(struct member, process));
    if (message->header.type == WIRE_ROOM)
        member->told_room = message->room.has_room != 0;
    else if (message->header.type == WIRE_EVICT)
        member->order = message->evict.order, member->evictions++;
    else if (message->header.type == WIRE_RESTORE)
        member->order = message->restore.order;
    else if (message->header.type == WIRE_RESTORE_PART)
        member->order = message->restore_part.order, member->coming_bytes = message->restore_part.most_bytes;
    return true;
}

void __wrap_schedule_set_away(struct process *process, bool is_away);
void __wrap_schedule_set_away(struct process *process, bool is_away)
{
}

/* The chunk that is being made; `made` is NULL: none is. */
static struct {
    arena_made *made;
    void *argument;
    uint64_t bytes;
} chunk;

void __wrap_arena_make(struct daemon *daemon, const struct arena_wish *wish, arena_made *made,
                       void *argument);
void __wrap_arena_make(struct daemon *daemon, const struct arena_wish *wish, arena_made *made, void *argument)
{
    assert_null(chunk.made);
    chunk.made = made;
    chunk.argument = argument;
    chunk.bytes = wish->bytes;
}

/* Chunks that were sent: whether somebody has them still, whatever processes say, and how many have been freed. */
static bool chunks_are_used;
static unsigned chunks_ended;

int __wrap_chunk_keep(int fd);
int __wrap_chunk_keep(int fd)
{
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

bool __wrap_chunk_is_unused(int own_fd);
bool __wrap_chunk_is_unused(int own_fd)
{
    return !chunks_are_used;
}

void __wrap_arena_end_chunk(struct daemon *daemon, int own_fd, uint64_t payer);
void __wrap_arena_end_chunk(struct daemon *daemon, int own_fd, uint64_t payer)
{
    close(own_fd);
    chunks_ended++;
}

struct session *__wrap_session_find_id(const struct daemon *daemon, const char *id);
struct session *__wrap_session_find_id(const struct daemon *daemon, const char *id)
{
    return daemon->sessions;
}

/* What the daemon does: how often it decides, and looks how much a session has. */
static uint64_t decisions, looks;
static uint64_t decision_takes_ns;

uint64_t __real_residency_decide(struct residency_session *sessions, unsigned count,
                                 const int64_t free_bytes[RESIDENCY_PLACES],
                                 const struct residency_turns *turns, uint64_t time_ns);
uint64_t __wrap_residency_decide(struct residency_session *sessions, unsigned count,
                                 const int64_t free_bytes[RESIDENCY_PLACES],
                                 const struct residency_turns *turns, uint64_t time_ns);
uint64_t __wrap_residency_decide(struct residency_session *sessions, unsigned count,
                                 const int64_t free_bytes[RESIDENCY_PLACES],
                                 const struct residency_turns *turns, uint64_t time_ns)
{
    decisions++;
    now_ns += decision_takes_ns;
    return __real_residency_decide(sessions, count, free_bytes, turns, time_ns);
}

uint64_t __real_session_used(const struct session *session, unsigned policy_gpu);
uint64_t __wrap_session_used(const struct session *session, unsigned policy_gpu);
uint64_t __wrap_session_used(const struct session *session, unsigned policy_gpu)
{
    looks++;
    return __real_session_used(session, policy_gpu);
}

uint64_t __real_session_charged(const struct session *session, unsigned policy_gpu);
uint64_t __wrap_session_charged(const struct session *session, unsigned policy_gpu);
uint64_t __wrap_session_charged(const struct session *session, unsigned policy_gpu)
{
    looks++;
    return __real_session_charged(session, policy_gpu);
}

static int on_time(sd_event_source *source, uint64_t usec, void *argument)
{
    return 0;
}

static void decide(void *argument)
{
    moves_decide_rested(argument);
}

static void bring_parts(void);

/* Everything that waits in the loop has its turn. */
static void settle(void)
{
    while (sd_event_run(daemon_state.loop, 0) > 0)
        continue;
    bring_parts();
}

static int begin(void **state)
{
    static struct moves moves;
    now_ns = UINT64_C(1000000000000);
    memset(members, 0, sizeof(members));
    chunk.made = NULL;
    chunks_are_used = true;
    chunks_ended = 0;
    decision_takes_ns = 0;
    daemon_state = (struct daemon){.gpu_count = 1, .moves = &moves};
    daemon_state.gpus[0] = (struct gpu){.total_bytes = CARD, .healthy = true, .label = "0", .mig_index = -1};
    moves = (struct moves){.daemon = &daemon_state, .bytes_per_second = CARD};
    return sd_event_new(&daemon_state.loop) < 0 ||
                   sd_event_add_time(daemon_state.loop, &moves.timer, CLOCK_MONOTONIC, 0, 1, on_time, NULL) <
                       0 ||
                   deferred_new(daemon_state.loop, decide, &moves, &moves.decision) < 0
               ? -1
               : 0;
}

static int end(void **state)
{
    for (unsigned i = 0; i < MEMBERS; i++) {
        if (members[i].process.move)
            moves_end_chunks(&members[i].process);
        free(members[i].session.move);
        free(members[i].process.move);
    }
    if (chunk.made) /* nobody has made it */
        free(chunk.argument);
    chunk.made = NULL;
    moves_forget_chunks(&daemon_state);
    deferred_free(daemon_state.moves->decision);
    sd_event_source_unref(daemon_state.moves->timer);
    sd_event_unref(daemon_state.loop);
    lent_uids_free(&daemon_state);
    return 0;
}

/* A session that has so much of the card. */
static struct member *join(unsigned number, enum ledger_engine engine, uint64_t bytes)
{
    struct member *member = &members[number];
    member->process =
        (struct process){.session = &member->session, .agent = (struct agent *)member, .pidfd = -1};
    member->session = (struct session){.daemon = &daemon_state,
                                       .gpu_count = 1,
                                       .properties = {.engine = engine, .priority = PRIORITY_NORMAL},
                                       .next = daemon_state.sessions,
                                       .processes = &member->process,
                                       .process_count = 1};
    member->session.gpus[0] = (struct session_gpu){.limit_bytes = CARD, .driver_bytes = bytes};
    member->told_room = -1;
    daemon_state.sessions = &member->session;
    daemon_state.session_count++;
    return member;
}

static void say(struct member *member)
{
    struct wire_message message = {.header.type = WIRE_MOVED, .moved = member->says};
    member->says.order = 0;
    moves_listener.take(&member->process, &message);
    settle();
}

/* What was ordered back piece by piece comes. */
static void bring_parts(void)
{
    for (struct session *session = daemon_state.sessions; session; session = session->next) {
        struct member *member = (struct member *)session; /* its first field */
        uint64_t comes = member->coming_bytes;
        if (!comes || member->brings_no_parts)
            continue;
        comes = comes < member->says.evicted_bytes ? comes : member->says.evicted_bytes;
        member->coming_bytes = 0;
        member->says.evicted_bytes -= comes;
        member->says.resident_bytes += comes;
        member->says.order = member->order;
        say(member);
    }
}

/* One whose memory can move says that it works. */
static struct member *work(unsigned number, uint64_t bytes)
{
    struct member *member = join(number, LEDGER_ENGINE_SWAP, bytes);
    member->says = (struct wire_moved){.resident_bytes = bytes, .arena_bytes = 2 * CARD};
    say(member);
    return member;
}

static void ask(struct member *member, uint64_t bytes)
{
    struct wire_message message = {.header.type = WIRE_NEED, .need = {.number = 1, .bytes = bytes}};
    moves_listener.take(&member->process, &message);
    settle();
}

/* It does what it was ordered to: all of it has left. */
static void leave(struct member *member)
{
    member->says.evicted_bytes = member->session.gpus[0].driver_bytes;
    member->says.resident_bytes = 0;
    member->says.flags = WIRE_MOVED_AWAY;
    member->says.order = member->order;
    say(member);
}

/* It has no work for a moment, and then it has. */
static void rest(struct member *member)
{
    member->says.flags = WIRE_MOVED_IDLE;
    say(member);
    now_ns += 500000000;
    moves_decide(&daemon_state);
}

/* So much is on the card, and has no work. */
static struct member *be_idle(unsigned number, uint64_t bytes)
{
    struct member *member = work(number, bytes);
    rest(member);
    return member;
}

static void begin_again(struct member *member)
{
    rest(member);
    member->says.flags = 0;
    say(member);
}

static void pass(double seconds)
{
    for (uint64_t until_ns = now_ns + (uint64_t)(seconds * 1e9); now_ns < until_ns; now_ns += 100000000)
        moves_decide(&daemon_state);
}

static void a_program_that_may_wait_does_so_for_hours(void **state)
{
    struct member *other = join(0, LEDGER_ENGINE_PLAIN, 90 * PERCENT);
    struct member *waiter = join(1, LEDGER_ENGINE_SWAP, 0);
    waiter->session.properties.when_full = WHEN_FULL_WAIT;
    ask(waiter, 50 * PERCENT);
    pass(2 * 3600);
    assert_int_equal(waiter->told_room, -1);
    assert_non_null(strstr(moves_standing(&waiter->session).wait_why,
                           "it waits until others have ended: 511.9MiB on GPU 0"));
    assert_true(moves_standing(&waiter->session).waits);
    other->session.gpus[0].driver_bytes = 0;
    pass(0.1);
    assert_int_equal(waiter->told_room, 1);
    assert_false(moves_standing(&waiter->session).waits);
}

static void an_estimate_that_was_wrong_twice_is_not_known_any_more(void **state)
{
    struct member *holder = be_idle(0, 90 * PERCENT), *waiter = work(1, 0);
    ask(waiter, 50 * PERCENT);
    pass(0.2);
    assert_int_equal(holder->evictions, 1); /* and it does not answer */
    assert_true(moves_standing(&waiter->session).wait_seconds_left >= 0);
    assert_string_equal(moves_standing(&waiter->session).wait_why, "");
    pass(15);
    assert_true(moves_standing(&waiter->session).waits);
    assert_true(moves_standing(&waiter->session).wait_seconds_left < 0);
    assert_non_null(strstr(moves_standing(&waiter->session).wait_why, "does not answer"));
    leave(holder);
    pass(1);
    assert_int_equal(waiter->told_room, 1);
    assert_string_equal(moves_standing(&waiter->session).wait_why, "");
}

static void a_wait_fails_when_its_session_says_so(void **state)
{
    be_idle(0, 90 * PERCENT);
    struct member *waiter = work(1, 0);
    waiter->session.properties.wait_for_card_seconds = 10;
    ask(waiter, 50 * PERCENT);
    pass(9);
    assert_int_equal(waiter->told_room, -1);
    pass(2);
    assert_int_equal(waiter->told_room, 0);
}

static void a_program_that_may_not_wait_is_told_soon_that_none_can_leave(void **state)
{
    join(0, LEDGER_ENGINE_PLAIN, 90 * PERCENT);
    struct member *waiter = join(1, LEDGER_ENGINE_SWAP, 0);
    ask(waiter, 50 * PERCENT);
    pass(1);
    assert_int_equal(waiter->told_room, -1); /* what was freed a moment ago may not be told yet */
    pass(1);
    assert_int_equal(waiter->told_room, 0);
}

/* What is away takes the whole card: more than is ever counted as free. */
static void memory_as_large_as_the_card_comes_back(void **state)
{
    struct member *large = work(0, CARD), *other = work(1, 0);
    daemon_state.moves->turn_ns = UINT64_C(1000000000);
    ask(other, 50 * PERCENT);
    pass(2);
    assert_int_equal(large->evictions, 1);
    leave(large);
    assert_int_equal(other->told_room, 1);
    large->says.flags |= WIRE_MOVED_WAITS;
    say(large);
    other->says.flags = WIRE_MOVED_IDLE; /* its memory is freed */
    say(other);
    pass(5);
    assert_int_equal(moves_standing(&large->session).state, MOVE_COMING);
}

static void a_turn_longer_than_two_minutes_is_waited_for(void **state)
{
    struct member *other = work(0, 90 * PERCENT), *waiter = work(1, 0);
    daemon_state.moves->turn_ns = UINT64_C(600000000000);
    ask(waiter, 50 * PERCENT);
    pass(599);
    assert_int_equal(other->evictions, 0);
    assert_int_equal(waiter->told_room, -1);
    assert_true(moves_standing(&waiter->session).wait_seconds_left > 0);
    pass(62); /* it has begun a minute ago at most, and may have a tenth longer */
    assert_int_equal(other->evictions, 1);
    leave(other);
    assert_int_equal(waiter->told_room, 1);
}

static void a_turn_begins_when_the_room_is_there_that_was_waited_for(void **state)
{
    struct member *grows = work(0, 30 * PERCENT);
    pass(100);
    struct member *other = work(1, 60 * PERCENT);
    daemon_state.moves->turn_ns = UINT64_C(5000000000);
    ask(grows, 50 * PERCENT);
    pass(6);
    assert_int_equal(other->evictions, 1);
    leave(other);
    assert_int_equal(grows->told_room, 1);
    grows->session.gpus[0].driver_bytes = grows->says.resident_bytes = 80 * PERCENT;
    say(grows);
    other->says.flags |= WIRE_MOVED_WAITS; /* it wants back at once */
    say(other);
    pass(4.5);
    assert_int_equal(grows->evictions, 0);
    pass(2);
    assert_int_equal(grows->evictions, 1);
}

static void a_session_that_works_while_others_wait_holds_the_card(void **state)
{
    struct member *works = work(0, 90 * PERCENT);
    daemon_state.moves->turn_ns = UINT64_C(5000000000);
    pass(100);
    struct member *waits = work(1, 0);
    assert_int_equal(works->session.move->held_usec, 0); /* nobody waited */
    begin_again(works);
    ask(waits, 50 * PERCENT);
    pass(4);
    assert_in_range(works->session.move->held_usec, 3900000, 4100000);
    assert_int_equal(waits->session.move->held_usec, 0);
    struct member *newcomer = work(2, 0); /* is owed nothing for that */
    assert_int_equal(newcomer->session.move->held_usec, works->session.move->held_usec);
}

static void work_that_pauses_is_not_cut_a_moment_before(void **state)
{
    struct member *works = work(0, 90 * PERCENT), *waits = work(1, 0);
    daemon_state.moves->turn_ns = UINT64_C(5000000000);
    begin_again(works);
    ask(waits, 50 * PERCENT);
    pass(8); /* it works longer than a turn, */
    assert_int_equal(works->evictions, 0);
    rest(works); /* and pauses */
    assert_int_equal(works->evictions, 1);
}

/* Of a tenth of the card; says that it has more than there is. */
static struct member *lie(unsigned number, uint32_t flags)
{
    struct member *liar = join(number, LEDGER_ENGINE_SWAP, 0);
    liar->session.gpus[0].limit_bytes = 10 * PERCENT;
    liar->says =
        (struct wire_moved){.resident_bytes = UINT64_MAX / 2, .arena_bytes = UINT64_MAX / 2, .flags = flags};
    say(liar);
    return liar;
}

static void a_lie_takes_no_room_from_others(void **state)
{
    struct member *liar = lie(0, 0), *asks = work(1, 0);
    ask(asks, 80 * PERCENT);
    pass(0.1);
    assert_int_equal(asks->told_room, 1);
    assert_int_equal(liar->evictions, 0);
}

/* Nobody waits for it to leave. */
static void a_lie_makes_no_room_for_others(void **state)
{
    static const uint32_t flags[] = {WIRE_MOVED_IDLE, WIRE_MOVED_AWAY};
    for (unsigned i = 0; i < 2; i++) {
        struct member *asks = work(2, 30 * PERCENT);
        lie(i, flags[i]);
        ask(asks, 80 * PERCENT);
        pass(2);
        assert_int_equal(asks->told_room, 0);
        end(state);
        begin(state);
    }
}

static void a_lie_holds_up_no_count_of_chunks(void **state)
{
    struct member *liar = lie(0, 0);
    struct error error;
    liar->says.arena_bytes = 0;
    say(liar);
    liar->session.properties.host_memory_bytes = ARENA_CHUNK_SMALL;
    assert_int_equal(moves_suspend(&liar->session, &error), -EBUSY);
    assert_string_equal(error.code, "ERR_HOST_MEMORY");
    assert_int_equal(moves_chunk_bytes(&liar->session), CARD);
}

static void chunks_are_counted_as_they_are_given(void **state)
{
    for (uint64_t lacks = 0; lacks < 3 * ARENA_CHUNK_LARGE; lacks += ARENA_CHUNK_SMALL / 2) {
        uint64_t sum = 0;
        for (uint64_t left = lacks, next; left; left = left > next ? left - next : 0)
            sum += next = arena_chunk_bytes(left);
        assert_int_equal(arena_chunks_bytes(lacks), sum);
    }
}

static void a_process_has_no_host_memory_that_it_was_not_sent(void **state)
{
    struct member *earlier = lie(0, 0); /* attached under an earlier daemon: it may have been */
    assert_in_range(moves_arena_bytes(&earlier->session), CARD, 2 * CARD);
    struct member *liar = join(1, LEDGER_ENGINE_SWAP, 0);
    liar->process.attached_usec = 1;
    liar->says = (struct wire_moved){.resident_bytes = PERCENT, .arena_bytes = UINT64_MAX / 2};
    say(liar);
    assert_int_equal(moves_arena_bytes(&liar->session), 0);
    moves_note_chunk(&liar->process, 3 * ARENA_CHUNK_LARGE);
    say(liar);
    assert_int_equal(moves_arena_bytes(&liar->session), 3 * ARENA_CHUNK_LARGE);
    liar->says.arena_bytes = ARENA_CHUNK_LARGE;
    say(liar);
    assert_int_equal(moves_arena_bytes(&liar->session), ARENA_CHUNK_LARGE);
    liar->says.arena_bytes = UINT64_MAX;
    say(liar);
    assert_int_equal(moves_arena_bytes(&liar->session), ARENA_CHUNK_LARGE);
    moves_listener.gone(&liar->process); /* another agent of it */
    say(liar);
    assert_int_equal(moves_arena_bytes(&liar->session), ARENA_CHUNK_LARGE);
}

static void a_process_that_cannot_move_tells_nothing(void **state)
{
    struct member *liar = join(0, LEDGER_ENGINE_PLAIN, 50 * PERCENT), *asks = work(1, 0);
    liar->says.evicted_bytes = 50 * PERCENT;
    say(liar);
    assert_null(liar->session.move);
    ask(asks, 80 * PERCENT);
    pass(2);
    assert_int_equal(asks->told_room, 0);
}

/* A limit that was lowered below what is used: that is not a lie. */
static void what_nvml_shows_counts_beyond_the_limit(void **state)
{
    struct member *holds = work(0, 80 * PERCENT), *asks = work(1, 0);
    holds->session.gpus[0] = (struct session_gpu){.limit_bytes = PERCENT, .shown_bytes = 80 * PERCENT};
    ask(asks, 50 * PERCENT);
    pass(0.1);
    assert_int_equal(asks->told_room, -1);
}

static void what_cannot_leave_is_not_ordered_out_without_pause(void **state)
{
    struct member *stays = work(0, 50 * PERCENT);
    struct error error;
    assert_int_equal(moves_suspend(&stays->session, &error), 0);
    stays->says.flags = WIRE_MOVED_AWAY; /* it has done what it can */
    stays->says.resident_bytes = PERCENT;
    for (unsigned times = 0; times < 10; times++) {
        stays->says.order = stays->order;
        say(stays);
    }
    assert_int_equal(stays->evictions, 1);
    now_ns += 1000000000;
    moves_advance(&stays->session);
    assert_int_equal(stays->evictions, 2);
}

static void how_long_a_move_takes_is_told_from_its_begin(void **state)
{
    struct member *leaves = work(0, 80 * PERCENT);
    struct error error;
    assert_int_equal(moves_suspend(&leaves->session, &error), 0);
    assert_true(moves_standing(&leaves->session).seconds_left > 0.75);
    assert_true(moves_standing(&leaves->session).seconds_left < 0.85);
    now_ns += 1000000000;
    leaves->says.resident_bytes = 60 * PERCENT, leaves->says.evicted_bytes = 20 * PERCENT;
    leaves->says.flags = WIRE_MOVED_AWAY;
    say(leaves);
    assert_true(moves_standing(&leaves->session).seconds_left > 2.9); /* as it has gone so far */
    assert_true(moves_standing(&leaves->session).seconds_left < 3.1);
    leave(leaves);
    assert_true(moves_standing(&leaves->session).seconds_left < 0);
}

/* The chunk is there; `why`: it could not be made. */
static void end_chunk(const char *why)
{
    arena_made *made = chunk.made;
    assert_non_null(made);
    chunk.made = NULL;
    made(chunk.argument, why ? -ENOMEM : 0, chunk.bytes, why ? why : "");
}

/* A process with so much on the card and no host memory should leave. */
static struct member *begin_to_leave(uint64_t bytes)
{
    struct error error;
    struct member *member = work(0, bytes);
    member->says = (struct wire_moved){.resident_bytes = bytes};
    say(member);
    assert_int_equal(moves_suspend(&member->session, &error), 0);
    assert_int_equal(member->evictions, 0);
    assert_int_equal(chunk.bytes, ARENA_CHUNK_LARGE);
    return member;
}

/* A chunk that is made ahead of need leaves more to others: where there is none, there may be one for need. */
static void no_host_memory_ahead_is_not_a_failure_of_the_session_that_leaves(void **state)
{
    struct error error;
    struct member *member = join(0, LEDGER_ENGINE_SWAP, 300 * MIB);
    daemon_state.config.daemon.host_memory_ahead = true;
    member->session.properties.idle_suspend_seconds = 3600;
    member->says = (struct wire_moved){.resident_bytes = 300 * MIB};
    say(member);
    moves_look_ahead(&daemon_state);
    assert_null(chunk.made); /* it may still grow */
    now_ns += UINT64_C(3000000000);
    moves_look_ahead(&daemon_state);
    assert_int_equal(chunk.bytes, ARENA_CHUNK_SMALL);
    assert_int_equal(moves_suspend(&member->session, &error), 0);
    end_chunk("others need it");
    assert_int_equal(moves_standing(&member->session).state, MOVE_LEAVING);
    assert_string_equal(moves_standing(&member->session).failure, "");
    assert_int_equal(chunk.bytes, ARENA_CHUNK_LARGE);
    end_chunk(NULL);
    assert_int_equal(member->evictions, 1);
}

/* It says how much is away, for which there was room, and that it has the chunks that it was sent. */
static void leave_as_far_as(struct member *member, uint64_t evicted_bytes, uint64_t all_bytes)
{
    member->says.evicted_bytes = evicted_bytes;
    member->says.resident_bytes = all_bytes - evicted_bytes;
    member->says.arena_bytes = member->process.move->given_bytes;
    member->says.flags |= WIRE_MOVED_AWAY;
    member->says.order = member->order;
    member->says.result = evicted_bytes < all_bytes ? WIRE_MOVE_NO_ROOM : WIRE_MOVE_DONE;
    say(member);
}

static void a_process_begins_to_leave_with_the_first_chunk(void **state)
{
    const uint64_t bytes = 600 * MIB;
    struct member *member = begin_to_leave(bytes);
    end_chunk(NULL);
    assert_int_equal(member->evictions, 1);
    assert_non_null(chunk.made); /* the next one is made meanwhile, */
    end_chunk(NULL);
    assert_int_equal(member->evictions, 1);
    assert_int_equal(chunk.bytes, 128 * MIB); /* and the last one, no larger than it has to be */
    leave_as_far_as(member, 256 * MIB, bytes);
    assert_int_equal(member->evictions, 2);
    leave_as_far_as(member, 512 * MIB, bytes);
    assert_int_equal(member->evictions, 2); /* there is no room yet for more */
    assert_int_equal(moves_standing(&member->session).state, MOVE_LEAVING);
    end_chunk(NULL);
    assert_int_equal(member->evictions, 3);
    leave_as_far_as(member, bytes, bytes);
    assert_int_equal(moves_standing(&member->session).state, MOVE_AWAY);
    assert_null(chunk.made);
    assert_int_equal(member->process.move->given_bytes, 640 * MIB);
}

static void what_has_left_in_steps_comes_back_where_there_is_no_host_memory(void **state)
{
    const uint64_t bytes = 600 * MIB;
    struct member *member = begin_to_leave(bytes);
    end_chunk(NULL);
    uint64_t eviction = member->order;
    end_chunk("the machine has no more");
    assert_string_equal(moves_standing(&member->session).failure, "the machine has no more");
    assert_int_equal(member->order, eviction); /* which is not over yet */
    leave_as_far_as(member, 256 * MIB, bytes);
    assert_int_not_equal(member->order, eviction);
    assert_int_equal(member->evictions, 1);
    assert_int_equal(moves_standing(&member->session).state, MOVE_COMING);
}

static void no_session_begins_to_leave_that_may_not_have_the_rest(void **state)
{
    struct error error;
    struct member *member = begin_to_leave(600 * MIB);
    member->session.properties.host_memory_bytes = 512 * MIB; /* it was lowered since */
    end_chunk(NULL);
    assert_int_equal(member->evictions, 0);
    end_chunk(NULL);
    assert_int_equal(member->evictions, 0);
    assert_int_equal(moves_standing(&member->session).state, MOVE_RESIDENT);
    assert_int_equal(moves_suspend(&member->session, &error), -EBUSY);
}

/* A session of at most 512 MiB of host memory, whose process has 320 MiB of that, and says that it gave all of it back. */
static struct member *claim_to_give_back(void)
{
    struct error error;
    struct member *liar = join(0, LEDGER_ENGINE_SWAP, 300 * MIB);
    liar->session.properties.host_memory_bytes = 512 * MIB;
    liar->process.attached_usec = 1;
    liar->says = (struct wire_moved){.resident_bytes = 300 * MIB};
    say(liar);
    assert_int_equal(moves_suspend(&liar->session, &error), 0);
    end_chunk(NULL);
    end_chunk(NULL);
    liar->says.arena_bytes = 320 * MIB;
    say(liar);
    assert_int_equal(moves_resume(&liar->session, &error), 0);
    liar->says.arena_bytes = 0;
    say(liar);
    return liar;
}

static void pass_a_second(void)
{
    now_ns += UINT64_C(1000000000);
    moves_look_at_chunks(daemon_state.moves);
}

static void what_was_given_back_counts_until_nobody_has_it(void **state)
{
    struct error error;
    struct member *liar = claim_to_give_back();
    pass_a_second();
    assert_int_equal(moves_arena_bytes(&liar->session), 320 * MIB);
    assert_int_equal(moves_all_arena_bytes(daemon_state.moves), 320 * MIB);
    assert_int_equal(moves_suspend(&liar->session, &error), -EBUSY);
    assert_string_equal(error.code, "ERR_HOST_MEMORY");
    chunks_are_used = false;
    pass_a_second();
    assert_int_equal(moves_arena_bytes(&liar->session), 0);
    assert_int_equal(moves_all_arena_bytes(daemon_state.moves), 0);
    assert_int_equal(chunks_ended, 2);
    assert_int_equal(moves_suspend(&liar->session, &error), 0);
}

/* Each is what one forgotten line would leave. */
static void sums_that_do_not_go_together_are_caught(void **state)
{
    struct member *member = claim_to_give_back();
    struct moves *moves = daemon_state.moves, right = *moves;
    struct process_move right_process = *member->process.move;
    assert_true(moves_are_valid(moves));
#define ASSERT_WRONG(change)                                                                                 \
    do {                                                                                                     \
        change;                                                                                              \
        assert_false(moves_are_valid(moves));                                                                \
        *moves = right;                                                                                      \
        *member->process.move = right_process;                                                               \
    } while (0)
    ASSERT_WRONG(moves->given_bytes += MIB);
    ASSERT_WRONG(moves->kept_bytes -= MIB);
    ASSERT_WRONG(moves->left_bytes += MIB);
    ASSERT_WRONG(member->process.move->given_bytes = 640 * MIB);
    ASSERT_WRONG(member->process.move->chunk_bytes -= MIB);
    ASSERT_WRONG(member->process.move->now.arena_bytes = 640 * MIB);
    ASSERT_WRONG(member->process.move->order = moves->last_order + 1);
    ASSERT_WRONG(member->process.move->gpus[0].ahead_bytes = CARD);
#undef ASSERT_WRONG
    member->process.move->chunk_bytes -= MIB;
    ASSERT_CAUGHT(moves_end_chunks(&member->process));
    *member->process.move = right_process;
    member->process.move->is_part = true;
    ASSERT_CAUGHT(moves_note_chunk(&member->process, MIB));
    *member->process.move = right_process;
}

static void a_dead_process_leaves_nobody_its_host_memory(void **state)
{
    struct member *liar = claim_to_give_back();
    liar->process.pidfd = eventfd(1, EFD_CLOEXEC); /* it can be read, as a dead process's */
    moves_end_chunks(&liar->process);
    assert_int_equal(chunks_ended, 2);
    assert_int_equal(moves_all_arena_bytes(daemon_state.moves), 0);
    close(liar->process.pidfd);
}

/* A process that goes on without its session, or runs another program, may have passed it on; nobody loses what is in use. */
static void what_a_process_passed_on_and_left_counts_on(void **state)
{
    struct member *liar = claim_to_give_back();
    moves_end_chunks(&liar->process);
    pass_a_second();
    assert_int_equal(chunks_ended, 0);
    moves_set_given(&liar->process, 0);
    assert_int_equal(moves_arena_bytes(&liar->session), 320 * MIB);
    assert_int_equal(moves_left_by_owner(daemon_state.moves, 0), 320 * MIB);
    assert_int_equal(moves_all_arena_bytes(daemon_state.moves), 320 * MIB);
    chunks_are_used = false;
    pass_a_second();
    assert_int_equal(chunks_ended, 2);
    assert_int_equal(moves_arena_bytes(&liar->session), 0);
    assert_int_equal(moves_all_arena_bytes(daemon_state.moves), 0);
}

/* Ask again for room, as one who was told that there is, and found none. */
static void ask_again(struct member *member, uint64_t bytes, uint32_t attempt)
{
    struct wire_message message = {.header.type = WIRE_NEED,
                                   .need = {.number = 1, .bytes = bytes, .attempt = attempt}};
    member->told_room = -1;
    moves_listener.take(&member->process, &message);
    settle();
}

/* 30 % of the card are taken by somebody whom nobody here knows. */
static void a_refusal_teaches_that_the_card_has_less(void **state)
{
    struct member *idle = work(0, 20 * PERCENT), *asks = work(1, 40 * PERCENT);
    idle->says.flags = WIRE_MOVED_IDLE;
    say(idle);
    ask(asks, 11 * PERCENT);
    assert_int_equal(asks->told_room, 1); /* 40 % seem to be free */
    ask_again(asks, 11 * PERCENT, 1);
    assert_int_equal(asks->told_room, -1);
    assert_int_equal(idle->evictions, 1); /* it has to leave after all */
    leave(idle);
    assert_int_equal(asks->told_room, 1);
}

/* What one of a process that was killed still has, the driver gives back a moment later. */
static void what_a_refusal_taught_is_tried_again_after_a_second(void **state)
{
    struct member *asks = work(0, 40 * PERCENT);
    ask(asks, 50 * PERCENT);
    ask_again(asks, 50 * PERCENT, 1);
    now_ns += 900000000;
    moves_decide(&daemon_state);
    assert_int_equal(asks->told_room, -1);
    now_ns += 200000000;
    moves_decide(&daemon_state);
    assert_int_equal(asks->told_room, 1);
    ask_again(asks, 50 * PERCENT, 2); /* the second lesson is believed for twice as long: too long for hope */
    for (unsigned i = 0; i < 18; i++) {
        now_ns += 100000000;
        moves_decide(&daemon_state);
    }
    assert_int_equal(asks->told_room, 0);
}

/* Nobody has refused it anything. */
static void a_session_with_nothing_on_the_card_teaches_nothing(void **state)
{
    struct member *liar = join(0, LEDGER_ENGINE_SWAP, 0), *idle = be_idle(1, 20 * PERCENT),
                  *asks = work(2, 40 * PERCENT);
    ask(liar, PERCENT);
    ask_again(liar, PERCENT, 1);
    assert_int_equal(liar->told_room, 1);
    ask(asks, 30 * PERCENT);
    assert_int_equal(asks->told_room, 1);
    assert_int_equal(idle->evictions, 0);
}

/* Its limit is a small part of the card, and it asks for nearly all. */
static void a_need_counts_up_to_what_the_limit_leaves(void **state)
{
    struct member *notebook = be_idle(0, 60 * PERCENT), *asks = join(1, LEDGER_ENGINE_PLAIN, PERCENT);
    asks->session.gpus[0].limit_bytes = 4 * PERCENT;
    ask_again(asks, 95 * PERCENT, 16); /* it was not told so often */
    assert_int_equal(asks->told_room, 1);
    for (unsigned times = 0; times < 20; times++) {
        ask_again(asks, 95 * PERCENT, 0);
        assert_int_equal(asks->told_room, 1);
    }
    assert_int_equal(notebook->evictions, 0);
    asks->session.gpus[0].limit_bytes = CARD;
    ask_again(asks, 80 * PERCENT, 0);
    assert_int_equal(notebook->evictions, 1);
}

/* What the driver takes without asking may pass the limit. */
static void a_context_has_room_made_whatever_the_limit(void **state)
{
    struct member *idle = be_idle(0, 90 * PERCENT), *asks = join(1, LEDGER_ENGINE_PLAIN, 0);
    daemon_state.gpus[0].context_bytes = 20 * PERCENT;
    asks->session.gpus[0].limit_bytes = PERCENT;
    ask(asks, 20 * PERCENT);
    assert_int_equal(idle->evictions, 1);
}

/* Two wait; the one that has waited for longer was given room before. */
static void a_session_that_used_none_of_its_room_comes_last(void **state)
{
    for (unsigned uses = 0; uses < 2; uses++) {
        struct member *first = work(0, 0), *second = work(1, 0);
        ask(first, 50 * PERCENT);
        assert_int_equal(first->told_room, 1);
        first->session.gpus[0].driver_bytes = uses * PERCENT;
        struct member *other = join(2, LEDGER_ENGINE_PLAIN, 60 * PERCENT);
        ask_again(first, 50 * PERCENT, 0);
        now_ns += 1000000;
        ask(second, 50 * PERCENT);
        other->session.gpus[0].driver_bytes = 0;
        pass(0.1);
        assert_int_equal(first->told_room, uses ? 1 : -1);
        assert_int_equal(second->told_room, uses ? -1 : 1);
        end(state);
        begin(state);
    }
}

/* One has 90 % of the card; so many others wait for half of it. */
static void gather(unsigned waiting)
{
    work(0, 90 * PERCENT);
    for (unsigned i = 1; i <= waiting; i++) {
        struct member *waiter = join(i, LEDGER_ENGINE_SWAP, 0);
        waiter->session.properties.when_full = WHEN_FULL_WAIT;
        struct wire_message message = {.header.type = WIRE_NEED,
                                       .need = {.number = 1, .bytes = 50 * PERCENT, .attempt = 1}};
        moves_listener.take(&waiter->process, &message);
    }
}

static void many_messages_cost_one_decision(void **state)
{
    gather(300);
    decisions = 0;
    settle();
    assert_int_equal(decisions, 1);
    for (unsigned i = 0; i < 300; i++) {
        struct wire_message message = {.header.type = WIRE_MOVED, .moved = members[0].says};
        moves_listener.take(&members[0].process, &message);
    }
    assert_int_equal(decisions, 1);
    settle();
    assert_int_equal(decisions, 2);
}

/* A message costs nothing for others, either. */
static void a_decision_looks_at_each_session_a_few_times(void **state)
{
    static const unsigned counts[] = {99, 999};
    for (unsigned i = 0; i < 2; i++) {
        looks = 0;
        gather(counts[i]);
        assert_int_equal(looks, 0);
        settle();
        assert_in_range(looks, counts[i], 20 * counts[i]);
        looks = 0;
        now_ns += UINT64_C(3000000000); /* nobody can make room for all of them */
        moves_decide(&daemon_state);
        assert_in_range(looks, counts[i], 20 * counts[i]);
        end(state);
        begin(state);
    }
}

static void deciding_takes_a_tenth_of_the_loop_at_most(void **state)
{
    gather(10);
    settle();
    decision_takes_ns = 2000000;
    decisions = 0;
    say(&members[0]);
    assert_int_equal(decisions, 1);
    for (unsigned ms = 0; ms < 17; ms++) {
        now_ns += 1000000;
        say(&members[0]);
    }
    assert_int_equal(decisions, 1);
    now_ns += 1000000;
    say(&members[0]);
    assert_int_equal(decisions, 2);
}

static unsigned count_told(int what)
{
    unsigned count = 0;
    for (unsigned i = 0; i < MEMBERS; i++)
        count += members[i].process.move && members[i].told_room == what;
    return count;
}

static void what_is_told_to_many_is_told_in_parts(void **state)
{
    for (unsigned i = 0; i < MEMBERS; i++) {
        struct wire_message message = {.header.type = WIRE_NEED, .need = {.number = 1, .bytes = 1}};
        moves_listener.take(&join(i, LEDGER_ENGINE_SWAP, 0)->process, &message);
    }
    moves_decide(&daemon_state);
    assert_in_range(count_told(1), 1, 100);
    settle();
    assert_int_equal(count_told(1), MEMBERS);
}

static void many_are_refused_in_parts(void **state)
{
    join(0, LEDGER_ENGINE_PLAIN, 90 * PERCENT);
    for (unsigned i = 1; i < 100; i++) {
        struct wire_message message = {.header.type = WIRE_NEED, .need = {.number = 1, .bytes = CARD / 2}};
        moves_listener.take(&join(i, LEDGER_ENGINE_SWAP, 0)->process, &message);
    }
    pass(1);
    assert_int_equal(count_told(0), 0);
    now_ns += UINT64_C(1000000000);
    moves_decide(&daemon_state);
    assert_in_range(count_told(0), 1, 20);
    settle();
    assert_int_equal(count_told(0), 99);
}

static void a_session_stopped_while_it_leaves_is_not_waited_for(void **state)
{
    struct member *stopped = be_idle(0, 40 * PERCENT), *idle = be_idle(1, 40 * PERCENT), *waiter = work(2, 0);
    pass(1);
    ask(waiter, 50 * PERCENT);
    assert_int_equal(stopped->evictions, 1); /* it has been idle for longer */
    pass(1.9);
    assert_int_equal(idle->evictions, 0);
    pass(0.3);
    assert_int_equal(idle->evictions, 1);
    leave(idle);
    assert_int_equal(waiter->told_room, 1);
}

/* A byte now and then does not count. */
static void a_session_that_hardly_leaves_is_not_waited_for(void **state)
{
    struct member *slow = be_idle(0, 40 * PERCENT), *idle = be_idle(1, 40 * PERCENT), *waiter = work(2, 0);
    pass(1);
    ask(waiter, 50 * PERCENT);
    assert_int_equal(slow->evictions, 1);
    for (unsigned i = 0; i < 25; i++) {
        slow->says.resident_bytes -= MIB / 8;
        slow->says.evicted_bytes += MIB / 8;
        say(slow);
        pass(0.1);
    }
    assert_int_equal(idle->evictions, 1);
}

static void a_session_that_leaves_steadily_is_waited_for(void **state)
{
    struct member *slow = be_idle(0, 40 * PERCENT), *idle = be_idle(1, 40 * PERCENT), *waiter = work(2, 0);
    pass(1);
    ask(waiter, 50 * PERCENT);
    assert_int_equal(slow->evictions, 1);
    for (unsigned i = 0; i < 60; i++) {
        slow->says.resident_bytes -= MIB / 2;
        slow->says.evicted_bytes += MIB / 2;
        say(slow);
        pass(0.1);
    }
    assert_int_equal(idle->evictions, 0);
}

static void no_wait_for_a_session_that_does_not_leave_is_endless(void **state)
{
    struct member *stopped = be_idle(0, 90 * PERCENT), *waiter = work(1, 0);
    ask(waiter, 50 * PERCENT);
    assert_int_equal(stopped->evictions, 1);
    pass(25); /* its work on the GPU may be as long */
    assert_int_equal(waiter->told_room, -1);
    pass(10);
    assert_int_equal(waiter->told_room, 0);
}

/* The first was sent away for the second, which has none of its memory any more. */
static void exchange(struct member *first, struct member *second)
{
    ask(second, 50 * PERCENT);
    assert_int_equal(first->evictions, 1);
    leave(first);
    assert_int_equal(second->told_room, 1);
    second->session.gpus[0].driver_bytes = second->says.resident_bytes = 50 * PERCENT;
    rest(second);
}

static void want_back(struct member *member)
{
    member->says.flags |= WIRE_MOVED_WAITS;
    say(member);
}

/* It has come back as it was told. */
static void arrive(struct member *member)
{
    member->says.resident_bytes = member->says.evicted_bytes;
    member->says.evicted_bytes = 0;
    member->says.flags = 0;
    member->says.order = member->order;
    say(member);
}

static void a_session_stopped_while_it_comes_gives_its_room_away(void **state)
{
    struct member *stopped = be_idle(0, 60 * PERCENT), *other = work(1, 0);
    exchange(stopped, other);
    stopped->brings_no_parts = true;
    want_back(stopped);
    assert_int_equal(other->evictions, 1); /* it is idle */
    leave(other);
    assert_int_equal(moves_standing(&stopped->session).state, MOVE_COMING);
    want_back(other);
    pass(1.9);
    assert_int_equal(moves_standing(&other->session).state, MOVE_AWAY);
    pass(0.3);
    assert_int_equal(moves_standing(&other->session).state, MOVE_COMING);
    assert_int_equal(moves_standing(&stopped->session).state, MOVE_AWAY);
    arrive(other);
    rest(other);
    pass(100);
    assert_int_equal(other->evictions, 1); /* it is not sent away again for who does not answer */
    assert_true(moves_standing(&stopped->session).waits);
    stopped->brings_no_parts = false;
    stopped->says.order = stopped->order; /* it goes on, and finds what it was told last */
    say(stopped);
    pass(5);
    assert_int_equal(other->evictions, 2);
    leave(other);
    assert_int_equal(moves_standing(&stopped->session).state, MOVE_COMING);
    arrive(stopped);
    assert_int_equal(moves_standing(&stopped->session).state, MOVE_RESIDENT);
}

/* It answers each order, and none of its memory comes. */
static void a_session_that_only_says_that_it_comes_is_put_off_for_longer_each_time(void **state)
{
    struct member *liar = be_idle(0, 60 * PERCENT), *other = work(1, 0);
    unsigned away = 0;
    exchange(liar, other);
    liar->brings_no_parts = true;
    for (unsigned i = 0; i < 1200; i++) {
        want_back(liar);
        liar->says.order = liar->order;
        say(liar);
        if (other->process.move->order && other->process.move->is_eviction) {
            leave(other);
            want_back(other);
        } else if (other->process.move->order) {
            arrive(other);
            rest(other);
        }
        away += moves_standing(&other->session).state != MOVE_RESIDENT;
        pass(0.1);
    }
    assert_in_range(other->evictions, 2, 6);
    assert_in_range(away, 20, 130);
}

static void what_is_said_to_be_away_counts_up_to_the_arena(void **state)
{
    struct member *liar = join(0, LEDGER_ENGINE_SWAP, 0), *idle = be_idle(1, 80 * PERCENT);
    liar->process.attached_usec = 1;
    liar->says = (struct wire_moved){.evicted_bytes = 90 * PERCENT, .flags = WIRE_MOVED_AWAY};
    want_back(liar);
    pass(10);
    assert_int_equal(idle->evictions, 0);
    assert_int_equal(moves_standing(&liar->session).memory.evicted_bytes, 0);
}

static void what_is_said_to_be_here_counts_up_to_what_the_card_shows(void **state)
{
    struct member *liar = join(0, LEDGER_ENGINE_SWAP, 0), *asks = work(1, 0);
    liar->says = (struct wire_moved){.resident_bytes = 90 * PERCENT};
    say(liar);
    ask(asks, 80 * PERCENT);
    assert_int_equal(asks->told_room, 1);
    assert_int_equal(liar->evictions, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_program_that_may_wait_does_so_for_hours, begin, end),
        cmocka_unit_test_setup_teardown(a_program_that_may_not_wait_is_told_soon_that_none_can_leave, begin,
                                        end),
        cmocka_unit_test_setup_teardown(an_estimate_that_was_wrong_twice_is_not_known_any_more, begin, end),
        cmocka_unit_test_setup_teardown(a_wait_fails_when_its_session_says_so, begin, end),
        cmocka_unit_test_setup_teardown(memory_as_large_as_the_card_comes_back, begin, end),
        cmocka_unit_test_setup_teardown(a_turn_longer_than_two_minutes_is_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(a_turn_begins_when_the_room_is_there_that_was_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(a_session_that_works_while_others_wait_holds_the_card, begin, end),
        cmocka_unit_test_setup_teardown(work_that_pauses_is_not_cut_a_moment_before, begin, end),
        cmocka_unit_test_setup_teardown(a_lie_takes_no_room_from_others, begin, end),
        cmocka_unit_test_setup_teardown(a_lie_makes_no_room_for_others, begin, end),
        cmocka_unit_test_setup_teardown(a_lie_holds_up_no_count_of_chunks, begin, end),
        cmocka_unit_test_setup_teardown(chunks_are_counted_as_they_are_given, begin, end),
        cmocka_unit_test_setup_teardown(what_was_given_back_counts_until_nobody_has_it, begin, end),
        cmocka_unit_test_setup_teardown(sums_that_do_not_go_together_are_caught, begin, end),
        cmocka_unit_test_setup_teardown(a_dead_process_leaves_nobody_its_host_memory, begin, end),
        cmocka_unit_test_setup_teardown(what_a_process_passed_on_and_left_counts_on, begin, end),
        cmocka_unit_test_setup_teardown(a_process_has_no_host_memory_that_it_was_not_sent, begin, end),
        cmocka_unit_test_setup_teardown(a_process_that_cannot_move_tells_nothing, begin, end),
        cmocka_unit_test_setup_teardown(what_nvml_shows_counts_beyond_the_limit, begin, end),
        cmocka_unit_test_setup_teardown(what_cannot_leave_is_not_ordered_out_without_pause, begin, end),
        cmocka_unit_test_setup_teardown(a_process_begins_to_leave_with_the_first_chunk, begin, end),
        cmocka_unit_test_setup_teardown(no_host_memory_ahead_is_not_a_failure_of_the_session_that_leaves,
                                        begin, end),
        cmocka_unit_test_setup_teardown(what_has_left_in_steps_comes_back_where_there_is_no_host_memory,
                                        begin, end),
        cmocka_unit_test_setup_teardown(no_session_begins_to_leave_that_may_not_have_the_rest, begin, end),
        cmocka_unit_test_setup_teardown(a_refusal_teaches_that_the_card_has_less, begin, end),
        cmocka_unit_test_setup_teardown(what_a_refusal_taught_is_tried_again_after_a_second, begin, end),
        cmocka_unit_test_setup_teardown(how_long_a_move_takes_is_told_from_its_begin, begin, end),
        cmocka_unit_test_setup_teardown(a_session_stopped_while_it_leaves_is_not_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(a_session_that_hardly_leaves_is_not_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(a_session_that_leaves_steadily_is_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(no_wait_for_a_session_that_does_not_leave_is_endless, begin, end),
        cmocka_unit_test_setup_teardown(a_session_stopped_while_it_comes_gives_its_room_away, begin, end),
        cmocka_unit_test_setup_teardown(
            a_session_that_only_says_that_it_comes_is_put_off_for_longer_each_time, begin, end),
        cmocka_unit_test_setup_teardown(what_is_said_to_be_away_counts_up_to_the_arena, begin, end),
        cmocka_unit_test_setup_teardown(what_is_said_to_be_here_counts_up_to_what_the_card_shows, begin, end),
        cmocka_unit_test_setup_teardown(a_need_counts_up_to_what_the_limit_leaves, begin, end),
        cmocka_unit_test_setup_teardown(a_session_with_nothing_on_the_card_teaches_nothing, begin, end),
        cmocka_unit_test_setup_teardown(a_context_has_room_made_whatever_the_limit, begin, end),
        cmocka_unit_test_setup_teardown(a_session_that_used_none_of_its_room_comes_last, begin, end),
        cmocka_unit_test_setup_teardown(many_messages_cost_one_decision, begin, end),
        cmocka_unit_test_setup_teardown(a_decision_looks_at_each_session_a_few_times, begin, end),
        cmocka_unit_test_setup_teardown(deciding_takes_a_tenth_of_the_loop_at_most, begin, end),
        cmocka_unit_test_setup_teardown(what_is_told_to_many_is_told_in_parts, begin, end),
        cmocka_unit_test_setup_teardown(many_are_refused_in_parts, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
