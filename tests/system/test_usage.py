"""What was used as time went by, and in all: /v1/history, /v1/usage and `gpuslice usage` (docs/api.md)."""
import csv
import io
import json
import os
import re

import pytest

from conftest import MIB, wait_for
from test_quota import OK, in_session, start  # noqa: F401 - a fixture
from test_shares import Worker, start_clock


def create(daemon, name, **body):
    status, session = daemon.request("POST", "/v1/sessions", {"name": name, "memory_bytes": 64 * MIB, **body})
    assert status == 201, session
    return session


def usage(daemon, **arguments):
    query = "&".join(f"{key}={value}" for key, value in arguments.items())
    status, answer = daemon.request("GET", f"/v1/usage?{query}")
    assert status == 200, answer
    return answer["rows"]


def row_of(daemon, name, **arguments):
    return next((row for row in usage(daemon, **arguments) if row["name"] == name), None)


def line_of(daemon, name, since="1m"):
    status, answer = daemon.request("GET", f"/v1/history?since={since}")
    assert status == 200, answer
    return next((line for line in answer["sessions"] if line["name"] == name), None)


def test_the_history_shows_what_the_session_holds(daemon, start):
    session = create(daemon, "train")
    puppet = start(in_session(daemon, session))
    puppet.get("alloc", 8 * MIB)
    line = wait_for(lambda: (found := line_of(daemon, "train")) and found["used_bytes"][-1] == 8 * MIB and found,
                    "a sample of what is held")
    assert line["session_id"] == session["session_id"] and line["owner_uid"] == os.geteuid()
    assert line["peak_bytes"][-1] == daemon.session("train")["used_bytes"]
    puppet.end()
    wait_for(lambda: line_of(daemon, "train")["used_bytes"][-1] == 0, "a sample without it")
    assert max(value or 0 for value in line_of(daemon, "train")["peak_bytes"]) == 8 * MIB


def test_what_a_session_used_outlives_it_and_a_killed_daemon(daemon, start):
    session = create(daemon, "gone")
    puppet = start(in_session(daemon, session))
    puppet.get("alloc", 8 * MIB)
    wait_for(lambda: (row := row_of(daemon, "gone")) and row["peak_bytes"] == 8 * MIB, "its usage")
    assert puppet.code("alloc", 128 * MIB) != OK
    puppet.end()
    wait_for(lambda: daemon.session("gone")["processes"] == [], "the process to be forgotten")
    daemon.cli("release", "gone")
    row = wait_for(lambda: (found := row_of(daemon, "gone")) and found["denied_allocations"] and found,
                   "the refusal to be counted")
    assert (row["session_id"], row["denied_allocations"]) == (session["session_id"], 1)
    assert row["byte_hours"] > 0 and row["active_seconds"] > 0
    daemon.stop()  # what was not written yet is, at an orderly end
    daemon.start()
    daemon.kill()
    daemon.start()
    assert row_of(daemon, "gone", since="1h")["peak_bytes"] == 8 * MIB
    assert (daemon.state / "simulated" / "history.db").stat().st_mode & 0o777 == 0o600


def test_usage_by_user_and_by_gpu_adds_sessions_up(daemon, start):
    for name in "one", "two":
        session = create(daemon, name)
        start(in_session(daemon, session)).get("alloc", 4 * MIB)
        wait_for(lambda: row_of(daemon, name), f"usage of {name}")
    (mine,) = usage(daemon, by="user")
    assert mine["owner_uid"] == os.geteuid() and "session_id" not in mine
    rows = usage(daemon, by="session")
    assert {row["name"] for row in rows} == {"one", "two"}
    assert mine["byte_hours"] == pytest.approx(sum(row["byte_hours"] for row in rows), rel=0.5)
    (card,) = usage(daemon, by="gpu")
    assert card["gpu_uuid"] == daemon.request("GET", "/v1/gpus")[1][0]["uuid"]


