"""attach.sock and the end of processes: who may enter, what a damaged ledger costs, when bytes come back."""
import mmap
import os
import pathlib
import resource
import signal
import socket
import struct
import subprocess
import time

import pytest

from attach_client import (BAD_TOKEN, BAD_VERSION, BROKEN, CONTEXT_CREATED, CROWD, FULL, LAYOUT, NO_SESSION, NOT_OWNER, SLOTS, VERSION,
                           WELCOME, Child, Client, Refused, attach_at_once, hello, packet)
from conftest import GIB, MIB, wait_for


@pytest.fixture
def session(daemon):
    status, made = daemon.request("POST", "/v1/sessions", {"name": "s", "memory_bytes": 64 * MIB})
    assert status == 201
    return made["session_id"]


@pytest.fixture
def child(daemon, session):
    """child(...) makes a process that attaches; it is gone when the test ends."""
    children = []

    def make(**more):
        children.append(Child(daemon.attach_socket, session, **more))
        return children[-1]

    yield make
    for one in children:
        if not one.reaped:
            one.kill()


def used(daemon):
    return daemon.session("s")["used_bytes"]


def pids(daemon):
    return [process["pid"] for process in daemon.session("s")["processes"]]


def reason_of(path, *arguments, **more):
    with pytest.raises(Refused) as refused:
        Client(path).attach(*arguments, **more)
    return refused.value.reason


def test_a_process_is_given_a_slot_and_both_regions(daemon, session):
    client = Client(daemon.attach_socket).attach(session)
    assert (client.slot, client.layout) == (0, LAYOUT)
    assert client.limit() == 64 * MIB and client.closed() == 0
    client.hold(5 * MIB)
    shown = daemon.session("s")
    assert shown["used_bytes"] == 5 * MIB == shown["gpus"][0]["used_bytes"]
    assert [(process["pid"], process["used_bytes"]) for process in shown["processes"]] == [(os.getpid(), 5 * MIB)]
    assert daemon.request("DELETE", "/v1/sessions/s")[1]["error"]["code"] == "ERR_SESSION_BUSY"
    client.policy.close(), client.usage.close(), client.close()
    wait_for(lambda: used(daemon) == 0, "the unmapped slot to be freed")
    assert daemon.request("DELETE", "/v1/sessions/s")[0] == 204


def test_a_new_limit_is_in_the_policy_when_the_answer_is(daemon, session):
    client = Client(daemon.attach_socket).attach(session)
    for limit in (32 * MIB, MIB, 128 * MIB):
        assert daemon.request("PATCH", "/v1/sessions/s", {"memory_bytes": limit})[0] == 200
        assert client.limit() == limit


