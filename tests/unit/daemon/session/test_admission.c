/* What comes of a request for a session, or a change of one: an allotment, or the reason against it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../wrong.h"
#include "config/config.h"
#include "daemon/session/admission.h"
#include "daemon/session/request.h"

#define GIB (UINT64_C(1) << 30)

static struct admission_state state_of(unsigned gpu_count)
{
    static const char *const labels[] = {"0", "1", "2", "3"};
    struct admission_state state = {.gpu_count = gpu_count};
    for (unsigned i = 0; i < gpu_count; i++)
        state.gpus[i] = (struct admission_gpu){.label = labels[i], .total_bytes = 8 * GIB};
    return state;
}

static struct session_request memory(uint64_t bytes)
{
    return (struct session_request){.has_bytes = true, .bytes = bytes};
}

static struct session_request share(uint32_t min, uint32_t max)
{
    return (struct session_request){.properties = {.given = 1u << PROPERTY_COMPUTE, .compute = {min, max}}};
}

/* --- A new session --------------------------------------------------------------------------------- */

static void what_exactly_fits_is_admitted(void **state_unused)
{
    struct admission_state state = state_of(1);
    struct session_request request = memory(3 * GIB);
    struct admission admission;
    state.gpus[0].reserved_bytes = 5 * GIB;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, NULL), 0);
    assert_false(admission.waits);
    assert_int_equal(admission.allotment.gpu_count, 1);
    assert_int_equal(admission.allotment.gpus[0].gpu, 0);
    assert_int_equal(admission.allotment.gpus[0].limit_bytes, 3 * GIB);
    assert_true(admission.allotment.gpus[0].reserved);
    assert_int_equal(admission.allotment.priority, PRIORITY_NORMAL);
    assert_int_equal(admission.allotment.compute.max, SHARE_WHOLE);
}

static void one_byte_more_is_refused_with_the_numbers(void **state_unused)
{
    struct admission_state state = state_of(4);
    struct session_request request = {.limit_count = 1,
                                      .limits = {{.gpu = 3, .has_bytes = true, .bytes = 3 * GIB + 1}}};
    struct admission admission;
    struct error error = {0};
    state.gpus[3].reserved_bytes = 5 * GIB;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), -EBUSY);
    assert_string_equal(error.code, "ERR_ADMISSION");
    assert_non_null(strstr(error.message, "3221225473")); /* asked */
    assert_non_null(strstr(error.message, "3221225472")); /* left */
    assert_non_null(strstr(error.message, "GPU 3"));
}

static void what_processes_outside_hold_is_left_to_them(void **state_unused)
{
    struct admission_state state = state_of(1);
    struct session_request fits = memory(2 * GIB), is_more = memory(2 * GIB + 1);
    struct admission admission;
    struct error error = {0};
    state.gpus[0].reserved_bytes = 5 * GIB;
    state.gpus[0].outside_bytes = GIB;
    assert_int_equal(admission_plan(&state, NULL, &fits, &admission, &error), 0);
    assert_int_equal(admission_plan(&state, NULL, &is_more, &admission, &error), -EBUSY);
    assert_non_null(strstr(error.message, "processes in no session here hold 1GiB"));
}

static void more_than_the_card_is_refused_as_such(void **state_unused)
{
    struct admission_state state = state_of(1);
    struct session_request request = memory(9 * GIB);
    struct admission admission;
    struct error error = {0};
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), -EBUSY);
    assert_non_null(strstr(error.message, "more than GPU 0 has"));
}

static void a_refusal_names_what_the_driver_keeps(void **state_unused)
{
    struct admission_state state = state_of(1);
    struct session_request request = memory(5 * GIB);
    struct admission admission;
    struct error error = {0};
    state.gpus[0].reserved_bytes = 4 * GIB;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), -EBUSY);
    assert_null(strstr(error.message, "driver"));
    state.gpus[0].kept_bytes = GIB / 2;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), -EBUSY);
    assert_non_null(strstr(error.message, "of 8GiB beside 512MiB that the driver keeps for itself, other"));
    request = memory(9 * GIB);
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), -EBUSY);
    assert_non_null(strstr(error.message, "bytes) beside 512MiB that the driver keeps for itself; ask"));
}

