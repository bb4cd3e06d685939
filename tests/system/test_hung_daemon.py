"""A daemon that hangs does not hang up: gates that it closed open by themselves, and close again when it goes on."""
import signal
import time

import pytest

from conftest import wait_for
from test_shares import Worker, start_clock

FOR_LONG_MS = 600_000


@pytest.fixture
def clock(daemon, reap):
    return start_clock(daemon, reap)


def percent(clock, worker, seconds):
    """Of the GPU's time, that the worker got."""
    before_ns, before = clock.read()
    time.sleep(seconds)
    after_ns, after = clock.read()
    pid = worker.process.pid
    return 100 * (after.get(pid, 0) - before.get(pid, 0)) / (after_ns - before_ns)


def test_closed_gates_open_when_the_daemon_is_silent_and_close_when_it_speaks_again(daemon, reap, clock):
    worker = Worker(daemon, reap, "5%..5%", "500")
    worker.begin(FOR_LONG_MS)
    wait_for(lambda: percent(clock, worker, 0.5) < 20, "the cap")
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        wait_for(lambda: percent(clock, worker, 0.5) > 50, "the gate to open", 20)
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    wait_for(lambda: percent(clock, worker, 1) < 20, "the cap again", 20)
    assert worker.process.poll() is None


def test_a_gate_stays_closed_for_as_long_as_a_living_daemon_wants(daemon, reap, clock):
    """A kernel of 60 ms under a cap of 1 % is followed by six seconds of waiting."""
    worker = Worker(daemon, reap, "1%..1%", "60000")
    worker.begin(FOR_LONG_MS)
    wait_for(lambda: percent(clock, worker, 0.5) == 0, "the gate to close", 20)
    assert percent(clock, worker, 4) == 0
