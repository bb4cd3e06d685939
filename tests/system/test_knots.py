"""Gates that close while work waits for other work or for threads: everything ends, and nothing is changed by it. A worker
with a share of its own has leases go to and fro every millisecond meanwhile."""
import pytest

from test_shares import Worker

SHARE = ("--compute", "25%..100%")


@pytest.fixture
def rival(daemon, reap):
    """Somebody who wants the GPU all the time."""
    daemon.cli("scheduler", "--quantum", "1ms")
    worker = Worker(daemon, reap, "50%..100%", "200")
    worker.begin(600_000)
    return worker


def knots(daemon, reap, *words, options=SHARE):
    return reap(daemon.spawn("run", *options, "--", daemon.product.program("knots"), *map(str, words)))


def let_go(process):
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    process.stdin.write("go\n")
    process.stdin.flush()


def finish(process):
    """What it prints to its end, without the last line."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    *lines, last = output.splitlines()
    assert last == "done"
    return lines


def handovers(daemon):
    return daemon.request("GET", "/v1/scheduler")[1]["gpus"][0]["handovers"]


@pytest.mark.parametrize("what, rounds", [("late", 20), ("mutex", 20), ("queue", 6)])
def test_work_that_waits_for_what_the_gate_holds_ends(daemon, reap, rival, what, rounds):
    process = knots(daemon, reap, what, rounds)
    let_go(process)
    finish(process)
    if what != "mutex":  # there the thread that holds it goes on once the pace no longer waits
        assert "did not end in time" in daemon.log_text(), "it did need the deadline"
    assert rival.process.poll() is None


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["global", "thread_local", "relaxed"])
def test_captures_are_what_they_are_alone(daemon, reap, rival, mode):
    before = handovers(daemon)
    process = knots(daemon, reap, "capture", mode, 100)
    let_go(process)
    assert finish(process) == ["20 19"] * 100  # launches in a row, each after the one before
    assert handovers(daemon) - before > 50, "gates did close meanwhile"


@pytest.mark.parametrize("sessions", [1, 2])
def test_ranks_that_wait_for_each_other_end(daemon, reap, rival, sessions):
    options = [SHARE, SHARE]
    if sessions == 1:
        name = "pair"
        daemon.cli("create", "--name", name, *SHARE)
        options = [("--session", name)] * 2
    ranks = [knots(daemon, reap, "rank", rank, 200, options=options[rank]) for rank in range(2)]
    handle = ranks[0].stdout.readline()
    ranks[1].stdin.write(handle)
    ranks[1].stdin.flush()
    for rank in ranks:
        let_go(rank)
    for rank in ranks:
        finish(rank)