def test_neither_by_the_descriptor_nor_by_its_name_is_the_policy_written(daemon, session):
    client = Client(daemon.attach_socket).attach(session)
    fd = client.fds[0]
    with pytest.raises(OSError):
        os.pwrite(fd, b"x", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(fd, client.policy_bytes, mmap.MAP_SHARED, mmap.PROT_WRITE)
    os.fchmod(fd, 0o666)  # we are its owner; another user is stopped here
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    with pytest.raises(PermissionError):
        os.pwrite(again, b"x", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(again, client.policy_bytes, mmap.MAP_SHARED, mmap.PROT_WRITE)
    with pytest.raises(PermissionError):
        os.ftruncate(again, 0)
    os.close(again)
    assert client.limit() == 64 * MIB


def test_a_program_that_may_not_enter_is_told_why(daemon, session, make_daemon):
    path = daemon.attach_socket
    token = daemon.request("GET", "/v1/sessions/s/environment")[1]["GPUSLICE_IPC_TOKEN"]
    assert reason_of(path, "0" * 12) == NO_SESSION
    assert reason_of(path, "") == NO_SESSION  # by no rule, which is no refusal
    assert reason_of(path, "s") == NO_SESSION  # an ID, not a name
    assert reason_of(path, session, "f" * 64) == BAD_TOKEN
    assert reason_of(path, session, token[:-1]) == BAD_TOKEN
    assert reason_of(path, session, versions=(3, 9)) == BAD_VERSION
    assert reason_of(path, session, versions=(0, 0)) == BAD_VERSION
    assert reason_of(path, session, layouts=(LAYOUT + 1, LAYOUT + 5)) == BAD_VERSION
    Client(path).attach(session, token)
    Client(path).attach(session, token, versions=(0, 9), layouts=(0, 9))
    assert "gpuslice_refused_attaches_total 7" in daemon.request("GET", "/metrics")[1].splitlines()


def test_a_client_is_answered_in_the_newest_version_that_both_know(daemon, session):
    client = Client(daemon.attach_socket)
    client.attach(session, versions=(VERSION, VERSION + 8))
    assert client.version == VERSION


@pytest.mark.parametrize("library, advice", [
    ({"versions": (0, 0)}, "too old for gpusliced"), ({"layouts": (0, LAYOUT - 1)}, "too old for gpusliced"),
    ({"versions": (VERSION + 1, VERSION + 8)}, "newer than gpusliced"),
    ({"layouts": (LAYOUT + 1, LAYOUT + 8)}, "newer than gpusliced"),
], ids=["old", "old-ledger", "new", "new-ledger"])
def test_a_library_of_a_release_too_far_away_is_told_so(daemon, session, library, advice):
    with pytest.raises(Refused, match=advice) as refused:
        Client(daemon.attach_socket).attach(session, **library)
    assert refused.value.reason == BAD_VERSION


def test_a_daemon_that_requires_a_token_requires_it_for_attaching(make_daemon):
    daemon = make_daemon(GPUSLICE_IPC_TOKEN="secret", GPUSLICE_IPC_TOKEN_REQUIRED="1").start()
    made = daemon.request("POST", "/v1/sessions", {}, headers={"Authorization": "Bearer secret"})[1]
    assert reason_of(daemon.attach_socket, made["session_id"]) == BAD_TOKEN
    assert reason_of(daemon.attach_socket, made["session_id"], "secret") == BAD_TOKEN
    Client(daemon.attach_socket).attach(made["session_id"], made["environment"]["GPUSLICE_IPC_TOKEN"])


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")
def test_another_users_session_is_closed_to_a_user(daemon, session, child):
    for path in (daemon.folder, daemon.runtime, daemon.runtime / "simulated"):
        path.chmod(0o755)
    daemon.attach_socket.chmod(0o666)  # as the system daemon's
    assert child(uid=12345).said == b"refused %d" % NOT_OWNER
    assert child(uid=65534).said == b"refused %d" % NOT_OWNER


@pytest.mark.parametrize("bad", [
    b"x",
    packet(1),
    packet(1, b"\0" * 111),
    packet(1, b"\xff" * 112),
    packet(1, b"\0" * 113),
    packet(2, b"\0" * 40),
    packet(3, b"\0" * 256),
    packet(99, b"\0" * 8),
    packet(CONTEXT_CREATED, b"\0" * 4),
    packet(1, b"\0" * 112, magic=1),
    packet(1, b"\0" * 112, version=7),
    b"\0" * 100000,
], ids=lambda value: f"{len(value)} bytes")
def test_what_is_not_a_hello_ends_that_connection_alone(daemon, session, bad):
    client = Client(daemon.attach_socket)
    client.send(bad)
    assert client.is_hung_up()
    Client(daemon.attach_socket).attach(session)


def test_descriptors_that_come_along_are_refused_or_closed(daemon, session):
    before = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
    for body in (hello(session), b"rubbish"):
        client = Client(daemon.attach_socket)
        with open("/dev/null") as null:
            try:
                socket.send_fds(client.socket, [body], [null.fileno()] * 8)
                assert client.is_hung_up()
            except PermissionError:
                pass  # this kernel lets the daemon refuse them (6.16)
        client.close()
    wait_for(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) <= before, "the descriptors to be closed")


def test_after_hello_the_protocol_is_kept(daemon, session, child):
    other = child(held_bytes=MIB)
    for bad in (hello(session), packet(CONTEXT_CREATED, struct.pack("<I", 1)),
                packet(CONTEXT_CREATED, struct.pack("<I", 0xFFFFFFFF))):
        client = Client(daemon.attach_socket).attach(session)
        client.send(bad)
        assert client.is_hung_up()
    assert other.pid in pids(daemon)


def test_silent_connections_do_not_keep_others_out(daemon, session):
    silent = []
    for _ in range(400):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(str(daemon.attach_socket))
        silent.append(connection)
    for connection in silent[:200]:
        connection.close()
    wait_for(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) < 300, "some to be closed")
    Client(daemon.attach_socket).attach(session)
    for connection in silent[200:]:
        connection.close()


