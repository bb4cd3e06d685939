/* tasks.h - functions that wait for answers while the loop goes on.
 *
 * task   a function on a stack of its own. It runs until it waits (task_wait()); then whoever started or woke it goes on.
 *        There is one thread: nothing changes under a task but while it waits.
 * lock   a name that one task at a time has; others wait for it in turn
 *
 * Objects that others may free meanwhile are kept (json_incref()) by who waits. */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>

#define TASKS_MAX 256

struct task;

/* Run `run` as a task; returns when it waits or ends. False, and nothing is run, where there are too many, or no memory. */
bool task_start(void (*run)(void *context), void *context);

/* The one that runs; NULL: the loop. */
struct task *task_current(void);

/* Until somebody calls task_wake() of this task, which never comes early. */
void task_wait(void);
void task_wake(struct task *task);

/* A task has the name from task_lock() to task_unlock(); `name` stays the caller's, and the same text meanwhile. */
struct task_lock {
    TAILQ_ENTRY(task_lock) next;
    const char *name;
    struct task *task;
};
void task_lock(struct task_lock *lock, const char *name);
void task_unlock(struct task_lock *lock);
