"""Memory that leaves the card and comes back: gpuslice suspend and resume, with every byte looked at."""
import contextlib
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import subprocess
import threading
import time

import pytest

import attach_client
import moved
from conftest import GIB, MIB, wait_for
from moved import card_used, left_in_turns, resume, suspend, suspend_in_part, wait_until_away, wait_until_shown


class Movable:
    """A process that is tests/system/programs/movable.c, in a session."""

    def __init__(self, process, greeting="ready"):
        self.process = process
        assert self.read() == greeting, process.stderr.read()

    def read(self):
        return self.process.stdout.readline().strip()

    def send(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def has_answered(self, seconds):
        """Whether it says anything, or ends, within so long."""
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def ask(self, command):
        self.send(command)
        return self.read()

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(20) == 0, self.process.stderr.read()


def assert_good_in_turns(movables):
    """Each has its bytes, one after the other and all at once."""
    for _ in range(2):
        for movable in movables:
            assert movable.ask("check") == "good"
    for movable in movables:
        movable.send("check")
    assert [movable.read() for movable in movables] == ["good"] * len(movables)


def run_movable(daemon, reap, buffers, most, *options):
    """movable with `gpuslice run OPTIONS`, ready."""
    return Movable(reap(daemon.spawn("run", *options, "--", daemon.product.program("movable"), str(buffers), str(most))))


@pytest.fixture
def start(daemon, reap):
    """start(BUFFERS, BYTES, *OPTIONS) runs movable with `gpuslice run --oversubscribe OPTIONS`."""
    def begin(buffers, most, *options, session=None):
        how = ["--session", session] if session else ["--oversubscribe", *options]
        return run_movable(daemon, reap, buffers, most, *how)
    return begin


# Who works launches one kernel after the other: so it waits for the GPU, and does not keep a CPU busy.
WORKS = {"FAKECUDA_KERNEL_NS": 1_000_000}


@pytest.fixture
def narrow(make_daemon, make_gpu):
    """A daemon whose card has 400 MiB."""
    return make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=400 * MIB, **WORKS)).start()


def start_two(daemon, reap, names="ab"):
    """Of two sessions that do not fit together on the narrow card: each may have 350 MiB, and uses some 300."""
    return [run_movable(daemon, reap, 50, 10 * MIB, "--name", name, "--oversubscribe", "--memory", "350MiB") for name in names]


def free_bytes(daemon):
    return daemon.request("GET", "/v1/gpus")[1][0]["free_bytes"]


def wait_until_free(daemon, wanted):
    """NVML shows that so much is free, for which it may take its time."""
    wait_for(lambda: free_bytes(daemon) == wanted, lambda: f"{wanted} bytes to be free, not {free_bytes(daemon)}")


def events(daemon, session):
    """Kinds and messages of the session's events."""
    return [(event["kind"], event["message"]) for event in moved.events(daemon, session)]


def test_memory_leaves_the_card_and_comes_back_byte_for_byte(daemon, start):
    movable = start(40, 8 * MIB, "--name", "a", "--memory", "512MiB")
    before = free_bytes(daemon)
    session = suspend(daemon, "a")
    assert " suspended " in daemon.cli("list").stdout and session["evicted_bytes"] > 80 * MIB
    movable.send("check")
    resume(daemon, "a")
    assert movable.read() == "good" and free_bytes(daemon) == before
    assert movable.ask("fill 2") == "filled"
    suspend(daemon, "a")
    daemon.cli("suspend", "a")  # again is no mistake
    resume(daemon, "a")
    daemon.cli("resume", "a")
    assert movable.ask("check") == "good"
    left = [event for event in moved.events(daemon, session) if event["kind"] == "session.suspended"]
    assert [(event["evicted_bytes"], event["stays_bytes"]) for event in left] == [(session["evicted_bytes"], 0)] * 2
    assert [kind for kind, _ in events(daemon, session)].count("session.resumed") == 2
    movable.end()


def test_processes_of_a_session_move_together_and_new_ones_wait(daemon, start):
    daemon.cli("create", "--name", "a", "--memory", "600MiB", "--oversubscribe")
    movables = [start(10, 8 * MIB, session="a") for _ in range(3)]
    suspend(daemon, "a")
    # What it asks for now is not on the card.
    assert movables[0].ask("alloc 1048576") == "allocated"
    for movable in movables:
        movable.send("check")
    resume(daemon, "a")
    assert [movable.read() for movable in movables] == ["good"] * 3
    for movable in movables:
        movable.end()
    daemon.cli("release", "a")


def test_what_needs_no_gpu_wakes_nobody(daemon, start):
    movable = start(10, 4 * MIB, "--name", "a", "--memory", "512MiB")
    suspend(daemon, "a")
    assert movable.ask("ask") == "good"
    assert movable.ask(f"alloc {3 * MIB}") == "allocated"
    assert movable.ask(f"alloc {MIB}") == "allocated"
    assert movable.ask("free") == "freed"
    wait_until_away(daemon, "a", 10 * MIB)
    assert daemon.session("a")["suspended_by"] == "user"
    movable.send("touch")
    resume(daemon, "a")
    assert movable.read() == "touched" and movable.ask("fill 3") == "filled" and movable.ask("check") == "good"
    movable.end()


NAMED_BY = ["captured-copy", "captured-peer-copy", "captured-box", "captured-fill", "captured-write", "copy-and-fill-nodes", "node",
            "set-params", "set-copy-of-exec", "set-fill-of-exec", "update", "instantiate", "texture"]


def test_what_names_addresses_waits_for_the_memory(daemon, start):
    """Also where it gives the GPU nothing: the driver looks at what is there."""
    movable = start(8, MIB, "--name", "a", "--memory", "512MiB")
    assert movable.ask("name nothing") == "ready to name"
    for how in NAMED_BY:
        suspend(daemon, "a")
        movable.send(f"name {how}")
        assert not movable.has_answered(0.1), f"{how}: {movable.read() or movable.process.stderr.read()}"
        resume(daemon, "a")
        assert movable.read() == "named"
    assert movable.ask("check") == "good"
    movable.end()


def test_sessions_that_cannot_move_say_so(daemon):
    daemon.cli("create", "--name", "a")
    for verb, said in (("suspend", "--oversubscribe"), ("resume", "not suspended: nothing to resume")):
        answer = daemon.cli(verb, "a", check=False)
        assert answer.returncode == 1 and said in answer.stderr
        status, body = daemon.request("POST", f"/v1/sessions/a/{verb}")
        assert status == 409 and body["error"]["code"] == "ERR_NOT_MOVABLE"
    for verb in (["set", "a"], ["create"]):
        answer = daemon.cli(*verb, "--idle-suspend", "5s", check=False)
        assert answer.returncode == 1 and "--oversubscribe" in answer.stderr


@pytest.fixture
def start_plain(reap):
    """start_plain(DAEMON, *OPTIONS) runs movable in a session whose memory is the driver's own."""
    def begin(daemon, *options):
        return run_movable(daemon, reap, 40, 8 * MIB, *options)
    return begin


def test_the_driver_takes_programs_of_other_sessions_off_the_card(daemon, start_plain):
    """By cuCheckpointProcess*, of driver 570 and later: with the context, and all that is in it."""
    plain = start_plain(daemon, "--name", "a", "--memory", "512MiB")
    card = daemon.request("GET", "/v1/gpus")[1][0]["total_bytes"]
    before = free_bytes(daemon)
    assert before < card
    for _ in range(2):
        suspend(daemon, "a")
        assert daemon.session("a")["residency"] == "away" and daemon.session("a")["suspended_by"] == "user"
        assert free_bytes(daemon) == card
        plain.send("check")
        assert not plain.has_answered(0.2)
        resume(daemon, "a")
        assert plain.read() == "good"
        assert daemon.session("a")["residency"] == "resident" and free_bytes(daemon) == before
    told = events(daemon, daemon.session("a"))
    assert ("session.suspended", "its programs left the card as a whole") in told
    assert ("session.resumed", "its programs are back on the card") in told
    plain.end()


def test_a_driver_without_checkpoints_refuses(make_daemon, make_gpu, start_plain):
    daemon = make_daemon(make_gpu(FAKECUDA_DRIVER_VERSION="535.54.03")).start()
    plain = start_plain(daemon, "--name", "a", "--memory", "512MiB")
    refused = daemon.cli("suspend", "a", check=False)
    assert refused.returncode == 1
    assert "535.54.03" in refused.stderr and "570" in refused.stderr and "--oversubscribe" in refused.stderr
    assert daemon.session("a")["residency"] == "resident" and plain.ask("check") == "good"
    plain.end()


