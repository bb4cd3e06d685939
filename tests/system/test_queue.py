"""Waiting in line for room, times to live, and ending a session with its processes."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import time

import pytest

from conftest import wait_for
from test_daemon_api import as_user
from test_events import kept, kinds
from waiting import state_of

MIB = 1 << 20
GIB = 1 << 30


def queued(daemon):
    """The names that wait, by their place in the line."""
    waiting = [s for s in json.loads(daemon.cli("list", "--json").stdout) if s["state"] == "queued"]
    return [s["name"] for s in sorted(waiting, key=lambda s: s["queue_position"])]


def used(daemon, name):
    """Bytes that the session holds; None while there is no such session."""
    return next((s["used_bytes"] for s in json.loads(daemon.cli("list", "--json").stdout) if s["name"] == name), None)


@pytest.fixture
def full(make_daemon, make_gpu):
    """A daemon whose one card of 1 GiB is promised to session `big`."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=GIB)).start()
    daemon.cli("create", "--name", "big", "--memory", "1GiB")
    return daemon


def test_a_waiting_program_runs_when_there_is_room(full, reap):
    program = reap(full.spawn("run", "--name", "small", "--memory", "1MiB", "--wait", "printenv", "GPUSLICE_SESSION"))
    wait_for(lambda: queued(full) == ["small"], "it to be in the line")
    session = full.session("small")
    assert (session["state"], session["queue_position"], session["gpus"]) == ("queued", 1, [])
    assert program.poll() is None
    full.cli("release", "big")
    out, err = program.communicate(timeout=20)
    assert (program.returncode, out.strip()) == (0, session["session_id"])
    assert err == ("gpuslice: waiting for 1MiB: GPU 0 has 0B of 1GiB that no session has reserved; 1st in the queue; "
                   "Ctrl-C gives up\n")


def test_list_and_show_show_waiting_sessions(full, reap):
    first = reap(full.spawn("create", "--name", "first", "--gpu", "0", "--memory", "512MiB", "--compute", "20%..60%", "--wait"))
    wait_for(lambda: queued(full) == ["first"], "one to be in the line")
    second = reap(full.spawn("create", "--name", "second", "--memory", "256MiB", "--wait"))
    wait_for(lambda: queued(full) == ["first", "second"], "two to be in the line")
    ids = {name: full.session(name)["session_id"] for name in ("first", "second")}
    assert [line.split() for line in full.cli("list").stdout.splitlines()[2:]] == [
        [ids["first"], "first", "queued", "(1)", "0", "-", "/", "512MiB", "20%..60%", "0"],
        [ids["second"], "second", "queued", "(2)", "any", "-", "/", "256MiB", "-", "0"]]
    shown = full.cli("show", "first").stdout
    assert "1 in the queue" in shown and "512MiB on GPU 0 (GPU-" in shown and "20%..60%" in shown
    assert "256MiB on any GPU" in full.cli("show", "second").stdout
    assert (full.session("first")["vram_limit_bytes"], full.session("second")["vram_limit_bytes"]) == (512 * MIB, 256 * MIB)
    for program in (first, second):
        program.kill()


def test_the_first_in_line_is_told_how_long_it_should_take(full, reap):
    """By the lifetime of whoever is in the way, and not where nobody can tell."""
    waits = reap(full.spawn("create", "--name", "first", "--memory", "512MiB", "--wait"))
    wait_for(lambda: queued(full) == ["first"], "one to be in the line")
    session = full.session("first")
    assert session["waits_for"] == "queue" and session["wait_seconds_left"] is None
    full.cli("set", "big", "--ttl", "50s", "--ttl-action", "kill")
    assert 40 < full.session("first")["wait_seconds_left"] <= 51
    assert "queued (1), about " in full.cli("list").stdout
    full.cli("set", "big", "--ttl", "2h", "--ttl-action", "none")
    assert "queued (1), about 2 h" in full.cli("list").stdout  # nothing runs there
    full.cli("release", "big")
    assert waits.wait(20) == 0
    assert full.session("first")["waits_for"] is None


