"""What the card holds beyond what was charged: the driver line, orphans, and NVML as programs in a session see it."""
import json
import os
import pathlib
import signal
import struct
import subprocess
import time

import pytest

from attach_client import GPUS, REQUESTS
from conftest import DEADLINE_S, GIB, MIB, has_words, wait_for
from moved import resume, suspend
from test_quota import Puppet
from waiting import state_of

PROGRAM = pathlib.Path(__file__).with_name("nvml_program.py")
OUT_OF_MEMORY, INSUFFICIENT_SIZE = 2, 7


class Program:
    """nvml_program.py in a session."""

    def __init__(self, environment, command=()):
        self.process = subprocess.Popen([*command, "/usr/bin/python3", PROGRAM], env=environment, bufsize=0,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pending = b""
        self.own_pid = self.hear()

    def hear(self):
        end = time.monotonic() + DEADLINE_S
        while b"\n" not in self.pending:
            if not has_words(self.process.stdout, end - time.monotonic()):
                pytest.fail(f"no answer in {DEADLINE_S} s")
            part = os.read(self.process.stdout.fileno(), 65536)
            if not part:
                pytest.fail(f"the program ended: {self.process.wait()}")
            self.pending += part
        line, _, self.pending = self.pending.partition(b"\n")
        answer = json.loads(line)
        assert not str(answer).startswith("failed"), answer
        return answer

    def say(self, expression):
        self.process.stdin.write(expression.encode() + b"\n")

    def do(self, expression):
        self.say(expression)
        return self.hear()


@pytest.fixture
def start(reap):
    def start(environment, command=()):
        program = Program(environment, command)
        reap(program.process)
        return program
    return start


def new_session(daemon, **wanted):
    status, session = daemon.request("POST", "/v1/sessions", wanted)
    assert status == 201, session
    return session


def environment_of(daemon, session, **more):
    return daemon.gpu.environment(LD_PRELOAD=daemon.product.interceptor, **session["environment"], **more)


@pytest.fixture
def make_gpu(make_gpu):
    """A card whose NVML can be asked at any time: a slow one is asked seldom, and each look would have to be waited for."""
    return lambda **settings: make_gpu(**{"FAKECUDA_NVML_NS": 0, "FAKECUDA_NVML_LIST_NS": 0, "FAKECUDA_NVML_PROCESS_NS": 0,
                                          **settings})


def sampled(daemon, session):
    """The session after a fresh sample."""
    assert daemon.request("GET", "/v1/gpus")[0] == 200
    return daemon.session(session["session_id"])


def test_the_slack_of_100_000_small_allocations_shows_in_driver(make_daemon, make_gpu, start):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_BLOCK_BYTES=2 * MIB)).start()
    session = new_session(daemon, memory_bytes=512 * MIB)
    program = start(environment_of(daemon, session))
    program.do("context()")
    assert program.do("alloc_many(100_000, 1024)") == 100_000
    shown = sampled(daemon, session)
    blocks = 98 * MIB  # 97.66 MiB in blocks of 2 MiB
    assert shown["driver_bytes"] == blocks - 100_000 * 1024
    assert shown["used_bytes"] == blocks
    assert shown["gpus"][0]["driver_bytes"] == shown["processes"][0]["driver_bytes"] == shown["driver_bytes"]
    assert program.do("info()") == [0, 512 * MIB - blocks, 512 * MIB]


def test_what_a_module_takes_counts_at_the_next_request(daemon, start):
    session = new_session(daemon, memory_bytes=64 * MIB)
    program = start(environment_of(daemon, session))
    program.do("context()")
    assert program.do(f"module({24 * MIB})") == 0
    assert sampled(daemon, session)["driver_bytes"] == 24 * MIB
    assert program.do("info()") == [0, 40 * MIB, 64 * MIB]
    assert program.do("memory(by_index(0))") == [64 * MIB, 40 * MIB, 24 * MIB]
    assert program.do(f"alloc({40 * MIB + 1})")[0] == OUT_OF_MEMORY
    assert program.do(f"alloc({40 * MIB})")[0] == 0
    assert sampled(daemon, session)["used_bytes"] == 64 * MIB
    metrics = daemon.request("GET", "/metrics")[1]
    assert any(line.startswith("gpuslice_driver_bytes{") and line.endswith(f" {24 * MIB}")
               for line in metrics.splitlines())