def test_a_checkpointed_program_waits_for_room_that_others_took(daemon, start_plain, product, reap):
    plain = start_plain(daemon, "--name", "a", "--memory", "512MiB")
    suspend(daemon, "a")
    bytes_left = free_bytes(daemon)
    other = Movable(reap(subprocess.Popen([product.program("movable"), "0", "1"], env=daemon.gpu.environment(), text=True,
                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)))
    taken = bytes_left - free_bytes(daemon)  # by its context
    assert other.ask(f"alloc {bytes_left - taken}") == "allocated"
    refused = daemon.cli("resume", "a", check=False)
    assert refused.returncode == 1 and "no room" in refused.stderr
    assert "is free" in refused.stderr  # by NVML: a driver that was asked in vain may be unable to try again
    assert daemon.session("a")["residency"] == "away"
    other.end()
    resume(daemon, "a")
    assert plain.ask("check") == "good"
    plain.end()


def test_programs_that_came_back_alone_leave_again(daemon, product, reap):
    """The card has room for one of two when their session is resumed; what has started in it meanwhile leaves with that one."""
    daemon.cli("create", "--name", "a", "--memory", "700MiB")
    card = free_bytes(daemon)

    def begin():
        plain = run_movable(daemon, reap, 1, 4096, "--session", "a")
        assert plain.ask(f"alloc {200 * MIB}") == "allocated" and plain.ask("fill 1") == "filled"
        return plain
    plains = [begin(), begin()]
    wait_for(lambda: free_bytes(daemon) <= card - 400 * MIB, "both to be shown")
    each = (card - free_bytes(daemon)) // 2
    suspend(daemon, "a")
    other = Movable(reap(subprocess.Popen([product.program("movable"), "0", "1"], env=daemon.gpu.environment(), text=True,
                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)))
    wait_for(lambda: free_bytes(daemon) >= card - MIB, "both to have left")
    assert other.ask(f"alloc {card - each - 100 * MIB}") == "allocated"
    wait_for(lambda: free_bytes(daemon) <= each + 100 * MIB, "the other one to be shown")
    alone = free_bytes(daemon)
    refused = daemon.cli("resume", "a", check=False)
    assert refused.returncode == 1 and "no room" in refused.stderr
    assert daemon.session("a")["residency"] == "away"
    wait_until_free(daemon, alone - each)
    for _ in range(2):
        daemon.cli("suspend", "a")
        assert daemon.session("a")["residency"] == "away"
        wait_until_free(daemon, alone)
    plains.append(run_movable(daemon, reap, 1, 4096, "--session", "a"))
    wait_for(lambda: free_bytes(daemon) < alone, "the new one to be shown")
    daemon.cli("suspend", "a")
    wait_until_free(daemon, alone)
    other.end()
    wait_for(lambda: free_bytes(daemon) >= card - MIB, "the other one to have left")
    resume(daemon, "a")
    for plain in plains:
        assert plain.ask("check") == "good"
        plain.end()


def test_checkpointed_programs_outlive_the_daemon_and_die_whole(daemon, start_plain):
    one, other = (start_plain(daemon, "--name", name, "--memory", "512MiB") for name in "ab")
    for name in "ab":
        suspend(daemon, name)
    daemon.kill()
    daemon.start()
    assert daemon.session("a")["residency"] == "away"
    resume(daemon, "a")
    assert one.ask("check") == "good"
    other.process.kill()
    other.process.wait()
    wait_for(lambda: [session["name"] for session in daemon.request("GET", "/v1/sessions")[1]] == ["a"], "the killed one's session to end")
    one.end()
    gpu = wait_for(lambda: (now := daemon.request("GET", "/v1/gpus")[1][0])["processes"] == [] and now, "the card to be empty")
    wait_until_free(daemon, gpu["total_bytes"])


def test_what_gdrcopy_may_have_registered_stays(daemon, product, reap, tmp_path):
    """Its device is open: no call of the driver says which memory it reaches."""
    device = tmp_path / "gdrdrv"
    device.touch()
    movable = Movable(reap(daemon.spawn("run", "--oversubscribe", "--name", "a", "--memory", "512MiB", "--", "sh", "-c",
                                        f"exec {product.program('movable')} 4 {8 * MIB} 9<{device}")))
    before = free_bytes(daemon)
    answer = daemon.cli("suspend", "a", check=False)
    assert answer.returncode == 3 and "that a network card or gdrcopy may have registered" in answer.stdout + answer.stderr
    assert "gdrcopy may have registered" in daemon.cli("show", "a").stdout
    assert free_bytes(daemon) == before and daemon.session("a")["evicted_bytes"] == 0
    resume(daemon, "a")
    assert movable.ask("check") == "good"
    movable.end()


def test_a_bound_on_host_memory_refuses_before_anything_moves(daemon, start):
    movable = start(40, 8 * MIB, "--name", "a", "--memory", "512MiB", "--host-memory", "64MiB")
    refused = daemon.cli("suspend", "a", check=False)
    assert refused.returncode == 1 and "host memory" in refused.stderr and "64MiB" in refused.stderr
    assert daemon.session("a")["residency"] == "resident" and movable.ask("check") == "good"
    daemon.cli("set", "a", "--host-memory", "1GiB")
    assert ("session.changed", "host-memory: 1GiB") in events(daemon, daemon.session("a"))
    suspend(daemon, "a")
    resume(daemon, "a")
    assert movable.ask("check") == "good"
    movable.end()


def test_a_bound_on_host_memory_that_would_hold_nothing_is_refused(daemon):
    """It comes in chunks, so it would only make a later eviction fail."""
    nothing = "is too little, because sessions get it in pieces of at least 64MiB; expected 64MiB or more"
    for bound in ("1B", str(64 * MIB - 1)):
        for verb in (["create"], ["run"]):
            refused = daemon.cli(*verb, "--oversubscribe", "--host-memory", bound, *(["--", "true"] if verb == ["run"] else []), check=False)
            assert refused.returncode == 1 and nothing in refused.stderr
    status, answer = daemon.request("POST", "/v1/sessions", {"oversubscribe": "swap", "host_memory_bytes": 1})
    assert status == 400 and answer["error"]["code"] == "ERR_BAD_REQUEST" and nothing in answer["error"]["message"]
    daemon.cli("create", "--name", "a", "--oversubscribe", "--host-memory", "64MiB")
    refused = daemon.cli("set", "a", "--host-memory", "1B", check=False)
    assert refused.returncode == 1 and nothing in refused.stderr
    assert daemon.session("a")["host_memory_limit_bytes"] == 64 * MIB


@pytest.fixture
def memory_cgroup():
    """memory_cgroup(PROCESS, BYTES) puts a process into a memory cgroup of its own with that bound; the answer says how often its
    OOM killer was at work. Skipped where this machine lets nobody make one."""
    made = []

    def processes_now(folder):
        return (folder / "cgroup.procs").read_text().split()

    def make(process, most):
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            root = pathlib.Path("/sys/fs/cgroup") / ("memory" if controllers else "") / path.lstrip("/")
            bound = "memory.limit_in_bytes" if controllers else "memory.max"
            if controllers.split(",") not in (["memory"], [""]) or not os.access(root, os.W_OK):
                continue
            with contextlib.suppress(OSError):
                folder = root / f"gpuslice-{process.pid}"
                folder.mkdir()
                made.append(folder)
                (folder / bound).write_text(str(most))
                (folder / "cgroup.procs").write_text(str(process.pid))
                events = folder / ("memory.oom_control" if controllers else "memory.events")
                return lambda: int(dict(line.split() for line in events.read_text().splitlines()).get("oom_kill", 0))
        pytest.skip("no memory cgroup can be made here")

    yield make
    for folder in made:
        for pid in processes_now(folder):
            with contextlib.suppress(OSError):
                (folder.parent / "cgroup.procs").write_text(pid)
        folder.rmdir()


def test_a_memory_cgroup_that_is_too_small_refuses_before_its_bound(daemon, start, memory_cgroup):
    """The OOM killer has nothing to do, and the session stays as it was."""
    kills = memory_cgroup(daemon.process, 300 * MIB)
    large = start(60, 10 * MIB, "--name", "large", "--memory", "700MiB")
    wait_for(lambda: daemon.session("large")["movable_bytes"] > 300 * MIB, "the daemon to have heard of more than fits")
    refused = daemon.cli("suspend", "large", check=False)
    assert refused.returncode == 1 and "there is not enough host memory" in refused.stderr and "can spare" in refused.stderr
    wait_for(lambda: daemon.session("large")["residency"] == "resident" and daemon.session("large")["host_memory_bytes"] == 0,
             "what had left to be back")
    small = start(10, 8 * MIB, "--name", "small", "--memory", "200MiB")
    suspend(daemon, "small")
    resume(daemon, "small")
    assert large.ask("check") == "good" and small.ask("check") == "good" and kills() == 0
    for movable in (large, small):
        movable.end()