def test_gpu_time_is_known_with_and_without_shares(make_daemon, make_gpu, reap):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_CONTEXT_BYTES=MIB)).start()  # NVML shows who holds memory
    for name, body in ("free", {}), ("shared", {"compute": "10%..100%"}):
        create(daemon, name, **body)
        worker = Worker(daemon, reap, None, "500", session=name)
        worker.begin(20000)
        row = wait_for(lambda: (found := row_of(daemon, name)) and found["gpu_seconds"] > 0.2 and found,
                       f"GPU time of {name}")
        by_nvml = row["gpu_seconds_by_nvml"]
        assert by_nvml == row["gpu_seconds"] if name == "free" else by_nvml < row["gpu_seconds"]
        worker.process.kill()
        worker.process.wait()
        daemon.cli("release", "--kill", name)


@pytest.mark.parametrize("window_ms, within", [(3000, 0.05), (500, 0.25)], ids=["seconds", "less"])
def test_a_session_without_a_share_is_charged_what_the_card_gave_it(daemon, reap, window_ms, within):
    clock = start_clock(daemon, reap)
    create(daemon, "free")
    worker = Worker(daemon, reap, None, "500", session="free")
    worker.begin(window_ms)
    if window_ms > 2000:
        session = wait_for(lambda: (found := daemon.session("free")) and found["gpus"][0]["gpu_seconds"] > 1 and found, "a second")
        assert session["gpus"][0]["achieved_by_nvml"] and session["gpus"][0]["compute_achieved_ratio"] > 0.2
        assert re.search(r"~\d\d", daemon.cli("list").stdout)
    worker.end()
    given_s = clock.read()[1][worker.process.pid] / 1e9
    worker.stop()
    wait_for(lambda: not daemon.session("free")["processes"], "the process to be gone")
    daemon.cli("release", "free")
    (session,) = json.loads(daemon.cli("history", "--json").stdout)
    assert session["gpu_seconds"] == session["gpu_seconds_by_nvml"] == pytest.approx(given_s, rel=within)
    wait_for(lambda: (row := row_of(daemon, "free")) and row["gpu_seconds"] == pytest.approx(session["gpu_seconds"]), "its usage to be written")


def test_the_command_shows_a_table_csv_and_json(daemon, start):
    session = create(daemon, "train")
    start(in_session(daemon, session)).get("alloc", 8 * MIB)
    wait_for(lambda: (row := row_of(daemon, "train")) and row["peak_bytes"], "its usage")
    table = daemon.cli("usage").stdout.splitlines()
    assert table[0].split()[:2] == ["SESSION", "OWNER"] and table[1].split()[0] == "train"
    (row,) = csv.DictReader(io.StringIO(daemon.cli("usage", "--csv", "--since", "1d").stdout))
    assert (row["session_id"], row["peak_bytes"]) == (session["session_id"], str(8 * MIB))
    answer = json.loads(daemon.cli("usage", "--json", "--by", "user").stdout)
    assert answer["by"] == "user" and answer["rows"][0]["peak_bytes"] == 8 * MIB
    assert daemon.cli("usage", "--by", "moon", check=False).returncode == 2


@pytest.mark.parametrize("query", ["since=soon", "points=0", "points=1001", "sessions=x", "by=moon"])
def test_what_cannot_be_asked_is_refused(daemon, query):
    status, answer = daemon.request("GET", f"/v1/history?{query}")
    assert (status, answer["error"]["code"]) == (400, "ERR_BAD_REQUEST")


def test_a_session_that_nobody_knows(daemon):
    assert daemon.request("GET", "/v1/history?session=nobody")[1]["error"]["code"] == "ERR_SESSION_NOT_FOUND"


def test_no_history_is_kept_where_none_is_wanted(make_daemon):
    daemon = make_daemon()
    daemon.config.mkdir(parents=True)
    (daemon.config / "gpuslice.conf").write_text("[daemon]\nhistory-days = 0\n")
    daemon.start()
    assert daemon.request("GET", "/v1/history")[1]["error"]["code"] == "ERR_NOT_FOUND"
    daemon.stop()
    assert not (daemon.state / "simulated" / "history.db").exists()


def test_a_damaged_history_costs_nothing_but_itself(daemon):
    session = create(daemon, "train")
    daemon.stop()
    path = daemon.state / "simulated" / "history.db"
    path.write_bytes(b"no database" * 1000)
    daemon.start()
    assert daemon.session("train")["session_id"] == session["session_id"]
    assert daemon.request("GET", "/v1/history")[0] == 200
    assert path.with_name("history.db.damaged").exists()
