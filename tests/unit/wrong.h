/* wrong.h - programs that are wrong on purpose: a failed check (base/check.h) must end them. After cmocka's headers. */
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* 0 in a process of its own, which leaves no core and says nothing. */
static inline pid_t wrong_fork(void)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    signal(SIGABRT, SIG_DFL);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    return 0;
}

static inline void wrong_assert_caught(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

/* Do `what` in a process of its own; a check must end it. */
#define ASSERT_CAUGHT(what)                                                                                  \
    do {                                                                                                     \
        pid_t child_ = wrong_fork();                                                                         \
        if (child_ == 0) {                                                                                   \
            what;                                                                                            \
            _exit(0);                                                                                        \
        }                                                                                                    \
        wrong_assert_caught(child_);                                                                         \
    } while (0)
