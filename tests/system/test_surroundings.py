"""Programs and daemons in surroundings that are not the usual: other pid namespaces, little address space, a state folder that
cannot be written, names that terminals would obey."""
import ctypes
import os
import subprocess

import pytest

import attach_client
from conftest import GIB, MIB, wait_for
from test_quota import OK, OUT_OF_MEMORY, Puppet, in_session

LIMIT = 16 * MIB


def new_session(daemon, **more):
    status, made = daemon.request("POST", "/v1/sessions", {"name": "s", "memory_bytes": LIMIT, **more})
    assert status == 201, made
    return made


def holds_its_limit(daemon, puppet):
    puppet.get("context", 0)
    number = puppet.get("alloc", LIMIT)
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY
    assert daemon.session("s")["used_bytes"] == LIMIT
    puppet.get("free", number)
    assert puppet.code("alloc", 1) == OK


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, for a pid namespace")
def test_a_program_in_another_pid_namespace_is_held_to_its_limit_and_its_bytes_come_back(daemon, product, reap):
    made = new_session(daemon)
    puppet = Puppet(product, in_session(daemon, made), command=["unshare", "--pid", "--fork", "--kill-child"])
    reap(puppet.process)
    holds_its_limit(daemon, puppet)
    shown, = daemon.session("s")["processes"]
    assert os.path.basename(os.readlink(f"/proc/{shown['pid']}/exe")) == "puppet", "the pid is that of here"
    puppet.process.kill()
    wait_for(lambda: not daemon.session("s")["processes"] and daemon.session("s")["used_bytes"] == 0, "the bytes to be back")


def test_little_address_space_is_not_a_tighter_bound_than_without_gpu_slice(daemon, product, reap):
    """`ulimit -v`: what the driver cannot do there it cannot do in a session, and where it can, the limit holds."""
    made = new_session(daemon)
    for room in (2 * GIB, 64 * GIB, 4096 * GIB, 100 * 1024 * GIB):
        bound = ["prlimit", f"--as={room}", "--"]
        bare, puppet = (Puppet(product, environment, command=bound)
                        for environment in (daemon.gpu.environment(), in_session(daemon, made)))
        for one in (bare, puppet):
            reap(one.process)
        can = bare.code("context", 0)
        if can == OK:
            holds_its_limit(daemon, puppet)
        else:
            assert puppet.code("context", 0) == can
        puppet.process.kill()
        wait_for(lambda: daemon.session("s")["used_bytes"] == 0, "the bytes to be back")
    assert can == OK


def test_a_name_that_a_terminal_would_obey_is_shown_and_not_obeyed(daemon):
    made = new_session(daemon)
    pid = os.fork()
    if pid == 0:
        try:
            ctypes.CDLL(None).prctl(15, b"\x1b[2J<b>\n\x07&", 0, 0, 0)
            client = attach_client.Client(daemon.attach_socket).attach(made["session_id"])
            client.socket.recv(1)
        finally:
            os._exit(0)
    try:
        wait_for(lambda: daemon.session("s")["processes"], "it to attach")
        for words in (("show", "s"), ("list",), ("gpus",), ("events",)):
            said = daemon.cli(*words).stdout
            assert "\x1b[2J" not in said and "\x07" not in said, said
        assert "\x1b" not in daemon.log_text() and "\x07" not in daemon.log_text()
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to mount")
def test_a_state_folder_that_becomes_read_only_takes_no_session_and_loses_none(make_daemon, small_disk):
    daemon = make_daemon()
    daemon.state.mkdir()
    small_disk(daemon.state, 16)
    daemon.start()
    new_session(daemon)
    subprocess.run(["mount", "-o", "remount,ro", daemon.state], check=False)  # busy: files are open for writing
    if os.access(daemon.state, os.W_OK):
        daemon.stop()
        subprocess.run(["mount", "-o", "remount,ro", daemon.state], check=True)
        process = daemon.spawn_daemon()
        assert process.wait(20) == 1
        assert "Read-only file system" in daemon.log_text().splitlines()[-1]
        subprocess.run(["mount", "-o", "remount,rw", daemon.state], check=True)
        daemon.start()
    assert daemon.session("s")["vram_limit_bytes"] == LIMIT