def test_an_idle_session_leaves_and_comes_back_by_itself(daemon, start):
    movable = start(10, 8 * MIB, "--name", "a", "--memory", "512MiB", "--idle-suspend", "1s")
    wait_until_away(daemon, "a", 20 * MIB)
    assert daemon.session("a")["suspended_by"] == "idle"
    assert movable.ask("check") == "good"
    assert daemon.session("a")["residency"] == "resident"
    movable.end()


def test_what_a_thread_without_a_context_exports_comes_back_for_it(daemon, start):
    movable = start(10, 8 * MIB, "--name", "a", "--memory", "512MiB", "--idle-suspend", "1s")
    wait_until_away(daemon, "a", 20 * MIB)
    movable.send("export")
    assert movable.has_answered(20) and movable.read() == "exported"
    assert movable.ask("check") == "good"
    movable.end()


def test_memory_outlives_the_daemon_where_it_is(daemon, start):
    resident = start(10, 8 * MIB, "--name", "here", "--memory", "200MiB")
    away = start(10, 8 * MIB, "--name", "away", "--memory", "200MiB")
    suspend(daemon, "away")
    daemon.kill()
    assert resident.ask("check") == "good"  # runs on
    away.send("check")                      # waits
    daemon.start()
    session = wait_for(lambda: (now := daemon.session("away"))["evicted_bytes"] and now, "the process to say where it is")
    assert session["residency"] == "away" and session["suspended_by"] == "user"
    resume(daemon, "away")
    assert away.read() == "good"
    away.end()
    assert "waits" in away.process.stderr.read()
    resident.end()


def test_a_program_ends_while_its_memory_is_away(daemon, start):
    movable = start(10, 8 * MIB, "--name", "a", "--memory", "300MiB")
    suspend(daemon, "a")
    movable.end()


def test_an_exit_handler_that_uses_the_gpu_waits_for_the_memory(daemon, start):
    movable = start(10, 8 * MIB, "--name", "a", "--memory", "300MiB")
    assert movable.ask("atexit") == "will"
    suspend(daemon, "a")
    movable.process.stdin.close()
    daemon.cli("resume", "a")  # which may see the session end
    assert movable.read() == "good"
    assert movable.process.wait(20) == 0, movable.process.stderr.read()


def test_a_stopped_process_keeps_only_its_own_session_waiting(daemon, start):
    stopped = start(4, 8 * MIB, "--name", "stopped", "--memory", "200MiB")
    other = start(4, 8 * MIB, "--name", "other", "--memory", "200MiB")
    os.kill(stopped.process.pid, signal.SIGSTOP)
    daemon.cli("suspend", "stopped", "--no-wait")
    suspend(daemon, "other")
    resume(daemon, "other")
    assert other.ask("check") == "good" and daemon.session("stopped")["residency"] == "leaving"
    assert "leaving, about" in daemon.cli("list").stdout and "leaving: its memory is leaving the card, about" in daemon.cli("show", "stopped").stdout
    os.kill(stopped.process.pid, signal.SIGCONT)
    wait_until_away(daemon, "stopped", 8 * MIB)
    daemon.cli("resume", "stopped")
    assert stopped.ask("check") == "good"
    stopped.end()
    other.end()


@pytest.mark.long
def test_a_process_stopped_while_it_leaves_blocks_no_session_that_others_can_help(narrow, reap):
    stopped, idle, asks = (run_movable(narrow, reap, count, 10 * MIB, "--name", name, "--oversubscribe", "--memory", "350MiB")
                           for name, count in (("stopped", 20), ("idle", 20), ("asks", 1)))
    os.kill(stopped.process.pid, signal.SIGSTOP)
    assert asks.ask(f"alloc {200 * MIB}") == "allocated"
    wait_for(lambda: narrow.session("idle")["residency"] == "away", "the idle one to have left")
    assert narrow.session("stopped")["residency"] == "leaving"
    os.kill(stopped.process.pid, signal.SIGCONT)
    for movable in (stopped, idle, asks):
        assert movable.ask("check") == "good"
        movable.end()


@pytest.mark.long
def test_host_memory_that_is_not_needed_any_more_goes_back(daemon, start):
    """After a while; what the session has left still leaves and comes back."""
    movable = start(10, MIB, "--name", "a", "--memory", "700MiB")
    assert movable.ask(f"alloc {600 * MIB}") == "allocated"
    suspend(daemon, "a")
    assert daemon.session("a")["host_memory_bytes"] >= 600 * MIB
    resume(daemon, "a")
    assert movable.ask("free") == "freed"
    wait_for(lambda: daemon.session("a")["host_memory_bytes"] <= 320 * MIB, "host memory to go back", 30)
    suspend(daemon, "a")
    resume(daemon, "a")
    assert movable.ask("check") == "good"
    movable.end()


def test_host_memory_of_a_process_whose_ledger_was_lost_counts_on(daemon, start):
    """It attaches again, to another ledger, and has the host memory that an earlier daemon gave it."""
    program = start(4, 32 * MIB, "--name", "a")
    program.ask(f"alloc {32 * MIB}")
    suspend(daemon, "a")
    resume(daemon, "a")
    given = daemon.session("a")["host_memory_bytes"]
    assert given > 0
    daemon.kill()
    shutil.rmtree(daemon.runtime / "simulated" / "ledgers")
    daemon.start()
    wait_for(lambda: daemon.session("a")["host_memory_bytes"] == given, "the program and its host memory to be back")
    suspend(daemon, "a")
    assert daemon.session("a")["host_memory_bytes"] == given
    resume(daemon, "a")
    assert program.ask("check") == "good"
    program.end()


def test_host_memory_is_the_process_s_alone_and_goes_with_it(daemon, start):
    """The daemon keeps a descriptor by which it frees it, and no mapping; nothing is left when the process is killed."""
    def arenas(pid):
        found = []
        for path in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                found += [path.name] if "gpuslice-arena" in os.readlink(path) else []
        return found

    movable = start(10, 8 * MIB, "--name", "a", "--memory", "300MiB")
    suspend(daemon, "a")
    assert daemon.session("a")["host_memory_bytes"] >= 64 * MIB
    assert len(arenas(daemon.process.pid)) == 1 and "gpuslice-arena" not in open(f"/proc/{daemon.process.pid}/maps").read()
    assert arenas(movable.process.pid) == [] and "gpuslice-arena" in open(f"/proc/{movable.process.pid}/maps").read()
    movable.process.kill()
    wait_for(lambda: daemon.request("GET", "/v1/sessions/a")[0] == 404, "the session to end")
    wait_for(lambda: arenas(daemon.process.pid) == [], "its host memory to be freed")


def test_sessions_that_do_not_fit_together_take_turns(narrow, reap):
    daemon, movables = narrow, start_two(narrow, reap)
    assert daemon.request("GET", "/v1/gpus")[1][0]["reserved_bytes"] == 350 * MIB
    assert_good_in_turns(movables)
    events_of = [kind for name in "ab" for kind, _ in events(daemon, daemon.session(name))]
    assert "session.resumed" in events_of and "session.move_failed" not in events_of
    for name in "ab":
        assert min(left_in_turns(daemon, name)) > 200 * MIB
    for movable in movables:
        movable.end()


@pytest.mark.parametrize("options", [["--compute", "10%..40%", "--priority", "low"],
                                     pytest.param(["--compute", "50%"], marks=pytest.mark.long)])
