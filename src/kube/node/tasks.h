/* tasks.h - functions that wait for answers while the loop goes on.
 *
 * task   a function on a stack of its own. It runs until it calls task_wait(); then the code that started or woke it goes
 *        on. There is one thread, so nothing changes under a task except while it waits
 * lock   a name that one task at a time holds; others wait for it in order
 *
 * A task that waits must hold a reference (json_incref()) to objects that others may free in the meantime. */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>

#define TASKS_MAX 256

struct task;

/* Run `run` as a task; returns when it waits or ends. False, without running it, if there are TASKS_MAX tasks or
 * memory is short. */
bool task_start(void (*run)(void *context), void *context);

/* The running task; NULL: the loop. */
struct task *task_current(void);

/* Wait until somebody calls task_wake() for this task. It does not return for any other reason. */
void task_wait(void);
void task_wake(struct task *task);

/* A task holds the name from task_lock() to task_unlock(). `name` stays the caller's, and must not change in
 * between. */
struct task_lock {
    TAILQ_ENTRY(task_lock) next;
    const char *name;
    struct task *task;
};
void task_lock(struct task_lock *lock, const char *name);
void task_unlock(struct task_lock *lock);
