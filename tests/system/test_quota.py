"""Programs inside a memory quota, on the simulated GPU: alone (GPUSLICE_MEMORY_LIMIT) and under a daemon.

programs/puppet.c does what a test says and answers with the driver's result.
"""
import itertools
import os
import re
import select
import signal
import subprocess
import time

import pytest

from conftest import DEADLINE_S, GIB, MIB, wait_for

OK, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, INVALID_CONTEXT = 0, 1, 2, 3, 201
CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED = 900, 901
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2  # CUstreamCaptureMode
LIMIT = 64 * MIB


class Puppet:
    """A program that is led line by line."""

    def __init__(self, product, environment, command=(), **options):
        self.process = subprocess.Popen([*command, product.program("puppet")], env=environment, bufsize=0,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.pending = b""
        self.hear()

    def hear(self):
        """One answer, as numbers where they are."""
        end = time.monotonic() + DEADLINE_S
        answers = select.poll()  # select() knows no descriptor above 1023, and a soak has more pipes
        answers.register(self.process.stdout, select.POLLIN)
        while b"\n" not in self.pending:
            if not answers.poll(max(0, 1000 * (end - time.monotonic()))):
                pytest.fail(f"no answer in {DEADLINE_S} s")
            part = os.read(self.process.stdout.fileno(), 4096)
            if not part:
                pytest.fail(f"the program ended: {self.process.wait()} {self.process.stderr.read().decode()}")
            self.pending += part
        line, _, self.pending = self.pending.partition(b"\n")
        return [int(word) if word.lstrip(b"-").isdigit() else word.decode() for word in line.split()]

    def say(self, *words):
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())

    def do(self, *words):
        self.say(*words)
        return self.hear()

    def code(self, *words):
        return self.do(*words)[0]

    def get(self, *words):
        """Do what must succeed; the number of the thing that was made."""
        result, *rest = self.do(*words)
        assert result == OK, f"{words}: {result}"
        return rest[0] if rest else None

    def free_bytes(self):
        result, free, _ = self.do("info")
        assert result == OK
        return free

    def end(self):
        """What it wrote on stderr."""
        _, errors = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0
        return errors.decode()


@pytest.fixture
def start(product, reap):
    """start(environment) starts a puppet; it is gone when the test ends."""
    def start(environment, command=(), context=True):
        puppet = Puppet(product, environment, command)
        reap(puppet.process)
        if context:
            puppet.get("context", 0)
        return puppet
    return start


@pytest.fixture(params=["alone", "daemon"])
def puppet(request, gpu, start):
    """A program with a context and a limit of 64 MiB: on its own, and in a session of a daemon."""
    if request.param == "alone":
        return start(gpu.standalone(LIMIT))
    daemon = request.getfixturevalue("make_daemon")(gpu=gpu).start()
    return start(session_environment(daemon, memory_bytes=LIMIT))


def session_environment(daemon, **body):
    status, answer = daemon.request("POST", "/v1/sessions", body)
    assert status == 201, answer
    return in_session(daemon, answer)


def in_session(daemon, session):
    """What `gpuslice run` sets for a program."""
    product = daemon.product
    return {**daemon.gpu.environment(LD_PRELOAD=product.interceptor), **session["environment"],
            "LD_LIBRARY_PATH": str(product.simulated)}


def used(daemon, session):
    return daemon.session(session["session_id"])["used_bytes"]


# --- To the byte ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind, unit", [("alloc", 512), ("managed", 1)])  # what the driver rounds up to
def test_the_limit_holds_to_the_byte(puppet, kind, unit):
    first = puppet.get(kind, LIMIT - unit)
    assert puppet.code(kind, unit + 1) == OUT_OF_MEMORY
    second = puppet.get(kind, 1)
    assert puppet.code(kind, 1) == OUT_OF_MEMORY
    assert puppet.free_bytes() == 0
    puppet.get("free", first)
    puppet.get("free", second)
    assert puppet.free_bytes() == LIMIT
    puppet.get(kind, LIMIT)