def test_sessions_that_do_not_fit_together_work_in_their_turns_where_shares_count(make_daemon, make_gpu, product, reap, options):
    """Who waits for the GPU's time has work, and keeps its memory until it has had its turn."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=160 * MIB)).start()
    daemon.cli("scheduler", "--quantum", "1s")
    processes = [reap(daemon.spawn("run", "--name", name, "--oversubscribe", "--memory", "150MiB", *options, "--",
                                   product.program("movable"), "20", str(10 * MIB))) for name in "ab"]
    checks = [0, 0]

    def work_without_end(number):
        movable = Movable(processes[number])
        while movable.ask("check") == "good":
            checks[number] += 1

    for number in range(2):
        threading.Thread(target=work_without_end, args=[number], daemon=True).start()
    for _ in range(2):  # both, after both have begun
        before = list(checks)
        wait_for(lambda: all(now > then + 2 for now, then in zip(checks, before)), "both to get something done", 40)
    for process in processes:
        process.kill()


def test_more_than_half_of_the_card_waits_for_room_at_once(narrow, reap):
    """What a thread waits for is not counted as there already."""
    first, second = (run_movable(narrow, reap, 4, 8 * MIB, "--name", name, "--oversubscribe", "--memory", "350MiB") for name in ("first", "second"))
    assert first.ask(f"alloc {270 * MIB}") == "allocated"
    assert second.ask(f"alloc {270 * MIB}") == "allocated"
    assert first.ask("check") == "good"
    for movable in (first, second):
        movable.end()


@pytest.mark.parametrize("context_mib, command", [(60, None), (10, f"graph {120 * MIB} 2"), *(
    pytest.param(10, command, marks=pytest.mark.long) for command in (f"async {120 * MIB}", f"graph {120 * MIB} 0"))])
def test_whatever_a_program_needs_waits_for_room(make_daemon, make_gpu, product, reap, context_mib, command):
    """On a card that is full, a program's first context, pools, and graphs with memory of their own, launched or uploaded, make others
    leave, as its allocations do."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=400 * MIB, FAKECUDA_CONTEXT_BYTES=context_mib * MIB)).start()
    movable = run_movable(daemon, reap, 54, 10 * MIB, "--oversubscribe", "--name", "a")
    puppet = reap(daemon.spawn("run", "--name", "b", "--", product.program("puppet")))
    puppet.stdout.readline()

    def ask(command):
        puppet.stdin.write(command + "\n")
        puppet.stdin.flush()
        return puppet.stdout.readline().split()[0]
    assert free_bytes(daemon) < (60 if command is None else 120) * MIB
    assert ask("context 0") == "0"
    if command:
        assert daemon.session("a")["residency"] == "resident" and ask(command) == "0"
    wait_until_away(daemon, "a", 200 * MIB)
    puppet.kill()
    assert movable.ask("check") == "good"
    movable.end()


@pytest.mark.parametrize("verb", ["context", "retain"])
def test_a_context_waits_for_as_much_room_as_it_takes(make_daemon, make_gpu, start_puppet, product, reap, verb):
    """Which a small card has."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=256 * MIB, FAKECUDA_CONTEXT_BYTES=20 * MIB)).start()
    movable = Movable(reap(daemon.spawn("run", "--oversubscribe", "--name", "a", "--", product.program("movable"), "4", str(4 * MIB))))
    assert movable.ask(f"alloc {216 * MIB}") == "allocated"
    wait_for(lambda: free_bytes(daemon) < 20 * MIB, "it to be shown")
    puppet = start_puppet(daemon, "--name", "b", context=verb)
    assert daemon.session("a")["residency"] in ("leaving", "away")
    puppet.process.kill()
    assert movable.ask("touch") == "touched"
    movable.end()


def loads_code(product, is_lazy):
    """A program whose modules take 100 MiB each. It is told so behind the session's environment, which has the GPU's own value."""
    return ["env", f"FAKECUDA_MODULE_BYTES={100 * MIB}", f"FAKECUDA_LAZY_LOADING={is_lazy}", product.program("loading")]


@pytest.mark.parametrize("is_lazy", [1, pytest.param(0, marks=pytest.mark.long)], ids=["by the first launch", "at once"])
def test_code_waits_for_room(make_daemon, make_gpu, product, reap, is_lazy):
    """A module's code takes memory when it is loaded, or at the first launch of something of it. Nobody knows how much."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=400 * MIB)).start()
    movable = Movable(reap(daemon.spawn("run", "--oversubscribe", "--name", "a", "--", product.program("movable"), "4", str(4 * MIB))))
    assert movable.ask(f"alloc {free_bytes(daemon) - 30 * MIB}") == "allocated"
    loading = reap(daemon.spawn("run", "--name", "b", "--", *loads_code(product, is_lazy)))
    assert loading.stdout.readline() == "ready\n"
    wait_for(lambda: free_bytes(daemon) <= 30 * MIB, "what there is to be shown")
    before = free_bytes(daemon)
    loading.stdin.write("100\n")
    loading.stdin.flush()
    assert int(loading.stdout.readline() or "0") > 0, loading.stderr.read()
    session = daemon.session("a")
    assert session["residency"] in ("leaving", "away") and session["evicted_bytes"] > 60 * MIB
    wait_for(lambda: free_bytes(daemon) > before + 60 * MIB, "what has left to be shown")
    loading.stdin.close()
    assert loading.wait(20) == 0
    assert movable.ask("check") == "good"
    movable.end()


def test_code_that_nobody_can_make_room_for_is_refused(make_daemon, make_gpu, start_puppet, product, reap):
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=400 * MIB)).start()
    puppet = start_puppet(daemon, "--name", "stays", "--memory", "360MiB")
    assert puppet.ask(f"alloc {350 * MIB}").split()[0] == "0"
    loading = reap(daemon.spawn("run", "--name", "b", "--oversubscribe", "--", *loads_code(product, 1)))
    assert loading.stdout.readline() == "ready\n"
    loading.stdin.write("100\n")
    loading.stdin.flush()
    assert loading.wait(20) != 0
    assert "cuLaunchKernel" in (told := loading.stderr.read()) and "answered 2" in told
    puppet.process.kill()


def test_what_becomes_of_a_session_when_memory_is_short(make_daemon, make_gpu, reap):
    """As it says itself, or its user's section, or the defaults."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=GIB))
    daemon.config.mkdir(parents=True)
    config = daemon.config / "gpuslice.conf"
    config.write_text("[defaults]\nwhen-full = oversubscribe\nidle-suspend = 600s\nhost-memory = 2GiB\nttl-action = kill\n")
    daemon.start()
    daemon.cli("create", "--name", "a", "--memory", "800MiB")
    session = daemon.session("a")
    assert (session["when_full"], session["oversubscribe"], session["idle_suspend_seconds"]) == ("oversubscribe", "swap", 600)
    assert (session["host_memory_limit_bytes"], session["ttl_action"]) == (2 * GIB, "kill")
    daemon.cli("create", "--name", "b", "--memory", "800MiB")
    refused = daemon.cli("create", "--name", "c", "--memory", "800MiB", "--when-full", "refuse", check=False)
    assert refused.returncode == 1 and "800MiB" in refused.stderr
    config.write_text(f"[defaults]\nwhen-full = oversubscribe\n[user:{os.getuid()}]\nwhen-full = wait\nhost-memory = 100MiB\n")
    wait_for(lambda: "100MiB" in daemon.cli("config", "--json").stdout, "the file to be in force")
    waits = reap(daemon.spawn("create", "--name", "c", "--memory", "800MiB"))
    wait_for(lambda: daemon.request("GET", "/v1/sessions/c")[0] == 200 and daemon.session("c")["waits_for"] == "queue", "c to wait in the queue")
    movable = run_movable(daemon, reap, 100, 10 * MIB, "--session", "a")
    bound = daemon.cli("suspend", "a", check=False)
    assert bound.returncode == 1 and f"100MiB that [user:{os.getuid()}]" in bound.stderr
    daemon.cli("release", "a", "b", "--kill")
    assert waits.wait(20) == 0 and daemon.session("c")["when_full"] == "wait"
    movable.process.kill()
    assert daemon.cli("create", "--when-full", "never", check=False).returncode == 2


@pytest.fixture
def start_puppet(product, reap):
    """start_puppet(DAEMON, *OPTIONS): a program with a context, in a session whose memory stays; its answers begin with the driver's."""
    def begin(daemon, *options, context="context"):
        puppet = Movable(reap(daemon.spawn("run", *options, "--", product.program("puppet"))), "0 ready")
        assert puppet.ask(f"{context} 0").split()[0] == "0"
        return puppet
    return begin


OUT_OF_MEMORY = "2 0"