static void one_larger_than_the_card_needs_no_more_room_than_that(void **state_unused)
{
    struct admission_state state = state_of(1);
    struct session_request request = memory(9 * GIB);
    struct admission admission;
    struct error error = {0};
    request.properties.engine = LEDGER_ENGINE_MANAGED;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), -EBUSY);
    request.properties.may_pass_card = true;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), 0);
    assert_int_equal(admission.allotment.gpus[0].limit_bytes, 9 * GIB);
    /* Once it is admitted, others have as much room as beside one that fills the card. */
    struct admission_state beside = state;
    admission_promise(&beside, &admission.allotment);
    assert_int_equal(beside.gpus[0].paged_bytes, 8 * GIB);
    assert_int_equal(beside.gpus[0].movable_bytes, 0);
    assert_int_equal(admission_plan(&beside, NULL, &request, &admission, &error), 0);
    state.gpus[0].reserved_bytes = GIB; /* by one that stays */
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), -EBUSY);
}

static void a_wrong_plan_is_caught(void **state_unused)
{
    struct admission_state state = state_of(1), wrong = state;
    struct session_request request = memory(GIB);
    struct admission admission;
    wrong.gpus[0].label = NULL;
    ASSERT_CAUGHT(admission_plan(&wrong, NULL, &request, &admission, NULL));
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, NULL), 0);
    admission.allotment.gpus[0].gpu = 1;
    ASSERT_CAUGHT(admission_promise(&state, &admission.allotment));
    admission.allotment.gpus[0].gpu = 0;
    admission.allotment.compute = (struct share){SHARE_WHOLE, 0};
    ASSERT_CAUGHT(admission_plan(&state, &admission.allotment, &request, &admission, NULL));
}

static void contexts_stay_while_memory_is_away(void **state_unused)
{
    struct admission_state state = state_of(1);
    struct session_request first = memory(6 * GIB), second = memory(6 * GIB + 1), paged = memory(9 * GIB),
                           small = memory(2 * GIB);
    struct admission admission;
    struct error error = {0};
    state.gpus[0].context_bytes = GIB;
    first.properties.engine = second.properties.engine = small.properties.engine = LEDGER_ENGINE_SWAP;
    paged.properties.engine = LEDGER_ENGINE_MANAGED;
    paged.properties.may_pass_card = true;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(admission_plan(&state, NULL, &first, &admission, &error), 0);
        admission_promise(&state, &admission.allotment);
    }
    /* Two contexts stay, which leaves 6 GiB. */
    assert_int_equal(admission_plan(&state, NULL, &second, &admission, &error), -EBUSY);
    assert_string_equal(error.code, "ERR_ADMISSION");
    assert_non_null(
        strstr(error.message, "contexts that stay while other sessions' memory is away take 2GiB"));
    assert_non_null(strstr(error.message, "leaves 6GiB"));
    assert_int_equal(admission_plan(&state, NULL, &paged, &admission, &error), 0);
    assert_int_equal(admission_plan(&state, NULL, &first, &admission, &error), 0);
    admission_promise(&state, &admission.allotment);
    /* With three, the 5 GiB that the largest moves fill the card: a fourth context has no room. */
    assert_int_equal(admission_plan(&state, NULL, &small, &admission, &error), -EBUSY);
    assert_non_null(strstr(error.message, "its context of 1GiB"));
    assert_non_null(strstr(error.message, "the largest of the others needs 5GiB"));
    /* One that stays has what the three leave. */
    small.properties.engine = LEDGER_ENGINE_PLAIN;
    assert_int_equal(admission_plan(&state, NULL, &small, &admission, &error), -EBUSY);
    assert_non_null(strstr(error.message, "leaves 0"));
}

static void minimum_shares_are_promised_up_to_the_whole(void **state_unused)
{
    struct admission_state state = state_of(3);
    struct session_request fits = share(2500, 10000), is_more = share(2501, 10000), none = share(0, 10000);
    struct admission admission;
    struct error error = {0};
    fits.limit_count = is_more.limit_count = none.limit_count = 1;
    fits.limits[0].gpu = is_more.limits[0].gpu = none.limits[0].gpu = 2;
    state.gpus[2].promised_share = 7500;
    assert_int_equal(admission_plan(&state, NULL, &fits, &admission, &error), 0);
    assert_int_equal(admission_plan(&state, NULL, &is_more, &admission, &error), -EBUSY);
    assert_string_equal(error.code, "ERR_ADMISSION");
    assert_non_null(strstr(error.message, "25.01%"));
    assert_non_null(strstr(error.message, "GPU 2"));
    assert_non_null(strstr(error.message, "leaves 25%"));
    state.gpus[2].promised_share = 10000;
    assert_int_equal(admission_plan(&state, NULL, &none, &admission, &error), 0);
}

