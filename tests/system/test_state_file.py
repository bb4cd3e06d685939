"""A state file that cannot be used: refused and left alone, put aside when told to, and put back."""
import hashlib
import json
import os
import re
import resource
import shutil
import sqlite3
import subprocess

import pytest

from attach_client import Child, Client
from conftest import MIB
from test_quota import OUT_OF_MEMORY, Puppet, in_session

LIMIT = 16 * MIB


def create(daemon, name="s", **body):
    status, session = daemon.request("POST", "/v1/sessions", {"name": name, "memory_bytes": LIMIT, **body})
    assert status == 201, session
    return session


def state_file(daemon):
    return daemon.state / "simulated" / "state.db"


def edit(daemon, *statements):
    with sqlite3.connect(state_file(daemon)) as state:
        for statement in statements:
            state.execute(statement)
    state.close()


def put_asides(daemon):
    return sorted(path for path in state_file(daemon).parent.iterdir() if ".damaged-" in path.name)


def try_start(daemon, *options):
    """A start that is to fail: (status, what it said last)."""
    result = subprocess.run([daemon.product.gpusliced, "--simulated", *options], env=daemon.environment(),
                            capture_output=True, text=True, timeout=60)
    return result.returncode, result.stderr.splitlines()[-1]


def truncated(daemon):
    os.truncate(state_file(daemon), 3 * 4096)


def cut_in_a_page(daemon):
    os.truncate(state_file(daemon), 1000)


def garbage(daemon):
    state_file(daemon).write_bytes(os.urandom(40000))