def test_programs_have_room_made_for_them_unless_they_are_to_be_refused(daemon, start, start_puppet):
    """refuse holds for what a program asks for as well: nobody leaves for it, but for what was promised to it."""
    movable = start(8, 8 * MIB, "--name", "moves", "--memory", "600MiB")
    assert movable.ask(f"alloc {400 * MIB}") == "allocated"
    refused = start_puppet(daemon, "--name", "refused", "--when-full", "refuse")
    assert refused.ask(f"alloc {700 * MIB}") == OUT_OF_MEMORY
    promised = start_puppet(daemon, "--name", "promised", "--when-full", "refuse", "--memory", "380MiB")
    assert refused.ask(f"alloc {MIB}").split()[0] == "0"
    assert "session.suspended" not in [kind for kind, _ in events(daemon, daemon.session("moves"))]
    while promised.ask(f"alloc {20 * MIB}").split()[0] == "0":
        pass
    assert daemon.session("promised")["used_bytes"] > 350 * MIB
    waits = start_puppet(daemon, "--name", "waits")
    assert waits.ask(f"alloc {300 * MIB}").split()[0] == "0"
    wait_until_away(daemon, "moves", 400 * MIB)
    for puppet in (refused, promised, waits):
        puppet.process.kill()
    assert movable.ask("check") == "good"
    movable.end()


def test_programs_wait_in_the_queue_for_memory_that_cannot_leave(daemon, start_puppet):
    """wait holds for what a program asks for as well, for as long as somebody else could end whose memory that is. Others are refused."""
    stays = start_puppet(daemon, "--name", "stays")
    assert stays.ask(f"alloc {700 * MIB}").split()[0] == "0"
    waiting, waits_too = (start_puppet(daemon, "--name", name, "--when-full", "wait") for name in ("waiting", "too"))
    hopes = start_puppet(daemon, "--name", "hopes")
    waiting.send(f"alloc {400 * MIB}")
    assert hopes.ask(f"alloc {400 * MIB}") == OUT_OF_MEMORY and not waiting.has_answered(0)
    assert "needs room" in daemon.cli("list").stdout and daemon.session("waiting")["waits_for"] == "room"
    assert waits_too.ask(f"alloc {2 * GIB}") == OUT_OF_MEMORY  # more than there will ever be
    stays.process.kill()
    assert waiting.read().split()[0] == "0"
    waiting.send(f"alloc {700 * MIB}")  # more than there is beside its own
    assert waiting.read() == OUT_OF_MEMORY
    # Who waits for each other's memory would wait for ever: the last one to ask is refused.
    assert waits_too.ask(f"alloc {300 * MIB}").split()[0] == "0"
    waiting.send(f"alloc {400 * MIB}")
    wait_for(lambda: daemon.session("waiting")["waits_for"] == "room", "it to wait")
    assert waits_too.ask(f"alloc {400 * MIB}") == OUT_OF_MEMORY
    assert not waiting.has_answered(0)
    waits_too.process.kill()
    assert waiting.read().split()[0] == "0"