static void an_overbooked_card_has_nothing_left(void **state_unused)
{
    assert_int_equal(admission_unreserved(8 * GIB, 9 * GIB, 0), 0);
    assert_int_equal(admission_unreserved(8 * GIB, UINT64_MAX, 1), 0);
    assert_int_equal(admission_unreserved(8 * GIB, 8 * GIB - 1, 0), 1);
}

static void without_a_gpu_it_is_the_roomiest_the_first_of_equals(void **state_unused)
{
    struct admission_state state = state_of(4);
    struct session_request request = memory(GIB);
    struct admission admission;
    state.gpus[0].reserved_bytes = 4 * GIB;
    state.gpus[3].reserved_bytes = 1;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, NULL), 0);
    assert_int_equal(admission.allotment.gpus[0].gpu, 1);
}

/* Where some GPUs keep memory that is to leave (as a vGPU beside a card), the others are chosen from. */
static void a_gpu_that_keeps_memory_is_not_chosen_where_it_is_to_leave(void **state_unused)
{
    struct admission_state state = state_of(3);
    struct session_request moves = memory(GIB), stays = memory(GIB), is_more = memory(3 * GIB);
    struct admission admission;
    struct error error = {0};
    moves.properties.engine = is_more.properties.engine = LEDGER_ENGINE_SWAP;
    state.gpus[0].keeps[LEDGER_ENGINE_SWAP] = state.gpus[2].keeps[LEDGER_ENGINE_SWAP] = true;
    state.gpus[1].total_bytes = 2 * GIB;
    assert_int_equal(admission_plan(&state, NULL, &moves, &admission, NULL), 0);
    assert_int_equal(admission.allotment.gpus[0].gpu, 1);
    assert_int_equal(admission_plan(&state, NULL, &stays, &admission, NULL), 0);
    assert_int_equal(admission.allotment.gpus[0].gpu, 0);
    is_more.wait = true;
    assert_int_equal(admission_plan(&state, NULL, &is_more, &admission, &error), -EBUSY);
    assert_non_null(strstr(error.message, "is more than GPU 1 has"));
}

static void a_gpu_that_cannot_keep_the_minimum_is_not_chosen(void **state_unused)
{
    struct admission_state state = state_of(2);
    struct session_request request = share(5000, 5000);
    struct admission admission;
    state.gpus[0].promised_share = 6000;
    state.gpus[1].reserved_bytes = 7 * GIB;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, NULL), 0);
    assert_int_equal(admission.allotment.gpus[0].gpu, 1);
    assert_false(admission.allotment.gpus[0].reserved);
    assert_int_equal(admission.allotment.gpus[0].limit_bytes, 8 * GIB); /* the card's memory */
}

static void a_limit_of_a_gpus_own_comes_before_the_one_for_all(void **state_unused)
{
    struct admission_state state = state_of(2);
    struct session_request request = memory(2 * GIB);
    struct admission admission;
    request.limit_count = 2;
    request.limits[0] = (struct session_limit){.gpu = 1};
    request.limits[1] = (struct session_limit){.gpu = 0, .has_bytes = true, .bytes = GIB};
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, NULL), 0);
    assert_int_equal(admission.allotment.gpus[0].gpu, 1);
    assert_int_equal(admission.allotment.gpus[0].limit_bytes, 2 * GIB);
    assert_int_equal(admission.allotment.gpus[1].gpu, 0);
    assert_int_equal(admission.allotment.gpus[1].limit_bytes, GIB);
}

/* --- Waiting --------------------------------------------------------------------------------------- */

static void what_does_not_fit_now_waits_if_it_says_so(void **state_unused)
{
    struct admission_state state = state_of(1);
    struct session_request request = memory(6 * GIB);
    struct admission admission;
    struct error error;
    state.gpus[0].reserved_bytes = 5 * GIB;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), -EBUSY);
    request.wait = true;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), 0);
    assert_true(admission.waits);
    assert_int_equal(admission.queued_bytes, 6 * GIB);
    assert_int_equal(admission.allotment.gpu_count, 0);
}

