/* Who can write a session's regions, and what becomes of one that a client damages. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/loop/daemon.h"
#include "daemon/session/ledgers.h"
#include "daemon/session/policy.h"
#include "daemon/session/session.h"

static char folder[] = "/tmp/gpuslice-test-XXXXXX";
static const char id[] = "0123456789ab";

static int make_folder(void **state)
{
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    return rmdir(folder);
}

static int make_policy(struct session_ledger *ledger, uint64_t epoch, struct error *error)
{
    struct daemon daemon = {.epoch = epoch};
    struct session session = {.daemon = &daemon};
    strcpy(session.id, id);
    int result = policy_make(&session, error);
    ledger->policy = session.ledger.policy;
    ledger->policy_fd = session.ledger.policy_fd;
    return result;
}

static void close_ledger(struct session_ledger *ledger, bool remove)
{
    struct session session = {.ledger = *ledger};
    if (remove)
        policy_close(&session);
    policy_unmake(&session);
    ledger->policy = NULL;
    ledgers_usage_close(ledger, remove);
}

static void open_ledger(struct session_ledger *ledger, bool existing)
{
    struct error error = {0};
    *ledger = (struct session_ledger){0};
    if (make_policy(ledger, 7, &error) < 0 || ledgers_usage_open(ledger, folder, id, 7, existing, &error) < 0)
        fail_msg("%s", error.message);
}

/* Every way we know to write through `fd` or what it names. Returns the name of one that works, or NULL. */
static const char *way_to_write(int fd)
{
    char path[64], byte = 1;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (write(fd, &byte, 1) >= 0)
        return "write to the descriptor";
    if (mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED)
        return "map the descriptor writable";
    void *read_only = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (read_only == MAP_FAILED)
        return "(it cannot even be read)";
    if (mprotect(read_only, 4096, PROT_READ | PROT_WRITE) == 0)
        return "mprotect the mapping";
    if (truncate(path, 0) == 0 || truncate(path, 1 << 20) == 0)
        return "truncate by name";

    fchmod(fd, 0666); /* its owner and root may */
    int again = open(path, O_RDWR);
    if (again < 0)
        return NULL;
    if (write(again, &byte, 1) >= 0 || pwrite(again, &byte, 1, 100) >= 0)
        return "write after opening it again";
    if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) != MAP_FAILED)
        return "map it writable after opening it again";
    read_only = mmap(NULL, 4096, PROT_READ, MAP_SHARED, again, 0);
    if (read_only != MAP_FAILED && mprotect(read_only, 4096, PROT_READ | PROT_WRITE) == 0)
        return "mprotect a mapping after opening it again";
    if (ftruncate(again, 0) == 0 || ftruncate(again, 1 << 20) == 0)
        return "truncate after opening it again";
    if (fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0)
        return "punch a hole after opening it again";
    if (fcntl(again, F_ADD_SEALS, F_SEAL_WRITE) == 0)
        return "add a seal after opening it again";
    return NULL;
}