def test_a_refusal_brings_a_sample_soon(make_daemon, start):
    """Nobody asks; the sample of every 5 seconds may be the one, but ten in a row cannot."""
    daemon = make_daemon().start()
    session = new_session(daemon, memory_bytes=64 * MIB)
    program = start(environment_of(daemon, session))
    handle = program.do("context()")
    begun = time.monotonic()
    for turn in range(1, 11):
        assert program.do(f"module({MIB})") == 0
        assert program.do(f"alloc({65 * MIB})")[0] == OUT_OF_MEMORY
        wait_for(lambda: daemon.session(session["session_id"])["driver_bytes"] == turn * MIB, "a sample")
    assert time.monotonic() - begun < 40, "ten samples at their own time take 50 seconds"
    assert program.do(f"destroy({handle})") == 0
    wait_for(lambda: daemon.session(session["session_id"])["driver_bytes"] == 0, "a sample")


def test_what_the_driver_takes_counts_while_the_rest_is_away(daemon, start):
    session = new_session(daemon, memory_bytes=64 * MIB, oversubscribe="swap")
    program = start(environment_of(daemon, session))
    program.do("context()")
    assert program.do(f"module({8 * MIB})") == 0
    assert program.do(f"alloc({32 * MIB})")[0] == 0
    before = sampled(daemon, session)["driver_bytes"]
    assert before >= 8 * MIB
    suspend(daemon, session["session_id"])
    away = sampled(daemon, session)
    assert (away["residency"], away["driver_bytes"]) == ("away", before)
    assert program.do(f"alloc({32 * MIB})")[0] == OUT_OF_MEMORY
    resume(daemon, session["session_id"])
    assert sampled(daemon, session)["driver_bytes"] == before


def test_managed_memory_is_charged_once(daemon, start):
    session = new_session(daemon, memory_bytes=64 * MIB)
    program = start(environment_of(daemon, session))
    handle = program.do("context()")
    _, address = program.do(f"managed({16 * MIB})")
    program.do(f"managed({8 * MIB})")
    program.do(f"module({4 * MIB})")
    shown = sampled(daemon, session)
    assert (shown["used_bytes"], shown["driver_bytes"]) == (28 * MIB, 4 * MIB)
    assert program.do(f"free({address})") == 0
    assert sampled(daemon, session)["used_bytes"] == 12 * MIB
    assert program.do(f"destroy({handle})") == 0
    assert sampled(daemon, session)["used_bytes"] == 0


@pytest.mark.parametrize("place", ["NOWHERE", "DEVICE"])
@pytest.mark.parametrize("pool", ["managed_pool", "default_managed_pool"])
def test_a_pool_of_managed_memory_is_charged_once_wherever_it_is(daemon, start, pool, place):
    session = new_session(daemon, memory_bytes=64 * MIB)
    program = start(environment_of(daemon, session))
    handle = program.do("context()")
    program.do(f"module({4 * MIB})")
    assert sampled(daemon, session)["driver_bytes"] == 4 * MIB
    result, made = program.do(f"{pool}({place})")
    assert result == 0
    result, address = program.do(f"pool_alloc({made}, {16 * MIB})")
    assert result == 0
    shown = sampled(daemon, session)
    assert (shown["used_bytes"], shown["driver_bytes"]) == (20 * MIB, 4 * MIB)
    assert program.do(f"pool_alloc({made}, {44 * MIB + 1})")[0] == OUT_OF_MEMORY
    assert program.do(f"free_async({address})") == 0
    shown = sampled(daemon, session)
    assert (shown["used_bytes"], shown["driver_bytes"]) == (4 * MIB, 4 * MIB)
    result, address = program.do(f"pool_alloc({made}, {32 * MIB})")
    assert result == 0
    assert program.do(f"destroy({handle})") == 0
    shown = sampled(daemon, session)
    assert (shown["used_bytes"], shown["driver_bytes"]) == (32 * MIB, 0)  # it is no context's
    program.do("context()")
    assert program.do(f"pool_alloc({made}, {32 * MIB + 1})")[0] == OUT_OF_MEMORY
    assert program.do(f"free_async({address})") == 0
    assert program.do(f"pool_alloc({made}, {48 * MIB})")[0] == 0
    assert sampled(daemon, session)["used_bytes"] == 48 * MIB


