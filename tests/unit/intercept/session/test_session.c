/* A process and its daemon: attaching, being refused, the daemon's end and return. The test plays the daemon;
 * each program is a child process that is led through its steps. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_driver.h"
#include "intercept/memory/charge.h"
#include "intercept/resolve/real.h"
#include "intercept/submit/gate_area.h"
#include "wire/wire.h"

#define MIB (UINT64_C(1) << 20)
#define SESSION "0123456789ab"
#define TOKEN "0f0f"
#define PATIENCE_MS 20000

/* --- The daemon ------------------------------------------------------------------------------------ */

static struct {
    char folder[32], socket_path[64];
    int listener;
    int connection;
    int policy_file, usage_file;
    struct ledger_policy *policy;
    struct ledger_usage *usage;
    int slot;
    uint64_t generation;
} node;

static void *map_shared(int file, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void make_policy(uint64_t epoch, uint64_t limit_bytes, uint64_t context_bytes)
{
    node.policy_file = memfd_create("policy", MFD_CLOEXEC);
    assert_int_equal(ftruncate(node.policy_file, LEDGER_POLICY_BYTES), 0);
    node.policy = map_shared(node.policy_file, LEDGER_POLICY_BYTES);
    ledger_policy_init(node.policy, SESSION, epoch);
    node.policy->gpu_count = 1;
    memset(node.policy->gpus[0].uuid, 1, 16);
    node.policy->gpus[0].limit_bytes = limit_bytes;
    node.policy->gpus[0].context_bytes = context_bytes;
}

static void listen_again(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, node.socket_path);
    unlink(node.socket_path);
    node.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(node.listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(node.listener, 8), 0);
}

static int start_node(void **state)
{
    memset(&node, 0, sizeof(node));
    strcpy(node.folder, "/tmp/gs-XXXXXX");
    assert_non_null(mkdtemp(node.folder));
    snprintf(node.socket_path, sizeof(node.socket_path), "%s/attach.sock", node.folder);
    node.connection = -1;
    node.slot = -1;
    make_policy(1, 64 * MIB, 0);
    node.usage_file = memfd_create("usage", MFD_CLOEXEC);
    assert_int_equal(ftruncate(node.usage_file, (off_t)ledger_usage_bytes()), 0);
    node.usage = map_shared(node.usage_file, ledger_usage_bytes());
    ledger_usage_init(node.usage, 1);
    listen_again();
    setenv("GPUSLICE_SESSION", SESSION, 1);
    setenv("GPUSLICE_IPC_TOKEN", TOKEN, 1);
    setenv("GPUSLICE_IPC_SOCK", node.socket_path, 1);
    return 0;
}

static int stop_node(void **state)
{
    unlink(node.socket_path);
    rmdir(node.folder);
    if (node.listener >= 0)
        close(node.listener);
    if (node.connection >= 0)
        close(node.connection);
    close(node.policy_file);
    close(node.usage_file);
    munmap(node.policy, LEDGER_POLICY_BYTES);
    munmap(node.usage, ledger_usage_bytes());
    return 0;
}

static void await(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (poll(&wait, 1, PATIENCE_MS) != 1)
        fail_msg("waited %d ms in vain", PATIENCE_MS);
}

/* The next message that wants an answer, or how the connection ended; notices come when they come. */
static int hear_any(struct wire_message *message)
{
    int fds[WIRE_FDS_MAX], result;
    unsigned count;
    do {
        await(node.connection);
        result = wire_receive(node.connection, message, fds, &count);
    } while (result == 0 && message->header.type == WIRE_NOTICE);
    return result;
}

static struct wire_message hear(void)
{
    struct wire_message message;
    assert_int_equal(hear_any(&message), 0);
    return message;
}

