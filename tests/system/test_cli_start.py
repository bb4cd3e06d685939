"""Daemons started on demand by run and create, and tied to nothing of theirs."""
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading

import pytest

from conftest import wait_for


@pytest.fixture
def absent(make_daemon):
    """A daemon that the command line has to start; ended at the end."""
    daemon = make_daemon()
    yield daemon
    pid = daemon_pid(daemon)
    if pid:
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the daemon to end")


def daemon_pid(daemon):
    """The pid of the daemon that answers, by the credentials of its socket; None without one."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(daemon.control_socket))
        except OSError:
            return None
        return struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def open_files(pid):
    """What the descriptors of `pid` are, but for those that it closes meanwhile."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            yield os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            pass


def test_create_starts_a_daemon_that_stays(absent):
    session_id = absent.cli("create").stdout.strip()
    assert [s["session_id"] for s in json.loads(absent.cli("list", "--json").stdout)] == [session_id]
    status = dict(line.split(":\t", 1) for line in open(f"/proc/{daemon_pid(absent)}/status"))
    assert int(status["PPid"]) != os.getpid()


def test_run_starts_a_daemon_and_ends_with_the_programs_status(absent):
    assert absent.cli("run", "sh", "-c", "exit 42", check=False).returncode == 42
    assert daemon_pid(absent)


def fake_daemon(absent, hung_up):
    """One that is ready, and dies under the first request for a session, which it adds to `hung_up`."""
    folder = absent.control_socket.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(absent.control_socket))
    listener.listen()

    def serve():
        while not hung_up:
            connection = listener.accept()[0]
            while not hung_up and (text := connection.recv(65536).decode()):
                if text.startswith("POST /v1/sessions "):
                    while "\r\n\r\n" not in text or not text.endswith("}"):
                        text += connection.recv(65536).decode()
                    hung_up.append(json.loads(text.split("\r\n\r\n")[1]))
                    absent.control_socket.unlink()
                    listener.close()
                else:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")
            connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def test_a_daemon_that_dies_under_the_request_is_asked_again(absent):
    asked = []
    thread = fake_daemon(absent, asked)
    session_id = absent.cli("create", "--name", "again").stdout.strip()
    thread.join(60)
    assert len(asked) == 1 and asked[0]["name"] == "again"
    # The request that got no answer had a key, and the one that was answered had the same.
    status, session = absent.request("POST", "/v1/sessions", {"request_key": asked[0]["request_key"]})
    assert (status, session["session_id"], session["name"]) == (201, session_id, "again")


def test_a_program_runs_though_its_daemon_dies_under_the_request(absent):
    asked = []
    thread = fake_daemon(absent, asked)
    assert absent.cli("run", "sh", "-c", "exit 42", check=False).returncode == 42
    thread.join(60)
    assert asked[0]["run"] is True


def test_settings_of_another_simulated_machine_are_said_to_have_no_effect(absent):
    assert absent.cli("create").stderr == ""
    said = absent.cli("create", env={**absent.environment(), "FAKECUDA_GPUS": "2"}).stderr
    assert said.startswith("gpuslice: warning: FAKECUDA_GPUS=2 has no effect: a daemon of simulated GPUs runs already"), said
    assert len(said.splitlines()) == 1


def test_a_pipe_behind_run_ends_with_the_program(absent):
    result = subprocess.run(f"{absent.product.gpuslice} run -- echo done | cat; echo done >&2", shell=True, text=True,
                            env=absent.environment(), capture_output=True, timeout=20)
    assert (result.stdout, result.stderr) == ("done\n", "done\n")
    assert daemon_pid(absent)


def test_the_daemon_is_tied_to_nothing_of_its_starter(absent, tmp_path):
    held = open(tmp_path / "held", "w")
    absent.cli("create", pass_fds=[held.fileno()], cwd=tmp_path)
    pid = daemon_pid(absent)
    targets = list(open_files(pid))
    assert not [target for target in targets if str(tmp_path) in target or target.startswith("/dev/pts")]
    assert not [target for target in targets if "gpusliced-stderr" in target]
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    session = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[3]
    assert int(session) != os.getsid(0)


def test_the_daemon_is_not_a_child_of_the_program(absent):
    result = absent.cli("run", "sh", "-c", "cat /proc/$$/task/$$/children")
    assert result.stdout.split() == [] or daemon_pid(absent) not in map(int, result.stdout.split())


def test_many_at_once_all_succeed_with_one_daemon(absent):
    starters = [absent.spawn("create") for _ in range(8)]
    answers = [starter.communicate(timeout=60) + (starter.returncode,) for starter in starters]
    assert [status for _, _, status in answers] == [0] * 8, answers
    assert len({out for out, _, _ in answers}) == 8
    assert {s["session_id"] for s in json.loads(absent.cli("list", "--json").stdout)} == {out.strip() for out, _, _ in answers}


def test_why_a_daemon_cannot_start_is_said_in_one_line(absent):
    absent.state.write_text("in the way")
    result = absent.cli("run", "true", check=False)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("gpuslice: cannot start the daemon: ")
    assert str(absent.state) in result.stderr
    assert not daemon_pid(absent)


IMPOSTER = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.setuid(65534)
listener.listen()
print("ready", flush=True)
connection, _ = listener.accept()
print(len(connection.recv(65536)), flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can answer as someone else")
def test_a_process_in_place_of_the_daemon_learns_nothing(make_daemon, reap):
    daemon = make_daemon()
    daemon.control_socket.parent.mkdir(0o700)
    imposter = reap(subprocess.Popen([sys.executable, "-c", IMPOSTER, daemon.control_socket], text=True,
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    assert imposter.stdout.readline() == "ready\n"
    result = daemon.cli("create", check=False)
    assert result.returncode == 1
    assert result.stderr.startswith(f"gpuslice: user 65534 answers at {daemon.control_socket}; expected user 0 or root")
    assert imposter.stdout.readline() == "0\n"
