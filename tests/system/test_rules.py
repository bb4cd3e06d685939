"""`match` in sessions.conf: programs that were told no session, and run in one all the same."""
import os
import re
import shutil
import socket
import struct
import subprocess
import threading
import time

import pytest

import attach_client
from attach_client import Client, Refused
from conftest import GIB, MIB, wait_for
from test_daemon_api import as_user
from test_declared import declare
from test_quota import OK, OUT_OF_MEMORY, Puppet

NO_SESSION, NOT_OWNER = 1, 2
ALICE, BOB = 12345, 54321
root_only = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be other users")


def untold(daemon, socket_path=None, **more):
    """The environment of a program on a machine whose every program has the interceptor."""
    return daemon.gpu.environment(LD_PRELOAD=daemon.product.interceptor,
                                  GPUSLICE_IPC_SOCK=socket_path or daemon.attach_socket, **more)


@pytest.fixture
def start(product, reap):
    def start(environment, command=()):
        puppet = Puppet(product, environment, command)
        reap(puppet.process)
        return puppet
    return start


def rules(product, **more):
    keys = {"memory": "8MiB", "match": f"exe:{product.program('puppet')}", **more}
    return "[by-rule]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items() if value)


@pytest.fixture
def ruled(make_daemon, product):
    """A daemon whose rule puts the puppet, when it is told no session, into one of 8 MiB."""
    daemon = make_daemon()
    declare(daemon, rules(product))
    daemon.start()
    return daemon


def test_a_program_that_a_rule_names_is_in_the_session_to_the_byte(ruled, start):
    puppet = start(untold(ruled))
    assert ruled.session("by-rule")["processes"] == [], "nothing is asked before the first context"
    puppet.get("context", 0)
    assert puppet.do("info") == [OK, 8 * MIB, 8 * MIB]
    puppet.get("alloc", 8 * MIB)
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY
    shown = ruled.session("by-rule")
    assert (shown["used_bytes"], [one["pid"] for one in shown["processes"]]) == (8 * MIB, [puppet.process.pid])
    assert f"session {shown['session_id']}" in puppet.end()


def test_its_session_outlives_the_daemon_with_it(ruled, product, start):
    puppet = start(untold(ruled))
    puppet.get("context", 0)
    memory = puppet.get("alloc", 8 * MIB)
    ruled.kill()
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY
    assert puppet.code("free", memory) == OK
    declare(ruled, rules(product, memory="4MiB"))
    ruled.start()
    wait_for(lambda: puppet.code("alloc", 4 * MIB + 1) == OUT_OF_MEMORY, "it to know the new limit")
    puppet.get("alloc", 4 * MIB)
    shown = ruled.session("by-rule")
    assert (shown["used_bytes"], [one["pid"] for one in shown["processes"]]) == (4 * MIB, [puppet.process.pid])


def test_its_child_programs_are_in_it_too(ruled, start):
    puppet = start(untold(ruled))
    puppet.get("context", 0)
    puppet.get("alloc", 6 * MIB)
    puppet.do("fork")
    puppet.do("exec")
    puppet.get("context", 0)  # the child's, which was told as little
    assert puppet.code("alloc", 2 * MIB + 1) == OUT_OF_MEMORY
    puppet.get("alloc", 2 * MIB)
    shown = ruled.session("by-rule")
    assert (shown["used_bytes"], len(shown["processes"])) == (8 * MIB, 2)
    puppet.do("exit")


def test_a_rule_stands_for_the_token(make_daemon, product, start):
    daemon = make_daemon(GPUSLICE_IPC_TOKEN="t", GPUSLICE_IPC_TOKEN_REQUIRED="1")
    declare(daemon, rules(product))
    daemon.start()
    puppet = start(untold(daemon))
    puppet.get("context", 0)
    assert puppet.do("info") == [OK, 8 * MIB, 8 * MIB]
    wrong = start(untold(daemon, GPUSLICE_IPC_TOKEN="f" * 64))
    assert wrong.code("context", 0) == OUT_OF_MEMORY