def test_more_than_any_gpu_has_is_refused_although_others_wait(full, reap):
    reap(full.spawn("create", "--name", "first", "--memory", "512MiB", "--wait"))
    wait_for(lambda: queued(full) == ["first"], "one to be in the line")
    for more in ([], ["--wait"], ["--gpu", "0"]):
        result = full.cli("create", "--memory", "2GiB", *more, check=False)
        assert result.returncode == 1 and "is more than GPU 0 has (1GiB, " in result.stderr, result.stderr
    assert queued(full) == ["first"]


def state_file(daemon):
    return contextlib.closing(sqlite3.connect(daemon.state / "simulated" / "state.db", isolation_level=None))


def test_no_program_begins_before_the_sessions_admission_is_stored(full, reap):
    program = reap(full.spawn("run", "--name", "first", "--memory", "512MiB", "--wait", "echo", "began"))
    wait_for(lambda: queued(full) == ["first"], "it to be in the line")
    with state_file(full) as blocker, concurrent.futures.ThreadPoolExecutor(2) as pool:
        blocker.execute("BEGIN IMMEDIATE")  # nothing can be stored meanwhile; who tries gives up after two seconds
        pool.submit(full.request, "DELETE", "/v1/sessions/big")
        wait_for(lambda: full.session("first")["state"] == "active", "it to be admitted")
        environment = pool.submit(full.request, "GET", "/v1/sessions/first/environment")
        with pytest.raises(subprocess.TimeoutExpired):
            program.communicate(timeout=0.5)
        assert not environment.done()
        blocker.execute("ROLLBACK")
        assert program.communicate(timeout=20)[0] == "began\n"


def test_a_client_learns_that_its_waiting_session_cannot_be_stored(full, reap):
    waiters = [reap(full.spawn("create", "--name", name, "--memory", "256MiB", "--wait")) for name in ("first", "second")]
    wait_for(lambda: len(queued(full)) == 2, "two to be in the line")
    with state_file(full) as state:
        state.execute("CREATE TRIGGER no BEFORE INSERT ON sessions BEGIN SELECT RAISE(FAIL, 'it is full'); END")
        full.cli("release", "big")
        for waiter in waiters:
            assert waiter.wait(20) == 1
            assert waiter.stderr.read().endswith("cannot store the session; it has ended: it is full\n")
        state.execute("DROP TRIGGER no")
    assert full.request("GET", "/v1/sessions")[1] == []


def test_a_released_waiter_is_told_so(full, reap):
    waiter = reap(full.spawn("create", "--name", "first", "--memory", "512MiB", "--wait"))
    wait_for(lambda: queued(full) == ["first"], "one to be in the line")
    session_id = full.session("first")["session_id"]
    full.cli("release", "first")
    assert waiter.wait(20) == 1
    assert waiter.stderr.read().splitlines()[-1] == \
        f"gpuslice: session {session_id} has ended while it waited for room: released"


def test_the_line_is_served_in_order_and_a_large_one_is_not_overtaken(full, reap):
    programs = {}
    for name, size in (("large", "1GiB"), ("second", "512MiB"), ("third", "512MiB")):
        programs[name] = reap(full.spawn("run", "--name", name, "--memory", size, "--wait", "cat"))
        wait_for(lambda: queued(full)[-1:] == [name], f"{name} to be in the line")
    full.cli("set", "big", "--memory", "256MiB")
    result = full.cli("create", "--memory", "1MiB", check=False)
    assert result.returncode == 1 and "3 sessions wait for room on GPU 0" in result.stderr
    full.cli("create", "--name", "nothing-reserved")
    assert queued(full) == ["large", "second", "third"]
    full.cli("release", "big")
    wait_for(lambda: queued(full) == ["second", "third"], "the first to be admitted")
    programs["large"].stdin.close()
    wait_for(lambda: queued(full) == [], "both others to be admitted, which fit beside each other")
    for name in ("second", "third"):
        programs[name].stdin.close()
        assert programs[name].wait(20) == 0


