"""What people are used to from kubectl, docker and journalctl: list -q, --format, --watch, events -f, release --all."""
import json
import os
import signal
import subprocess

from conftest import MIB, wait_for
from test_quota import in_session, start  # noqa: F401 - a fixture


def create(daemon, name, **body):
    status, session = daemon.request("POST", "/v1/sessions", {"name": name, "memory_bytes": 8 * MIB, **body})
    assert status == 201, session
    return session


def test_a_list_for_scripts(daemon):
    ids = [create(daemon, name)["session_id"] for name in ("one", "two")]
    assert daemon.cli("list", "-q").stdout.split() == ids
    assert daemon.cli("ls", "--quiet").stdout == daemon.cli("ps", "-q").stdout
    assert daemon.cli("list", "--format", "name,vram_limit_bytes,expires_at,declared").stdout.splitlines() == [
        f"one\t{8 * MIB}\t-\tfalse", f"two\t{8 * MIB}\t-\tfalse"]
    refused = daemon.cli("list", "--format", "name,colour", check=False)
    assert refused.returncode == 1 and "no field 'colour'" in refused.stderr
    assert daemon.cli("list", "--format", "name;id", check=False).returncode == 2
    assert daemon.cli("list", "-x", check=False).returncode == 2


def test_columns_that_say_nothing_are_left_out(daemon):
    create(daemon, "plain")
    head = daemon.cli("list").stdout.splitlines()[0].split()
    assert "OWNER" not in head and "PRIORITY" not in head
    create(daemon, "first", priority="high")
    lines = daemon.cli("list").stdout.splitlines()
    assert "PRIORITY" in lines[0].split() and "high" in lines[2].split() and "normal" in lines[1].split()


def test_owners_are_named_where_there_are_others(make_daemon):
    if os.geteuid() != 0:
        return
    daemon = make_daemon()
    daemon.config.mkdir(parents=True)
    (daemon.config / "gpuslice.conf").write_text("[daemon]\n")
    daemon.start()
    create(daemon, "mine")
    assert daemon.session("mine")["owner"] == "root"
    listed = subprocess.run([daemon.product.gpuslice, "list"], env=daemon.environment(), capture_output=True, text=True)
    assert "OWNER" not in listed.stdout


def test_a_list_is_printed_again_and_again(daemon, reap):
    create(daemon, "one")
    watch = reap(daemon.spawn("list", "-q", "--watch"))
    first = watch.stdout.readline()
    create(daemon, "two")
    seen = [watch.stdout.readline() for _ in range(2)]
    assert first == seen[0] and seen[1] != first
    watch.send_signal(signal.SIGINT)
    assert watch.wait(20) == -signal.SIGINT


def test_events_of_one_session_and_of_a_time(daemon, reap):
    for name in "one", "two":
        create(daemon, name)
    session = create(daemon, "three")

    def events(*arguments):
        return [json.loads(line) for line in daemon.cli("events", "--json", *arguments).stdout.splitlines()]

    assert {event["name"] for event in events("two")} == {"two"}
    assert [event["kind"] for event in events(session["session_id"][:6])] == ["session.created"]
    assert len(events("--since", "1h")) == len(events())
    follower = reap(daemon.spawn("events", "-f", "two", "--since", "1h"))
    assert "session.created" in follower.stdout.readline()
    daemon.cli("release", "one", "two")
    assert "session.released" in follower.stdout.readline()


def test_all_of_ones_sessions_are_released_at_once(daemon, start):
    for name in "one", "two":
        create(daemon, name)
    busy = start(in_session(daemon, create(daemon, "busy")))
    refused = daemon.cli("release", "--all", check=False)
    assert refused.returncode == 1 and "busy" not in daemon.cli("list", "-q").stdout
    assert daemon.cli("list", "--format", "name").stdout == "busy\n"
    daemon.cli("rm", "--all", "--kill")
    assert daemon.request("GET", "/v1/sessions") == (200, []) and busy.process.wait(20) != 0
    assert daemon.cli("release", check=False).returncode == 2
    assert daemon.cli("release", "--all", "one", check=False).returncode == 2


def test_gpus_names_who_is_outside_of_sessions(daemon, start):
    puppet = start(daemon.gpu.environment())
    puppet.get("alloc", 16 * MIB)
    line = wait_for(lambda: next((line for line in daemon.cli("gpus").stdout.splitlines() if line.startswith("outside")), None),
                    "the program to be seen")
    assert f"(pid {puppet.process.pid}) of {os.environ.get('USER', 'root')}" in line and "16MiB" in line and "GPU 0" in line
