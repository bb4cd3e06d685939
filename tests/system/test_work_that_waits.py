"""Gates that close while work waits for other work or for threads: everything ends, and nothing is changed by it. A worker
with a share of its own has leases go to and fro every millisecond meanwhile."""
import os
import statistics

import pytest

from conftest import has_words
from test_shares import Worker

pytestmark = pytest.mark.usefixtures("before_others")

SHARE = ("--compute", "25%..100%")
ROUNDS = 40
REVOKES = int(os.environ.get("GPUSLICE_TEST_REVOKES") or 100)  # ./run-tests --all: 1000


@pytest.fixture
def rival(daemon, reap):
    """Somebody who wants the GPU all the time."""
    daemon.cli("scheduler", "--quantum", "1ms")
    worker = Worker(daemon, reap, "50%..100%", "200")
    worker.begin(600_000)
    return worker


def waiting_work(daemon, reap, *words, options=SHARE):
    return reap(daemon.spawn("run", *options, "--", daemon.product.program("waiting_work"), *map(str, words)))


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
    """Each takes a lease away from somebody."""
    return sum(gpu["handovers"] for gpu in daemon.request("GET", "/v1/scheduler")[1]["gpus"])


def turns_since(daemon, seconds):
    return daemon.request("GET", f"/v1/scheduler/turns?since_seconds={seconds}")[1]


@pytest.mark.parametrize("what, rounds", [("late", 20), ("mutex", 20), ("queue", 6), ("relay", 10), ("relaunch", 5)])
def test_work_that_waits_for_what_the_gate_holds_ends(daemon, reap, rival, what, rounds):
    process = waiting_work(daemon, reap, what, rounds)
    let_go(process)
    finish(process)
    if what != "mutex":  # there the thread that holds it goes on once the pace no longer waits
        assert "did not end in time" in daemon.log_text(), "it did need the deadline"
    assert rival.process.poll() is None


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["global", "thread_local", "relaxed"])
def test_captures_are_what_they_are_alone(daemon, reap, rival, mode):
    for _ in range(10):  # on busy CPUs, gates close less often
        before = handovers(daemon)
        process = waiting_work(daemon, reap, "capture", mode, 100)
        let_go(process)
        assert finish(process) == ["20 19"] * 100  # launches in a row, each after the one before
        if handovers(daemon) - before > 50:
            return
    pytest.fail("gates did not close 50 times meanwhile")


@pytest.fixture
def rivals(make_daemon, make_gpu, reap):
    """rivals(GPUS): a daemon of so many GPUs, and one on each that wants it all the time."""
    def start(gpus):
        daemon = make_daemon(make_gpu(FAKECUDA_GPUS=gpus)).start()
        daemon.cli("scheduler", "--quantum", "1ms")
        for gpu in range(gpus):
            daemon.cli("create", "--name", f"rival{gpu}", "--gpu", gpu, "--compute", "50%..100%")
            Worker(daemon, reap, None, "200", session=f"rival{gpu}").begin(600_000)
        return daemon
    return start


def round_of(ranks):
    for rank in ranks:
        rank.stdin.write("go\n")
        rank.stdin.flush()
    for rank in ranks:
        assert has_words(rank.stdout, 120), "they wait for each other for ever"
        assert rank.stdout.readline() == "again\n", rank.stderr.read()


def start_ranks(daemon, reap, names, gpus):
    """Two, in the sessions of these names, that are ready."""
    ranks = [waiting_work(daemon, reap, "rank", rank, ROUNDS, gpus, options=("--session", names[rank])) for rank in range(2)]
    handles = ranks[0].stdout.readline()
    ranks[1].stdin.write(handles)
    ranks[1].stdin.flush()
    for rank in ranks:
        assert rank.stdout.readline() == "ready\n", rank.stderr.read()
    return ranks


@pytest.mark.parametrize("gpus", [1, 2], ids=["one_gpu", "two_gpus_in_opposite_order"])
@pytest.mark.parametrize("sessions", [1, 2], ids=["in_one_session", "in_two_sessions"])
def test_ranks_that_wait_for_each_other_end(rivals, reap, sessions, gpus):
    daemon = rivals(gpus)
    names = [f"ranks{rank % sessions}" for rank in range(2)]
    for name in set(names):
        daemon.cli("create", "--name", name, *[word for gpu in range(gpus) for word in ("--gpu", gpu)], *SHARE)
    ranks = start_ranks(daemon, reap, names, gpus)
    before = handovers(daemon)
    while handovers(daemon) - before < REVOKES:
        round_of(ranks)
    for rank in ranks:
        finish(rank)


def test_a_rank_whose_other_rank_is_closed_can_drain(rivals, reap):
    """The other one takes a step, and another, until it can; else closings fail, one in a hundred here, after 100 ms each."""
    daemon = rivals(1)
    daemon.cli("create", "--name", "ranks", "--gpu", 0, *SHARE)
    session = daemon.session("ranks")
    ranks = start_ranks(daemon, reap, ["ranks", "ranks"], 1)
    before, lengths = handovers(daemon), []
    for part in range(1, 5):
        since = turns_since(daemon, 0 if part == 1 else since)["now_seconds"]
        while handovers(daemon) - before < part * REVOKES:
            round_of(ranks)
        lengths.append(statistics.median(turn["end_seconds"] - turn["asked_seconds"]
                                         for turn in turns_since(daemon, since)["turns"]
                                         if turn["session_id"] == session["session_id"] and turn["asked_seconds"] and turn["end_seconds"]))
    assert daemon.session("ranks")["overruns"] <= REVOKES // 100
    assert lengths[-1] < 10 * lengths[0], "closings take longer and longer"
    for rank in ranks:
        finish(rank)