static void what_would_fit_on_no_empty_card_does_not_wait(void **state_unused)
{
    struct admission_state state = state_of(2);
    struct session_request request = memory(9 * GIB);
    struct admission admission;
    struct error error;
    request.wait = true;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), -EBUSY);
    state.gpus[1].total_bytes = 16 * GIB;
    state.gpus[1].reserved_bytes = 16 * GIB;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), 0);
    assert_true(admission.waits);
}

static void no_session_passes_another_that_waits_for_the_same_gpu(void **state_unused)
{
    struct admission_state state = state_of(2);
    struct session_request anywhere = memory(GIB), there = memory(GIB), no_memory = {.limit_count = 0};
    struct admission admission;
    struct error error;
    state.gpus[0].waiting = 1;
    there.limit_count = 1;
    there.limits[0].gpu = 0;
    assert_int_equal(admission_plan(&state, NULL, &there, &admission, &error), -EBUSY);
    assert_non_null(strstr(error.message, "wait behind it"));
    assert_int_equal(admission_plan(&state, NULL, &anywhere, &admission, &error), 0);
    assert_int_equal(admission.allotment.gpus[0].gpu, 1);
    state.gpus[1].waiting = 1;
    assert_int_equal(admission_plan(&state, NULL, &anywhere, &admission, &error), -EBUSY);
    assert_int_equal(admission_plan(&state, NULL, &no_memory, &admission, &error),
                     0); /* sets nothing aside */
}

static unsigned placed(const struct admission_state *state, const struct session_request *request)
{
    struct admission admission;
    assert_int_equal(admission_plan(state, NULL, request, &admission, NULL), 0);
    return (unsigned)admission.allotment.gpus[0].gpu;
}

static void sessions_are_spread_or_packed(void **state_unused)
{
    struct admission_state state = state_of(3);
    struct session_request two = memory(2 * GIB), five = memory(5 * GIB), all = {.limit_count = 0};
    state.gpus[0].reserved_bytes = 4 * GIB;
    state.gpus[1].reserved_bytes = 7 * GIB;
    assert_int_equal(placed(&state, &two), 2);
    state.packs = true;
    assert_int_equal(placed(&state, &two), 0); /* GPU 1 is fuller, and has no room */
    assert_int_equal(placed(&state, &five), 2);
    assert_int_equal(placed(&state, &all), 2); /* reserves nothing, so it is not put where there is least */
    state.gpus[0].reserved_bytes = 0;
    assert_int_equal(placed(&state, &five), 0); /* the first of equals */
}

static void a_gpu_that_a_minimum_does_not_fit_on_is_passed_over(void **state_unused)
{
    struct admission_state state = state_of(2);
    struct session_request request = share(3000, SHARE_WHOLE);
    state.gpus[0].promised_share = 8000;
    state.gpus[1].reserved_bytes = 5 * GIB;
    assert_int_equal(placed(&state, &request), 1);
}

static void what_was_promised_counts_for_the_next(void **state_unused)
{
    struct admission_state state = state_of(1);
    struct session_request request = memory(5 * GIB);
    struct admission admission;
    request.properties.given |= 1u << PROPERTY_COMPUTE;
    request.properties.compute = (struct share){6000, 6000};
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, NULL), 0);
    admission_promise(&state, &admission.allotment);
    assert_int_equal(state.gpus[0].reserved_bytes, 5 * GIB);
    assert_int_equal(state.gpus[0].promised_share, 6000);
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, NULL), -EBUSY);
}

/* --- A change -------------------------------------------------------------------------------------- */

static const struct allotment held = {
    .gpu_count = 2,
    .gpus = {{.gpu = 0, .limit_bytes = 4 * GIB, .reserved = true},
             {.gpu = -1, .limit_bytes = GIB, .reserved = true}},
    .compute = {2000, 8000},
    .priority = PRIORITY_HIGH,
};

static void a_change_leaves_what_it_does_not_name(void **state_unused)
{
    struct admission_state state = state_of(1);
    struct session_request request = {
        .properties = {.given = 1u << PROPERTY_PRIORITY, .priority = PRIORITY_LOW}};
    struct admission admission;
    state.gpus[0].reserved_bytes = 8 * GIB; /* overbooked: no reason against a change of priority */
    state.gpus[0].promised_share = 10000;
    assert_int_equal(admission_plan(&state, &held, &request, &admission, NULL), 0);
    assert_int_equal(admission.allotment.priority, PRIORITY_LOW);
    assert_int_equal(admission.allotment.compute.min, 2000);
    assert_int_equal(admission.allotment.gpus[0].limit_bytes, 4 * GIB);
    assert_int_equal(admission.allotment.gpu_count, 2);
}

