"""A wall clock that is set while the daemon and programs run: what lasts for a while lasts as long as was asked."""
import datetime
import os
import shutil
import signal
import time

import pytest

from conftest import MIB, wait_for
from test_quota import OK, OUT_OF_MEMORY, Puppet, in_session, start  # noqa: F401 - a fixture
from test_shares import start_clock
from workers import Worker

DAY_S = 24 * 60 * 60
HOUR_S = 60 * 60


class Clock:
    """Of a program whose environment has these variables."""

    def __init__(self, product, folder):
        try:
            library = product.program("stepped_clock.so")
        except FileNotFoundError:
            pytest.skip("this build has no preloads")
        self.file = folder / "clock"
        self.set_ahead(0)
        self.variables = {"LD_PRELOAD": library, "STEPPED_CLOCK": self.file}

    def set_ahead(self, seconds):
        draft = self.file.with_suffix(".draft")
        draft.write_text(f"{seconds}\n")
        draft.rename(self.file)


@pytest.fixture
def clock(product, tmp_path):
    return Clock(product, tmp_path)


@pytest.fixture
def daemon(make_daemon, clock):
    return make_daemon(**clock.variables).start()


def seconds_of(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def make(daemon, name, ttl_s):
    status, made = daemon.request("POST", "/v1/sessions", {"name": name, "memory_bytes": MIB, "ttl_seconds": ttl_s})
    assert status == 201, made
    return made


def end_of(daemon, name):
    session = daemon.session(name)
    assert session["state"] == "active", session
    return seconds_of(session["expires_at"])


@pytest.mark.parametrize("step_s", [2 * DAY_S, -2 * DAY_S], ids=["forward", "back"])
@pytest.mark.parametrize("when", ["running", "away"])
def test_a_step_ends_no_session_early_and_none_late(daemon, clock, step_s, when):
    end = seconds_of(make(daemon, "long", HOUR_S)["expires_at"])
    make(daemon, "short", 2)
    if when == "away":
        daemon.kill()
    clock.set_ahead(step_s)
    if when == "away":
        daemon.start()
    assert abs(end_of(daemon, "long") - (end + step_s)) <= 1, "it is told by the clock as it is now"
    wait_for(lambda: daemon.request("GET", "/v1/sessions/short")[0] == 404, "the end of 2 seconds")
    late = seconds_of(make(daemon, "later", HOUR_S)["expires_at"])
    for ahead_s in (step_s, 0):
        clock.set_ahead(ahead_s)
        daemon.kill()
        daemon.start()
        assert abs(end_of(daemon, "long") - (end + ahead_s)) <= 1
        assert abs(end_of(daemon, "later") - (late - step_s + ahead_s)) <= 1


def test_a_session_in_the_queue_is_told_how_long_it_will_take_whatever_the_clock_shows(daemon, clock):
    card = daemon.request("GET", "/v1/gpus")[1][0]["total_bytes"]
    assert daemon.request("POST", "/v1/sessions", {"memory_bytes": card, "ttl_seconds": HOUR_S})[0] == 201
    waiting = daemon.request("POST", "/v1/sessions", {"memory_bytes": card, "wait": True, "name": "next"})[1]
    clock.set_ahead(DAY_S)
    left = daemon.request("GET", f"/v1/sessions/{waiting['session_id']}")[1]["wait_seconds_left"]
    assert HOUR_S - 60 < left <= HOUR_S


def test_the_history_goes_on_when_the_clock_is_set_back(daemon, clock):
    make(daemon, "kept", HOUR_S)

    def last_second():
        return daemon.request("GET", "/v1/history?since=60s")[1]["to_seconds"]
    before = last_second()
    clock.set_ahead(-DAY_S)
    wait_for(lambda: last_second() < before - HOUR_S, "the first second of the other day")
    first = last_second()
    wait_for(lambda: last_second() > first, "the next one")


def test_a_session_that_was_idle_for_longer_than_the_history_is_in_it_again_when_it_works(daemon, clock, start):
    session = make(daemon, "idle", 80 * DAY_S)

    def history():
        return daemon.request("GET", "/v1/history?since=60s")[1]
    before = wait_for(lambda: (shown := history())["gpus"] and shown["to_seconds"], "a first second")
    clock.set_ahead(40 * DAY_S)
    # What is too old goes with the first sample of the new day, before a question of a later second is answered.
    first = wait_for(lambda: (end := history()["to_seconds"]) > before + 39 * DAY_S and end, "the first second of the other day")
    wait_for(lambda: history()["to_seconds"] > first, "the next one")
    start(in_session(daemon, session)).get("alloc", MIB)
    # Its peak: a point may be a minute long, and the mean of that knows the time before.
    wait_for(lambda: any(line["name"] == "idle" and line["peak_bytes"][-1] == MIB for line in history()["sessions"]), "a sample of it")
    assert history()["gpus"]


@pytest.mark.skipif(not shutil.which("faketime"), reason="needs faketime")
def test_a_program_with_a_time_of_its_own_keeps_to_its_limit_and_its_share(make_daemon, product, reap):
    """faketime changes all of its clocks, the monotonic one too."""
    daemon = make_daemon().start()
    faketime = ["faketime", "-f", "+2d"]
    puppet = Puppet(product, daemon.environment(), [product.gpuslice, "run", "--memory", "1MiB", "--", *faketime])
    reap(puppet.process)
    puppet.get("context", 0)
    number = puppet.get("alloc", MIB)
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY
    puppet.get("free", number)
    assert puppet.code("alloc", 1) == OK
    puppet.process.kill()
    gpu = start_clock(daemon, reap)
    worker = Worker(reap(daemon.spawn("run", "--compute", "5%..5%", "--", *faketime, product.program("worker"), "500",
                                      start_new_session=True)))
    worker.begin(600_000)

    def is_capped():
        before_ns, before = gpu.read()
        time.sleep(0.5)
        after_ns, after = gpu.read()
        part = (sum(after.values()) - sum(before.values())) / (after_ns - before_ns)  # it is faketime's child
        return 0 < part < 0.2
    try:
        wait_for(is_capped, "the cap")
    finally:
        os.killpg(worker.process.pid, signal.SIGKILL)
