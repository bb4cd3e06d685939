/* How jobs and their sessions are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "slurm/plugin.h"

#define LONG_NODE "gpu-with-a-name-that-is-much-longer-than-it-has-to-be-17"

static void a_session_leads_back_to_its_job(void **state)
{
    static const struct plugin near = {.node = "n1"}, far = {.node = LONG_NODE};
    char job[PLUGIN_JOB_TEXT], session[PLUGIN_JOB_TEXT + 8] = "slurm-";
    assert_string_equal(plugin_job_of(&near, "slurm-12.n1"), "12.n1");
    plugin_job_name(&far, 4294967295u, job);
    strcat(session, job);
    assert_true(strlen(session) <= 63); /* the most that a session's name may have */
    assert_string_equal(plugin_job_of(&far, session), job);
    assert_null(plugin_job_of(&near, session));
}

static void other_sessions_lead_to_no_job(void **state)
{
    static const struct plugin plugin = {.node = "n1"};
    static const char *const others[] = {"",
                                         "12.n1",
                                         "slurm-",
                                         "slurm-12",
                                         "slurm-.n1",
                                         "slurm-12.n2",
                                         "slurm-12.n11",
                                         "slurm-012.n1",
                                         "slurm--1.n1",
                                         "slurm-x.n1",
                                         "train"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (plugin_job_of(&plugin, others[i]))
            fail_msg("'%s' is taken for a job's", others[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_leads_back_to_its_job),
        cmocka_unit_test(other_sessions_lead_to_no_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
