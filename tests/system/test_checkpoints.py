"""Sessions made without --oversubscribe leave the card as a whole, while the daemon, or the program of ours that has the driver take
a process off the card (gpusliced --checkpoint), is stopped or killed in the middle: every byte is there afterwards, and what was
asked for is done."""
import concurrent.futures
import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import sqlite3

import pytest

from conftest import MIB, wait_for
from moved import resume, suspend
from test_moves import Movable, free_bytes, run_movable

RESIDENCY = {"suspend": "away", "resume": "resident"}
SLOW_LINK = "0.1"  # GB/s: the bytes of the process take a sixth of a second


class Checkpoints:
    """A daemon whose programs are slow, and a session "a" of a process that has 16 MiB."""

    def __init__(self, daemon, reap):
        self.daemon, self.reap = daemon, reap
        self.start_daemon()
        self.card = free_bytes(daemon)
        self.plain = run_movable(daemon, reap, 0, 1, "--name", "a", "--memory", "64MiB")
        for _ in range(2):
            assert self.plain.ask(f"alloc {8 * MIB}") == "allocated"
        assert self.plain.ask("fill 1") == "filled"

    def start_daemon(self):
        self.daemon.more["FAKECUDA_LINK_GBPS"] = SLOW_LINK
        self.daemon.start()
        del self.daemon.more["FAKECUDA_LINK_GBPS"]

    def replace_daemon(self):
        self.daemon.kill()
        self.start_daemon()

    @contextlib.contextmanager
    def held_back(self):
        """None of the daemon's programs begins."""
        folder = os.open(self.daemon.control_socket.parent, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
        os.close(folder)

    def program(self):
        """The daemon's program."""
        def find():
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                    if parent == self.daemon.process.pid and b"--checkpoint" in (process / "cmdline").read_bytes():
                        return int(process.name)
            return None
        return wait_for(find, "the daemon's program")

    def begin(self, verb):
        return self.reap(self.daemon.spawn(verb, "a"))

    def is_off(self):
        return free_bytes(self.daemon) == self.card

    def wait_until_driver_works(self, verb):
        """The bytes have been counted off the card, or onto it; the copy goes on."""
        wait_for(lambda: self.is_off() == (verb == "suspend"), "the driver to have begun")

    def prepare(self, verb):
        if verb == "resume":
            suspend(self.daemon, "a")

    def wait_until_done(self, verb):
        wait_for(lambda: self.daemon.session("a")["residency"] == RESIDENCY[verb], f"{verb} to be done")

    def expect(self, verb):
        """That it was done."""
        session = self.daemon.session("a")
        is_away = verb == "suspend"
        assert session["residency"] == RESIDENCY[verb] and session["suspended_by"] == ("user" if is_away else None)
        assert self.is_off() == is_away
        if not is_away:
            assert self.plain.ask("check") == "good"

    def end(self):
        if self.is_off():
            resume(self.daemon, "a")
            self.expect("resume")
        self.plain.end()
        wait_for(lambda: self.daemon.request("GET", "/v1/sessions")[1] == [], "the session to end")
        assert self.is_off()


@pytest.fixture
def checkpoints(make_daemon, make_gpu, reap):
    return Checkpoints(make_daemon(make_gpu(), GPUSLICE_RECOVERY_INTERVAL="1s"), reap)


@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_the_next_daemon_does_what_the_dead_one_had_not_begun(checkpoints, verb):
    checkpoints.prepare(verb)
    with checkpoints.held_back():
        command = checkpoints.begin(verb)
        program = checkpoints.program()
        checkpoints.replace_daemon()
    wait_for(lambda: not os.path.exists(f"/proc/{program}"), "the dead daemon's program to end")
    command.kill()
    checkpoints.wait_until_done(verb)
    checkpoints.expect(verb)
    checkpoints.end()


@pytest.mark.parametrize("then", ["suspend", "resume"])
@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_the_next_daemon_waits_for_the_program_of_a_dead_one(checkpoints, verb, then):
    checkpoints.prepare(verb)
    command = checkpoints.begin(verb)
    checkpoints.wait_until_driver_works(verb)
    checkpoints.replace_daemon()
    if then != verb:
        checkpoints.daemon.cli(then, "a")
    command.kill()
    checkpoints.wait_until_done(then)
    checkpoints.expect(then)
    checkpoints.end()


@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_an_order_is_turned_round(checkpoints, verb):
    other = "resume" if verb == "suspend" else "suspend"
    checkpoints.prepare(verb)
    with checkpoints.held_back():
        command = checkpoints.begin(verb)
        checkpoints.program()
    checkpoints.daemon.cli(other, "a")
    command.kill()
    checkpoints.expect(other)
    checkpoints.end()


@pytest.mark.parametrize("verb", ["suspend", "resume"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_program_that_is_killed_loses_nothing(checkpoints, verb, begun):
    checkpoints.prepare(verb)
    with checkpoints.held_back():
        command, program = checkpoints.begin(verb), checkpoints.program()
        if not begun:
            os.kill(program, signal.SIGKILL)
    if begun:
        checkpoints.wait_until_driver_works(verb)
        os.kill(checkpoints.program(), signal.SIGKILL)
    assert command.wait(20) == 1
    wait_for(lambda: checkpoints.daemon.session("a")["move"] is None, "what had left to be back")
    if verb == "suspend":
        checkpoints.expect("resume")
    else:
        assert checkpoints.daemon.session("a")["residency"] == "away"
    checkpoints.daemon.cli(verb, "a")
    checkpoints.expect(verb)
    checkpoints.end()


@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_a_program_that_is_stopped_goes_on(checkpoints, verb):
    checkpoints.prepare(verb)
    with checkpoints.held_back():
        command, program = checkpoints.begin(verb), checkpoints.program()
        os.kill(program, signal.SIGSTOP)
    other = run_movable(checkpoints.daemon, checkpoints.reap, 2, MIB, "--name", "b", "--memory", "16MiB")
    assert other.ask("check") == "good" and command.poll() is None
    other.end()
    os.kill(program, signal.SIGCONT)
    assert command.wait(20) == 0
    checkpoints.expect(verb)
    checkpoints.end()


def test_all_processes_are_locked_before_the_first_leaves(checkpoints):
    """One that goes on may wait inside the driver for one that has left."""
    other = run_movable(checkpoints.daemon, checkpoints.reap, 0, 1, "--session", "a")
    assert other.ask(f"alloc {32 * MIB}") == "allocated" and other.ask("fill 1") == "filled"
    before = free_bytes(checkpoints.daemon)
    command = checkpoints.begin("suspend")
    wait_for(lambda: free_bytes(checkpoints.daemon) > before, "one of them to leave")
    for process in (checkpoints.plain, other):
        process.send("check")
    assert not checkpoints.plain.has_answered(0.1) and not other.has_answered(0)
    assert command.wait(20) == 0 and checkpoints.is_off()
    resume(checkpoints.daemon, "a")
    assert checkpoints.plain.read() == "good" and other.read() == "good"
    other.end()
    checkpoints.end()


@pytest.mark.parametrize("driver", ["580.95.05", "610.10.00"])
def test_programs_with_nccl_stay_where_the_driver_may_hang(make_daemon, make_gpu, product, reap, tmp_path, driver):
    daemon = make_daemon(make_gpu(FAKECUDA_DRIVER_VERSION=driver)).start()
    rank = shutil.copy(product.program("movable"), tmp_path / "libnccl.so.2")  # so it has mapped a file of that name
    ranks = [Movable(reap(daemon.spawn("run", *how, "--", str(rank), "1", "4096")))
             for how in (["--name", "a", "--memory", "64MiB"], ["--session", "a"])]
    answer = daemon.cli("suspend", "a", check=False)
    if driver < "610":
        assert answer.returncode == 1 and "uses NCCL" in answer.stderr
        wait_for(lambda: daemon.session("a")["residency"] == "resident", "it to be as it was")
    else:
        assert daemon.session("a")["residency"] == "away"
        resume(daemon, "a")
    for process in ranks:
        assert process.ask("check") == "good"
        process.end()


@contextlib.contextmanager
def state_file_blocked(daemon):
    """Nothing is committed to the state file."""
    blocker = sqlite3.connect(daemon.state / "simulated" / "state.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    yield
    blocker.execute("ROLLBACK")
    blocker.close()


@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_what_the_next_daemon_would_not_know_of_is_not_begun(checkpoints, verb):
    other = "resume" if verb == "suspend" else "suspend"
    checkpoints.prepare(verb)
    with state_file_blocked(checkpoints.daemon):
        refused = checkpoints.daemon.cli(verb, "a", check=False)
    assert refused.returncode == 1 and "stays where it is, because the daemon cannot store the order" in refused.stderr
    checkpoints.expect(other)
    checkpoints.daemon.cli(verb, "a")
    checkpoints.expect(verb)
    checkpoints.end()


@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_an_order_that_a_dead_daemon_did_not_store_was_not_begun(checkpoints, verb):
    checkpoints.prepare(verb)
    with state_file_blocked(checkpoints.daemon):
        command = checkpoints.begin(verb)
        wait_for(lambda: checkpoints.daemon.session("a")["move"] is not None, "the order to be taken")
        checkpoints.daemon.kill()
    checkpoints.start_daemon()
    command.wait(20)
    assert checkpoints.daemon.session("a")["move"] is None
    checkpoints.expect("resume" if verb == "suspend" else "suspend")
    checkpoints.end()


@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_requests_for_the_same_order_are_all_answered(checkpoints, verb):
    checkpoints.prepare(verb)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        with state_file_blocked(checkpoints.daemon):
            orders = [pool.submit(checkpoints.daemon.request, "POST", f"/v1/sessions/a/{verb}") for _ in range(3)]
            wait_for(lambda: checkpoints.daemon.session("a")["move"] is not None, "the order to be taken")
        assert {order.result()[0] for order in orders} <= {200, 202}
    checkpoints.wait_until_done(verb)
    checkpoints.expect(verb)
    checkpoints.end()
