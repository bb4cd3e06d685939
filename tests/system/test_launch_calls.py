"""What a launch costs while the gate is open. In system calls: none, whether nobody has a share or a lease is held that nobody
else wants. In the driver's calls, under that lease: events with timing where marks are due, and nowhere else."""
import collections
import re
import subprocess

import pytest

from conftest import wait_for

LAUNCHES = 1000
ROUNDS = 20


@pytest.fixture
def calls_by_round(daemon, tmp_path):
    """calls_by_round(options, kernel_us): the names of the system calls that the launching thread made, by round."""
    def run(options, kernel_us=0):
        trace = tmp_path / "calls"
        program = [daemon.product.program("launches"), ROUNDS, LAUNCHES, kernel_us]
        command = [daemon.product.gpuslice, "run", *options, "--", *program] if options is not None else program
        environment = daemon.environment() if options is not None else daemon.gpu.environment()
        run = subprocess.run(["strace", "-f", "-q", "-o", trace, *map(str, command)], env=environment, timeout=300,
                             capture_output=True, text=True)
        if "ptrace" in run.stderr:
            pytest.skip(f"strace cannot trace here: {run.stderr.strip()}")
        assert run.returncode == 0, run.stderr
        return rounds_of(trace.read_text())
    return run


def rounds_of(trace):
    """The marks are the launching thread's: it alone calls getppid()."""
    calls = [(tid, re.split(r"\W", rest)[0]) for tid, rest in re.findall(r"^(\d+) +(?:<\.\.\. )?(\w.*)$", trace, re.M)
             if "resumed>" not in rest]
    (launcher,) = {tid for tid, name in calls if name == "getppid"}
    rounds, current = [], None
    for name in (name for tid, name in calls if tid == launcher):
        if name != "getppid":
            if current is not None:
                current.append(name)
        elif current is None:
            current = []
        else:
            rounds.append(current)
            current = None
    assert len(rounds) == ROUNDS
    return rounds


def test_launches_make_no_system_call_where_nobody_has_a_share(calls_by_round):
    assert calls_by_round(None) == [[]] * ROUNDS, "the simulated driver itself makes none"
    assert calls_by_round([]) == [[]] * ROUNDS


def test_launches_make_no_system_call_under_a_lease_that_nobody_else_wants(calls_by_round):
    # A thread that loses its CPU for 1 ms counts as resting, and wakes the agent when it goes on: now and then.
    rounds = calls_by_round(["--compute", "20%..100%"])
    assert rounds.count([]) >= ROUNDS // 2, rounds
    assert sum(len(calls) for calls in rounds) < ROUNDS * LAUNCHES / 100, rounds


def test_launches_that_must_wait_are_seen_to_make_system_calls(calls_by_round):
    rounds = calls_by_round(["--compute", "0%..50%"], kernel_us=20)
    assert rounds.count([]) < ROUNDS // 2, rounds


Calls = collections.namedtuple("Calls", "timed untimed stream_questions event_questions")


@pytest.fixture(params=["default", "h100"])
def driver_calls(request, make_gpu, make_daemon, remote, tmp_path):
    """driver_calls(where): how many launches there were under a lease that can end, more or less, and how often the driver was
    called for them. The first are made before there is a lease, so there are as many as it takes."""
    daemon = make_daemon(make_gpu(FAKECUDA_CONSTANTS=request.param)).start()
    driver = remote(daemon.product.simulated)
    rounds = ROUNDS // 2

    def run(where):
        nonlocal rounds
        rounds *= 2
        counts = tmp_path / f"counts-{where}-{rounds}"
        daemon.cli("run", "--compute", "20%..100%", "--", "env", *(f"{key}={value}" for key, value in driver.items()),
                   f"REMOTE_COUNTS={counts}", daemon.product.program("launches"), rounds, LAUNCHES, 0, where)
        return rounds * LAUNCHES, Calls(*map(int, counts.read_text().split()))

    def run_until(where, enough):
        def attempt():
            launches, calls = run(where)
            return enough(launches, calls) and (launches, calls)
        return wait_for(attempt, f"launches under a lease ({where})", 60)
    return run_until


@pytest.mark.parametrize("where", ["legacy", "own"])
def test_there_are_events_only_where_marks_are_due(driver_calls, where):
    launches, calls = driver_calls(where, lambda launches, calls: calls.timed)
    assert calls.timed + calls.untimed < launches / 4, calls
    # Who comes to a closed gate puts one behind what its own stream has.
    assert where == "own" or calls.untimed == 0, calls
    # Before each mark there is a question about the one before.
    assert calls.event_questions < launches / 2, calls


def test_events_have_timing_only_where_marks_are_due_also_where_nobody_else_can_ask(driver_calls):
    launches, calls = driver_calls("beside", lambda launches, calls: calls.timed + calls.untimed > launches / 2)
    assert calls.timed < launches / 4, calls
    # Before each mark there is a question about the one before.
    assert calls.event_questions < launches / 2, calls