def test_lowering_a_limit_makes_room(full, reap):
    program = reap(full.spawn("run", "--name", "small", "--memory", "1MiB", "--wait", "true"))
    wait_for(lambda: queued(full) == ["small"], "it to be in the line")
    full.cli("set", "big", "--memory", "1023MiB")
    assert program.wait(20) == 0


def test_a_minimum_share_waits_like_memory(daemon, reap):
    daemon.cli("create", "--name", "most", "--compute", "80%")
    program = reap(daemon.spawn("run", "--name", "rest", "--compute", "30%", "--wait", "true"))
    wait_for(lambda: queued(daemon) == ["rest"], "it to be in the line")
    daemon.cli("set", "most", "--compute", "70%")
    assert program.wait(20) == 0


def test_a_client_killed_while_waiting_leaves_the_queue(full, reap):
    first = reap(full.spawn("run", "--name", "first", "--memory", "1GiB", "--wait", "true"))
    wait_for(lambda: queued(full) == ["first"], "it to be in the line")
    second = reap(full.spawn("create", "--name", "second", "--memory", "1MiB", "--wait"))
    wait_for(lambda: queued(full) == ["first", "second"], "the second to be in the line")
    first.kill()
    wait_for(lambda: queued(full) == ["second"], "the first to leave")
    full.cli("release", "big")
    assert second.wait(20) == 0
    assert full.session("second")["state"] == "active"  # and stays, though who asked has gone


def test_patience_has_an_end(full):
    start = time.monotonic()
    result = full.cli("run", "--memory", "1MiB", "--wait=300ms", "true", check=False)
    assert result.returncode == 1 and "the time of --wait is over" in result.stderr
    assert time.monotonic() - start >= 0.3
    assert queued(full) == []


def test_what_can_never_fit_does_not_wait(full):
    result = full.cli("run", "--memory", "2GiB", "--wait", "true", check=False)
    assert result.returncode == 1 and "is more than GPU 0 has" in result.stderr


def test_a_queued_session_takes_no_program_and_no_change(full, reap):
    reap(full.spawn("create", "--name", "q", "--memory", "1MiB", "--wait"))
    wait_for(lambda: queued(full) == ["q"], "it to be in the line")
    for arguments in (("run", "--session", "q", "true"), ("set", "q", "--memory", "2MiB")):
        result = full.cli(*arguments, check=False)
        assert result.returncode == 1 and "waits in the queue" in result.stderr
    full.cli("release", "q")
    assert queued(full) == []


def test_a_waiting_client_is_told_when_the_daemon_stops(full, reap):
    program = reap(full.spawn("run", "--memory", "1MiB", "--wait", "true"))
    wait_for(lambda: len(queued(full)) == 1, "it to be in the line")
    full.stop()
    assert program.wait(20) == 1
    full.start()
    assert queued(full) == []


def test_a_session_expires_on_time(daemon):
    made = time.time()
    daemon.cli("create", "--name", "brief", "--ttl", "1s")
    created = time.time()
    deadline = time.monotonic() + 20
    while any(s["name"] == "brief" for s in daemon.request("GET", "/v1/sessions")[1]):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    gone = time.time()
    assert 1 <= gone - made and gone - created < 1.1


def test_an_expired_session_keeps_its_program_and_gives_it_no_more_memory(daemon, product, reap):
    program = reap(daemon.spawn("run", "--name", "brief", "--ttl", "4s", product.program("target_app"),
                                env=daemon.environment(ALLOC_BYTES=MIB, ITERATIONS=1, HOLD="stdin")))
    wait_for(lambda: used(daemon, "brief") == MIB, "its memory to be charged")
    wait_for(lambda: daemon.session("brief")["state"] == "expired", "the session to expire")
    assert daemon.session("brief")["used_bytes"] == MIB and program.poll() is None
    for change in (["--memory", "1GiB"], ["--ttl", "1h"], ["--name", "other"]):
        result = daemon.cli("set", "brief", *change, check=False)
        assert result.returncode == 1 and "has expired and cannot be changed" in result.stderr
    program.stdin.close()
    assert program.wait(20) == 0