def scribbled(daemon):
    with open(state_file(daemon), "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(5 * 4096))


def without_a_table(daemon):
    edit(daemon, "DROP TABLE session_gpus")


def without_a_column(daemon):
    edit(daemon, "ALTER TABLE sessions DROP COLUMN expires_at_ms")


def of_another_program(daemon):
    state_file(daemon).unlink()
    edit(daemon, "CREATE TABLE bookmarks(url TEXT)")


def of_a_wrong_layout(daemon):
    edit(daemon, "PRAGMA user_version=-3")


def of_a_newer_layout(daemon):
    edit(daemon, "PRAGMA user_version=99")


@pytest.mark.parametrize("damage", [truncated, cut_in_a_page, garbage, scribbled, without_a_table, without_a_column,
                                    of_another_program, of_a_wrong_layout, of_a_newer_layout])
def test_a_file_that_cannot_be_used_is_refused_and_kept(daemon, damage):
    create(daemon)
    daemon.stop()
    damage(daemon)
    path = state_file(daemon)
    before = hashlib.sha256(path.read_bytes()).digest()

    for _ in range(2):  # and no second start gets by
        status, line = try_start(daemon)
        assert status == 1
        newer = damage is of_a_newer_layout
        assert line.startswith(f"gpusliced: the state file {path} is {'of a newer gpusliced' if newer else 'damaged'} (")
        assert "--fresh" in line
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert put_asides(daemon) == []

    daemon.start("--fresh")
    aside = [each for each in put_asides(daemon) if not each.name.endswith(("-wal", "-shm"))]
    assert len(aside) == 1 and re.fullmatch(r"state\.db\.damaged-\d{8}T\d{6}Z", aside[0].name)
    assert hashlib.sha256(aside[0].read_bytes()).digest() == before
    assert f"it is kept as {aside[0]}" in daemon.log_text()
    assert daemon.request("GET", "/v1/sessions") == (200, [])
    created = create(daemon)
    daemon.kill()
    daemon.start()
    assert daemon.session("s")["session_id"] == created["session_id"]


def test_fresh_leaves_a_good_file_alone(daemon):
    created = create(daemon)
    daemon.stop()
    daemon.start("--fresh")
    assert daemon.session("s")["session_id"] == created["session_id"]
    assert put_asides(daemon) == []


def test_a_log_left_behind_goes_aside_with_its_file(daemon):
    create(daemon)
    daemon.kill()  # the log is not folded in
    path = state_file(daemon)
    log = path.with_name("state.db-wal")
    with open(path, "r+b") as file:
        file.write(b"not a state file")
    os.truncate(log, 100)  # it does not make up for that
    before = log.read_bytes()
    daemon.start("--fresh")
    kept = [each for each in put_asides(daemon) if each.name.endswith("-wal")]
    assert daemon.request("GET", "/v1/sessions") == (200, [])
    assert [each.read_bytes() for each in kept] == [before]


def test_on_demand_the_person_is_told(make_daemon):
    daemon = make_daemon()
    state_file(daemon).parent.mkdir(parents=True, mode=0o700)
    garbage(daemon)
    result = daemon.cli("create", "--simulated", check=False)
    assert result.returncode == 1
    assert "is damaged (" in result.stderr and "--fresh" in result.stderr
    assert put_asides(daemon) == []


def test_programs_of_lost_sessions_go_on_and_are_found_when_the_file_is_put_back(daemon, product, reap):
    session = create(daemon)
    identity = session["session_id"]
    puppet = Puppet(product, in_session(daemon, session))
    reap(puppet.process)
    puppet.get("context", 0)
    puppet.get("alloc", 5 * MIB)
    daemon.stop()
    saved = state_file(daemon).read_bytes()
    garbage(daemon)
    daemon.start("--fresh")
    assert re.search(rf"session {identity} is not in the state file, but process {puppet.process.pid} ", daemon.log_text())

    # It is held to the limit that it knows, and its ledger is there.
    held = puppet.get("alloc", LIMIT - 5 * MIB)
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY
    puppet.get("free", held)
    ledger = daemon.runtime / "simulated" / "ledgers" / identity
    assert ledger.exists()
    create(daemon, name="another")
    daemon.stop()
    daemon.start()
    assert ledger.exists() and daemon.session("another")["name"] == "another"

    daemon.stop()
    state_file(daemon).write_bytes(saved)
    daemon.start()
    found = daemon.session(identity)
    assert found["used_bytes"] == 5 * MIB
    assert [process["pid"] for process in found["processes"]] == [puppet.process.pid]
    assert daemon.request("PATCH", f"/v1/sessions/{identity}", {"memory_bytes": 6 * MIB})[0] == 200
    assert puppet.code("alloc", MIB + 1) == OUT_OF_MEMORY
    puppet.get("alloc", MIB)
    assert daemon.session(identity)["used_bytes"] == 6 * MIB


def test_the_ledger_of_a_lost_session_goes_with_its_last_program(daemon):
    identity = create(daemon)["session_id"]
    child = Child(daemon.attach_socket, identity, held_bytes=MIB)
    ledger = daemon.runtime / "simulated" / "ledgers" / identity
    daemon.stop()
    state_file(daemon).unlink()
    daemon.start()
    assert ledger.exists()
    child.kill()
    daemon.stop()
    daemon.start()
    assert not ledger.exists()


def test_an_older_copy_of_the_file_is_told_from_what_programs_saw_since(daemon):
    identity = create(daemon)["session_id"]
    daemon.stop()
    copy = state_file(daemon).read_bytes()
    daemon.start()
    client = Client(daemon.attach_socket).attach(identity)
    seen = client.epoch
    daemon.stop()
    state_file(daemon).write_bytes(copy)
    daemon.start()
    assert int.from_bytes(client.usage[16:24], "little") > seen
    client.close()


def test_rows_that_belong_to_nothing_disturb_nothing(daemon):
    good = create(daemon, "good")["session_id"]
    bad = create(daemon, "bad")["session_id"]
    daemon.stop()
    edit(daemon, "PRAGMA foreign_keys=OFF",
         "INSERT INTO session_gpus VALUES('ffffffffffff', 0, 'GPU-none', 5, 1)",
         f"INSERT INTO session_gpus VALUES('{good}', 1, 'no uuid', 5, 1)",
         f"UPDATE session_gpus SET limit_bytes=-1 WHERE session_id='{bad}'",
         f"INSERT INTO processes VALUES('{good}', 5000, 1, 1, 1, 1)",
         f"INSERT INTO processes VALUES('{good}', -1, 1, 1, 1, 1)",
         "INSERT INTO processes VALUES('ffffffffffff', 3, 1, 1, 1, 1)",
         f"CREATE TEMP TABLE another AS SELECT * FROM sessions WHERE id='{good}'",
         "UPDATE another SET id='../../etc/foo'", "INSERT INTO sessions SELECT * FROM another",
         f"UPDATE sessions SET priority=77, compute='much', idle_suspend_seconds=-1 WHERE id='{good}'")
    daemon.start()
    sessions = {session["session_id"]: session for session in daemon.request("GET", "/v1/sessions")[1]}
    assert set(sessions) == {good, bad}
    assert sessions[good]["vram_limit_bytes"] == LIMIT and sessions[good]["processes"] == []
    assert (sessions[good]["priority"], sessions[good]["compute_max_ratio"]) == ("normal", 1)
    assert sessions[bad]["vram_limit_bytes"] == 0  # not endless
    assert "'../../etc/fo'" in daemon.log_text()
    Client(daemon.attach_socket).attach(good)


def test_too_few_descriptors_end_the_start_and_no_session(daemon):
    clients = [Client(daemon.attach_socket).attach(create(daemon, f"s{number}")["session_id"]) for number in range(40)]
    daemon.kill()

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    result = subprocess.run([daemon.product.gpusliced, "--simulated"], env=daemon.environment(), capture_output=True,
                            text=True, timeout=60, preexec_fn=few)
    assert result.returncode == 1
    assert "cannot be restored: " in result.stderr and "Too many open files" in result.stderr
    daemon.start()
    sessions = daemon.request("GET", "/v1/sessions")[1]
    assert [len(session["processes"]) for session in sessions] == [1] * len(clients)


def test_sessions_that_rest_cost_no_descriptor_and_no_file(daemon):
    sessions = [create(daemon, f"s{number}")["session_id"] for number in range(30)]
    ledgers = daemon.runtime / "simulated" / "ledgers"
    descriptors = f"/proc/{daemon.process.pid}/fd"
    before = len(os.listdir(descriptors))
    assert os.listdir(ledgers) == []
    child = Child(daemon.attach_socket, sessions[7], held_bytes=MIB)
    assert os.listdir(ledgers) == [sessions[7]]
    assert len(os.listdir(descriptors)) <= before + 4  # its policy, its file, the connection, the process
    daemon.kill()
    daemon.start()
    assert os.listdir(ledgers) == [sessions[7]] and daemon.session("s7")["used_bytes"] == MIB
    daemon.kill()
    child.kill()
    daemon.start()
    assert os.listdir(ledgers) == []
    # Nothing of the old one is taken for a new one.
    client = Client(daemon.attach_socket).attach(sessions[7])
    assert client.slot == 0
    assert len(daemon.session("s7")["processes"]) == 1 and daemon.session("s7")["used_bytes"] == 0


def test_a_full_disk_is_an_error_of_the_change_and_of_nothing_else(daemon):
    create(daemon)
    client = Client(daemon.attach_socket).attach(daemon.session("s")["session_id"])
    client.hold(MIB)
    _, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (1, hard))
    status, answer = daemon.request("POST", "/v1/sessions", {"name": "t", "memory_bytes": MIB})
    assert status == 500 and answer["error"]["code"] == "ERR_INTERNAL", answer
    status, answer = daemon.request("PATCH", "/v1/sessions/s", {"memory_bytes": 2 * MIB})
    assert status == 500
    assert [session["name"] for session in daemon.request("GET", "/v1/sessions")[1]] == ["s"]
    assert daemon.session("s")["used_bytes"] == MIB
    assert len(os.listdir(daemon.runtime / "simulated" / "ledgers")) == 1

    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert daemon.request("PATCH", "/v1/sessions/s", {"memory_bytes": 3 * MIB})[0] == 200
    create(daemon, "t")
    daemon.kill()
    daemon.start()
    assert daemon.session("s")["vram_limit_bytes"] == 3 * MIB and daemon.session("s")["used_bytes"] == MIB
    assert daemon.session("t")["vram_limit_bytes"] == LIMIT