def test_a_stopped_process_is_never_counted_twice(make_daemon, start):
    """Stopped at moments all over an allocation: the session never shows more than was asked for and the module."""
    daemon = make_daemon().start()
    session = new_session(daemon, memory_bytes=64 * MIB)
    program = start(environment_of(daemon, session))
    program.do("context()")
    program.do(f"module({4 * MIB})")
    assert sampled(daemon, session)["used_bytes"] == 4 * MIB
    for _ in range(40):
        program.say(f"[free(a[1]) for a in [alloc({8 * MIB}) for _ in range(50)][::1] if a[0] == 0]")
        for _ in range(5):
            program.process.send_signal(signal.SIGSTOP)
            wait_for(lambda: state_of(program.process.pid) == "T", "the program to stop")
            shown = sampled(daemon, session)
            program.process.send_signal(signal.SIGCONT)
            assert shown["driver_bytes"] == 4 * MIB, shown
            assert shown["used_bytes"] <= 64 * MIB
        freed = program.hear()
        assert freed == [0] * 7, "60 MiB hold seven of 8 MiB"
    assert sampled(daemon, session)["used_bytes"] == 4 * MIB


def test_a_dead_process_takes_its_driver_line_with_it(daemon, start):
    session = new_session(daemon, memory_bytes=64 * MIB)
    staying, going = (start(environment_of(daemon, session)) for _ in range(2))
    for program, size in ((staying, 4 * MIB), (going, 8 * MIB)):
        program.do("context()")
        program.do(f"module({size})")
    assert sampled(daemon, session)["driver_bytes"] == 12 * MIB
    going.process.kill()
    going.process.wait()
    wait_for(lambda: daemon.session(session["session_id"])["driver_bytes"] == 4 * MIB, "the bytes to be back")
    assert sampled(daemon, session)["orphan_bytes"] == 0


def test_what_a_dead_process_leaves_on_the_card_is_an_orphans(daemon, start):
    session = new_session(daemon, memory_bytes=64 * MIB)
    dying, living = (start(environment_of(daemon, session)) for _ in range(2))
    for program in (dying, living):
        program.do("context()")
    assert dying.do(f"alloc({16 * MIB})")[0] == 0
    assert dying.do(f"module({4 * MIB})") == 0
    child = dying.do("fork_idle()")  # and with it the device stays open
    try:
        dying.process.kill()
        dying.process.wait()
        wait_for(lambda: daemon.session(session["session_id"])["orphan_bytes"] == 20 * MIB, "the orphan")
        shown = daemon.session(session["session_id"])
        assert (shown["used_bytes"], shown["driver_bytes"]) == (20 * MIB, 0)
        assert shown["gpus"][0]["orphan_bytes"] == 20 * MIB
        assert living.do("info()") == [0, 44 * MIB, 64 * MIB]
        assert living.do(f"alloc({44 * MIB + 1})")[0] == OUT_OF_MEMORY
        assert "for processes that have died" in daemon.cli("show", session["session_id"]).stdout
        metrics = daemon.request("GET", "/metrics")[1].splitlines()
        assert any(line.startswith("gpuslice_orphan_bytes{") and line.endswith(f" {20 * MIB}") for line in metrics)
    finally:
        os.kill(child, signal.SIGKILL)
    wait_for(lambda: sampled(daemon, session)["orphan_bytes"] == 0, "the child's memory to go")
    assert living.do(f"alloc({64 * MIB})")[0] == 0