def test_kill_ends_the_programs_and_then_the_session(daemon, product, reap):
    programs = [reap(daemon.spawn("run", *which, product.program("target_app"),
                                  env=daemon.environment(ALLOC_BYTES=MIB, ITERATIONS=1, HOLD="stdin")))
                for which in (("--name", "train"),)]
    wait_for(lambda: used(daemon, "train") == MIB, "its memory to be charged")
    result = daemon.cli("release", "train", check=False)
    assert result.returncode == 1 and "1 process is attached" in result.stderr and "--kill" in result.stderr
    daemon.cli("release", "--kill", "train")
    assert [program.wait(20) for program in programs] == [-signal.SIGTERM]
    assert json.loads(daemon.cli("list", "--json").stdout) == []
    daemon.cli("create", "--name", "train")
    daemon.cli("release", "--kill", "train")  # nobody in it


@pytest.mark.long
def test_a_program_that_ignores_sigterm_is_killed(daemon, product, reap):
    program = reap(daemon.spawn("run", "--name", "deaf", "sh", "-c", 'trap "" TERM; exec "$0"',
                                product.program("target_app"),
                                env=daemon.environment(ALLOC_BYTES=MIB, ITERATIONS=1, HOLD="stdin")))
    wait_for(lambda: used(daemon, "deaf") == MIB, "its memory to be charged")
    start = time.monotonic()
    daemon.cli("release", "--kill", "deaf", timeout=40)
    assert program.wait(20) == -signal.SIGKILL
    assert 9 < time.monotonic() - start


def test_a_stopped_program_is_killed_too_and_nobody_gets_in_meanwhile(daemon, product, reap):
    environment = daemon.environment(ALLOC_BYTES=MIB, ITERATIONS=1, HOLD="stdin")
    program = reap(daemon.spawn("run", "--name", "s", product.program("target_app"), env=environment))
    wait_for(lambda: used(daemon, "s") == MIB, "its memory to be charged")
    os.kill(program.pid, signal.SIGSTOP)
    wait_for(lambda: state_of(program.pid) == "T", "it to stop, before SIGTERM counts first")
    release = reap(daemon.spawn("release", "--kill", "s"))
    def is_told_to_end():
        pending = re.search(r"ShdPnd:\t(\w+)", pathlib.Path(f"/proc/{program.pid}/status").read_text())[1]
        return int(pending, 16) >> (signal.SIGTERM - 1) & 1
    wait_for(is_told_to_end, "the stopped program to be told")
    late = daemon.cli("run", "--session", "s", product.program("target_app"), env=environment, check=False)
    assert "is being released" in late.stderr
    assert release.wait(40) == 0
    assert program.wait(20) == -signal.SIGKILL


def hold_in(daemon, product, reap, name):
    """A program in that session, which holds 1 MiB until it is ended."""
    before = used(daemon, name)
    program = reap(daemon.spawn("run", "--session", name, product.program("target_app"),
                                env=daemon.environment(ALLOC_BYTES=MIB, ITERATIONS=1, HOLD="stdin")))
    wait_for(lambda: used(daemon, name) == before + MIB, "its memory to be charged")
    return program


def test_programs_are_ended_at_the_ttl_where_that_was_asked(daemon, product, reap):
    daemon.cli("create", "--name", "ends", "--ttl-action", "kill")
    daemon.cli("create", "--name", "stays", "--ttl", "1h", "--ttl-action", "kill")
    programs = [hold_in(daemon, product, reap, "ends") for _ in range(2)]
    other = hold_in(daemon, product, reap, "stays")
    assert [daemon.session(name)["ttl_action"] for name in ("ends", "stays")] == ["kill", "kill"]
    assert "its programs are ended then" in daemon.cli("show", "stays").stdout
    daemon.cli("set", "stays", "--ttl", "1s", "--ttl-action", "none")
    daemon.cli("set", "ends", "--ttl", "1s")
    assert [program.wait(20) for program in programs] == [-signal.SIGTERM] * 2
    wait_for(lambda: used(daemon, "ends") is None, "the session's end")
    wait_for(lambda: daemon.session("stays")["state"] == "expired", "the other one to expire")
    assert other.poll() is None and used(daemon, "stays") == MIB
    events = kept(daemon)
    told = {event["kind"]: event["message"] for event in events if event.get("name") == "ends"}
    assert "2 processes get SIGTERM" in told["session.ending"]
    assert told["session.ended"] == "it has expired, and its processes were ended"
    assert "session.ending" not in kinds(events, "stays")


