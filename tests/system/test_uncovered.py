"""Programs outside of every session, on a system daemon: told of, and ended where gpuslice.conf says so."""
import json
import os
import signal

import pytest

from conftest import MIB, wait_for
from test_quota import in_session, start  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a system daemon needs root")


@pytest.fixture
def system(make_daemon):
    daemon = make_daemon()
    daemon.config.mkdir(parents=True)
    return daemon


def configure(daemon, text):
    fresh = daemon.config / "fresh"
    fresh.write_text(f"[daemon]\n{text}\n")
    fresh.rename(daemon.config / "gpuslice.conf")


def events(daemon, kind):
    lines = daemon.cli("events", "--json").stdout.splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def outside(daemon, start, *command):
    puppet = start(daemon.gpu.environment(FAKECUDA_OWNER="0"), command)
    puppet.get("alloc", 8 * MIB)
    return puppet


def test_it_is_told_of_once_and_let_live(system, start):
    system.start("--system")
    puppet = outside(system, start)
    (event,) = wait_for(lambda: events(system, "process.uncovered"), "the program to be told of", 40)
    assert (event["pid"], event["command"], event["used_bytes"]) == (puppet.process.pid, "puppet", 8 * MIB)
    assert "outside of every session" in event["message"] and puppet.process.poll() is None


def test_it_is_ended_where_that_is_said_and_roots_only_where_that_is_too(system, start):
    configure(system, "stop-uncovered = yes\nstop-uncovered-grace = 1s")
    system.start("--system")
    inside = start(in_session(system, system.request("POST", "/v1/sessions", {"name": "s"})[1]))
    inside.get("alloc", MIB)
    puppet = outside(system, start)
    stubborn = outside(system, start, "sh", "-c", 'trap "" TERM; exec "$0"')
    wait_for(lambda: len(events(system, "process.uncovered")) == 2, "the programs to be told of", 40)
    assert puppet.process.poll() is None and events(system, "process.stopped") == []
    configure(system, "stop-uncovered = yes\nstop-uncovered-grace = 1s\nstop-uncovered-root = yes")
    assert wait_for(lambda: puppet.process.poll(), "the program to be ended", 40) == -signal.SIGTERM
    (event,) = [event for event in events(system, "process.stopped") if event["pid"] == puppet.process.pid]
    assert [e["pid"] for e in events(system, "process.warned")].count(puppet.process.pid) == 1
    assert "SIGTERM" in event["message"] and stubborn.process.poll() is None
    assert wait_for(lambda: stubborn.process.poll(), "the other to be killed", 40) == -signal.SIGKILL
    assert "SIGKILL" in events(system, "process.stopped")[-1]["message"]
    assert inside.process.poll() is None


def test_a_users_own_daemon_has_no_say_over_others(make_daemon, start):
    daemon = make_daemon()
    daemon.config.mkdir(parents=True)
    configure(daemon, "stop-uncovered = yes\nstop-uncovered-root = yes")
    daemon.start()
    puppet = start(daemon.gpu.environment())
    puppet.get("alloc", MIB)
    wait_for(lambda: daemon.request("GET", "/v1/gpus")[1][0]["uncovered_bytes"] == MIB, "the program to be seen")
    end = daemon.request("GET", "/v1/gpus")[1][0]["processes"][0]
    assert end["pid"] == puppet.process.pid and end["command"] == "puppet"
    assert events(daemon, "process.uncovered") == [] and puppet.process.poll() is None
