"""gpusliced under a service manager: sockets that it passes, what it is told, and the units themselves. The manager here
is a stand-in that does what sd_listen_fds(3) and sd_notify(3) say."""
import os
import signal
import socket
import subprocess

import pytest

from attach_client import Client
from conftest import MIB, wait_for

FIRST_FD = 3  # SD_LISTEN_FDS_START


class Manager:
    """Makes a daemon's sockets and starts it with them, as systemd does."""

    def __init__(self, daemon):
        self.daemon = daemon
        folder = daemon.runtime / "simulated"
        folder.mkdir(mode=0o700)
        self.paths = {"control": folder / "control.sock", "attach": folder / "attach.sock"}
        self.sockets = {}

    def listen(self, name, kind=None, path=None):
        made = socket.socket(socket.AF_UNIX, kind or {"control": socket.SOCK_STREAM}.get(name, socket.SOCK_SEQPACKET))
        made.bind(str(path or self.paths[name]))
        made.listen()
        self.sockets[name] = made
        return made

    def start(self, names=None):
        """Start the daemon; returns its process, not waiting for anything."""
        daemon, names = self.daemon, names or list(self.sockets)
        # High copies first, so that none is overwritten before it is moved to its place.
        copies = [os.dup(self.sockets[name].fileno()) for name in names]

        def take_places():
            high = [os.dup2(copy, 100 + i) for i, copy in enumerate(copies)]
            for i, copy in enumerate(high):
                os.dup2(copy, FIRST_FD + i)

        environment = daemon.environment(LISTEN_FDS=len(names), LISTEN_FDNAMES=":".join(names))
        with open(daemon.folder / "daemon.log", "ab") as log:
            daemon.process = subprocess.Popen(
                ["sh", "-c", 'LISTEN_PID=$$ exec "$0" --simulated', daemon.product.gpusliced], env=environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=take_places,
                pass_fds=range(FIRST_FD, FIRST_FD + len(names)))
        for copy in copies:
            os.close(copy)
        return daemon.process

    def close(self):
        for made in self.sockets.values():
            made.close()


@pytest.fixture
def manager(make_daemon):
    made = Manager(make_daemon())
    yield made
    made.close()


def test_the_managers_sockets_are_served_and_stay_when_the_daemon_ends(manager):
    daemon = manager.daemon
    manager.listen("control")
    manager.listen("attach")
    inodes = {path: path.stat().st_ino for path in manager.paths.values()}
    # A client that is there before the daemon is answered by it.
    early = socket.socket(socket.AF_UNIX)
    early.settimeout(20)
    early.connect(str(manager.paths["control"]))
    early.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    manager.start()
    assert early.recv(1000).startswith(b"HTTP/1.1 200")
    early.close()
    session = daemon.request("POST", "/v1/sessions", {"name": "s", "memory_bytes": MIB})[1]["session_id"]
    Client(daemon.attach_socket).attach(session).close()

    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(20) == 0
    assert {path: path.stat().st_ino for path in manager.paths.values()} == inodes
    # It still listens, so a client finds a place in the line and the next daemon answers.
    late = Client(daemon.attach_socket)
    manager.start()
    assert late.attach(session).limit() == MIB
    assert daemon.request("GET", "/v1/sessions")[1][0]["session_id"] == session


@pytest.mark.parametrize("passed,own", [("control", "attach"), ("attach", "control")])
def test_a_socket_that_was_not_passed_is_the_daemons_own(manager, passed, own):
    daemon = manager.daemon
    manager.listen(passed)
    manager.start()
    wait_for(lambda: "ready" in daemon.log_text() or daemon.process.poll() is not None, "the daemon to be ready")
    session = daemon.request("POST", "/v1/sessions", {})[1]["session_id"]
    Client(daemon.attach_socket).attach(session).close()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(20) == 0
    assert manager.paths[passed].exists() and not manager.paths[own].exists()


def wrong_name(manager):
    manager.listen("gpusliced.socket", socket.SOCK_STREAM, manager.paths["control"])


def wrong_place(manager):
    manager.listen("control", path=manager.daemon.runtime / "control.sock")


def wrong_kind(manager):
    manager.listen("attach", socket.SOCK_STREAM)


@pytest.mark.parametrize("plant,said", [
    (wrong_name, "a socket named 'gpusliced.socket'; expected control or attach; set FileDescriptorName="),
    (wrong_place, "ListenStream="),
    (wrong_kind, "ListenSequentialPacket="),
])
def test_a_socket_that_is_none_of_ours_is_named(manager, plant, said):
    plant(manager)
    assert manager.start().wait(20) == 1
    assert said in manager.daemon.log_text().splitlines()[-1]


def test_two_sockets_of_one_name_are_refused(manager):
    manager.listen("control")
    assert manager.start(["control", "control"]).wait(20) == 1
    assert "two sockets named 'control'" in manager.daemon.log_text().splitlines()[-1]


def test_passed_sockets_do_not_replace_the_lock(manager, product):
    manager.listen("control")
    manager.start()
    wait_for(lambda: "ready" in manager.daemon.log_text(), "the daemon to be ready")
    second = subprocess.run([product.gpusliced, "--simulated"], env=manager.daemon.environment(), capture_output=True,
                            text=True, timeout=60)
    assert second.returncode == 1 and f"process {manager.daemon.process.pid}" in second.stderr


def test_sockets_for_another_process_are_left_alone(make_daemon):
    """The variables may be left over in a shell that a service started."""
    daemon = make_daemon(LISTEN_PID="1", LISTEN_FDS="2", LISTEN_FDNAMES="control:attach").start()
    assert daemon.control_socket.exists()


# --- What the manager is told --------------------------------------------------------------------------

@pytest.fixture
def notified(tmp_path):
    """The manager's end of sd_notify, and its address."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager_end:
        manager_end.bind(str(tmp_path / "notify"))
        manager_end.settimeout(20)
        yield manager_end, str(tmp_path / "notify")


def told(end):
    return dict(line.split("=", 1) for line in end.recv(4096).decode().splitlines())


def test_the_manager_is_told_when_it_is_ready_and_when_it_ends(make_daemon, notified):
    end, address = notified
    daemon = make_daemon(NOTIFY_SOCKET=address).start()
    assert told(end) == {"READY": "1", "STATUS": "1 GPUs (simulated)"}
    daemon.stop()
    assert told(end) == {"STOPPING": "1"}


def test_the_manager_is_told_why_it_cannot_start(make_daemon, product, notified):
    end, address = notified
    daemon = make_daemon(NOTIFY_SOCKET=address, GPUSLICE_METRICS_ADDR="nowhere")
    result = subprocess.run([product.gpusliced], env=daemon.environment(), capture_output=True, timeout=60)
    assert result.returncode == 1
    said = told(end)
    assert said.keys() == {"STATUS", "ERRNO"} and "GPUSLICE_METRICS_ADDR" in said["STATUS"]


def test_the_watchdog_is_fed_while_the_daemon_works_and_not_while_it_is_stuck(make_daemon, notified):
    end, address = notified
    daemon = make_daemon(NOTIFY_SOCKET=address, WATCHDOG_USEC=400000).start()
    seen = [told(end) for _ in range(5)]
    assert [message for message in seen if "READY" not in message] == [{"WATCHDOG": "1"}] * 4
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        end.settimeout(1)
        with pytest.raises(TimeoutError):
            while True:
                assert told(end) == {"WATCHDOG": "1"}
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    end.settimeout(20)
    assert told(end) == {"WATCHDOG": "1"}