static void a_higher_limit_must_fit_and_a_lower_one_always_does(void **state_unused)
{
    struct admission_state state = state_of(1);
    struct session_request higher = memory(5 * GIB), lower = memory(3 * GIB);
    struct admission admission;
    state.gpus[0].reserved_bytes = 5 * GIB; /* others' */
    assert_int_equal(admission_plan(&state, &held, &higher, &admission, NULL), -EBUSY);
    assert_int_equal(admission_plan(&state, &held, &lower, &admission, NULL), 0);
    assert_int_equal(admission.allotment.gpus[0].limit_bytes, 3 * GIB);
    assert_int_equal(admission.allotment.gpus[1].limit_bytes, 3 * GIB); /* of a card that is not there */
}

static void a_higher_minimum_must_fit_and_a_lower_one_always_does(void **state_unused)
{
    struct admission_state state = state_of(1);
    struct session_request higher = share(3000, 8000), lower = share(1000, 8000);
    struct admission admission;
    state.gpus[0].promised_share = 9000;
    assert_int_equal(admission_plan(&state, &held, &higher, &admission, NULL), -EBUSY);
    assert_int_equal(admission_plan(&state, &held, &lower, &admission, NULL), 0);
    assert_int_equal(admission.allotment.compute.min, 1000);
}

static void limits_that_are_dropped_reserve_nothing(void **state_unused)
{
    struct admission_state state = state_of(1);
    struct session_request request = {.drops_limits = true};
    struct admission admission;
    assert_int_equal(admission_plan(&state, &held, &request, &admission, NULL), 0);
    assert_false(admission.allotment.gpus[0].reserved);
    assert_int_equal(admission.allotment.gpus[0].limit_bytes, 8 * GIB);
    assert_int_equal(admission.allotment.gpus[1].limit_bytes, GIB);
}

/* --- Ceilings -------------------------------------------------------------------------------------- */

static struct config config = {.path = "/etc/gpuslice/gpuslice.conf"};
static struct config_ceiling ceiling = {
    .name = "alice",
    .line = 7,
    .memory_bytes = 4 * GIB,
    .properties = {.given = 1u << PROPERTY_COMPUTE | 1u << PROPERTY_PRIORITY,
                   .compute = {5000, 5000},
                   .priority = PRIORITY_NORMAL},
    .sessions = 2,
};
static const struct ceilings ceilings = {
    .config = &config,
    .memory = &ceiling,
    .sessions = &ceiling,
    .of = {[PROPERTY_COMPUTE] = &ceiling, [PROPERTY_PRIORITY] = &ceiling}};

static struct admission_state under_ceilings(void)
{
    struct admission_state state = state_of(1);
    state.ceilings = &ceilings;
    state.others = (struct ceiling_use){.gpu_count = 1, .gpus[0].label = "0"};
    return state;
}

static void ceilings_count_the_users_other_sessions(void **state_unused)
{
    struct admission_state state = under_ceilings();
    struct session_request request = memory(2 * GIB);
    struct admission admission;
    struct error error;
    request.properties.given |= 1u << PROPERTY_COMPUTE;
    request.properties.compute = (struct share){0, 3000};
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), 0);
    state.others.memory_bytes = 2 * GIB + 1;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), -EACCES);
    assert_string_equal(error.code, "ERR_CEILING");
    assert_non_null(strstr(error.message, "[user:alice]"));
    assert_non_null(strstr(error.message, "gpuslice.conf:7"));
    state.others.memory_bytes = 0;
    state.others.gpus[0].compute = 2001;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), -EACCES);
    state.others.gpus[0].compute = 0;
    state.others.sessions = 2;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), -EACCES);
}

