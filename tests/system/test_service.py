"""gpusliced under a service manager: sockets that it passes, what it is told, and the units themselves. The manager here
is a stand-in that does what sd_listen_fds(3) and sd_notify(3) say."""
import copy
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

from attach_client import Child, Client
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
def test_a_socket_of_another_program_is_named(manager, plant, said):
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


def test_the_manager_is_told_of_a_reload_from_its_beginning_to_its_end(make_daemon, notified):
    end, address = notified
    daemon = make_daemon(NOTIFY_SOCKET=address).start()
    told(end)
    before = time.monotonic_ns() // 1000
    daemon.process.send_signal(signal.SIGHUP)
    reloading = told(end)
    assert reloading.keys() == {"RELOADING", "MONOTONIC_USEC"} and reloading["RELOADING"] == "1"
    assert before <= int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert told(end) == {"READY": "1"}


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


# --- The units -----------------------------------------------------------------------------------------

def unit_path(product, name):
    return product.prefix / "lib/systemd/system" / name


def setting(product, key):
    """The words of a line KEY=... of the system unit."""
    lines = unit_path(product, "gpusliced.service").read_text().splitlines()
    (value,) = [line.partition("=")[2] for line in lines if line.startswith(key + "=")]
    return value.split()


def verify(files, *options, **environment):
    return subprocess.run(["systemd-analyze", *options, "verify", "--man=no", *files], capture_output=True, text=True,
                          env={**os.environ, **environment}, timeout=60)


needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_units(product, tmp_path):
    def at_hand(source, name):
        """The tests' tree stands elsewhere than where it says that it is installed."""
        text = source.read_text()
        start = text.index("ExecStart=") + len("ExecStart=")
        installed = text[start:text.index("/bin/gpusliced", start)]
        (tmp_path / name).write_text(text.replace(installed + "/bin", str(product.prefix / "bin")))
        return tmp_path / name

    files = [at_hand(unit_path(product, "gpusliced.service"), "gpusliced.service")]
    for name in ("gpusliced.socket", "gpusliced-attach.socket"):
        files.append(tmp_path / name)
        shutil.copy(unit_path(product, name), files[-1])
    found = verify(files)
    assert (found.returncode, found.stderr) == (0, "")

    (tmp_path / "user").mkdir()
    user = at_hand(product.prefix / "share/systemd/user/gpusliced.service", "user/gpusliced.service")
    found = verify([user], "--user", XDG_RUNTIME_DIR=str(tmp_path))
    assert (found.returncode, found.stderr) == (0, "")


@needs_systemd
def test_the_group_is_made_as_a_system_group(product, tmp_path):
    (tmp_path / "etc").mkdir()
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", product.prefix / "lib/sysusers.d/gpuslice.conf"], check=True)
    (line,) = (tmp_path / "etc/group").read_text().splitlines()
    name, _, number, members = line.split(":")
    assert (name, members) == ("gpuslice", "") and 0 < int(number) < 1000


def test_sockets_and_service_agree(product):
    """Where clients look, under the names that gpusliced knows, for those who may."""
    control = unit_path(product, "gpusliced.socket").read_text()
    attach = unit_path(product, "gpusliced-attach.socket").read_text()
    for line in ("ListenStream=/run/gpuslice/control.sock", "FileDescriptorName=control", "SocketMode=0660",
                 "SocketGroup=gpuslice"):
        assert line in control.splitlines()
    for line in ("ListenSequentialPacket=/run/gpuslice/attach.sock", "FileDescriptorName=attach", "SocketMode=0666",
                 "Service=gpusliced.service"):
        assert line in attach.splitlines()


def allowed_calls(words):
    """The system calls of a SystemCallFilter=, by systemd's own lists."""
    allowed, waiting = set(), list(words)
    while waiting:
        word = waiting.pop()
        if word.startswith("@"):
            listed = subprocess.run(["systemd-analyze", "syscall-filter", word], capture_output=True, text=True, check=True)
            waiting += [line.strip() for line in listed.stdout.splitlines()[1:] if not line.strip().startswith("#")]
        else:
            allowed.add(word)
    return allowed


def through(daemon, folder, *command):
    """Let start() run the daemon behind `command`."""
    script = folder / "gpusliced"
    script.write_text("#!/bin/sh\nexec " + " ".join(map(str, command)) + f" {daemon.product.gpusliced} \"$@\"\n")
    script.chmod(0o755)
    daemon.product = copy.copy(daemon.product)
    daemon.product.gpusliced = script


def live_a_little(daemon):
    """What a daemon is asked in a day."""
    daemon.cli("create", "--name", "day", "--memory", "4MiB", "--compute", "30%", "--ttl", "1h")
    session = daemon.session("day")["session_id"]
    child = Child(daemon.attach_socket, session, held_bytes=MIB)
    daemon.cli("set", "day", "--memory", "8MiB")
    for verb in ("list", "gpus", "scheduler"):
        daemon.cli(verb)
    assert daemon.session("day")["used_bytes"] == MIB
    child.kill()
    wait_for(lambda: daemon.session("day")["used_bytes"] == 0, "the bytes")
    assert daemon.request("GET", "/metrics")[0] == 200
    daemon.cli("release", "day")


@needs_systemd
@pytest.mark.skipif(not shutil.which("strace"), reason="no strace here")
def test_the_daemon_makes_no_system_call_that_its_unit_forbids(make_daemon, product, tmp_path):
    daemon = make_daemon(GPUSLICE_METRICS_ADDR="127.0.0.1:0")
    through(daemon, tmp_path, "strace", "-D", "-f", "-q", "-o", tmp_path / "calls")
    daemon.start(*(["--system"] if os.getuid() == 0 else []))
    live_a_little(daemon)
    daemon.stop()
    wait_for(lambda: re.search(rf"^{daemon.process.pid} +\+\+\+ exited", (tmp_path / "calls").read_text(), re.MULTILINE),
             "the end of the trace")
    calls = set(re.findall(r"^\d+ +(\w+)\(", (tmp_path / "calls").read_text(), re.MULTILINE))
    assert {"accept4", "memfd_create", "signalfd4"} <= calls
    assert calls - allowed_calls(setting(product, "SystemCallFilter")) == set()


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_the_rights_that_the_unit_leaves_are_enough(make_daemon, product, tmp_path):
    kept = [word.lower().removeprefix("cap_") for word in setting(product, "CapabilityBoundingSet")]
    daemon = make_daemon()
    os.chmod(daemon.folder, 0o755)
    os.chmod(daemon.runtime, 0o755)
    through(daemon, tmp_path, "setpriv", "--bounding-set", ",".join(["-all", *("+" + name for name in kept)]),
            "--no-new-privs")
    daemon.start("--system")
    user, group = 12345, daemon.control_socket.stat().st_gid
    daemon.cli("create", "--name", "theirs", user=user, group=user, extra_groups=[group])
    session = daemon.session("theirs")["session_id"]
    # It sees that a process of another user does not map its ledger any more,
    gone = Child(daemon.attach_socket, session, held_bytes=MIB, uid=user)
    assert daemon.session("theirs")["used_bytes"] == MIB
    gone.tell(b"x")
    wait_for(lambda: daemon.session("theirs")["used_bytes"] == 0, "the bytes of before exec")
    gone.kill()
    # and can end their programs.
    program = Child(daemon.attach_socket, session, uid=user)
    daemon.cli("release", "--kill", "theirs")
    assert os.waitstatus_to_exitcode(os.waitpid(program.pid, 0)[1]) == -signal.SIGTERM