/* In a process of user `uid`, which is what a client is. */
static void assert_cannot_write(int fd, uid_t uid)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (uid && (setgid(uid) < 0 || setuid(uid) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0))
            _exit(2);
        const char *way = way_to_write(fd);
        if (way)
            fprintf(stderr, "uid %u can %s\n", (unsigned)uid, way);
        _exit(way ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void nobody_can_write_the_policy_but_the_daemon(void **state)
{
    struct session_ledger ledger;
    open_ledger(&ledger, false);
    assert_cannot_write(ledger.policy_fd, geteuid());
    if (geteuid() == 0) {
        assert_cannot_write(ledger.policy_fd, 12345);
        assert_cannot_write(ledger.policy_fd, 0);
    }

    /* Ours still writes, and clients see it. */
    const struct ledger_policy *seen =
        mmap(NULL, LEDGER_POLICY_BYTES, PROT_READ, MAP_SHARED, ledger.policy_fd, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    assert_true(ledger_policy_is_valid(seen, LEDGER_POLICY_BYTES));
    ledger.policy->gpus[0].limit_bytes = 42;
    assert_int_equal(seen->gpus[0].limit_bytes, 42);
    assert_int_equal(seen->epoch, 7);
    munmap((void *)(uintptr_t)seen, LEDGER_POLICY_BYTES);
    close_ledger(&ledger, true);
}

static void closing_for_good_ends_new_memory_and_removes_the_file(void **state)
{
    struct session_ledger ledger;
    open_ledger(&ledger, false);
    const struct ledger_policy *seen =
        mmap(NULL, LEDGER_POLICY_BYTES, PROT_READ, MAP_SHARED, ledger.policy_fd, 0);
    char path[PATH_MAX];
    strcpy(path, ledger.usage_path);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    close_ledger(&ledger, true);
    assert_int_equal(seen->closed, 1);
    assert_int_equal(access(path, F_OK), -1);
    munmap((void *)(uintptr_t)seen, LEDGER_POLICY_BYTES);
}

static void a_ledger_cut_off_under_us_is_broken_and_reads_as_zeros(void **state)
{
    struct session_ledger ledger, other;
    ledgers_catch_sigbus(); /* cmocka has put its own handler there */
    open_ledger(&ledger, false);
    other = (struct session_ledger){0};
    struct error error;
    assert_int_equal(ledgers_usage_open(&other, folder, "ba9876543210", 7, false, &error), 0);

    uint64_t generation;
    struct ledger_owner owner = {.pid = getpid(), .start_ticks = 1};
    int slot = ledger_slot_claim(ledger.usage, owner, &generation);
    assert_int_equal(slot, 0);
    assert_int_equal(ftruncate(ledger.usage_fd, 0), 0);
    assert_int_equal(ledger_slot_bytes(ledger.usage, 0, 0), 0); /* would end us with SIGBUS */
    assert_true(ledger.broken);
    assert_false(ledger_slot_owner(ledger.usage, 0, &owner, &generation));
    assert_false(ledger_slot_clear(ledger.usage, 0, NULL));
    assert_false(other.broken);
    assert_int_equal(ledger_slot_claim(other.usage, owner, &generation), 0);
    close_ledger(&ledger, true);
    close_ledger(&other, true);
}

static void a_fault_elsewhere_still_ends_the_process(void **state)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        ledgers_catch_sigbus();
        int fd = memfd_create("empty", MFD_CLOEXEC);
        volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        _exit(*page);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
}

static uint64_t taken_bytes(const struct session_ledger *ledger)
{
    struct stat status;
    assert_int_equal(fstat(ledger->usage_fd, &status), 0);
    return (uint64_t)status.st_blocks * 512;
}

/* What a program writes where its session has no GPU takes room of all users. */
static void what_is_written_behind_a_ledger_is_taken_back(void **state)
{
    struct session_ledger ledger;
    struct error error;
    open_ledger(&ledger, false);
    assert_int_equal(ledgers_usage_reserve(&ledger, 1, &error), 0);
    ((volatile char *)ledger.usage)[4096] = 7;
    assert_false(ledgers_has_excess(&ledger, 1));
    uint64_t own = taken_bytes(&ledger), all = ledger_usage_bytes();
    assert_int_equal(posix_fallocate(ledger.usage_fd, 0, (off_t)all), 0);
    assert_true(ledgers_has_excess(&ledger, 1));
    ledgers_free_excess(ledger.usage_fd, 1, 1 << 20);
    assert_true(taken_bytes(&ledger) < all);
    ledgers_free_excess(ledger.usage_fd, 1, 0);
    assert_false(ledgers_has_excess(&ledger, 1));
    assert_true(taken_bytes(&ledger) <= own + 65536);
    assert_int_equal(((volatile char *)ledger.usage)[4096], 7);
    close_ledger(&ledger, true);
}

static void a_grown_ledger_is_cut_back_and_broken(void **state)
{
    struct session_ledger ledger;
    struct stat status;
    open_ledger(&ledger, false);
    assert_true(ledgers_check_length(&ledger));
    assert_int_equal(ftruncate(ledger.usage_fd, 1 << 30), 0);
    assert_false(ledgers_check_length(&ledger));
    assert_true(ledger.broken);
    assert_true(ledgers_has_excess(&ledger, 1));
    ledgers_free_excess(ledger.usage_fd, 1, 0);
    assert_int_equal(fstat(ledger.usage_fd, &status), 0);
    assert_int_equal(status.st_size, ledger_usage_bytes());
    close_ledger(&ledger, true);
}

static void a_ledger_is_found_again_with_its_slots(void **state)
{
    struct session_ledger ledger;
    uint64_t generation, found_generation;
    struct ledger_owner owner = {.pid = 4711, .start_ticks = 99}, found;
    open_ledger(&ledger, false);
    assert_int_equal(ledger_slot_claim(ledger.usage, owner, &generation), 0);
    close_ledger(&ledger, false);

    struct error error;
    ledger = (struct session_ledger){0};
    assert_int_equal(make_policy(&ledger, 8, &error), 0);
    assert_int_equal(ledgers_usage_open(&ledger, folder, id, 8, true, &error), 0);
    assert_false(ledger.broken);
    assert_true(ledger_slot_owner(ledger.usage, 0, &found, &found_generation));
    assert_int_equal(found.pid, 4711);
    assert_int_equal(found.start_ticks, 99);
    assert_int_equal(found_generation, generation);
    assert_int_equal(ledger_epoch(ledger.usage), 8);
    close_ledger(&ledger, true);
}

static void a_damaged_file_is_found_and_a_missing_file_made_again(void **state)
{
    struct session_ledger ledger;
    open_ledger(&ledger, true);
    assert_false(ledger.broken);
    assert_int_equal(pwrite(ledger.usage_fd, "garbage!", 8, 0), 8);
    close_ledger(&ledger, false);
    open_ledger(&ledger, true);
    assert_true(ledger.broken);
    assert_int_equal(ftruncate(ledger.usage_fd, 100), 0);
    close_ledger(&ledger, false);
    open_ledger(&ledger, true);
    assert_true(ledger.broken);
    close_ledger(&ledger, true);
}

static void a_link_in_place_of_a_ledger_is_not_followed(void **state)
{
    struct session_ledger ledger = {0};
    struct error error;
    char path[128], target[128];
    snprintf(path, sizeof(path), "%s/%s", folder, id);
    snprintf(target, sizeof(target), "%s/target", folder);
    int fd = open(target, O_RDWR | O_CREAT, 0600);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(ledgers_usage_open(&ledger, folder, id, 1, true, &error), -ELOOP);
    assert_int_equal(ledgers_usage_open(&ledger, folder, id, 1, false, &error), 0); /* made in its place */
    struct stat status;
    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(status.st_size, 0);
    close(fd);
    unlink(target);
    close_ledger(&ledger, true);
}

static void room_is_set_aside_for_what_programs_will_touch(void **state)
{
    struct session_ledger ledger;
    struct stat before, after;
    struct error error = {0};
    open_ledger(&ledger, false);
    assert_int_equal(fstat(ledger.usage_fd, &before), 0);
    assert_int_equal(ledgers_usage_reserve(&ledger, 3, &error), 0);
    assert_int_equal(fstat(ledger.usage_fd, &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    assert_true((uint64_t)before.st_blocks * 512 < ledger_usage_touched_bytes(3));
    assert_true((uint64_t)after.st_blocks * 512 >= ledger_usage_touched_bytes(3));
    assert_true(ledger_usage_touched_bytes(LEDGER_GPUS) <= ledger_usage_bytes());

    /* A descriptor without room behind it refuses, and says how much was wanted. */
    int usage_fd = ledger.usage_fd;
    ledger.usage_fd = open("/dev/full", O_RDWR);
    assert_true(ledgers_usage_reserve(&ledger, 3, &error) < 0);
    assert_non_null(strstr(error.message, "no room for"));
    close(ledger.usage_fd);
    ledger.usage_fd = usage_fd;
    close_ledger(&ledger, true);
}

static void the_processes_that_map_the_ledger_are_found(void **state)
{
    struct session_ledger ledger;
    int pipes[2][2];
    char byte;
    open_ledger(&ledger, false);
    assert_int_equal(pipe(pipes[0]) | pipe(pipes[1]), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(pipes[0][0]);
        if (read(pipes[1][0], &byte, 1) != 1)
            _exit(1);
        munmap(ledger.usage, ledger_usage_bytes());
        if (write(pipes[0][1], "", 1) != 1)
            _exit(1);
        _exit(read(pipes[1][0], &byte, 1) != 1);
    }
    assert_int_equal(ledgers_is_mapped_by(&ledger, getpid()), LEDGERS_MAPPED);
    assert_int_equal(ledgers_is_mapped_by(&ledger, child), LEDGERS_MAPPED);
    assert_int_equal(write(pipes[1][1], "", 1), 1);
    assert_int_equal(read(pipes[0][0], &byte, 1), 1);
    assert_int_equal(ledgers_is_mapped_by(&ledger, child), LEDGERS_NOT_MAPPED);
    assert_int_equal(write(pipes[1][1], "", 1), 1);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(ledgers_is_mapped_by(&ledger, child), LEDGERS_UNKNOWN); /* a zombie has no maps */
    waitpid(child, NULL, 0);
    assert_int_equal(ledgers_is_mapped_by(&ledger, child), LEDGERS_UNKNOWN);
    for (int i = 0; i < 4; i++)
        close(pipes[i / 2][i % 2]);
    close_ledger(&ledger, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_can_write_the_policy_but_the_daemon),
        cmocka_unit_test(closing_for_good_ends_new_memory_and_removes_the_file),
        cmocka_unit_test(a_ledger_cut_off_under_us_is_broken_and_reads_as_zeros),
        cmocka_unit_test(a_fault_elsewhere_still_ends_the_process),
        cmocka_unit_test(what_is_written_behind_a_ledger_is_taken_back),
        cmocka_unit_test(a_grown_ledger_is_cut_back_and_broken),
        cmocka_unit_test(a_ledger_is_found_again_with_its_slots),
        cmocka_unit_test(a_damaged_file_is_found_and_a_missing_file_made_again),
        cmocka_unit_test(a_link_in_place_of_a_ledger_is_not_followed),
        cmocka_unit_test(room_is_set_aside_for_what_programs_will_touch),
        cmocka_unit_test(the_processes_that_map_the_ledger_are_found),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