def test_a_ttl_that_is_over_before_a_daemon_is_back_ends_programs_too(daemon, product, reap):
    daemon.cli("create", "--name", "ends", "--ttl-action", "kill")
    program = hold_in(daemon, product, reap, "ends")
    daemon.cli("set", "ends", "--ttl", "1s")
    over = time.monotonic() + 1.5
    daemon.kill()
    wait_for(lambda: time.monotonic() > over, "the time to be over")
    assert program.poll() is None
    daemon.start()
    assert program.wait(20) == -signal.SIGTERM
    wait_for(lambda: used(daemon, "ends") is None, "the session's end")


@pytest.mark.long
def test_what_ignores_the_end_of_its_ttl_is_killed(daemon, product, reap):
    program = reap(daemon.spawn("run", "--name", "deaf", "--ttl-action", "kill", "sh", "-c", 'trap "" TERM; exec "$0"',
                                product.program("target_app"),
                                env=daemon.environment(ALLOC_BYTES=MIB, ITERATIONS=1, HOLD="stdin")))
    wait_for(lambda: used(daemon, "deaf") == MIB, "its memory to be charged")
    daemon.cli("set", "deaf", "--ttl", "1s")
    wait_for(lambda: daemon.session("deaf")["state"] == "expired", "the session to expire")
    assert program.wait(30) == -signal.SIGKILL


@pytest.mark.parametrize("action", ["", "stop", 1, None])
def test_an_unknown_ttl_action_is_refused(daemon, action):
    status, answer = daemon.request("POST", "/v1/sessions", {"memory_bytes": MIB, "ttl_action": action})
    assert status == 400 and "'ttl_action'" in json.dumps(answer) and "kill" in json.dumps(answer)


@pytest.mark.skipif(os.getuid() != 0, reason="needs to act as another user")
def test_one_whom_his_own_sessions_keep_out_keeps_nobody_else_waiting(daemon):
    for path in (daemon.folder, daemon.runtime, daemon.runtime / "simulated"):
        path.chmod(0o755)
    daemon.control_socket.chmod(0o666)
    gpu_bytes = daemon.request("GET", "/v1/gpus")[1][0]["total_bytes"]
    # Two connections of one process, which a session that waits ends with.
    waiting = daemon.request
    assert as_user(12345, lambda: waiting("POST", "/v1/sessions", {"memory_bytes": 1}))[0] == 201
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(12345)
            os.setuid(12345)
            status, _ = waiting("POST", "/v1/sessions", {"memory_bytes": gpu_bytes, "wait": True})
            os.write(writing, str(status).encode())
            time.sleep(600)
        finally:
            os._exit(0)
    try:
        assert os.read(reading, 3) == b"202", "it is queued"
        assert daemon.request("POST", "/v1/sessions", {"memory_bytes": MIB})[0] == 201
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)


def test_a_step_of_the_wall_clock_ends_no_session(make_daemon):
    """No timer of the daemon's follows that clock, but the time that passes."""
    daemon = make_daemon().start()

    def wall_clock_timers():
        folder = f"/proc/{daemon.process.pid}/fdinfo"
        texts = []
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError), open(f"{folder}/{name}") as file:  # it was a request's
                texts.append(file.read())
        return [text for text in texts if "clockid: 0\n" in text and "it_value: (0, 0)" not in text]

    assert daemon.request("POST", "/v1/sessions", {"memory_bytes": 1, "ttl_seconds": 3600})[0] == 201
    assert wall_clock_timers() == []