@pytest.mark.parametrize("kind", [("alloc", LIMIT + 1), ("managed", LIMIT + 1), ("pitch", LIMIT + 1, 1)])
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL])
def test_a_capture_that_forbids_allocating_is_invalidated_whether_or_not_it_fits(puppet, kind, mode):
    puppet.get("capture", mode)
    assert puppet.code(*kind) == CAPTURE_UNSUPPORTED
    assert puppet.code("captured") == CAPTURE_INVALIDATED
    assert puppet.code(*kind) == OUT_OF_MEMORY
    puppet.get("capture", RELAXED)
    assert puppet.code(*kind) == OUT_OF_MEMORY
    puppet.get("captured")
    puppet.get("alloc", LIMIT)


def test_pitched_memory_counts_with_its_real_pitch(puppet):
    first = puppet.get("pitch", 1, 1)
    pitch = LIMIT - puppet.free_bytes()
    assert pitch > 1
    puppet.get("free", first)
    rows = LIMIT // pitch
    assert puppet.code("pitch", 1, rows + 1) == OUT_OF_MEMORY
    assert puppet.free_bytes() == LIMIT
    whole = puppet.get("pitch", 1, rows)
    assert puppet.free_bytes() == LIMIT - rows * pitch
    puppet.get("free", whole)
    assert puppet.free_bytes() == LIMIT


def test_physical_memory_counts_until_the_last_handle_and_mapping_go(puppet):
    granule = 2 * MIB
    assert puppet.code("vmm", LIMIT + granule, 0) == OUT_OF_MEMORY
    handle = puppet.get("vmm", LIMIT, 0)
    assert puppet.code("vmm", granule, 0) == OUT_OF_MEMORY
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY
    mapping = puppet.get("map", handle)
    puppet.get("drop", handle)
    assert puppet.free_bytes() == 0
    puppet.get("unmap", mapping)
    assert puppet.free_bytes() == LIMIT


def test_a_devices_pool_counts_there_also_where_another_device_works(make_gpu, start):
    puppet = start(make_gpu(FAKECUDA_GPUS=2).standalone(LIMIT), context=False)
    first = puppet.get("context", 0)
    pool = puppet.get("defaultpool", 0)
    puppet.get("destroy", first)
    puppet.get("context", 1)
    assert puppet.code("poolalloc", pool, LIMIT + 1) == OUT_OF_MEMORY
    puppet.get("poolalloc", pool, LIMIT)
    assert puppet.free_bytes() == LIMIT
    puppet.get("context", 0)
    assert puppet.free_bytes() == 0


def test_a_pool_counts_with_what_it_reserves(puppet):
    things = []
    while (answer := puppet.do("async", MIB))[0] == OK:
        things.append(answer[1])
    assert answer[0] == OUT_OF_MEMORY
    assert len(things) == LIMIT // MIB
    assert puppet.free_bytes() == 0
    for thing in things:
        puppet.get("freeasync", thing)
    puppet.get("sync")
    puppet.get("trim")
    assert puppet.free_bytes() == LIMIT
    assert puppet.code("async", LIMIT + 1) == OUT_OF_MEMORY
    puppet.get("async", LIMIT)
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY


def test_kinds_of_memory_share_one_limit(puppet):
    things = [puppet.get("alloc", 16 * MIB), puppet.get("managed", 16 * MIB)]
    handle = puppet.get("vmm", 16 * MIB, 0)
    pooled = puppet.get("async", 16 * MIB)
    for kind in ("alloc", "managed", "async"):
        assert puppet.code(kind, 1) == OUT_OF_MEMORY
    for thing in things:
        puppet.get("free", thing)
    puppet.get("drop", handle)
    puppet.get("freeasync", pooled)
    puppet.get("sync")
    puppet.get("alloc", LIMIT)  # what the pool keeps unused makes room


# --- Races ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["alloc", "managed", "async", "vmm"])
def test_racing_threads_are_granted_exactly_the_limit(puppet, kind):
    assert puppet.get("race", 8, 2 * MIB, kind) == LIMIT // (2 * MIB)
    assert puppet.free_bytes() == 0


def test_racing_threads_give_all_back(puppet):
    assert puppet.get("churn", 8, 2000, 16 * MIB) > 0
    assert puppet.free_bytes() == LIMIT


def test_racing_processes_are_granted_exactly_the_limit_together(daemon, start):
    environment = session_environment(daemon, memory_bytes=LIMIT)
    puppets = [start(environment) for _ in range(4)]
    for puppet in puppets:
        puppet.say("race", 4, 64 << 10, "alloc")
    assert sum(puppet.hear()[1] for puppet in puppets) == LIMIT // (64 << 10)


# --- Processes -----------------------------------------------------------------------------------------------


