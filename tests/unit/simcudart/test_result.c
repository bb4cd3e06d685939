/* Tests of what calls answer and what a thread remembers of it (result.c alone, no driver). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>

#include <cmocka.h>

#include "simcudart/simcudart.h"

static void drivers_results_keep_their_numbers(void **state)
{
    assert_int_equal(runtime_translate(CUDA_SUCCESS), cudaSuccess);
    assert_int_equal(runtime_translate(CUDA_ERROR_OUT_OF_MEMORY), cudaErrorMemoryAllocation);
    assert_int_equal(runtime_translate(CUDA_ERROR_NO_DEVICE), cudaErrorNoDevice);
    assert_int_equal(runtime_translate(CUDA_ERROR_INVALID_HANDLE), cudaErrorInvalidResourceHandle);
    assert_int_equal(runtime_translate(CUDA_ERROR_NOT_FOUND), cudaErrorSymbolNotFound);
    assert_int_equal(runtime_translate(CUDA_ERROR_ILLEGAL_ADDRESS), cudaErrorIllegalAddress);
    assert_int_equal(runtime_translate(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
                     cudaErrorStreamCaptureUnsupported);
}

static void results_without_a_name_here_are_unknown(void **state)
{
    assert_int_equal(runtime_translate(CUDA_ERROR_CONTEXT_ALREADY_CURRENT), cudaErrorUnknown);
    assert_int_equal(runtime_translate((CUresult)54321), cudaErrorUnknown);
}

static void every_error_has_a_name_and_words(void **state)
{
    assert_string_equal(cudaGetErrorName(cudaSuccess), "cudaSuccess");
    assert_string_equal(cudaGetErrorString(cudaSuccess), "no error");
    assert_string_equal(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
    assert_string_equal(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
    assert_string_equal(cudaGetErrorString(cudaErrorStreamCaptureUnjoined), "stream capture unjoined");
    assert_string_equal(cudaGetErrorName((cudaError_t)54321), "unrecognized error code");
    assert_string_equal(cudaGetErrorString((cudaError_t)54321), "unrecognized error code");
}

static void the_last_error_is_told_once(void **state)
{
    assert_int_equal(runtime_answer(cudaErrorInvalidValue), cudaErrorInvalidValue);
    assert_int_equal(runtime_answer(cudaSuccess), cudaSuccess);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void an_error_that_ends_the_context_stays(void **state)
{
    runtime_answer(cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    runtime_forget_errors();
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void *last_error_of_another_thread(void *argument)
{
    return (void *)(uintptr_t)cudaGetLastError();
}

static void threads_remember_their_own_errors(void **state)
{
    pthread_t thread;
    void *seen;
    runtime_answer(cudaErrorInvalidValue);
    assert_int_equal(pthread_create(&thread, NULL, last_error_of_another_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, &seen), 0);
    assert_int_equal((uintptr_t)seen, cudaSuccess);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drivers_results_keep_their_numbers),
        cmocka_unit_test(results_without_a_name_here_are_unknown),
        cmocka_unit_test(every_error_has_a_name_and_words),
        cmocka_unit_test(the_last_error_is_told_once),
        cmocka_unit_test(an_error_that_ends_the_context_stays),
        cmocka_unit_test(threads_remember_their_own_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