def test_all_are_let_in_that_come_faster_than_they_are_heard(daemon, session):
    """They take up their part of the loop's time, so that the daemon accepts all before it hears the most."""
    assert attach_at_once(daemon, daemon.attach_socket, session, CROWD) == [WELCOME] * CROWD


def test_a_killed_process_leaves_no_bytes(daemon, child):
    victim, other = child(held_bytes=7 * MIB), child(held_bytes=3 * MIB)
    assert used(daemon) == 10 * MIB
    victim.kill()
    wait_for(lambda: used(daemon) == 3 * MIB, "the killed process's bytes")
    assert pids(daemon) == [other.pid]
    metrics = daemon.request("GET", "/metrics")[1]
    assert f"}} {7 * MIB}" in next(line for line in metrics.splitlines()
                                   if line.startswith("gpuslice_recovered_bytes_total{"))


def test_a_stopped_process_keeps_its_bytes(daemon, child):
    stopped = child(held_bytes=7 * MIB)
    os.kill(stopped.pid, signal.SIGSTOP)
    child(held_bytes=MIB).kill()
    wait_for(lambda: pids(daemon) == [stopped.pid], "the other's death")
    assert used(daemon) == 7 * MIB


def test_a_process_that_closes_its_descriptors_keeps_its_slot(daemon, child):
    process = child(held_bytes=7 * MIB)
    process.tell(b"c")
    wait_for(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) <= 4, "the descriptors to be closed")
    other = child(held_bytes=MIB)  # a message after the hang-up: it has been seen
    assert sorted(pids(daemon)) == sorted([process.pid, other.pid])
    assert used(daemon) == 8 * MIB
    process.kill()
    wait_for(lambda: used(daemon) == MIB, "its bytes after its death")


def test_an_execed_process_gives_its_bytes_back(daemon, child):
    process = child(held_bytes=7 * MIB)
    process.tell(b"x")
    wait_for(lambda: used(daemon) == 0, "the bytes of before exec")
    assert pids(daemon) == []
    os.kill(process.pid, 0)  # it lives


def test_an_execed_process_is_found_though_a_child_keeps_its_connection(make_daemon):
    daemon = make_daemon(GPUSLICE_RECOVERY_INTERVAL="100ms").start()
    made = daemon.request("POST", "/v1/sessions", {"name": "s"})[1]
    process = Child(daemon.attach_socket, made["session_id"], held_bytes=7 * MIB)
    process.tell(b"f")
    process.tell(b"x")
    wait_for(lambda: used(daemon) == 0, "the bytes of before exec")
    process.kill()