def test_a_forked_child_has_the_limit_and_not_the_parents_memory(gpu, start):
    puppet = start(gpu.standalone(LIMIT, PUPPET_STARTS_LATE=1), context=False)
    assert puppet.code("alloc", 1) == NOT_INITIALIZED  # and the parent has made its ledger
    assert puppet.do("fork") == [0, "child"]
    puppet.get("init")
    puppet.get("context", 0)
    puppet.get("alloc", LIMIT)
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY
    assert puppet.do("exit") == [0, "parent"]
    puppet.get("init")
    puppet.get("context", 0)
    puppet.get("alloc", LIMIT)
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY


def test_a_forked_child_is_a_process_of_the_session(daemon, start):
    session = daemon.request("POST", "/v1/sessions", {"memory_bytes": LIMIT})[1]
    puppet = start({**in_session(daemon, session), "PUPPET_STARTS_LATE": "1"}, context=False)
    assert puppet.do("fork") == [0, "child"]
    puppet.get("init")
    puppet.get("context", 0)
    puppet.get("alloc", 48 * MIB)
    assert used(daemon, session) == 48 * MIB
    assert len(daemon.session(session["session_id"])["processes"]) == 1
    assert puppet.do("exit") == [0, "parent"]
    wait_for(lambda: used(daemon, session) == 0, "the child's bytes to be back")
    puppet.get("init")
    puppet.get("context", 0)
    puppet.get("alloc", LIMIT)


def test_an_execed_program_gives_its_bytes_back_and_stays_in_the_session(daemon, start):
    session = daemon.request("POST", "/v1/sessions", {"memory_bytes": LIMIT})[1]
    puppet = start(in_session(daemon, session))
    puppet.get("alloc", LIMIT)
    assert puppet.do("exec") == [0, "ready"]
    puppet.get("context", 0)
    wait_for(lambda: used(daemon, session) == 0, "the bytes of the old image to be back")
    puppet.get("alloc", LIMIT)
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY


def test_a_program_that_closes_all_its_files_stays_in_its_session(daemon, start):
    session = daemon.request("POST", "/v1/sessions", {"memory_bytes": LIMIT})[1]
    puppet = start(in_session(daemon, session))
    puppet.get("alloc", 48 * MIB)
    puppet.get("close")
    assert puppet.code("alloc", 17 * MIB) == OUT_OF_MEMORY
    puppet.get("alloc", 16 * MIB)
    assert used(daemon, session) == LIMIT


# --- Failing closed ------------------------------------------------------------------------------------------


def test_without_its_daemon_a_program_gets_no_memory_and_one_line(gpu, start, product, tmp_path):
    environment = gpu.environment(LD_PRELOAD=product.interceptor, GPUSLICE_SESSION="0123456789ab",
                                  GPUSLICE_IPC_SOCK=tmp_path / "attach.sock")
    puppet = start(environment, context=False)
    assert puppet.code("context", 0) == OUT_OF_MEMORY
    assert puppet.code("retain", 0) == OUT_OF_MEMORY
    assert puppet.code("vmm", 2 * MIB, 0) == OUT_OF_MEMORY
    errors = puppet.end()
    assert errors.count("\n") == 1
    assert errors.startswith(f"gpuslice: session 0123456789ab: cannot reach the daemon at {tmp_path}/attach.sock")


def test_a_session_that_does_not_exist_opens_no_way_out(daemon, start):
    session = daemon.request("POST", "/v1/sessions", {"memory_bytes": LIMIT})[1]
    environment = in_session(daemon, session)
    assert daemon.request("DELETE", f"/v1/sessions/{session['session_id']}")[0] == 204
    puppet = start(environment, context=False)
    assert puppet.code("context", 0) == OUT_OF_MEMORY
    assert session["session_id"] in puppet.end()


@pytest.mark.parametrize("limit", ["much", '{"0": }', '{"gpu": 1}', "1GiB" * 2000])
def test_a_limit_that_cannot_be_read_allows_nothing(gpu, start, limit):
    puppet = start(gpu.standalone(limit), context=False)
    assert puppet.code("context", 0) == OUT_OF_MEMORY
    assert "GPUSLICE_MEMORY_LIMIT" in puppet.end()