def test_a_program_that_no_rule_names_passes_and_asks_once(make_daemon, product, start, tmp_path):
    daemon = make_daemon()
    declare(daemon, rules(product, match="exe:/somewhere/else"))
    daemon.start()
    trace = tmp_path / "trace"
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    puppet = start(untold(daemon), ["strace", "-f", "-o", trace, "-e", "trace=connect"])
    for _ in range(3):
        puppet.get("context", 0)
        puppet.get("alloc", GIB // 4)
        assert puppet.do("info")[2] == GIB
    assert puppet.end() == ""
    assert len(re.findall("attach.sock", trace.read_text())) == 1
    assert daemon.session("by-rule")["processes"] == []
    assert "refused" not in daemon.log_text()


def test_without_a_daemon_it_is_one_failed_connection(make_daemon, product, start, tmp_path):
    daemon = make_daemon()
    trace = tmp_path / "trace"
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    puppet = start(untold(daemon), ["strace", "-f", "-T", "-o", trace, "-e", "trace=connect,poll,nanosleep,clock_nanosleep"])
    puppet.get("context", 0)
    puppet.get("alloc", GIB // 4)
    assert puppet.end() == ""
    lines = trace.read_text().splitlines()
    connects = [line for line in lines if "attach.sock" in line]
    assert len(connects) == 1 and "ENOENT" in connects[0]


def test_a_program_without_cuda_asks_nobody(make_daemon, tmp_path):
    daemon = make_daemon().start()
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    subprocess.run(["strace", "-f", "-o", trace, "-e", "trace=socket,connect", "true"], env=untold(daemon), check=True)
    assert "attach.sock" not in trace.read_text()


@pytest.mark.parametrize("limits, why", [
    ({"memory": "2GiB"}, "could not make"),
    ({"memory": "512MiB"}, "waits in the queue"),
])
def test_where_its_session_is_not_there_a_named_program_gets_nothing(make_daemon, product, start, limits, why):
    daemon = make_daemon().start()
    daemon.cli("create", "--name", "big", "--memory", "768MiB")
    declare(daemon, rules(product, **limits))
    puppet = start(untold(daemon))
    wait_for(lambda: "by-rule" in daemon.cli("config").stdout, "the file to be read")
    assert puppet.code("context", 0) == OUT_OF_MEMORY
    if "waits" in why:
        daemon.cli("release", "big")
        wait_for(lambda: puppet.code("context", 0) == OK, "it to be let in")
        assert puppet.do("info") == [OK, 512 * MIB, 512 * MIB]
    errors = puppet.end()
    assert why in errors and len(errors.splitlines()) == 1


def test_without_the_daemons_answer_no_program_passes(make_daemon, product, start, tmp_path):
    daemon = make_daemon()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen(8)
        hanging_up = threading.Thread(target=lambda: silent.accept()[0].close())
        hanging_up.start()
        puppet = start(untold(daemon, tmp_path / "s"))
        assert puppet.code("context", 0) == OUT_OF_MEMORY
        hanging_up.join()


def test_a_daemon_without_rules_lets_programs_pass(make_daemon, product, start, tmp_path):
    """A daemon of before rules: to it the session without an ID is unknown."""
    daemon = make_daemon()
    asked = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as old:
        old.bind(str(tmp_path / "s"))
        old.listen(8)

        def serve():
            connection = old.accept()[0]
            asked.append(connection.recv(4096))
            connection.send(attach_client.packet(attach_client.REFUSED, struct.pack("<I252s", NO_SESSION, b"there is none")))
            connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        puppet = start(untold(daemon, tmp_path / "s"))
        puppet.get("context", 0)
        puppet.get("alloc", GIB // 4)
        thread.join()
    assert len(asked) == 1 and puppet.end() == ""


@root_only
def test_users_and_groups_that_a_rule_names_share_its_session(make_daemon, product):
    daemon = make_daemon()
    daemon.folder.chmod(0o755)
    daemon.runtime.chmod(0o755)
    declare(daemon, f"[alices]\nmatch = user:{ALICE}\n[students]\nmatch = group:777, user:{BOB}, user:{BOB + 1}\n")
    daemon.start("--system")

    def attach(session=""):
        try:
            return Client(daemon.attach_socket).attach(session) and "in"
        except Refused as refused:
            return refused.reason

    assert as_user(ALICE, attach) == "in"
    assert as_user(BOB, attach) == NO_SESSION  # without the group
    assert as_user(BOB, attach, [1, 777]) == "in"
    assert as_user(BOB + 2, attach, [1, 777]) == NO_SESSION  # without the name
    # A rule lets nobody else in, and opens nothing but the session.
    students = daemon.session("students")["session_id"]
    assert as_user(BOB, lambda: attach(students)) == NOT_OWNER
    assert as_user(BOB, lambda: attach(students), [1, 777]) == "in"
    daemon.control_socket.chmod(0o666)
    assert as_user(ALICE, lambda: daemon.request("GET", "/v1/sessions/alices"))[0] == 404
    assert as_user(ALICE, lambda: daemon.request("GET", "/v1/sessions"))[1] == []


def test_a_program_that_is_mounted_at_the_rules_path_is_not_the_one(make_daemon, product, tmp_path, start):
    """A user mounts a program of their own there, in a mount namespace that only they see."""
    ruled, own = tmp_path / "ruled", tmp_path / "own"
    for path in ruled, own:
        shutil.copy(product.program("puppet"), path)
    daemon = make_daemon()
    declare(daemon, rules(product, match=f"exe:{ruled}"))
    daemon.start()
    words = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'mount --bind {own} {ruled} && exec {ruled}')
    if subprocess.run([*words[:-1], f"mount --bind {own} {ruled}"], capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted in a namespace here")
    mounted = start(untold(daemon), words)
    mounted.get("context", 0)
    assert os.readlink(f"/proc/{mounted.process.pid}/exe") == str(ruled)
    assert mounted.do("info") == [OK, GIB, GIB], "it is in no session"
    genuine = start(untold(daemon), ("env", str(ruled)))
    genuine.get("context", 0)
    assert [one["pid"] for one in daemon.session("by-rule")["processes"]] == [genuine.process.pid]


def test_a_program_whose_file_was_replaced_is_still_the_one(make_daemon, product, tmp_path, start):
    path = tmp_path / "puppet"
    shutil.copy(product.program("puppet"), path)
    daemon = make_daemon()
    declare(daemon, rules(product, match=f"exe:{path}"))
    daemon.start()
    puppet = start(untold(daemon), ("env", str(path)))
    shutil.copy(product.program("puppet"), tmp_path / "fresh")
    (tmp_path / "fresh").rename(path)
    puppet.get("context", 0)
    assert [one["pid"] for one in daemon.session("by-rule")["processes"]] == [puppet.process.pid]


def test_the_first_rule_in_the_file_decides(make_daemon, product, start):
    daemon = make_daemon()
    puppet = product.program("puppet")
    declare(daemon, f"[none]\n[narrow]\nmemory = 1MiB\nmatch = exe:{puppet.parent}/*upp?t\n"
                    f"[wide]\nmemory = 2MiB\nmatch = exe:{puppet}\n")
    daemon.start()
    puppet = start(untold(daemon))
    puppet.get("context", 0)
    assert puppet.do("info")[2] == MIB
    assert len(daemon.session("narrow")["processes"]) == 1


@pytest.mark.parametrize("value, words", [
    ("user:no-such-user", "there is no user 'no-such-user'"), ("group:no-such-group", "there is no group"),
    ("exe:relative", "'exe:relative' is not a rule"), ("python", "'python' is not a rule"), ("", "is not a list"),
    ("user:", "there is no user ''"), ("uid:0", "'uid:0' is not a rule"),
])
def test_a_bad_rule_is_named_with_its_line(make_daemon, product, value, words):
    daemon = make_daemon().start()
    declare(daemon, f"[s]\nmatch = {value}\n")
    result = daemon.cli("config", "check", check=False)
    assert result.returncode == 1 and words in result.stderr and "sessions.conf:2: match: " in result.stderr


def test_the_daemon_asks_itself_nothing(make_daemon, product, tmp_path):
    """With the interceptor in every program it is in gpusliced too, which queries NVML's memory before it serves."""
    daemon = make_daemon()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as socket_unit:
        socket_unit.bind(str(tmp_path / "s"))
        socket_unit.listen(8)
        daemon.more.update(LD_PRELOAD=str(product.interceptor), GPUSLICE_IPC_SOCK=str(tmp_path / "s"),
                           ASAN_OPTIONS="verify_asan_link_order=0")  # a build with sanitizers starts with us in front too
        begin = time.monotonic()
        daemon.start()
        assert daemon.request("GET", "/v1/gpus")[1][0]["total_bytes"] == GIB
        socket_unit.setblocking(False)
        with pytest.raises(BlockingIOError):
            socket_unit.accept()
    assert time.monotonic() - begin < 9, "it waited for an answer of its own"