static struct wire_hello hear_hello(void)
{
    await(node.listener);
    if (node.connection >= 0)
        close(node.connection);
    node.connection = accept4(node.listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(node.connection >= 0);
    struct wire_message message = hear();
    assert_int_equal(message.header.type, WIRE_HELLO);
    assert_string_equal(message.hello.session_id, SESSION);
    assert_string_equal(message.hello.token, TOKEN);
    return message.hello;
}

static void welcome(uint64_t epoch)
{
    struct wire_message message = {.header.type = WIRE_WELCOME};
    if (node.slot < 0)
        node.slot = ledger_slot_claim(node.usage, (struct ledger_owner){.pid = 77}, &node.generation);
    message.welcome = (struct wire_welcome){.slot = (uint32_t)node.slot,
                                            .layout = LEDGER_LAYOUT,
                                            .generation = node.generation,
                                            .epoch = epoch,
                                            .policy_bytes = LEDGER_POLICY_BYTES,
                                            .usage_bytes = ledger_usage_bytes()};
    assert_int_equal(wire_send(node.connection, &message, (int[]){node.policy_file, node.usage_file}, 2), 0);
}

static uint64_t slot_bytes(void)
{
    return ledger_slot_bytes(node.usage, (uint32_t)node.slot, 0);
}

/* --- The program ----------------------------------------------------------------------------------- */

static struct {
    pid_t pid;
    int orders, answers, errors;
} program;

/* In the child: what it does at each order, and what it answers. */
static CUdeviceptr program_address;

static int allocate(uint64_t bytes)
{
    return (int)cuMemAlloc_v2(&program_address, bytes);
}

static int obey(char order)
{
    size_t free_bytes, total_bytes;
    CUcontext primary;
    switch (order) {
    case 'c':
        return fake_context(0) ? 0 : 1;
    case 'p':
        return (int)cuDevicePrimaryCtxRetain(&primary, 0);
    case 'P':
        return (int)cuDevicePrimaryCtxRelease_v2(0);
    case 'a':
        return allocate(MIB);
    case 'A':
        return allocate(48 * MIB);
    case 'f':
        return (int)cuMemFree_v2(program_address);
    case 'i':
        return cuMemGetInfo_v2(&free_bytes, &total_bytes) ? 1 : (int)(free_bytes / MIB);
    case 'x': /* as programs do before they turn into daemons; ours are 3 and 4 */
        for (int fd = 5; fd < 1024; fd++)
            close(fd);
        return 0;
    case 'r': /* and then use the numbers, ours among them, for files of their own */
        for (int fd = 5; fd < 1010; fd++)
            dup2(3, fd);
        return 0;
    case 'R': {
        struct stat first, other;
        fstat(3, &first);
        for (int fd = 5; fd < 1010; fd++)
            if (fstat(fd, &other) < 0 || other.st_ino != first.st_ino)
                return fd;
        return 0;
    }
    case 'k': { /* a child that uses CUDA for itself */
        pid_t child = fork();
        if (child == 0)
            _exit(fake_context(0) && allocate(MIB) == CUDA_SUCCESS ? 0 : 1);
        int status;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
    }
    default:
        return 98;
    }
}

/* The program has no agent, whose connection would come between those that are tested. */
static void run_program(int orders, int answers)
{
    char order;
    fake_driver_install();
    atomic_store(&gate_in(private_get())->started, true);
    while (read(orders, &order, 1) == 1) {
        int answer = obey(order);
        if (write(answers, &answer, sizeof(answer)) != sizeof(answer))
            break;
    }
    _exit(0);
}

static void start_program(void)
{
    int orders[2], answers[2], errors[2];
    assert_int_equal(pipe2(orders, O_CLOEXEC) | pipe2(answers, O_CLOEXEC) | pipe2(errors, O_CLOEXEC), 0);
    program.pid = fork();
    if (program.pid == 0) {
        dup2(errors[1], 2);
        int in = fcntl(orders[0], F_DUPFD, 100), out = fcntl(answers[1], F_DUPFD, 100);
        dup2(in, 3);
        dup2(out, 4);
        for (int fd = 5; fd < 1024; fd++)
            close(fd);
        run_program(3, 4);
    }
    close(orders[0]);
    close(answers[1]);
    close(errors[1]);
    program.orders = orders[1];
    program.answers = answers[0];
    program.errors = errors[0];
}

static void order(char what)
{
    assert_int_equal(write(program.orders, &what, 1), 1);
}

static int answer(void)
{
    int value = -1;
    await(program.answers);
    assert_int_equal(read(program.answers, &value, sizeof(value)), sizeof(value));
    return value;
}

static int do_it(char what)
{
    order(what);
    return answer();
}

/* End the program; returns what it wrote on stderr. */
static const char *end_program(void)
{
    static char text[4096];
    size_t length = 0;
    ssize_t part;
    int status;
    close(program.orders);
    while ((part = read(program.errors, text + length, sizeof(text) - 1 - length)) > 0)
        length += (size_t)part;
    text[length] = '\0';
    assert_int_equal(waitpid(program.pid, &status, 0), program.pid);
    assert_int_equal(status, 0);
    close(program.answers);
    close(program.errors);
    return text;
}

/* The program is attached and has a context and 48 MiB. */
static void attach_and_hold(void)
{
    start_program();
    order('c');
    assert_int_equal(hear_hello().slot, WIRE_NO_SLOT);
    welcome(1);
    assert_int_equal(hear().header.type, WIRE_CONTEXT_CREATED);
    struct wire_message cost = {.header.type = WIRE_CONTEXT_COST, .context_cost = {.gpu = 0}};
    assert_int_equal(wire_send(node.connection, &cost, NULL, 0), 0);
    assert_int_equal(answer(), 0);
    assert_int_equal(do_it('A'), CUDA_SUCCESS);
    assert_int_equal(slot_bytes(), 48 * MIB);
}

static void daemon_dies(void)
{
    close(node.connection);
    close(node.listener);
    node.connection = node.listener = -1;
}

/* Another daemon over the same usage region: a new policy, a new epoch. */
static void daemon_returns(uint64_t limit_bytes)
{
    munmap(node.policy, LEDGER_POLICY_BYTES);
    close(node.policy_file);
    make_policy(2, limit_bytes, 0);
    listen_again();
    ledger_epoch_set(node.usage, 2);
}

/* --- Tests ----------------------------------------------------------------------------------------- */

static void a_process_attaches_at_its_first_context_and_is_held_to_the_limit(void **state)
{
    attach_and_hold();
    assert_int_equal(do_it('A'), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(do_it('i'), 16);
    assert_int_equal(do_it('f'), CUDA_SUCCESS);
    assert_int_equal(slot_bytes(), 0);
    const char *said = end_program();
    assert_non_null(
        strstr(said, "gpuslice: out of memory in session 0123456789ab: asked for 48MiB (50331648 bytes)"));
    assert_non_null(strstr(
        said, "used 48MiB of the limit 64MiB. To allow it: gpuslice set 0123456789ab --memory 96MiB\n"));
    assert_null(strchr(strchr(said, '\n') + 1, '\n')); /* once */
}

/* What the line advises on a card of so much: the program has 48 MiB, the driver `driver_bytes`, and the program asks for as much
 * again. */
static void see_advice(uint64_t card_bytes, bool may_pass_card, uint64_t driver_bytes, const char *advice)
{
    start_node(NULL);
    node.policy->gpus[0].total_bytes = card_bytes;
    node.policy->may_pass_card = may_pass_card;
    attach_and_hold();
    node.policy->gpus[0].driver_bytes = driver_bytes;
    assert_int_equal(do_it('A'), CUDA_ERROR_OUT_OF_MEMORY);
    const char *said = end_program();
    if (!strstr(said, advice))
        fail_msg("it said: %s", said);
    stop_node(NULL);
}

static void advice_names_no_limit_beyond_the_card(void **state)
{
    see_advice(96 * MIB, false, 0, "gpuslice set 0123456789ab --memory 96MiB\n");
    see_advice(95 * MIB, false, 0, "used 48MiB of the limit 64MiB. No limit allows it: the card has 95MiB\n");
    see_advice(95 * MIB, true, 0, "gpuslice set 0123456789ab --memory 96MiB\n");
    see_advice(4096 * MIB, false, 2048 * MIB, "gpuslice set 0123456789ab --memory 3GiB\n");
    see_advice(2200 * MIB, false, 2048 * MIB, "gpuslice set 0123456789ab --memory 2144MiB\n");
}

static void a_context_of_unknown_cost_is_charged_when_the_daemon_has_measured_it(void **state)
{
    start_program();
    order('c');
    hear_hello();
    welcome(1);
    assert_int_equal(hear().header.type, WIRE_CONTEXT_CREATED);
    struct wire_message cost = {.header.type = WIRE_CONTEXT_COST,
                                .context_cost = {.gpu = 0, .bytes = 7 * MIB}};
    assert_int_equal(wire_send(node.connection, &cost, NULL, 0), 0);
    assert_int_equal(answer(), 0);
    assert_int_equal(slot_bytes(), 7 * MIB);
    /* Now everybody knows. */
    node.policy->gpus[0].context_bytes = 6 * MIB;
    assert_int_equal(do_it('c'), 0);
    assert_int_equal(slot_bytes(), 13 * MIB);
    node.policy->gpus[0].context_bytes = 52 * MIB;
    assert_int_equal(do_it('c'), 1);
    assert_int_equal(slot_bytes(), 13 * MIB);
    end_program();
}

/* Contexts and refusals are told to the daemon, but a storm of them is one notice. */
static void a_refusal_is_told_to_the_daemon_once_in_a_while(void **state)
{
    attach_and_hold();
    struct wire_message message;
    int fds[WIRE_FDS_MAX];
    unsigned count;
    usleep(30000); /* longer than a process keeps quiet after the notice of its context */
    while (recv(node.connection, &message, sizeof(message), MSG_DONTWAIT) > 0) {
    }
    for (int i = 0; i < 1000; i++)
        order('A');
    for (int i = 0; i < 1000; i++)
        assert_int_equal(answer(), CUDA_ERROR_OUT_OF_MEMORY);
    await(node.connection);
    assert_int_equal(wire_receive(node.connection, &message, fds, &count), 0);
    assert_int_equal(message.header.type, WIRE_NOTICE);
    assert_int_equal(message.notice.kind, WIRE_NOTICE_DENIED);
    unsigned more = 0;
    while (recv(node.connection, &message, sizeof(message), MSG_DONTWAIT) > 0)
        more++;
    assert_true(more < 500);
    end_program();
}

/* Nothing is new, so nobody has to look at the card. */
static void a_primary_context_that_exists_is_not_news(void **state)
{
    struct wire_message message;
    int fds[WIRE_FDS_MAX];
    unsigned count;
    start_program();
    order('p');
    hear_hello();
    welcome(1);
    assert_int_equal(answer(), 0);
    for (unsigned i = 0; i < 5; i++) {
        usleep(30000); /* longer than a process keeps quiet after a notice */
        assert_int_equal(do_it('p'), 0);
        usleep(30000);
        assert_int_equal(do_it('P'), 0);
    }
    unsigned notices = 0;
    while (recv(node.connection, &message, sizeof(message), MSG_DONTWAIT) > 0)
        notices += message.header.type == WIRE_NOTICE;
    assert_int_equal(notices, 1); /* of the first */
    usleep(30000);
    assert_int_equal(do_it('P'), 0);
    await(node.connection);
    assert_int_equal(wire_receive(node.connection, &message, fds, &count), 0);
    assert_int_equal(message.notice.kind, WIRE_NOTICE_CONTEXT); /* it has gone */
    end_program();
}

static void a_refused_process_gets_no_memory_and_says_the_daemons_words(void **state)
{
    start_program();
    order('c');
    hear_hello();
    struct wire_message refusal = {
        .header.type = WIRE_REFUSED,
        .refused = {WIRE_REFUSED_NO_SESSION, "there is no such session; make one"}};
    assert_int_equal(wire_send(node.connection, &refusal, NULL, 0), 0);
    assert_int_equal(answer(), 1);
    assert_int_equal(do_it('c'), 1);
    assert_non_null(strstr(end_program(),
                           "gpuslice: session 0123456789ab: there is no such session; make one. All GPU "
                           "memory is refused to this process"));
}

static void without_a_daemon_there_is_no_memory(void **state)
{
    daemon_dies();
    unlink(node.socket_path);
    start_program();
    assert_int_equal(do_it('c'), 1);
    const char *said = end_program();
    assert_non_null(strstr(said, "cannot reach the daemon at /tmp/gs-"));
    assert_non_null(strstr(said, "No such file or directory"));
}

static void an_attached_process_outlives_its_daemon(void **state)
{
    attach_and_hold();
    daemon_dies();
    assert_int_equal(do_it('A'), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(do_it('a'), CUDA_SUCCESS);
    assert_int_equal(slot_bytes(), 49 * MIB);
    end_program();
}

static void a_new_epoch_is_noticed_and_the_slot_kept(void **state)
{
    attach_and_hold();
    daemon_dies();
    daemon_returns(100 * MIB);
    order('A'); /* fits only under the new limit */
    struct wire_hello hello = hear_hello();
    assert_int_equal(hello.slot, node.slot);
    assert_int_equal(hello.generation, node.generation);
    welcome(2);
    assert_int_equal(answer(), CUDA_SUCCESS);
    assert_int_equal(slot_bytes(), 96 * MIB);
    /* Limits change live again. */
    node.policy->gpus[0].limit_bytes = 96 * MIB;
    assert_int_equal(do_it('a'), CUDA_ERROR_OUT_OF_MEMORY);
    end_program();
}

static void what_a_process_holds_moves_to_the_slot_that_a_new_daemon_gives_it(void **state)
{
    attach_and_hold();
    daemon_dies();
    daemon_returns(64 * MIB);
    ledger_slot_clear(node.usage, (uint32_t)node.slot, NULL);
    node.slot = -1;
    order('a');
    hear_hello();
    assert_int_equal(ledger_slot_claim(node.usage, (struct ledger_owner){.pid = 78}, &node.generation), 0);
    welcome(2); /* the second slot */
    assert_int_equal(answer(), CUDA_SUCCESS);
    assert_int_equal(node.slot, 1);
    assert_int_equal(slot_bytes(), 49 * MIB);
    end_program();
}

static void a_program_that_closes_all_its_files_stays_in_its_session(void **state)
{
    attach_and_hold();
    assert_int_equal(do_it('x'), 0);
    assert_int_equal(do_it('A'), CUDA_ERROR_OUT_OF_MEMORY);
    /* The daemon sees the connection end, and the process still attached. */
    struct wire_message message;
    assert_int_equal(hear_any(&message), -ENOTCONN);
    assert_int_equal(slot_bytes(), 48 * MIB);

    /* Numbers that were ours are the program's now, also when we attach anew. */
    assert_int_equal(do_it('r'), 0);
    daemon_returns(100 * MIB);
    order('A');
    hear_hello();
    welcome(2);
    assert_int_equal(answer(), CUDA_SUCCESS);
    assert_int_equal(do_it('R'), 0);
    end_program();
}

static void a_forked_child_asks_for_a_slot_of_its_own(void **state)
{
    attach_and_hold();
    order('k');
    await(node.listener);
    int of_parent = node.connection;
    node.connection = -1;
    assert_int_equal(hear_hello().slot, WIRE_NO_SLOT);
    int parents_slot = node.slot;
    node.slot = -1;
    node.policy->gpus[0].context_bytes = 1;
    welcome(1);
    assert_int_equal(answer(), 0);
    assert_int_equal(slot_bytes(), MIB + 1);
    assert_int_equal(ledger_slot_bytes(node.usage, (uint32_t)parents_slot, 0), 48 * MIB);
    close(of_parent);
    end_program();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start_node, stop_node)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_process_attaches_at_its_first_context_and_is_held_to_the_limit),
        cmocka_unit_test(advice_names_no_limit_beyond_the_card),
        TEST(a_context_of_unknown_cost_is_charged_when_the_daemon_has_measured_it),
        TEST(a_refusal_is_told_to_the_daemon_once_in_a_while),
        TEST(a_primary_context_that_exists_is_not_news),
        TEST(a_refused_process_gets_no_memory_and_says_the_daemons_words),
        TEST(without_a_daemon_there_is_no_memory),
        TEST(an_attached_process_outlives_its_daemon),
        TEST(a_new_epoch_is_noticed_and_the_slot_kept),
        TEST(what_a_process_holds_moves_to_the_slot_that_a_new_daemon_gives_it),
        TEST(a_program_that_closes_all_its_files_stays_in_its_session),
        TEST(a_forked_child_asks_for_a_slot_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