def test_a_process_without_session_or_limit_has_the_whole_card(gpu, start, product):
    puppet = start(gpu.environment(LD_PRELOAD=product.interceptor))
    assert puppet.do("info")[2] == GIB
    puppet.get("alloc", GIB // 2)
    assert puppet.end() == ""


# --- Words and answers ---------------------------------------------------------------------------------------


def test_the_first_denial_says_what_would_help(daemon, start):
    session = daemon.request("POST", "/v1/sessions", {"memory_bytes": LIMIT})[1]
    puppet = start(in_session(daemon, session))
    puppet.get("alloc", 60 * MIB)
    assert puppet.code("alloc", 5 * MIB) == OUT_OF_MEMORY
    assert puppet.code("alloc", 6 * MIB) == OUT_OF_MEMORY
    uuid = daemon.session(session["session_id"])["gpus"][0]["uuid"]
    name = session["session_id"]
    assert puppet.end() == (f"gpuslice: out of memory in session {name}: asked for 5MiB ({5 * MIB} bytes) on {uuid}; "
                            f"used 60MiB of the limit 64MiB. To allow it: gpuslice set {name} --memory 65MiB\n")


def test_the_help_fits_the_simulated_daemon(daemon, product):
    daemon.cli("create", "--name", "tight", "--memory", "1MiB")
    done = daemon.cli("run", "--session", "tight", product.program("target_app"),
                      env=daemon.environment(ALLOC_BYTES=2 * MIB, ITERATIONS=1))
    assert re.search(r"To allow it: gpuslice set --simulated \w{12} --memory 2MiB\n", done.stderr), done.stderr


def test_a_session_that_ends_with_its_command_is_to_be_run_again(daemon, product):
    done = daemon.cli("run", "--memory", "1MiB", product.program("target_app"),
                      env=daemon.environment(ALLOC_BYTES=2 * MIB, ITERATIONS=1))
    assert done.stderr.count("used 0B of the limit 1MiB. Run it again with --memory 2MiB\n") == 1, done.stderr


def test_a_full_card_says_what_is_left_and_counts(make_gpu, make_daemon, start):
    gpu = make_gpu(FAKECUDA_TOTAL_MEM=100 * MIB)
    daemon = make_daemon(gpu=gpu).start()
    session = daemon.request("POST", "/v1/sessions", {"name": "lab", "memory_bytes": LIMIT})[1]
    start(gpu.environment()).get("alloc", 80 * MIB)
    puppet = start(in_session(daemon, session))
    assert puppet.code("alloc", 32 * MIB) == OUT_OF_MEMORY
    assert puppet.code("alloc", 33 * MIB) == OUT_OF_MEMORY
    shown = daemon.session("lab")["processes"][0]
    assert (shown["denied_allocations"], shown["used_bytes"]) == (2, 0)
    uuid = daemon.session("lab")["gpus"][0]["uuid"]
    said = puppet.end()
    assert re.fullmatch(rf"gpuslice: out of memory in session {session['session_id']}: asked for 32MiB \({32 * MIB} bytes\) "
                        rf"on {uuid}; used 0B of the limit 64MiB, but the card has only \d+MiB of \d+MiB left\. "
                        r"'gpuslice gpus' shows who has the rest\n", said), said


def test_wrong_calls_get_the_drivers_answer(gpu, start, product):
    """The same list inside and outside."""
    def answers(environment):
        puppet = start({**environment, "PUPPET_STARTS_LATE": "1"}, context=False)
        heard = []
        for line in ("alloc 1", "context 0", "retain 0", "info", "total 0", "vmm 2097152 0", "free 5", "destroy 5", "init",
                     "alloc 1", "info", "vmmhost 2097152", "free 5", "freenull", "null", "zero", "context 9", "context 0", "null",
                     "zero", "freenull", "vmm 0 0", "vmm 2097152 9", "pitch 0 1", "destroy 7", "release 0", "managed 0"):
            heard.append((line, puppet.code(*line.split())))
        return heard
    assert answers(gpu.standalone(LIMIT)) == answers(gpu.environment())


def test_a_program_sees_a_smaller_gpu(puppet):
    assert puppet.do("info") == [OK, LIMIT, LIMIT]
    thing = puppet.get("alloc", 24 * MIB)
    assert puppet.do("info") == [OK, LIMIT - 24 * MIB, LIMIT]
    assert puppet.do("total", 0) == [OK, LIMIT]
    free = LIMIT - 24 * MIB
    assert puppet.do("nvml", 0) == [OK, LIMIT, free, LIMIT - free, LIMIT, free, LIMIT - free, 0]
    puppet.get("free", thing)
    assert puppet.do("info") == [OK, LIMIT, LIMIT]


def test_no_more_is_shown_free_than_the_card_has(make_gpu, start):
    gpu = make_gpu(FAKECUDA_TOTAL_MEM=100 * MIB)
    neighbour = start(gpu.environment())
    neighbour.get("alloc", 64 * MIB)
    puppet = start(gpu.standalone(LIMIT))
    result, free, total = puppet.do("info")
    assert (result, total) == (OK, LIMIT)
    assert free <= 36 * MIB


# --- Contexts ------------------------------------------------------------------------------------------------


def test_a_destroyed_context_gives_all_its_memory_back(puppet):
    context = puppet.get("context", 0)
    for kind in ("alloc", "managed"):
        puppet.get(kind, 16 * MIB)
    puppet.get("pitch", 1024, 1024)
    assert puppet.free_bytes() == LIMIT - 33 * MIB
    puppet.get("destroy", context)
    assert puppet.free_bytes() == LIMIT


def test_memory_of_a_pool_outlives_the_last_context_and_is_charged_for_as_long(make_daemon, gpu, start):
    """As the driver API's reference says of cuCtxDestroy."""
    daemon = make_daemon(gpu=gpu).start()
    session = daemon.request("POST", "/v1/sessions", {"memory_bytes": LIMIT})[1]
    puppet, outside = start(in_session(daemon, session)), start(gpu.environment())
    pooled = puppet.get("async", 47 * MIB)  # the pool takes 48
    card_free = outside.free_bytes()
    for end in ("destroy", "release", "reset"):
        if end != "destroy":
            puppet.get("retain", 0)
        puppet.get(end, 0)
        assert used(daemon, session) == 48 * MIB
        assert outside.free_bytes() == card_free
        assert puppet.do("nvml", 0)[3] == 48 * MIB
    puppet.get("context", 0)
    assert puppet.code("alloc", 16 * MIB + 1) == OUT_OF_MEMORY
    puppet.get("alloc", 16 * MIB)
    puppet.get("freeasync", pooled)
    puppet.get("sync")
    assert puppet.free_bytes() == 48 * MIB
    assert outside.free_bytes() == card_free + 32 * MIB
    puppet.get("alloc", 48 * MIB)


@pytest.mark.parametrize("end", ["release", "reset"])
def test_the_end_of_the_primary_context_gives_all_its_memory_back(gpu, start, end):
    puppet = start(gpu.standalone(LIMIT), context=False)
    for _ in range(3):
        puppet.get("retain", 0)
        puppet.get("alloc", LIMIT)
        puppet.get(end, 0)
    puppet.get("retain", 0)
    assert puppet.free_bytes() == LIMIT


def test_contexts_count_what_they_cost(make_daemon, make_gpu, start):
    cost = 40 * MIB
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_CONTEXT_BYTES=cost)).start()
    session = daemon.request("POST", "/v1/sessions", {"memory_bytes": 100 * MIB})[1]
    environment = in_session(daemon, session)
    first = start(environment)
    assert used(daemon, session) == cost  # measured after the first
    second = start(environment, context=False)
    context = second.get("context", 0)
    assert used(daemon, session) == 2 * cost
    assert second.code("context", 0) == OUT_OF_MEMORY
    assert first.code("alloc", 20 * MIB + 1) == OUT_OF_MEMORY
    second.get("destroy", context)
    assert used(daemon, session) == cost
    first.get("alloc", 60 * MIB)