def test_columns_of_a_later_release_are_left_alone(daemon):
    create(daemon)
    daemon.stop()
    tables = ("sessions", "session_gpus", "processes", "context_costs")
    edit(daemon, *(f"ALTER TABLE {table} ADD COLUMN of_tomorrow INTEGER NOT NULL DEFAULT 7" for table in tables))
    daemon.start()
    assert daemon.session("s")["vram_limit_bytes"] == LIMIT
    assert daemon.request("PATCH", "/v1/sessions/s", {"memory_bytes": 2 * LIMIT})[0] == 200
    Client(daemon.attach_socket).attach(daemon.session("s")["session_id"])
    daemon.stop()
    with sqlite3.connect(state_file(daemon)) as state:
        assert state.execute("SELECT limit_bytes, of_tomorrow FROM session_gpus").fetchall() == [(2 * LIMIT, 7)]
    state.close()
    daemon.start()


def test_a_backup_is_whole_while_the_daemon_writes(daemon, tmp_path):
    for number in range(3):
        daemon.cli("create", "--name", f"s{number}", "--memory", "1MiB")  # in the file's log alone
    copy = tmp_path / "copy.db"
    daemon.cli("backup", copy)
    assert copy.stat().st_mode & 0o777 == 0o600 and copy.stat().st_uid == os.getuid()
    assert "must be a new file" in daemon.cli("backup", copy, check=False).stderr
    daemon.cli("release", "--all")
    daemon.stop()
    state = daemon.state / "simulated"
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (state / name).unlink(missing_ok=True)
    shutil.copy(copy, state / "state.db")
    daemon.start()
    assert {session["name"] for session in json.loads(daemon.cli("list", "--json").stdout)} == {"s0", "s1", "s2"}
    assert "did not stop in order" not in daemon.log_text()