# --- NVML inside a session --------------------------------------------------------------------------------------

def test_process_lists_show_the_sessions_own(daemon, start):
    session, other = (new_session(daemon, memory_bytes=64 * MIB) for _ in range(2))
    first, second = (start(environment_of(daemon, session)) for _ in range(2))
    stranger, outside = start(environment_of(daemon, other)), start(daemon.gpu.environment())
    for program, size in ((first, 1), (second, 2), (stranger, 3), (outside, 4)):
        program.do("context()")
        assert program.do(f"alloc({size * MIB})")[0] == 0
    first.do(f"module({8 * MIB})")
    second.do(f"managed({16 * MIB})")
    own = sorted([[first.own_pid, 9 * MIB], [second.own_pid, 18 * MIB]])
    for version in ("", "_v2", "_v3"):
        result, count, listed = first.do(f"processes(by_index(0), '{version}')")
        assert (result, count, sorted(listed)) == (0, 2, own)
        assert first.do(f"processes(by_index(0), '{version}', 'Graphics')") == [0, 0, []]
        assert first.do(f"processes(by_index(0), '{version}', room=1)") == [INSUFFICIENT_SIZE, 2, []]
        assert first.do(f"processes(by_index(0), '{version}', room=0)") == [INSUFFICIENT_SIZE, 2, []]
    assert stranger.do("processes(by_index(0))") == [0, 1, [[stranger.own_pid, 3 * MIB]]]
    assert outside.do("processes(by_index(0))")[1] == 4


@pytest.mark.parametrize("settings, entry", [({"FAKECUDA_DRIVER_VERSION": "535.54.03"}, "Detail"),
                                             ({"FAKECUDA_NVML_ENTRY_BYTES": 16}, "Process1"),
                                             ({"FAKECUDA_NVML_ENTRY_BYTES": 24}, "Process2"),
                                             ({"FAKECUDA_NVML_ENTRY_BYTES": 32}, "Detail")])
def test_lists_are_read_and_answered_as_the_driver_has_their_entries(make_daemon, make_gpu, start, settings, entry):
    """Some versions' entries have another length than is documented; the program was built for its driver's."""
    daemon = make_daemon(gpu=make_gpu(**settings)).start()
    session = new_session(daemon, memory_bytes=64 * MIB)
    programs = [start(environment_of(daemon, session)) for _ in range(3)]
    for size, program in enumerate(programs):
        program.do("context()")
        assert program.do(f"alloc({(size + 1) * MIB})")[0] == 0
        program.do(f"module({8 * MIB})")
    own = sorted([program.own_pid, (size + 9) * MIB] for size, program in enumerate(programs))
    result, count, listed = programs[0].do(f"processes(by_index(0), entry={entry})")
    assert (result, count, sorted(listed)) == (0, 3, own)
    wait_for(lambda: sampled(daemon, session)["driver_bytes"] == 3 * 8 * MIB, "the daemon to read it")
    shown = daemon.request("GET", "/v1/gpus")[1][0]["processes"]
    assert sorted([process["pid"], process["used_bytes"]] for process in shown) == own


