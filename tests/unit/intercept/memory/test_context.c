/* What the gate knows of a context's work, when programs come and go with the primary one, as UCX does around each copy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fixture.h"
#include "intercept/submit/gate.h"
#include "intercept/submit/in_flight.h"

#define STREAM ((CUstream)(uintptr_t)0x5000)
#define FUNCTION ((CUfunction)(uintptr_t)0x6000)

static CUcontext primary; /* what `stream` belongs to */
static CUresult answer;   /* whether its work is done */
static struct gate *gate;

static CUresult launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned bytes, CUstream stream, void **parameters, void **extra)
{
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)bytes;
    (void)stream, (void)parameters, (void)extra;
    return CUDA_SUCCESS;
}

static CUresult context_of_stream(CUstream stream, CUcontext *stream_context)
{
    (void)stream;
    *stream_context = primary;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *popped)
{
    *popped = primary;
    return CUDA_SUCCESS;
}

static CUresult query(CUstream stream)
{
    (void)stream;
    return answer;
}

/* Nobody is told. */
static void no_agent(void)
{
}

static int start(void **state)
{
    (void)state;
    real_functions[CUDA_ID_cuLaunchKernel] = (void *)launch;
    real_functions[CUDA_ID_cuStreamGetCtx] = (void *)context_of_stream;
    real_functions[CUDA_ID_cuStreamQuery] = (void *)query;
    real_functions[CUDA_ID_cuCtxPopCurrent_v2] = (void *)pop;
    gate = gate_in(private_get());
    return gate_make(gate, no_agent) ? 0 : -1;
}

static void launch_on_primary(void)
{
    answer = CUDA_ERROR_NOT_READY;
    real(cuCtxPushCurrent_v2)(primary);
    assert_int_equal(cuLaunchKernel(FUNCTION, 1, 1, 1, 1, 1, 1, 0, STREAM, NULL, NULL), CUDA_SUCCESS);
    assert_false(in_flight_is_finished(gate));
}

static void work_stays_in_flight_when_a_primary_context_is_released_that_lives_on(void **state)
{
    CUcontext again;
    assert_int_equal(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    launch_on_primary();
    for (int round = 0; round < 3; round++) {
        assert_int_equal(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
        assert_ptr_equal(again, primary);
        assert_false(in_flight_is_finished(gate));
        assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        assert_false(in_flight_is_finished(gate));
    }
    answer = CUDA_SUCCESS;
    assert_true(in_flight_is_finished(gate));
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
}

static void the_last_release_and_a_reset_forget_what_was_in_flight(void **state)
{
    CUcontext again;
    for (int reset = 0; reset < 2; reset++) {
        assert_int_equal(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
        launch_on_primary();
        if (reset) {
            assert_int_equal(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
            assert_int_equal(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
        } else {
            assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        }
        assert_true(in_flight_is_finished(gate));
    }
}

static void a_reset_ends_all_references_at_once(void **state)
{
    CUcontext again;
    assert_int_equal(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    launch_on_primary();
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_true(in_flight_is_finished(gate));
}

/* The driver may use its handle for another function of the next context, whose code is not loaded yet. */
static void the_last_release_forgets_which_functions_were_launched(void **state)
{
    assert_int_equal(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    launch_on_primary();
    assert_true(gate_knows(gate, FUNCTION));
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_false(gate_knows(gate, FUNCTION));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_context, destroy_context)

int main(void)
{
    setenv("GPUSLICE_MEMORY_LIMIT", "64MiB", 1);
    fake_driver_install();
    const struct CMUnitTest tests[] = {
        TEST(work_stays_in_flight_when_a_primary_context_is_released_that_lives_on),
        TEST(the_last_release_and_a_reset_forget_what_was_in_flight),
        TEST(a_reset_ends_all_references_at_once),
        TEST(the_last_release_forgets_which_functions_were_launched),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