static void a_user_at_a_ceiling_of_one_gpu_gets_another(void **state_unused)
{
    struct admission_state state = state_of(2);
    struct session_request request = memory(2 * GIB);
    struct admission admission;
    struct error error;
    state.ceilings = &ceilings;
    state.others = (struct ceiling_use){.gpu_count = 2, .gpus = {{"0", 4000}, {"1", 0}}};
    state.gpus[1].reserved_bytes = 4 * GIB; /* GPU 0 has more room */
    request.properties.given |= 1u << PROPERTY_COMPUTE;
    request.properties.compute = (struct share){0, 3000};
    assert_int_equal(placed(&state, &request), 1);
    request.properties.engine = LEDGER_ENGINE_SWAP; /* planned by another road */
    assert_int_equal(placed(&state, &request), 1);
    state.gpus[1].reserved_bytes = 8 * GIB;
    request.properties.engine = LEDGER_ENGINE_PLAIN;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, &error), -EACCES);
    assert_non_null(strstr(error.message, "of GPU 0's time")); /* the GPU that has room */
}

static void one_that_waits_counts_with_the_most_it_may_come_to_hold(void **state_unused)
{
    struct admission_state state = under_ceilings();
    struct session_request request = memory(5 * GIB);
    struct admission admission;
    request.wait = true;
    request.properties.given |= 1u << PROPERTY_COMPUTE;
    request.properties.compute = (struct share){0, 3000};
    state.gpus[0].reserved_bytes = 8 * GIB;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, NULL), -EACCES);
    request.bytes = 4 * GIB;
    assert_int_equal(admission_plan(&state, NULL, &request, &admission, NULL), 0);
    assert_true(admission.waits);
}

static void a_lowered_ceiling_refuses_only_what_would_be_more(void **state_unused)
{
    struct admission_state state = under_ceilings();
    const struct allotment above = {.gpu_count = 1,
                                    .gpus = {{.gpu = 0, .limit_bytes = 6 * GIB, .reserved = true}},
                                    .compute = {0, 9000},
                                    .priority = PRIORITY_CRITICAL};
    struct session_request less = memory(5 * GIB), more = memory(7 * GIB);
    struct admission admission;
    assert_int_equal(admission_plan(&state, &above, &less, &admission, NULL), 0);
    assert_int_equal(admission_plan(&state, &above, &more, &admission, NULL), -EACCES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_exactly_fits_is_admitted),
        cmocka_unit_test(one_byte_more_is_refused_with_the_numbers),
        cmocka_unit_test(what_processes_outside_hold_is_left_to_them),
        cmocka_unit_test(more_than_the_card_is_refused_as_such),
        cmocka_unit_test(a_refusal_names_what_the_driver_keeps),
        cmocka_unit_test(one_larger_than_the_card_needs_no_more_room_than_that),
        cmocka_unit_test(a_wrong_plan_is_caught),
        cmocka_unit_test(contexts_stay_while_memory_is_away),
        cmocka_unit_test(minimum_shares_are_promised_up_to_the_whole),
        cmocka_unit_test(an_overbooked_card_has_nothing_left),
        cmocka_unit_test(without_a_gpu_it_is_the_roomiest_the_first_of_equals),
        cmocka_unit_test(a_gpu_that_cannot_keep_the_minimum_is_not_chosen),
        cmocka_unit_test(a_gpu_that_keeps_memory_is_not_chosen_where_it_is_to_leave),
        cmocka_unit_test(a_limit_of_a_gpus_own_comes_before_the_one_for_all),
        cmocka_unit_test(what_does_not_fit_now_waits_if_it_says_so),
        cmocka_unit_test(sessions_are_spread_or_packed),
        cmocka_unit_test(a_gpu_that_a_minimum_does_not_fit_on_is_passed_over),
        cmocka_unit_test(a_user_at_a_ceiling_of_one_gpu_gets_another),
        cmocka_unit_test(what_would_fit_on_no_empty_card_does_not_wait),
        cmocka_unit_test(no_session_passes_another_that_waits_for_the_same_gpu),
        cmocka_unit_test(what_was_promised_counts_for_the_next),
        cmocka_unit_test(a_change_leaves_what_it_does_not_name),
        cmocka_unit_test(a_higher_limit_must_fit_and_a_lower_one_always_does),
        cmocka_unit_test(a_higher_minimum_must_fit_and_a_lower_one_always_does),
        cmocka_unit_test(limits_that_are_dropped_reserve_nothing),
        cmocka_unit_test(ceilings_count_the_users_other_sessions),
        cmocka_unit_test(one_that_waits_counts_with_the_most_it_may_come_to_hold),
        cmocka_unit_test(a_lowered_ceiling_refuses_only_what_would_be_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
