"""A wait for room on the card that has no known end: who is told what keeps it, and what may fail instead."""
import os
import signal

from conftest import MIB, wait_for
from test_moves import narrow, run_movable, start_two  # noqa: F401 - a fixture
from test_quota import OUT_OF_MEMORY, OK, in_session, start  # noqa: F401 - a fixture


def test_a_wait_for_a_stopped_program_is_told_everywhere_and_may_fail(narrow, reap, start):  # noqa: F811
    narrow.configure("wait-told = 1s").process.send_signal(signal.SIGHUP)
    holder = run_movable(narrow, reap, 50, 10 * MIB, "--name", "holder", "--oversubscribe", "--memory", "350MiB")
    session = narrow.request("POST", "/v1/sessions", {"name": "waiter", "oversubscribe": "swap", "memory_bytes": 350 * MIB})[1]
    waiter = start(in_session(narrow, session))
    os.kill(holder.process.pid, signal.SIGSTOP)
    waiter.say("alloc", 200 * MIB)
    why = wait_for(lambda: narrow.session("waiter")["wait_why"], "it to be known what keeps the waiter")
    assert why.endswith(f"is held by session holder: its process {holder.process.pid} (movable) is stopped (SIGSTOP)")
    assert f"waiter waits: {why}" in narrow.cli("list").stdout and why in narrow.cli("show", "waiter").stdout
    wait_for(lambda: "session.waits" in narrow.cli("events").stdout, "its user to be told")
    narrow.cli("set", "waiter", "--wait-for-card", "1s")
    assert waiter.hear()[0] == OUT_OF_MEMORY
    os.kill(holder.process.pid, signal.SIGCONT)
    narrow.cli("set", "waiter", "--wait-for-card", "never")
    assert waiter.code("alloc", 200 * MIB) == OK
    assert holder.ask("check") == "good"
    said = waiter.end()
    assert "has waited for room on the card for" in said and why in said and "what its programs asked for is refused" in said
    holder.end()


def test_programs_whose_memory_cannot_come_back_are_ended_where_that_is_wished(narrow, reap):  # noqa: F811
    programs = dict(zip("ab", start_two(narrow, reap)))
    away = wait_for(lambda: next((name for name in "ab" if narrow.session(name)["residency"] == "away"), None), "one to have left")
    other = "b" if away == "a" else "a"
    wait_for(lambda: narrow.session(other)["residency"] == "resident", "the other to be on the card")
    os.kill(programs[other].process.pid, signal.SIGSTOP)
    programs[away].send("check")
    wait_for(lambda: narrow.session(away)["wait_why"], "it to be known what keeps it")
    narrow.cli("set", away, "--wait-for-card", "1s")
    assert programs[away].process.wait(20) == -signal.SIGTERM
    assert "its programs are ended" in programs[away].process.stderr.read()
    os.kill(programs[other].process.pid, signal.SIGCONT)
    assert programs[other].ask("check") == "good"
    programs[other].end()