def test_the_first_context_meets_the_quota_as_the_second_does(make_daemon, make_gpu, start):
    """Whose message names what a context takes."""
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_CONTEXT_BYTES=40 * MIB)).start()
    environment = session_environment(daemon, memory_bytes=32 * MIB)
    for _ in range(2):
        puppet = start(environment, context=False)
        assert puppet.code("context", 0) == OUT_OF_MEMORY
        assert "asked for 40MiB (41943040 bytes), what a CUDA context takes, on GPU-" in puppet.end()


# --- Which GPU -----------------------------------------------------------------------------------------------


def test_a_limit_alone_counts_contexts_too(make_gpu, start):
    """As NVML shows them for the process: what that holds is never more than its limit."""
    gpu = make_gpu(FAKECUDA_CONTEXT_BYTES=24 * MIB)
    puppet = start(gpu.standalone(LIMIT))
    assert puppet.free_bytes() == LIMIT - 24 * MIB
    filled = puppet.get("alloc", LIMIT - 24 * MIB)
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY
    assert puppet.code("context", 0) == OUT_OF_MEMORY
    puppet.get("free", filled)
    puppet.get("context", 0)
    assert puppet.free_bytes() == LIMIT - 48 * MIB
    small = start(gpu.standalone(8 * MIB))
    assert small.code("alloc", 1) == OUT_OF_MEMORY