@pytest.mark.parametrize("command", [f"array {64 * MIB}", pytest.param("context 0", marks=pytest.mark.long)])
def test_what_needs_the_card_waits_for_the_memory_to_come_back(make_daemon, make_gpu, start_puppet, reap, command):
    """A program whose memory is away asks for something that does not move, on a card that another session fills with its work."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=400 * MIB, FAKECUDA_CONTEXT_BYTES=40 * MIB, **WORKS)).start()
    daemon.cli("scheduler", "--quantum", "60s")
    away = start_puppet(daemon, "--name", "a", "--oversubscribe", "--memory", "350MiB")
    assert away.ask(f"alloc {200 * MIB}").split()[0] == "0"
    works = run_movable(daemon, reap, 0, 1, "--name", "b", "--oversubscribe", "--memory", "350MiB")
    assert works.ask(f"alloc {290 * MIB}") == "allocated"
    wait_until_away(daemon, "a", 200 * MIB)
    assert works.ask("work 1500").startswith("worked")
    works.send("toil")
    assert away.ask(f"alloc {16 * MIB}").split()[0] == "0"  # which moves: nobody has to leave for it
    assert daemon.session("a")["waits_for"] is None
    away.send(command)
    wait_for(lambda: daemon.session("a")["waits_for"] == "room", "it to wait for its memory")
    assert daemon.session("b")["residency"] == "resident" and not away.has_answered(0)
    works.send("touch")  # it toils no more
    assert away.read().split()[0] == "0"
    assert works.read().startswith("worked") and works.read() == "touched"
    away.process.kill()
    works.end()


def test_what_has_no_context_to_leave_by_counts_as_unmovable(daemon, start_puppet):
    """Its process is told to leave once."""
    puppet = start_puppet(daemon, "--name", "a", "--oversubscribe", "--memory", "512MiB")
    assert puppet.ask(f"vmm {64 * MIB} 0").split()[0] == "0" and puppet.ask("destroy 0") == "0"
    wait_for(lambda: daemon.session("a")["movable_bytes"] == 64 * MIB, "the daemon to have heard of it")
    assert suspend_in_part(daemon, "a") == "0B left the card, and 64MiB stay (without a context that could take it off the card)"
    session = daemon.session("a")
    assert (session["residency"], session["movable_bytes"], session["unmovable_bytes"]) == ("partly_away", 0, 64 * MIB)
    assert "agent.floods" not in [kind for kind, _ in events(daemon, session)]
    resume(daemon, "a")
    session = daemon.session("a")
    assert (session["residency"], session["movable_bytes"], session["unmovable_bytes"]) == ("resident", 64 * MIB, 0)
    puppet.process.kill()


def test_what_could_not_leave_is_told_with_its_size_and_why(daemon, start_puppet):
    puppet = start_puppet(daemon, "--name", "a", "--oversubscribe", "--memory", "512MiB")
    before = card_used(daemon)
    leaves, stays = (puppet.ask(f"alloc {64 * MIB}") for _ in range(2))
    assert leaves.split()[0] == stays.split()[0] == "0"
    assert puppet.ask(f"ipcget {stays.split()[1]}").split()[0] == "0"
    assert suspend_in_part(daemon, "a") == "64MiB left the card, and 64MiB stay (exported to other processes)"
    session = daemon.session("a")
    assert (session["residency"], session["evicted_bytes"], session["movable_bytes"]) == ("partly_away", 64 * MIB, 0)
    assert [(row["why"], row["bytes"]) for row in session["stays"] if row["why"] != "context"] == [("exported", 64 * MIB)]
    assert card_used(daemon) == before + 64 * MIB
    assert "partly away" in daemon.cli("list").stdout
    assert "64MiB stay (exported to other processes)" in daemon.cli("show", "a").stdout
    assert events(daemon, session)[-1] == ("session.suspended", "64MiB left the card; 64MiB stay (exported to other processes)")
    resume(daemon, "a")
    assert daemon.session("a")["residency"] == "resident"
    puppet.end()


def test_movable_memory_follows_the_ledger_at_once(daemon, start_puppet):
    """A program that allocates without working is asked nothing meanwhile, and its agent rests."""
    puppet = start_puppet(daemon, "--name", "a", "--oversubscribe", "--memory", "512MiB")
    held = []
    for _ in range(4):
        held.append(puppet.ask(f"alloc {32 * MIB}").split()[1])
        session = daemon.session("a")
        assert session["movable_bytes"] == 32 * MIB * len(held) <= session["used_bytes"]
    for left in range(3, -1, -1):
        assert puppet.ask(f"free {held.pop()}") == "0"
        assert daemon.session("a")["movable_bytes"] == 32 * MIB * left
    puppet.end()


def test_where_memory_is_never_adds_up_to_more_than_is_used(daemon, start_puppet):
    """While a program allocates, exports, frees, leaves and comes back."""
    puppet = start_puppet(daemon, "--name", "a", "--oversubscribe", "--memory", "512MiB")
    wrong, seen, is_over = [], set(), threading.Event()

    def watch():
        while not is_over.is_set():
            session = daemon.session("a")
            parts = [session[key] for key in ("movable_bytes", "evicted_bytes", "unmovable_bytes")]
            seen.add(session["residency"])
            if sum(parts) > session["used_bytes"] or sum(row["bytes"] for row in session["stays"]) != parts[2]:
                wrong.append(session)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(6):
            first, second = (puppet.ask(f"alloc {32 * MIB}").split()[1] for _ in range(2))
            assert puppet.ask(f"ipcget {second}").split()[0] == "0"
            wait_until_shown(daemon, session := daemon.session("a"), session["used_bytes"])
            suspend_in_part(daemon, "a")
            resume(daemon, "a")
            assert puppet.ask(f"free {first}") == puppet.ask(f"free {second}") == "0"
    finally:
        is_over.set()
        watcher.join()
    assert wrong == [] and {"resident", "partly_away"} <= seen
    session = daemon.session("a")
    assert [session[key] for key in ("movable_bytes", "evicted_bytes", "unmovable_bytes")] == [0, 0, 0] == [session["used_bytes"]] * 3
    puppet.end()


def test_a_program_that_never_says_where_its_memory_is_has_not_left(daemon):
    daemon.cli("create", "--name", "a", "--memory", "512MiB", "--oversubscribe")
    client = attach_client.Client(daemon.attach_socket).attach(daemon.session("a")["session_id"])
    client.hold(64 * MIB)
    assert suspend_in_part(daemon, "a") == "0B left the card, and 64MiB stay (of programs that GPU Slice cannot move)"
    client.close()


def hold_what_stays(puppet, size):
    """Memory that others may have from now on."""
    code, address = puppet.ask(f"alloc {size}").split()
    assert code == "0" and puppet.ask(f"ipcget {address}").split()[0] == "0"
    return address


def test_two_that_cannot_leave_and_do_not_fit_are_told_why(narrow, start_puppet):
    daemon = narrow
    first, second = (start_puppet(daemon, "--name", name, "--oversubscribe", "--memory", "350MiB") for name in "ab")
    hold_what_stays(first, 240 * MIB)
    wait_for(lambda: daemon.session("a")["unmovable_bytes"] >= 240 * MIB, "the daemon to have heard of it")
    assert second.ask(f"alloc {240 * MIB}") == OUT_OF_MEMORY
    (message,) = [event["message"] for event in moved.events(daemon, daemon.session("b")) if event["kind"] == "memory.short"]
    assert re.fullmatch(r"a program was refused 240MiB on GPU 0, where 15\d(\.\d)?MiB would be free if all sessions left that can; "
                        r"of others 240MiB stay \(exported to other processes\)", message), message
    assert "session.suspended" not in [kind for kind, _ in events(daemon, daemon.session("a"))]  # it would have been of no use
    second.end()
    said = second.process.stderr.read()
    assert "out of memory in session" in said and "asked for 240MiB" in said and "but the card has " in said
    first.end()


def test_a_program_that_waits_for_a_session_that_host_memory_has_no_room_for_is_told(make_daemon, make_gpu, reap, start_puppet):
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=400 * MIB, **WORKS))
    daemon.config.mkdir(parents=True)
    (daemon.config / "gpuslice.conf").write_text("[daemon]\nhost-memory = 128MiB\n")
    daemon.start()
    run_movable(daemon, reap, 50, 10 * MIB, "--name", "large", "--oversubscribe", "--memory", "350MiB")
    waiting = start_puppet(daemon, "--name", "waits", "--oversubscribe", "--memory", "350MiB")
    assert waiting.ask(f"alloc {240 * MIB}") == OUT_OF_MEMORY
    told = [event["message"] for event in moved.events(daemon, daemon.session("waits")) if event["kind"] == "memory.short"]
    assert len(told) == 1 and "of sessions that could not leave just now" in told[0], told
    failed = [event["message"] for event in moved.events(daemon, daemon.session("large")) if event["kind"] == "session.move_failed"]
    assert len(failed) == 1 and "of the 128MiB that host-memory" in failed[0], failed
    waiting.end()
    assert "out of memory in session" in waiting.process.stderr.read()
    assert daemon.log.read_text().count("an eviction failed") <= 3


def test_a_session_that_cannot_come_back_says_what_is_in_the_way(narrow, start_puppet):
    """While it was away another one exported what it had."""
    daemon = narrow
    away, stays = (start_puppet(daemon, "--name", name, "--oversubscribe", "--memory", "350MiB") for name in ("away", "stays"))
    assert away.ask(f"alloc {200 * MIB}").split()[0] == "0"
    suspend(daemon, "away")
    address = hold_what_stays(stays, 300 * MIB)
    failed = daemon.cli("resume", "away", check=False)
    assert failed.returncode == 1 and "it waits for room to come back: " in failed.stderr
    assert "of others 300MiB stay (exported to other processes)" in failed.stderr
    session = daemon.session("away")
    assert session["residency"] == "away" and session["waits_for"] == "room" and session["move_failure"] in failed.stderr
    assert [message for kind, message in events(daemon, session) if kind == "session.move_failed"] == [session["move_failure"]]
    assert stays.ask(f"free {address}") == "0"
    wait_for(lambda: daemon.session("away")["residency"] == "resident", "it to come back once there is room")
    assert daemon.session("away")["move_failure"] is None
    for puppet in (away, stays):
        puppet.end()


def test_those_that_leave_in_part_take_turns_with_the_rest(narrow, start_puppet):
    daemon = narrow
    first = start_puppet(daemon, "--name", "a", "--oversubscribe", "--memory", "350MiB")
    hold_what_stays(first, 64 * MIB)
    assert first.ask(f"alloc {200 * MIB}").split()[0] == "0"
    second = start_puppet(daemon, "--name", "b", "--oversubscribe", "--memory", "350MiB")
    assert second.ask(f"alloc {240 * MIB}").split()[0] == "0"
    wait_for(lambda: daemon.session("a")["residency"] == "partly_away", "what can leave to have left")
    assert daemon.session("a")["suspended_by"] == "need" and daemon.session("a")["evicted_bytes"] == 200 * MIB
    assert events(daemon, daemon.session("a"))[-1] == ("session.suspended", "200MiB left the card; 64MiB stay (exported to other processes)")
    first.process.kill()
    second.end()


def test_what_a_process_says_takes_no_room_from_others(make_daemon, make_gpu, reap):
    """Of its memory, and in its ledger: more than any card or machine has."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=400 * MIB)).start()
    daemon.cli("create", "--name", "liar", "--memory", "64MiB", "--oversubscribe", "--host-memory", "64MiB")
    session = daemon.session("liar")["session_id"]
    client = attach_client.Client(daemon.attach_socket).attach(session)
    client.hold(1 << 60)
    agent = attach_client.Agent(daemon.attach_socket, client, session)
    agent.tell_memory(resident_bytes=1 << 63, stays_bytes=[1 << 63] * 2, arena_bytes=1 << 60)
    wait_for(lambda: daemon.session("liar")["movable_bytes"], "the daemon to have heard that")
    refused = daemon.cli("suspend", "liar", check=False, timeout=10)
    assert refused.returncode == 1 and "host memory" in refused.stderr
    holds, asks = [run_movable(daemon, reap, 4, MIB, "--name", name, "--oversubscribe", "--memory", "350MiB") for name in ("holds", "asks")]
    for movable in (holds, asks):
        movable.send(f"alloc {240 * MIB}")
        assert movable.has_answered(20) and movable.read() == "allocated"
    wait_until_away(daemon, "holds", 240 * MIB)
    suspend(daemon, "asks")
    resume(daemon, "asks")
    assert holds.ask("check") == "good" and asks.ask("check") == "good"
    for movable in (holds, asks):
        movable.end()
    agent.close()
    client.close()


def test_a_session_that_is_told_two_policies_is_refused(daemon):
    for policy in ("refuse", "wait"):
        refused = daemon.cli("create", "--oversubscribe", "--when-full", policy, check=False)
        assert refused.returncode == 1 and f"--when-full is {policy}" in refused.stderr
    status, answer = daemon.request("POST", "/v1/sessions", {"oversubscribe": "none", "when_full": "oversubscribe"})
    assert status == 400 and answer["error"]["code"] == "ERR_BAD_REQUEST"
    status, answer = daemon.request("POST", "/v1/sessions", {"oversubscribe": "swap", "single_oversubscribe": True})
    assert status == 400 and "--oversubscribe=managed" in answer["error"]["message"]
    daemon.cli("create", "--oversubscribe", "--when-full", "oversubscribe", "--name", "a", "--memory", "100MiB")
    assert daemon.session("a")["when_full"] == "oversubscribe"


def test_a_program_that_waits_for_room_waits_for_the_next_daemon(daemon, start_puppet):
    stays = start_puppet(daemon, "--name", "stays")
    assert stays.ask(f"alloc {700 * MIB}").split()[0] == "0"
    waiting = start_puppet(daemon, "--name", "waiting", "--when-full", "wait")
    waiting.send(f"alloc {400 * MIB}")
    wait_for(lambda: daemon.session("waiting")["waits_for"] == "room", "it to wait")
    daemon.kill()
    daemon.start()
    wait_for(lambda: daemon.session("waiting")["waits_for"] == "room", "it to wait again")
    assert not waiting.has_answered(0)
    stays.process.kill()
    assert waiting.read().split()[0] == "0"


@contextlib.contextmanager
def working(movable):
    """Meanwhile it works, and is known to: an agent whose program has rested looks once a second."""
    movable.send("work 1500\ntoil")
    assert movable.read().startswith("worked")
    yield
    movable.send("touch")
    assert movable.read().startswith("worked") and movable.read() == "touched"


