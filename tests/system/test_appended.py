"""The files that the daemon adds to: the log, the audit file, the metrics. What others put in their places, and who fills them."""
import http.client
import json
import os

import pytest

from attacks import OTHER_USER, attack, http as connect
from conftest import MIB, wait_for
from test_events import kept
from test_many_users import root_only, shared  # noqa: F401


def put_in_the_way(what, path, tmp_path):
    """Something that is not a file of the daemon's alone, with what it leads to."""
    precious = tmp_path / "precious"
    precious.write_text("another's")
    if what == "fifo":
        os.mkfifo(path, 0o666)
    elif what == "link":
        path.symlink_to(precious)
    elif what == "second name":
        path.hardlink_to(precious)
    else:
        path.write_text("another's")
        os.chown(path, OTHER_USER, OTHER_USER)
        return path
    return precious


IN_THE_WAY = ["fifo", "link", "second name", pytest.param("another user's", marks=root_only)]


@pytest.mark.parametrize("what", IN_THE_WAY)
@pytest.mark.parametrize("variable", ["GPUSLICE_LOG_FILE", "GPUSLICE_AUDIT_PATH"])
def test_a_daemon_does_not_start_with_a_file_that_is_not_its_own(make_daemon, tmp_path, variable, what):
    path = tmp_path / "lines"
    precious = put_in_the_way(what, path, tmp_path)
    daemon = make_daemon(**{variable: path})
    assert daemon.spawn_daemon().wait(20) == 1
    assert f"{path} is not a plain file of uid {os.geteuid()} with a single name" in daemon.log_text().splitlines()[-1]
    assert precious.read_text() == "another's"


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_metrics_are_not_added_to_a_file_that_is_not_the_daemons(make_daemon, tmp_path, what):
    daemon, path = make_daemon(), tmp_path / "metrics"
    precious = put_in_the_way(what, path, tmp_path)
    daemon.config.mkdir(parents=True)
    (daemon.config / "gpuslice.conf").write_text(f"[daemon]\nmetrics-file = {path}\nmetrics-file-interval = 1s\n")
    daemon.start()
    told = lambda: [event["message"] for event in kept(daemon) if event["kind"] == "metrics.unwritten"]
    wait_for(told, "the event")
    assert "is not a plain file" in told()[0] and precious.read_text() == "another's"


def ask_too_much(say, path):
    """A session that no card has room for, again and again on one connection."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = connect(path)
    for count in range(1, 1_000_000):
        connection.request("POST", "/v1/sessions", json.dumps({"memory_bytes": 1 << 60}))
        answer = connection.getresponse()
        answer.read()
        assert answer.status in (400, 409), answer.status
        say(count)


@root_only
def test_a_refused_user_does_not_fill_the_audit_file(shared, tmp_path):  # noqa: F811
    shared.stop()
    path, older = tmp_path / "audit", tmp_path / "audit.1"
    shared.config.mkdir(parents=True)
    (shared.config / "gpuslice.conf").write_text(f"[daemon]\naudit-file = {path}\naudit-file-max = 1MiB\n")
    shared.start("--system")
    shared.control_socket.chmod(0o666)
    shared.cli("create", "--name", "before", "--memory", "1MiB")
    with attack(ask_too_much, shared.control_socket) as count:
        count(5000)
    shared.cli("create", "--name", "after", "--memory", "1MiB")
    shared.stop()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert not older.exists()
    assert [line["name"] for line in lines if line["action"] == "allocated"] == ["before", "after"]
    denied = [line for line in lines if line["action"] == "denied"]
    left_out = sum(line["lines"] for line in lines if line["action"] == "left-out")
    assert 1000 <= len(denied) <= 1200 and len(denied) + left_out >= 5000
    assert {line["owner_uid"] for line in lines if line["action"] in ("denied", "left-out")} == {OTHER_USER}


def test_a_full_audit_file_makes_room_for_a_new_one(make_daemon, tmp_path):
    path, older = tmp_path / "audit", tmp_path / "audit.1"
    daemon = make_daemon(GPUSLICE_AUDIT_PATH=path)
    daemon.config.mkdir(parents=True)
    (daemon.config / "gpuslice.conf").write_text("[daemon]\naudit-file-max = 2KiB\n")
    daemon.start()
    lines = lambda file: [json.loads(line) for line in file.read_text().splitlines()]
    made = []
    while not older.exists():
        made.append(daemon.request("POST", "/v1/sessions", {"memory_bytes": MIB})[1]["session_id"])
        wait_for(lambda: path.exists() and made[-1] in path.read_text(), "the line")
    assert [line["session_id"] for line in lines(older) + lines(path)] == made
    assert older.stat().st_size <= 2048 and path.stat().st_mode & 0o777 == 0o600