@pytest.mark.parametrize("figures", [1, 2], ids=["absent", "zero"])
def test_figures_that_nvml_does_not_have_are_said_so_and_count_for_nothing(make_daemon, make_gpu, start, figures):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_NVML_NO_FIGURES=figures)).start()
    session = new_session(daemon, memory_bytes=64 * MIB)
    program = start(environment_of(daemon, session))
    program.do("context()")
    assert program.do(f"alloc({MIB})")[0] == 0
    (process,) = wait_for(lambda: daemon.request("GET", "/v1/gpus")[1][0]["processes"], "the process to be listed")
    assert process["used_bytes"] == (None if figures == 1 else 0)
    wait_for(lambda: "GPU 0: NVML does not tell what each process holds" in daemon.log_text(), "the log to say so")
    assert daemon.session(session["session_id"])["used_bytes"] == MIB


def test_a_process_that_could_not_attach_lists_nobody(daemon, start):
    session = new_session(daemon, memory_bytes=64 * MIB)
    holder = start(environment_of(daemon, session))
    holder.do("context()")
    holder.do(f"alloc({MIB})")
    refused = start(environment_of(daemon, {"environment": {**session["environment"], "GPUSLICE_SESSION": "0" * 12}}))
    assert refused.do("processes(by_index(0))") == [0, 0, []]


def test_pids_are_those_of_the_callers_namespace(daemon, start):
    if subprocess.run(["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "true"],
                      capture_output=True).returncode != 0:
        pytest.skip("no pid namespaces here")
    session = new_session(daemon, memory_bytes=64 * MIB)
    outer = start(environment_of(daemon, session))
    inner = start(environment_of(daemon, session),
                  ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"])
    for program, size in ((outer, 1), (inner, 2)):
        program.do("context()")
        assert program.do(f"alloc({size * MIB})")[0] == 0
    assert inner.own_pid == 1
    # The outer one is not to be seen from inside, and keeps the only pid it is known by.
    assert sorted(inner.do("processes(by_index(0))")[2]) == [[1, 2 * MIB], [outer.own_pid, MIB]]
    listed = dict(outer.do("processes(by_index(0))")[2])
    assert listed[outer.own_pid] == MIB and sorted(listed.values()) == [MIB, 2 * MIB]


def test_however_a_gpu_is_named_it_is_the_same_smaller_one(make_daemon, make_gpu, start):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_GPUS=3)).start()
    session = new_session(daemon, gpus=[{"gpu": "2", "memory_bytes": 96 * MIB}, {"gpu": "1", "memory_bytes": 32 * MIB}])
    program = start(environment_of(daemon, session))
    uuids = [gpu["uuid"] for gpu in daemon.request("GET", "/v1/gpus")[1]]
    assert program.do("device_count()") == 3
    program.do("context(0)")  # GPU 2: the session's first
    assert program.do(f"alloc({6 * MIB})")[0] == 0
    for index, memory, listed in ((0, [GIB, 0, GIB], []), (1, [32 * MIB, 32 * MIB, 0], []),
                                  (2, [96 * MIB, 90 * MIB, 6 * MIB], [[program.own_pid, 6 * MIB]])):
        for handle in (f"by_index({index})", f"by_uuid('{uuids[index]}')", f"by_pci('00000000:{index + 1:02X}:00.0')"):
            assert program.do(f"uuid_of({handle})") == uuids[index]
            assert program.do(f"memory({handle})") == memory
            assert program.do(f"processes({handle})") == [0, len(listed), listed]