def scheduler(daemon):
    return daemon.request("GET", "/v1/scheduler")[1]


def test_turns_of_memory_are_seen_and_set(narrow, reap):
    """Two that work without end and do not fit together: the GPU is in turns, who waits is told for how long, and turns are as long
    as somebody says."""
    daemon = narrow
    assert scheduler(daemon)["gpus"][0]["mode"] == "free" and scheduler(daemon)["memory_quantum_seconds"] is None
    daemon.cli("scheduler", "--quantum", "20s")
    shown = scheduler(daemon)
    assert shown["memory_quantum_seconds"] == 20 and shown["quantum_auto"] and shown["anti_thrash"] == "auto"
    movables = start_two(daemon, reap)
    wait_until_away(daemon, "a", 100 * MIB)
    for movable in reversed(movables):
        movable.send("toil")
    # Mostly a; where b comes to work late, it waits itself.
    waits = wait_for(lambda: next((now for name in "ab" if ((now := daemon.session(name))["wait_seconds_left"] or 0) > 5), None),
                     "one to wait for its turn")
    assert waits["waits_for"] == "room" and waits["wait_seconds_left"] < 25
    assert scheduler(daemon)["gpus"][0]["mode"] == "turns"
    assert "gpuslice_gpu_memory_turns_in_force" in (metrics := daemon.request("GET", "/metrics")[1])
    assert any(line.startswith("gpuslice_gpu_memory_turns_in_force{") and line.endswith(" 1") for line in metrics.splitlines())
    assert "needs room, about" in daemon.cli("list").stdout and "needs room: it waits" in daemon.cli("show", waits["name"]).stdout
    assert re.search(r" turns +[ab] +(active|needs room|coming|leaving|away)\b", daemon.cli("scheduler").stdout)
    assert "of memory 20 s" in (text := daemon.cli("scheduler").stdout) and " turns " in text
    daemon.cli("scheduler", "--anti-thrash", "off", "--quantum", "auto")
    shown = scheduler(daemon)
    assert shown["anti_thrash"] == "off" and shown["memory_quantum_seconds"] is None
    wait_for(lambda: [kind for name in "ab" for kind, _ in events(daemon, daemon.session(name))].count("session.suspended") >= 3,
             "them to change about at once")
    daemon.cli("scheduler", "--anti-thrash", "auto")
    for movable in movables:
        movable.send("check")
    assert all(int(movable.read().split()[1]) > 0 for movable in movables)
    for wrong in ({"anti_thrash": "maybe"}, {"quantum": "2h"}, {}, {"quantum": "1s", "speed": 1}):
        assert daemon.request("PATCH", "/v1/scheduler", wrong)[0] == 400
    assert daemon.cli("scheduler", "--anti-thrash", "maybe", check=False).returncode == 2
    for movable in movables:
        assert movable.read() == "good"
        movable.end()
    wait_for(lambda: scheduler(daemon)["gpus"][0]["mode"] == "free", "turns to be over")


def test_the_next_in_line_comes_ahead_into_free_room(narrow, reap):
    """While the one whose turn it is works, as much of the next one's memory comes as there is room for; it goes again where the
    first one needs that."""
    daemon = narrow
    daemon.cli("scheduler", "--quantum", "60s")
    movables = [run_movable(daemon, reap, 40, 10 * MIB, "--name", name, "--oversubscribe", "--memory", "390MiB") for name in "ab"]
    with working(movables[1]):
        movables[0].send("check")
        wait_for(lambda: max(left_in_turns(daemon, "a"), default=0) >= 100 * MIB, "a to have left")
        ahead = wait_for(lambda: (now := daemon.session("a"))["movable_bytes"] > 64 * MIB and now, "some of a to come")
        assert ahead["residency"] == "away" and ahead["evicted_bytes"] > 0 and free_bytes(daemon) >= 0
    assert movables[1].ask(f"alloc {130 * MIB}") == "allocated"  # what came ahead makes room
    assert movables[1].ask("check") == "good"
    assert movables[0].read() == "good"  # b has no work any more
    for movable in movables:
        assert movable.ask("check") == "good"
        movable.end()


@pytest.mark.long
def test_a_turn_begins_with_the_work(narrow, reap):
    """Who was on the card without work for long, and nobody wanted its room, has all of its turn before it when it works again."""
    daemon = narrow
    daemon.cli("scheduler", "--quantum", "6s")
    b, a = start_two(daemon, reap, "ba")
    wait_until_away(daemon, "b", 100 * MIB)
    time.sleep(7)  # longer than a turn
    assert a.ask("work 1500").startswith("worked")
    a.send("toil")
    b.send("touch")
    waits = wait_for(lambda: (now := daemon.session("b"))["waits_for"] == "room" and now["wait_seconds_left"] is not None and now,
                     "b to wait for the end of a's turn")
    assert waits["wait_seconds_left"] > 0.3 and daemon.session("a")["residency"] == "resident"
    a.send("touch")  # it toils no more
    assert a.read().startswith("worked") and b.read() == "touched" and a.read() == "touched"
    for movable in (a, b):
        movable.end()


def test_what_is_of_another_gpu_comes_ahead_there(make_daemon, make_gpu, product, reap):
    """A session with memory on two GPUs waits for its turn on one of them: what it has on the other one is there meanwhile."""
    daemon = make_daemon(make_gpu(FAKECUDA_GPUS=2, FAKECUDA_TOTAL_MEM=320 * MIB, FAKECUDA_CONTEXT_BYTES=0, **WORKS)).start()
    daemon.cli("scheduler", "--quantum", "60s")

    def begin(name, gpu):
        return Movable(reap(daemon.spawn("run", "--session", name, "--", "env", f"CUDA_VISIBLE_DEVICES={gpu}",
                                         product.program("movable"), "40", str(10 * MIB))))
    for name, gpus in (("both", "01"), ("one", "0")):
        daemon.cli("create", "--name", name, "--oversubscribe", "--memory", "300MiB", *(word for gpu in gpus for word in ("--gpu", gpu)))
    both = [begin("both", 0), begin("both", 1)]
    one = begin("one", 0)
    wait_until_away(daemon, "both", 300 * MIB)
    on_each = [gpu["used_bytes"] for gpu in daemon.session("both")["gpus"]]
    with working(one):
        for movable in both:
            movable.send("check")
        ahead = wait_for(lambda: (now := daemon.session("both"))["movable_bytes"] > 0.9 * on_each[1] and now, "what is of GPU 1 to come")
        assert ahead["residency"] == "away" and ahead["waits_for"] == "room" and ahead["evicted_bytes"] > on_each[0] / 2
        assert daemon.session("one")["residency"] == "resident" and not both[0].has_answered(0) and not both[1].has_answered(0)
    assert [movable.read() for movable in both] == ["good"] * 2
    for movable in (one, *both):
        assert movable.ask("check") == "good"
        movable.end()


@pytest.mark.parametrize("bound, made_bytes", [pytest.param("1GiB", 128 * MIB, marks=pytest.mark.long), ("100MiB", 64 * MIB)])
def test_host_memory_is_made_before_a_turn_is_over(make_daemon, make_gpu, reap, bound, made_bytes):
    """While somebody waits for the end of its turn, what a session lacks is made; where that cannot be, nothing has failed yet."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=320 * MIB, FAKECUDA_CONTEXT_BYTES=0, **WORKS))
    daemon.configure("host-memory-ahead = no").start()
    daemon.cli("scheduler", "--quantum", "60s")
    a, b = [run_movable(daemon, reap, 40, 10 * MIB, "--name", name, "--oversubscribe", "--memory", "300MiB", *more)
            for name, more in (("a", []), ("b", ["--host-memory", bound]))]
    wait_until_away(daemon, "a", 100 * MIB)
    assert daemon.session("b")["host_memory_bytes"] == 0
    with working(b):
        a.send("check")
        made = wait_for(lambda: (now := daemon.session("b"))["host_memory_bytes"] >= made_bytes and now["residency"] == "resident" and now,
                        "host memory of b, which stays")
        assert made["movable_bytes"] and not made["evicted_bytes"]
        assert not any("failed" in kind or kind == "session.suspended" for kind, _ in events(daemon, made))
    if bound == "100MiB":
        wait_for(lambda: any(f"may have {bound}" in message for _, message in events(daemon, made)), "b to be told that it cannot leave")
    else:
        assert a.read() == "good" and b.ask("check") == "good"
    b.end()
    if bound == "100MiB":
        assert a.read() == "good"
    a.end()


@pytest.mark.parametrize("count, most, large", [(20, 10 * MIB, 0), pytest.param(4, MIB, 100 * MIB, marks=pytest.mark.long)])
def test_one_comes_into_what_another_is_leaving(make_daemon, make_gpu, reap, count, most, large):
    """Both ways of the link are in use: the second half of one still leaves when the first half of the other has come; of one large
    allocation too."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=160 * MIB, FAKECUDA_CONTEXT_BYTES=0, FAKECUDA_LINK_GBPS=0.1)).start()
    movables = [run_movable(daemon, reap, count, most, "--name", name, "--oversubscribe", "--memory", "150MiB") for name in "ab"]
    for movable in movables if large else []:
        assert movable.ask(f"alloc {large}") == "allocated" and movable.ask("fill 2") == "filled"
    whole = {name: sum(daemon.session(name)[key] for key in ("movable_bytes", "evicted_bytes")) for name in "ab"}
    movables[0].send("check")
    wait_for(lambda: daemon.session("a")["movable_bytes"] > whole["a"] / 3 and daemon.session("b")["movable_bytes"] > whole["b"] / 4,
             "some of both to be there")
    assert movables[0].read() == "good" and movables[1].ask("check") == "good"
    for movable in movables:
        movable.end()


