"""What people are used to from kubectl, docker and journalctl: list -q, --format, --watch, events -f, release --all."""
import json
import os
import signal
import subprocess

import pytest

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


ASKING = (["list"], ["list", "--json"], ["list", "-q"], ["show", "a"], ["gpus"], ["usage"], ["events"], ["scheduler"], ["release", "a"],
          ["dashboard"], ["set", "a", "--memory", "1MiB"], ["suspend", "a"])


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
def test_without_a_daemon_asking_fails_and_starts_none(make_daemon, arguments):
    daemon = make_daemon()
    asked = daemon.cli(*arguments, check=False)
    assert (asked.returncode, asked.stdout) == (1, "")
    assert asked.stderr.startswith("gpuslice: no daemon is running; expected one at ") and asked.stderr.count("\n") == 1
    assert not daemon.control_socket.exists()


def test_a_daemon_that_was_killed_is_said_to_be_dead(daemon):
    daemon.process.kill()
    daemon.process.wait()
    for arguments in ASKING:
        asked = daemon.cli(*arguments, check=False)
        assert (asked.returncode, asked.stdout) == (1, ""), arguments
        assert asked.stderr.startswith(f"gpuslice: the daemon of {daemon.control_socket} has died; its log is "), asked.stderr


def test_forms_of_lists(daemon):
    create(daemon, "one")
    assert [session["name"] for session in json.loads(daemon.cli("ls", "-o", "json").stdout)] == ["one"]
    assert daemon.cli("list", "-o", "name").stdout == "one\n"
    assert {"OWNER", "PRIORITY"} <= set(daemon.cli("ps", "--output", "wide").stdout.split())
    refused = daemon.cli("list", "-o", "yaml", check=False)
    assert refused.returncode == 2 and "expected table, wide, json or name" in refused.stderr


def test_the_last_events(daemon, reap):
    for name in "one", "two", "three":
        create(daemon, name)
    assert [line.split()[4] for line in daemon.cli("events", "-n", "2").stdout.splitlines()] == ["two", "three"]
    follower = reap(daemon.spawn("logs", "-f", "-n", "1"))
    assert "three" in follower.stdout.readline()
    daemon.cli("delete", "one")
    assert "session.released" in follower.stdout.readline()
    assert daemon.cli("events", "-n", "none", check=False).returncode == 2


def test_other_tools_words_lead_on(daemon):
    for word, ours in ("kill", "release --kill"), ("exec", "run --session"), ("get", "list"):
        refused = daemon.cli(word, "train", check=False)
        assert refused.returncode == 2 and f"'gpuslice {ours}" in refused.stderr
    create(daemon, "one")
    assert "one" in daemon.cli("describe", "one").stdout and "one" in daemon.cli("inspect", "one").stdout
    assert daemon.cli("-v").stdout == daemon.cli("version").stdout


def test_nvidia_smi_on_a_simulated_gpu(daemon, tmp_path):
    refused = daemon.cli("run", "--simulated", "--", "/usr/bin/nvidia-smi", "-L", check=False)
    assert refused.returncode == 1 and "cannot run on a simulated GPU" in refused.stderr and "gpuslice gpus" in refused.stderr
    assert daemon.request("GET", "/v1/sessions") == (200, [])


def test_memory_is_asked_for_as_a_part_of_the_card(make_daemon, make_gpu):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_GPUS=2)).start()
    total = daemon.request("GET", "/v1/gpus")[1][0]["total_bytes"]
    daemon.cli("create", "--name", "half", "-m", "50%")
    assert daemon.session("half")["vram_limit_bytes"] == total // 2
    daemon.cli("create", "--name", "two", "--gpu", "0,1", "--memory", "0=25%,1=12.5%")
    assert [gpu["limit_bytes"] for gpu in daemon.session("two")["gpus"]] == [total // 4, total // 8]
    daemon.cli("set", "half", "--memory", "10%")
    assert daemon.session("half")["vram_limit_bytes"] == total // 10
    full = daemon.cli("create", "--gpu", "0", "--memory", "80%", check=False)
    assert full.returncode == 1 and "does not fit" in full.stderr
    assert daemon.cli("create", "--memory", "120%", check=False).returncode == 2
    both = daemon.request("POST", "/v1/sessions", {"memory_bytes": MIB, "memory_ratio": 0.5})
    assert both[0] == 400 and "either" in both[1]["error"]["message"]


def test_gpus_names_processes_outside_of_sessions(daemon, start):
    puppet = start(daemon.gpu.environment())
    puppet.get("alloc", 16 * MIB)
    line = wait_for(lambda: next((line for line in daemon.cli("gpus").stdout.splitlines() if line.startswith("outside")), None),
                    "the program to be seen")
    assert f"(pid {puppet.process.pid}) of {os.environ.get('USER', 'root')}" in line and "16MiB" in line and "GPU 0" in line