def test_a_program_that_reorders_its_gpus_is_charged_on_the_right_one(make_daemon, make_gpu, start):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_GPUS=3)).start()
    uuids = [gpu["uuid"] for gpu in daemon.request("GET", "/v1/gpus")[1]]
    limits = {uuid: (index + 1) * 16 * MIB for index, uuid in enumerate(uuids)}
    session = new_session(daemon, gpus=[{"gpu": uuid, "memory_bytes": limits[uuid]} for uuid in uuids])
    assert session["environment"]["CUDA_VISIBLE_DEVICES"] == ",".join(uuids)
    order = [uuids[2], uuids[0], uuids[1]]
    environment = environment_of(daemon, session)
    environment["CUDA_VISIBLE_DEVICES"] = ",".join(order)
    program = start(environment)
    for ordinal, uuid in enumerate(order):
        assert program.do(f"cuda_uuid({ordinal})") == uuid
        program.do(f"context({ordinal})")
        assert program.do(f"alloc({limits[uuid] + 1})")[0] == OUT_OF_MEMORY
        assert program.do(f"alloc({(ordinal + 1) * MIB})")[0] == 0
        assert program.do("info()") == [0, limits[uuid] - (ordinal + 1) * MIB, limits[uuid]]
    used = {gpu["uuid"]: gpu["used_bytes"] for gpu in daemon.session(session["session_id"])["gpus"]}
    assert used == {order[0]: MIB, order[1]: 2 * MIB, order[2]: 3 * MIB}


def test_run_names_gpus_by_uuid(make_daemon, make_gpu):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_GPUS=3)).start()
    uuids = [gpu["uuid"] for gpu in daemon.request("GET", "/v1/gpus")[1]]
    ran = daemon.cli("run", "--gpu", "2", "--gpu", "0", "--memory", "16MiB", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert ran.stdout.strip() == f"{uuids[2]},{uuids[0]}"


# --- What a slot says of itself ---------------------------------------------------------------------------------

def moves_of(daemon, session, slot=0):
    """Threads of a process that are between its ledger and the driver (src/ledger/usage.h)."""
    usage = daemon.runtime / "simulated" / "ledgers" / session["session_id"]
    with open(usage, "rb") as file:
        file.seek(GPUS + REQUESTS + 64 * slot + 48)
        return struct.unpack("<Q", file.read(8))[0]


def test_no_call_leaves_a_slot_moving(daemon, product, reap):
    """One that did would keep its driver line for ever."""
    session = new_session(daemon, memory_bytes=64 * MIB)
    puppet = Puppet(product, environment_of(daemon, session))
    reap(puppet.process)
    context = puppet.get("context", 0)
    made = {}
    for kind in ("alloc", "managed", "async", "vmm"):
        made[kind] = puppet.get(kind, 4 * MIB)
        assert moves_of(daemon, session) == 0, kind
        assert puppet.code(kind, 128 * MIB) == OUT_OF_MEMORY
        assert moves_of(daemon, session) == 0, f"{kind}, refused"
    pitched = puppet.get("pitch", 1000, 100)
    mapping = puppet.get("map", made["vmm"])
    assert moves_of(daemon, session) == 0
    for line in (f"pitch {MIB} 100", "null", "zero", "freenull", f"free {pitched}", f"free {pitched}", "sync", "trim",
                 f"unmap {mapping}", f"drop {made['vmm']}", f"drop {made['vmm']}", f"freeasync {made['async']}", "sync",
                 f"free {made['managed']}", f"freeasync {made['alloc']}", "retain 0", "release 0", "retain 0", "reset 0",
                 "context 9", f"destroy {context}", "alloc 1"):
        puppet.do(line)
        assert moves_of(daemon, session) == 0, line
    assert sampled(daemon, session)["used_bytes"] == 0


def test_a_program_reads_how_busy_the_gpu_is_with_others_work(daemon, start):
    idle, worker = (start(environment_of(daemon, new_session(daemon, name=name))) for name in ("idle", "worker"))
    idle.do("context()"), worker.do("context()")
    end = time.monotonic() + DEADLINE_S
    while (idle.do("node_busy()")[0] or 0) == 0:  # in the card's last second, by samples that are up to 5 s apart
        assert time.monotonic() < end, "the work is not seen"
        assert worker.do("spin(200)") == 0
        daemon.request("GET", "/v1/gpus")
    assert 0 < idle.do("node_busy()")[0] <= 100
    daemon.kill()
    daemon.start()
    idle.do("context()")  # in the next daemon's policy
    wait_for(lambda: idle.do("node_busy()") == [0], "the GPU to rest")
