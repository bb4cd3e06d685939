#include "kube/node/tasks.h"
#include "base/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define STACK_BYTES (512u << 10) /* unused pages cost nothing */
#define GUARD_BYTES (64u << 10)

struct task {
    ucontext_t own, caller;
    struct task *outer; /* the task that started or woke this one */
    void (*run)(void *context);
    void *context;
    void *stack;
    bool is_ended;
};

static struct task *current;
static unsigned task_count;
/* the first lock of each name is held */
static TAILQ_HEAD(, task_lock) locks = TAILQ_HEAD_INITIALIZER(locks);

/* Whether a task that waits may run: it has a stack, and runs neither now nor below what runs now. */
static bool may_enter(const struct task *task)
{
    for (const struct task *at = current; at; at = at->outer)
        if (at == task)
            return false;
    return task->stack && !task->is_ended && task_count > 0;
}

static void run_current(void)
{
    struct task *task = current;
    task->run(task->context);
    task->is_ended = true;
    swapcontext(&task->own, &task->caller);
}

/* Let the task run until it waits or ends. */
static void enter(struct task *task)
{
    GS_CHECK(may_enter(task));
    task->outer = current;
    current = task;
    swapcontext(&task->caller, &task->own);
    current = task->outer;
    if (!task->is_ended)
        return;
    munmap(task->stack, STACK_BYTES);
    free(task);
    task_count--;
}

bool task_start(void (*run)(void *context), void *context)
{
    struct task *task = task_count < TASKS_MAX ? calloc(1, sizeof(*task)) : NULL;
    if (!task)
        return false;
    task->stack =
        mmap(NULL, STACK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (task->stack == MAP_FAILED) {
        free(task);
        return false;
    }
    if (mprotect((char *)task->stack + GUARD_BYTES, STACK_BYTES - GUARD_BYTES, PROT_READ | PROT_WRITE) != 0) {
        munmap(task->stack, STACK_BYTES);
        free(task);
        return false;
    }
    task->run = run;
    task->context = context;
    getcontext(&task->own);
    task->own.uc_stack.ss_sp = task->stack;
    task->own.uc_stack.ss_size = STACK_BYTES;
    makecontext(&task->own, run_current, 0);
    task_count++;
    enter(task);
    return true;
}

struct task *task_current(void)
{
    return current;
}

void task_wait(void)
{
    struct task *task = current;
    GS_CHECK(task && !task->is_ended);
    swapcontext(&task->own, &task->caller);
}

void task_wake(struct task *task)
{
    enter(task);
}

/* The first lock with this name, from `lock` on. */
static struct task_lock *next_of(struct task_lock *lock, const char *name)
{
    while (lock && strcmp(lock->name, name) != 0)
        lock = TAILQ_NEXT(lock, next);
    return lock;
}

void task_lock(struct task_lock *lock, const char *name)
{
    GS_CHECK(current);
    bool is_taken = next_of(TAILQ_FIRST(&locks), name);
    *lock = (struct task_lock){.name = name, .task = current};
    TAILQ_INSERT_TAIL(&locks, lock, next);
    if (is_taken)
        task_wait();
}

void task_unlock(struct task_lock *lock)
{
    GS_CHECK(lock->task == current && next_of(TAILQ_FIRST(&locks), lock->name) == lock);
    struct task_lock *heir = next_of(TAILQ_NEXT(lock, next), lock->name);
    TAILQ_REMOVE(&locks, lock, next);
    if (heir)
        task_wake(heir->task);
}