def test_a_session_that_comes_back_does_not_make_another_be_refused(make_daemon, make_gpu, reap):
    """What takes more than a second and a half to come can leave again when it is there, for who asked meanwhile."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=512 * MIB, FAKECUDA_LINK_GBPS="0.15")).start()
    asks = run_movable(daemon, reap, 0, 1, "--oversubscribe", "--name", "asks", "--memory", "490MiB")
    comes = run_movable(daemon, reap, 0, 1, "--oversubscribe", "--name", "comes", "--memory", "400MiB")
    for _ in range(7):
        assert comes.ask(f"alloc {50 * MIB}") == "allocated"
    suspend(daemon, "comes")
    daemon.cli("resume", "comes", "--no-wait")
    wait_for(lambda: daemon.session("comes")["movable_bytes"] > 32 * MIB, "some of it to come")
    assert asks.ask(f"alloc {480 * MIB}") == "allocated", asks.process.stderr.read()
    for movable in (comes, asks):
        movable.end()


def test_what_cannot_come_in_parts_is_not_asked_for_again_and_again(make_daemon, make_gpu, reap):
    """There is room for some of physical memory that the program made in one, which comes as a whole: its process is told to bring
    that piece once."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=160 * MIB, FAKECUDA_CONTEXT_BYTES=0, FAKECUDA_LINK_GBPS=0.08)).start()
    movables = []
    for name in "ab":
        movables.append(run_movable(daemon, reap, 1, 4096, "--name", name, "--oversubscribe", "--memory", "150MiB"))
        assert movables[-1].ask(f"create {100 * MIB}") == "created"
    assert daemon.session("a")["residency"] == "away"
    daemon.cli("resume", "a")
    assert movables[0].ask("check") == "good" and daemon.session("b")["residency"] == "away"
    assert "agent.floods" not in [kind for kind, _ in events(daemon, daemon.session("a"))]
    for movable in movables:
        movable.end()


def test_with_anti_thrash_one_works_at_a_time(make_daemon, make_gpu, reap):
    """Both fit together, and still only one of them is on the card while both have work."""
    daemon = make_daemon(make_gpu(**WORKS)).start()
    movables = [run_movable(daemon, reap, 20, 4 * MIB, "--oversubscribe", "--name", name, "--memory", "200MiB") for name in "ab"]
    for movable in movables:
        movable.send("work 1500")
    assert [movable.read()[:6] for movable in movables] == ["worked"] * 2
    assert not any("suspended" in kind for name in "ab" for kind, _ in events(daemon, daemon.session(name)))
    daemon.cli("scheduler", "--anti-thrash", "on")
    for movable in movables:
        movable.send("toil")
    wait_for(lambda: any(session["residency"] == "away" and session["movable_bytes"] and not session["evicted_bytes"]
                         for session in map(daemon.session, "ab")), "one of them to wait, with its memory there already")
    for movable in movables:
        movable.send("touch")
    assert [movable.read()[:6] for movable in movables] == ["worked"] * 2
    assert [movable.read() for movable in movables] == ["touched"] * 2
    for movable in movables:
        assert movable.ask("check") == "good"
        movable.end()


def test_contexts_that_stay_on_the_card_count_at_admission(make_daemon, make_gpu):
    """What a session may have is there for it also while all others hold no more than their contexts."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=1000 * MIB, FAKECUDA_CONTEXT_BYTES=256 * MIB)).start()
    daemon.cli("create", "--name", "a", "--oversubscribe", "--memory", "750MiB")
    refused = daemon.cli("create", "--oversubscribe", "--memory", "750MiB", check=False)
    assert refused.returncode == 1 and "contexts that stay while other sessions' memory is away take 256MiB" in refused.stderr
    assert "leaves 744MiB" in refused.stderr
    refused = daemon.cli("create", "--oversubscribe", "--memory", "740MiB", check=False)
    assert refused.returncode == 1 and "its context of 256MiB stays" in refused.stderr and "needs 494MiB" in refused.stderr
    daemon.cli("set", "a", "--memory", "740MiB")
    daemon.cli("create", "--oversubscribe", "--memory", "740MiB")
    assert daemon.request("GET", "/v1/gpus")[1][0]["reserved_bytes"] == (256 + 740) * MIB


def test_a_session_that_cannot_move_makes_others_leave(daemon, start, reap):
    """What is reserved for a plain session is there when it asks, whoever used it meanwhile."""
    movable = start(100, 10 * MIB, "--name", "moves", "--memory", "600MiB")
    refused = daemon.cli("create", "--memory", "600MiB", check=False)
    assert refused.returncode == 1 and "600MiB" in refused.stderr
    refused = daemon.cli("create", "--oversubscribe", "--memory", "2GiB", check=False)
    assert refused.returncode == 1
    daemon.cli("create", "--oversubscribe", "--memory", "1GiB", "--name", "large")
    daemon.cli("release", "large")
    assert movable.ask("check") == "good"
    stays = run_movable(daemon, reap, 60, 8 * MIB, "--memory", "400MiB", "--name", "stays")
    assert stays.ask("check") == "good" and movable.ask("check") == "good"
    stays.end()
    movable.end()


NAMES = "xyz"  # which no session's ID begins with


def chaos(daemon, start, seconds, seed):
    """Three sessions that do not fit together, suspended and resumed at random, while processes and the daemon are killed and
    processes stopped. Those that live have every byte."""
    chance = random.Random(seed)
    movables = {name: start(40, 10 * MIB, "--name", name, "--memory", "500MiB", "--host-memory", "1GiB") for name in NAMES}
    deaths = iter(range(3))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        name = chance.choice(NAMES)
        movable = movables[name]
        movable.send("check" if chance.random() < 0.5 else f"fill {chance.randrange(1000)}")
        other = chance.choice(NAMES)
        daemon.cli("suspend", other, "--no-wait")
        event = chance.random()
        if event < 0.15:
            os.kill(movable.process.pid, signal.SIGSTOP)
            daemon.cli("resume", other, "--no-wait")
            time.sleep(chance.random() * 0.2)
            os.kill(movable.process.pid, signal.SIGCONT)
        elif event < 0.3 and next(deaths, None) is not None:
            movable.process.kill()
            movable.process.wait()
            wait_for(lambda: daemon.request("GET", f"/v1/sessions/{name}")[0] == 404, "the session of the dead to end")
            movables[name] = start(40, 10 * MIB, "--name", name, "--memory", "500MiB", "--host-memory", "1GiB")
        elif event < 0.45:
            daemon.kill()
            time.sleep(chance.random() * 0.1)
            daemon.start()
        for each in NAMES:
            daemon.cli("resume", each, "--no-wait", check=False)
        if movables[name] is movable:
            assert movable.read() in ("good", "filled"), f"seed {seed}"
    for name, movable in movables.items():
        assert movable.ask("check") == "good", f"seed {seed}"
        assert all(bytes_left > 0 for bytes_left in left_in_turns(daemon, name)), f"seed {seed}"
        movable.end()
    gpus = wait_for(lambda: (now := daemon.request("GET", "/v1/gpus")[1])[0]["processes"] == [] and now, "the card to be empty")
    assert gpus[0]["free_bytes"] == gpus[0]["total_bytes"]


@pytest.mark.long
def test_no_byte_is_lost_whatever_is_killed_or_stopped(daemon, start):
    chaos(daemon, start, 4, seed=1)