def test_physical_memory_counts_on_its_own_gpu_and_limits_are_by_gpu(make_gpu, start):
    gpu = make_gpu(FAKECUDA_GPUS=3)
    puppet = start(gpu.standalone('{"0": "64MiB", "1": "32MiB"}'))
    puppet.get("vmm", 32 * MIB, 1)
    assert puppet.free_bytes() == LIMIT
    assert puppet.code("vmm", 2 * MIB, 1) == OUT_OF_MEMORY
    puppet.get("vmm", LIMIT, 0)
    assert puppet.code("vmm", 2 * MIB, 2) == OUT_OF_MEMORY  # not named: limit 0
    assert puppet.code("context", 2) == OUT_OF_MEMORY
    puppet.get("context", 1)
    assert puppet.do("info") == [OK, 0, 32 * MIB]
    assert puppet.do("total", 2) == [OK, GIB]


def test_limits_name_gpus_by_uuid_in_any_case(make_gpu, start, product):
    gpu = make_gpu(FAKECUDA_GPUS=2)
    probe = start(gpu.standalone("1"), context=False)
    assert probe.code("context", 0) == OK
    assert probe.code("alloc", 2) == OUT_OF_MEMORY
    uuid = re.search(r"GPU-[0-9a-f-]{36}", probe.end())[0]
    for name, variable in itertools.product((uuid, uuid.upper()), ("GPUSLICE_MEMORY_LIMIT", "TENSOR_FUSION_CUDA_MEM_LIMIT")):
        puppet = start(gpu.environment(LD_PRELOAD=product.interceptor, **{variable: f'{{"{name}": {LIMIT}}}'}))
        puppet.get("alloc", LIMIT)
        assert puppet.code("alloc", 1) == OUT_OF_MEMORY
        assert puppet.code("context", 1) == OUT_OF_MEMORY
        puppet.end()


# --- The daemon ----------------------------------------------------------------------------------------------


def test_limits_change_live(daemon, start):
    session = daemon.request("POST", "/v1/sessions", {"memory_bytes": LIMIT})[1]
    path = f"/v1/sessions/{session['session_id']}"
    puppet = start(in_session(daemon, session))
    thing = puppet.get("alloc", LIMIT)
    assert daemon.request("PATCH", path, {"memory_bytes": 2 * LIMIT})[0] == 200
    puppet.get("alloc", LIMIT)
    assert daemon.request("PATCH", path, {"memory_bytes": LIMIT})[0] == 200
    assert puppet.do("info") == [OK, 0, LIMIT]
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY
    puppet.get("free", thing)
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY


def test_a_program_outlives_its_daemon_and_is_found_by_the_next(daemon, start):
    session = daemon.request("POST", "/v1/sessions", {"memory_bytes": LIMIT})[1]
    puppet = start(in_session(daemon, session))
    puppet.get("alloc", 48 * MIB)
    daemon.kill()
    assert puppet.code("alloc", 17 * MIB) == OUT_OF_MEMORY
    extra = puppet.get("alloc", 8 * MIB)
    daemon.start()
    wait_for(lambda: used(daemon, session) == 56 * MIB, "the next daemon to count what the program holds")
    assert [p["pid"] for p in daemon.session(session["session_id"])["processes"]] == [puppet.process.pid]
    puppet.get("free", extra)
    assert used(daemon, session) == 48 * MIB
    # The new daemon's limits hold, once the program has noticed.
    path = f"/v1/sessions/{session['session_id']}"
    assert daemon.request("PATCH", path, {"memory_bytes": 128 * MIB})[0] == 200
    puppet.get("alloc", 80 * MIB)
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY
    puppet.process.send_signal(signal.SIGKILL)
    puppet.process.wait()
    wait_for(lambda: used(daemon, session) == 0, "the killed program's bytes to be back")
