"""Memory that moves while no disk has room: neither for the state file nor for ledgers."""
import json
import os

import pytest

from conftest import MIB, wait_for
from moved import suspend
from test_bad_input import fill
from test_moves import WORKS, run_movable, start_two


@pytest.fixture
def full(make_daemon, make_gpu, small_disk):
    """A daemon on a card of 400 MiB, and fill_up(), after which nothing more fits on its disks."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=400 * MIB, **WORKS))
    daemon.state = small_disk("state", 2)
    daemon.more["GPUSLICE_STATE_DIR"] = str(daemon.state)
    daemon.use_runtime(small_disk("run", 16))
    daemon.start()

    def fill_up():
        fill(daemon.state)
        fill(daemon.runtime)
        for number in range(200):  # until SQLite's own room in the file is used up
            if daemon.cli("create", "--name", f"late{number}", "--memory", "1B", check=False).returncode:
                return
        pytest.fail("the disk is not full")
    return daemon, fill_up


def is_full(folder):
    return os.statvfs(folder).f_bavail == 0


def order(daemon, verb, residency):
    """It is done, and the user is told that the next daemon will not know."""
    result = daemon.cli(verb, "a", check=False)
    assert result.returncode == 1 and "is in force, but the daemon cannot store it" in result.stderr, result
    wait_for(lambda: daemon.session("a")["residency"] == residency, f"{verb} to be done")


def test_memory_leaves_and_comes_back_while_the_disks_are_full(full, reap):
    daemon, fill_up = full
    movable = run_movable(daemon, reap, 20, 8 * MIB, "--name", "a", "--oversubscribe", "--memory", "300MiB")
    fill_up()
    for _ in range(3):
        order(daemon, "suspend", "away")
        assert daemon.session("a")["evicted_bytes"] > 40 * MIB
        movable.send("check")
        order(daemon, "resume", "resident")
        assert movable.read() == "good"
    assert is_full(daemon.state) and is_full(daemon.runtime)
    movable.end()


def test_sessions_take_turns_while_the_disks_are_full(full, reap):
    daemon, fill_up = full
    movables = start_two(daemon, reap)
    for movable in movables:
        movable.send("check")
    fill_up()  # while one of them makes way
    assert [movable.read() for movable in movables] == ["good"] * 2
    assert is_full(daemon.state) and is_full(daemon.runtime)
    for movable in movables:
        movable.end()


@pytest.mark.parametrize("is_full_first", [False, True])
def test_memory_that_is_away_outlives_a_daemon_whose_disks_are_full(full, reap, is_full_first):
    """If its being suspended could not be kept, the next daemon lets the memory come back by itself."""
    daemon, fill_up = full
    movable = run_movable(daemon, reap, 20, 8 * MIB, "--name", "a", "--oversubscribe", "--memory", "300MiB")
    if is_full_first:
        fill_up()
        order(daemon, "suspend", "away")
    else:
        suspend(daemon, "a")
        fill_up()
    movable.send("check")
    daemon.kill()
    daemon.start()
    wait_for(lambda: daemon.session("a")["processes"], "the program to be found")
    if not is_full_first:
        assert daemon.session("a")["suspended_by"] == "user" and not movable.has_answered(0)
        daemon.cli("resume", "a", check=False)  # what it set aside for ends may be enough to store that
    assert movable.read() == "good"
    assert {session["name"] for session in json.loads(daemon.cli("list", "--json").stdout)} >= {"a"}
    movable.end()