def test_a_session_made_by_a_program_ends_with_the_last_of_its_processes(daemon, reap):
    # The maker: asks for a session and waits, as `gpuslice run` becomes its program.
    maker = reap(subprocess.Popen(
        ["/usr/bin/python3", "-c", f"""
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect({str(daemon.control_socket)!r})
body = b'{{"name": "s", "run": true}}'
connection.sendall(b"POST /v1/sessions HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
print(connection.recv(100).decode().split()[1], flush=True)
sys.stdin.read()"""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    assert maker.stdout.readline() == "201\n"
    child = Child(daemon.attach_socket, daemon.session("s")["session_id"], held_bytes=MIB)
    maker.kill()
    maker.wait()
    # The session outlives its maker while a process is attached, and ends with that.
    second = Child(daemon.attach_socket, daemon.session("s")["session_id"])
    second.kill()
    wait_for(lambda: pids(daemon) == [child.pid], "the second's death")
    assert used(daemon) == MIB
    child.kill()
    wait_for(lambda: daemon.request("GET", "/v1/sessions/s")[0] == 404, "the session's end")


def test_a_released_session_is_closed_to_new_memory(daemon, session):
    client = Client(daemon.attach_socket).attach(session, map_it=False)
    policy = mmap.mmap(client.fds[0], client.policy_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
    client.policy = policy
    client.close()
    wait_for(lambda: pids(daemon) == [], "the slot to be freed")
    assert daemon.request("DELETE", "/v1/sessions/s")[0] == 204
    assert client.closed() == 1
    assert reason_of(daemon.attach_socket, session) == NO_SESSION


def test_an_expired_session_lets_nobody_in_and_counts_until_they_leave(daemon):
    made = daemon.request("POST", "/sessions", {"limit_bytes": MIB, "ttl_seconds": 1})[1]
    client = Client(daemon.attach_socket).attach(made["session_id"])
    client.hold(1000)
    wait_for(lambda: daemon.session(made["session_id"])["state"] == "expired", "the expiry")
    assert client.closed() == 1
    assert reason_of(daemon.attach_socket, made["session_id"]) == NO_SESSION
    assert daemon.session(made["session_id"])["used_bytes"] == 1000
    client.policy.close(), client.usage.close(), client.close()
    wait_for(lambda: daemon.request("GET", f"/v1/sessions/{made['session_id']}")[0] == 404, "the session's end")


@pytest.mark.parametrize("length", [0, 4096, 1 << 30])
def test_a_ledger_cut_or_grown_is_broken_for_that_session_alone(daemon, session, length):
    client = Client(daemon.attach_socket).attach(session)
    other = daemon.request("POST", "/v1/sessions", {"name": "other"})[1]
    healthy = Client(daemon.attach_socket).attach(other["session_id"])
    healthy.hold(1234)
    os.ftruncate(client.fds[1], length)
    for _ in range(20):  # reads what is no longer there
        assert daemon.request("GET", "/v1/sessions")[0] == 200
    wait_for(lambda: client.closed() == 1, "the broken ledger to be closed to new memory")
    assert reason_of(daemon.attach_socket, session) == BROKEN
    assert healthy.closed() == 0 and daemon.session("other")["used_bytes"] == 1234
    wait_for(lambda: os.fstat(client.fds[1]).st_size <= client.usage_bytes, "the grown file to be cut back")
    os.ftruncate(client.fds[1], 1 << 30)
    wait_for(lambda: os.fstat(client.fds[1]).st_size == client.usage_bytes, "it to be cut back again")
    assert "gpuslice_broken_ledgers_total 1" in daemon.request("GET", "/metrics")[1].splitlines()
    client.policy.close(), client.usage.close(), client.close()


def test_rubbish_in_the_usage_region_ends_nobody_else(daemon, session, child):
    other = daemon.request("POST", "/v1/sessions", {"name": "other"})[1]
    healthy = Client(daemon.attach_socket).attach(other["session_id"])
    healthy.hold(1234)
    client = Client(daemon.attach_socket).attach(session)
    for pattern in (b"\xff", b"\x00", b"\x01", os.urandom(4096)):
        client.usage[:] = (pattern * (client.usage_bytes // len(pattern) + 1))[:client.usage_bytes]
        assert daemon.request("GET", "/v1/sessions")[0] == 200
        assert daemon.request("GET", "/metrics")[0] == 200
        try:
            Client(daemon.attach_socket).attach(session, map_it=False).close()
        except Refused as refused:
            assert refused.reason in (FULL, BROKEN)
    assert daemon.session("other")["used_bytes"] == 1234
    assert daemon.request("GET", "/readyz")[0] == 200


def test_when_all_slots_are_taken_the_next_is_refused_and_a_freed_one_goes_round(daemon, session, child):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    clients = []
    for number in range(SLOTS):
        if number == 100:
            victim = child()
            assert victim.said == b"attached 100"
            continue
        client = Client(daemon.attach_socket).attach(session, map_it=number == 0)
        assert client.slot == number
        for fd in client.fds:
            os.close(fd)
        clients.append(client)
    assert reason_of(daemon.attach_socket, session) == FULL
    victim.kill()
    wait_for(lambda: len(daemon.session("s")["processes"]) == SLOTS - 1, "the slot to be freed")
    again = Client(daemon.attach_socket).attach(session)
    assert (again.slot, again.generation) == (100, clients[0].generation + 1)
    assert reason_of(daemon.attach_socket, session) == FULL


def test_what_a_context_costs_is_known_before_the_first(make_daemon, make_gpu):
    """Of each GPU, and nothing is left of how it was found out."""
    daemon = make_daemon(make_gpu(FAKECUDA_CONTEXT_BYTES=12345678, FAKECUDA_GPUS=3)).start()
    gpus = daemon.request("GET", "/v1/gpus")[1]
    assert [gpu["context_bytes"] for gpu in gpus] == [12345678] * 3
    assert [(gpu["used_bytes"], gpu["processes"]) for gpu in gpus] == [(0, [])] * 3
    made = daemon.request("POST", "/v1/sessions", {})[1]
    assert Client(daemon.attach_socket).attach(made["session_id"]).context_bytes() == 12345678
    children = pathlib.Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text()
    assert children == ""


@pytest.mark.parametrize("figures", [1, 2], ids=["absent", "zero"])
def test_where_nvml_has_no_figure_the_whole_gpus_counts(make_daemon, make_gpu, figures):
    daemon = make_daemon(make_gpu(FAKECUDA_CONTEXT_BYTES=12345678, FAKECUDA_NVML_NO_FIGURES=figures)).start()
    assert daemon.request("GET", "/v1/gpus")[1][0]["context_bytes"] == 12345678
    assert "the daemon takes the rise of the whole GPU's figure as the cost of a context" in daemon.log_text()


def test_what_a_context_costs_is_measured_once_and_told_to_all(make_daemon, make_gpu, product, reap):
    """At a program's first, where the daemon's own try failed: there was no memory for it."""
    gpu = make_gpu(FAKECUDA_CONTEXT_BYTES=12345678, FAKECUDA_TOTAL_MEM=64 * MIB)
    holder = reap(subprocess.Popen([product.program("puppet")], env=gpu.environment(), text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE))
    holder.stdin.write(f"context 0\nalloc {48 * MIB}\n")
    holder.stdin.flush()
    assert [holder.stdout.readline().split()[0] for _ in range(3)][1:] == ["0", "0"]
    daemon = make_daemon(gpu).start()
    holder.kill()
    holder.wait()
    daemon.request("POST", "/v1/sessions", {"name": "s"})
    sleeper = Client(daemon.attach_socket).attach(daemon.session("s")["session_id"])
    assert sleeper.ask_context_cost() == 0  # we have none: nothing to be seen, and nothing is kept
    assert sleeper.context_bytes() == 0
    puppet = reap(daemon.spawn("run", "--session", "s", "--simulated", "--", product.program("puppet")))
    assert puppet.stdout.readline()
    puppet.stdin.write("context 0\n")
    puppet.stdin.flush()
    assert puppet.stdout.readline().split()[0] == "0"
    wait_for(lambda: sleeper.context_bytes() == 12345678, "the cost in the policy")
    assert daemon.request("GET", "/v1/gpus")[1][0]["context_bytes"] == 12345678
    wait_for(lambda: used(daemon) == 12345678, "the cost to be charged")
    assert sleeper.ask_context_cost() == 12345678
    other = daemon.request("POST", "/v1/sessions", {"name": "other"})[1]
    assert Client(daemon.attach_socket).attach(other["session_id"]).context_bytes() == 12345678


def test_gpus_show_who_holds_memory_and_in_which_session(daemon, product, reap):
    daemon.request("POST", "/v1/sessions", {"name": "s"})
    inside = reap(daemon.spawn("run", "--session", "s", "--simulated", "--", product.program("puppet")))
    outside = reap(subprocess.Popen([product.program("puppet")], env=daemon.gpu.environment(), text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    for puppet in (inside, outside):
        assert puppet.stdout.readline()
        puppet.stdin.write(f"context 0\nalloc {MIB}\n")
        puppet.stdin.flush()
        assert [puppet.stdout.readline().split()[0] for _ in range(2)] == ["0", "0"]
    gpu = daemon.request("GET", "/v1/gpus")[1][0]
    assert gpu["used_bytes"] == 2 * MIB and gpu["free_bytes"] == GIB - 2 * MIB and gpu["healthy"] is True
    assert {process["pid"]: process["session_id"] for process in gpu["processes"]} == {
        inside.pid: daemon.session("s")["session_id"], outside.pid: None}
