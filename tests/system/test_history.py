"""Sessions that have ended: /v1/history/sessions, `gpuslice history` and `show` (docs/api.md)."""
import json
import os
import signal

import pytest

from attach_client import Child
from conftest import GIB, MIB, wait_for
from test_daemon_api import as_user


def ended(daemon, *options):
    return json.loads(daemon.cli("history", "--json", *options).stdout)


def only(sessions):
    assert len(sessions) == 1, sessions
    return sessions[0]


def test_a_run_is_known_after_its_end(daemon, product):
    daemon.cli("run", "--name", "tight", "--memory", "1MiB", product.program("target_app"),
               env=daemon.environment(ALLOC_BYTES=2 * MIB, ITERATIONS=1))
    session = only(ended(daemon))
    assert {field: session[field] for field in (
        "name", "state", "owner_uid", "command", "processes", "vram_limit_bytes", "denied_allocations", "exit", "end_reason",
        "released_by")} == {
        "name": "tight", "state": "ended", "owner_uid": os.getuid(), "command": "target_app", "processes": 1,
        "vram_limit_bytes": MIB, "denied_allocations": 1, "exit": {"code": 0}, "end_reason": "its program has ended",
        "released_by": None}
    assert "was refused 2MiB on GPU 0" in only(session["refusals"])
    table = daemon.cli("history").stdout.splitlines()
    assert table[0].split() == ["NAME", "OWNER", "ENDED", "(UTC)", "LASTED", "PEAK", "GPU", "TIME", "WAITED", "DENIED", "EXIT"]
    assert table[1].split()[0] == "tight" and len(table) == 2
    page = daemon.cli("show", "tight").stdout
    assert "State     ended" in page and "was refused 2MiB on GPU 0" in page and "Exit      0" in page
    assert json.loads(daemon.cli("show", "tight", "--json").stdout) == session
    assert daemon.cli("show", "tighter", check=False).returncode == 1


def test_how_a_program_ended_is_known(daemon):
    daemon.cli("run", "--name", "three", "sh", "-c", "exit 3", check=False)
    daemon.cli("run", "--name", "killed", "sh", "-c", "kill -9 $$", check=False)
    assert {session["name"]: session["exit"] for session in ended(daemon)} == {
        "three": {"code": 3}, "killed": {"signal": signal.SIGKILL}}


def test_what_a_session_used_is_known_over_a_killed_daemon(daemon):
    daemon.cli("create", "--name", "long", "--memory", "64MiB", "--label", "team=a")
    Child(daemon.attach_socket, daemon.session("long")["session_id"], held_bytes=5 * MIB).kill()
    wait_for(lambda: not daemon.session("long")["processes"], "the process to be gone")
    assert ended(daemon) == []  # answered when what there was is written
    daemon.kill()
    daemon.start()
    daemon.cli("release", "long")
    session = only(ended(daemon))
    assert (session["peak_bytes"], session["processes"], session["label"]) == (5 * MIB, 1, "team=a")
    assert session["released_by"]["command"] == "gpuslice" and session["released_by"]["uid"] == os.getuid()
    daemon.kill()
    daemon.start()
    assert only(ended(daemon)) == session


def test_the_wait_in_the_queue_counts(make_daemon, make_gpu, reap):
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=GIB)).start()
    daemon.cli("create", "--name", "first", "--memory", "1GiB")
    waits = reap(daemon.spawn("run", "--name", "next", "--memory", "1GiB", "--wait", "true"))
    usage = wait_for(lambda: [row for row in daemon.request("GET", "/v1/usage")[1]["rows"]
                              if row["name"] == "next" and row["gate_wait_seconds"] >= 1], "the wait to count")
    assert usage[0]["peak_bytes"] == 0
    daemon.cli("release", "first")
    assert waits.wait(60) == 0
    session = only(wait_for(lambda: ended(daemon, "next"), "the session's end"))
    assert session["queue_wait_seconds"] >= 0.5 and session["was_admitted"]


def test_the_history_is_searched_by_name_time_and_number(daemon):
    for name in ("a", "b", "c"):
        daemon.cli("create", "--name", name, "--memory", "1MiB")
        daemon.cli("release", name)
    assert [session["name"] for session in ended(daemon)] == ["a", "b", "c"]
    assert [session["name"] for session in ended(daemon, "-n", "2")] == ["b", "c"]
    assert [session["name"] for session in ended(daemon, "b")] == ["b"]
    assert ended(daemon, "--until", "1h") == [] and len(ended(daemon, "--since", "2020-01-31")) == 3
    assert len(ended(daemon, "--user", str(os.getuid()))) == 3 and ended(daemon, "--user", "54321") == []
    assert "no user 'nobody-here'" in daemon.cli("history", "--user", "nobody-here", check=False).stderr


@pytest.mark.parametrize("query", ["since=soon", "until=-1s", "most=0", "owner_uid=ana", "session=a/b"])
def test_a_wrong_question_is_refused(daemon, query):
    status, answer = daemon.request("GET", f"/v1/history/sessions?{query}")
    assert (status, answer["error"]["code"]) == (400, "ERR_BAD_REQUEST")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be other users")
def test_users_see_their_own_history(daemon):
    for path in (daemon.folder, daemon.runtime, daemon.runtime / "simulated"):
        path.chmod(0o755)
    daemon.control_socket.chmod(0o666)  # as for members of the system daemon's group

    def make_and_end(name):
        assert daemon.request("POST", "/v1/sessions", {"name": name})[0] == 201
        assert daemon.request("DELETE", f"/v1/sessions/{name}")[0] == 204
        return [session["name"] for session in daemon.request("GET", "/v1/history/sessions")[1]["sessions"]]

    assert as_user(12345, lambda: make_and_end("hers")) == ["hers"]
    assert as_user(54321, lambda: make_and_end("his")) == ["his"]
    assert [session["name"] for session in ended(daemon)] == ["hers", "his"]
