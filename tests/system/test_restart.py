"""The daemon is killed again and again, under load: programs run on under their quotas, and the next one finds all."""
import contextlib
import json
import mmap
import os
import random
import shutil
import signal
import socket
import threading
import time

import pytest

from attach_client import Client
from conftest import MIB, wait_for
from test_quota import OUT_OF_MEMORY, Puppet, in_session

ROUNDS = 20
ENDS = 10
UNIT = 512
STORM_LIMIT = 24 * MIB
ENDED = (0, -signal.SIGTERM)


def whole(count):
    """What linear memory of so many bytes is charged."""
    return -(-count // UNIT) * UNIT


class Held:
    """A session with a puppet in it, and how much the puppet holds."""

    def __init__(self, daemon, name, limit, reap, **more):
        status, self.session = daemon.request("POST", "/v1/sessions", {"name": name, "memory_bytes": limit, **more})
        assert status == 201, self.session
        self.daemon, self.name, self.limit, self.held, self.numbers = daemon, name, limit, 0, []
        self.puppet = Puppet(daemon.product, in_session(daemon, self.session))
        reap(self.puppet.process)
        self.puppet.get("context", 0)

    def alloc(self, count):
        self.numbers.append((self.puppet.get("alloc", count), count))
        self.held += whole(count)

    def free(self):
        number, count = self.numbers.pop(0)
        self.puppet.get("free", number)
        self.held -= whole(count)

    def check_quota(self):
        """To the byte, whether or not there is a daemon."""
        room = (self.limit - self.held) // UNIT * UNIT
        if room > 0:
            number = self.puppet.get("alloc", room)
            assert self.puppet.code("alloc", 1) == OUT_OF_MEMORY
            self.puppet.get("free", number)
        else:
            assert self.puppet.code("alloc", 1) == OUT_OF_MEMORY

    def check_found(self):
        shown = self.daemon.session(self.name)
        assert (shown["used_bytes"], shown["vram_limit_bytes"]) == (self.held, self.limit)
        assert [process["pid"] for process in shown["processes"]] == [self.puppet.process.pid]

    def end(self):
        self.puppet.process.kill()
        self.puppet.process.wait()


def ask_and_leave(daemon, method, path, body):
    """A request whose answer nobody waits for."""
    payload = json.dumps(body).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(daemon.control_socket))
        connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(payload)}\r\n\r\n".encode()
                           + payload)


def names(daemon):
    return {session["name"] for session in daemon.request("GET", "/v1/sessions")[1]}


def test_a_repeated_request_gives_the_same_session_over_a_killed_daemon(daemon):
    def ask(key, **body):
        status, session = daemon.request("POST", "/v1/sessions", {"request_key": key, **body})
        assert status == 201 and "environment" in session, session
        return session["session_id"]

    first = ask("1" * 32, name="once", memory_bytes=MIB)
    assert ask("1" * 32, name="once", memory_bytes=MIB) == first
    daemon.kill()
    daemon.start()
    assert ask("1" * 32, name="once", memory_bytes=MIB) == first
    assert ask("2" * 32) != first and len(daemon.request("GET", "/v1/sessions")[1]) == 2
    assert daemon.request("DELETE", "/v1/sessions/once")[0] == 204
    assert ask("1" * 32, name="once") != first, "a session that has ended is made anew"
    status, answer = daemon.request("POST", "/v1/sessions", {"request_key": "x"})
    assert status == 400 and "32 hexadecimal digits" in answer["error"]["message"]


def test_twenty_crashes_under_load_lose_no_session_byte_or_process(make_daemon, make_gpu, product, reap):
    seed = int(os.environ.get("GPUSLICE_TEST_SEED", str(int(time.time()))))
    print(f"seed {seed}")
    chance = random.Random(seed)
    daemon = make_daemon(gpu=make_gpu()).start()
    daemon.cli("create", "--name", "storm", "--memory", STORM_LIMIT)
    storms = [reap(daemon.spawn("run", "--session", "storm", "--", product.program("storm"), 2,
                                chance.randrange(1 << 30))) for _ in range(2)]
    wait_for(lambda: len(daemon.session("storm")["processes"]) == 2, "the storms")
    steady = [Held(daemon, f"steady{i}", (8 + i) * MIB, reap) for i in range(3)]

    # What happens to one more session, right before the daemon is killed and while it is down.
    def resized(held):
        held.limit += chance.choice([-1, 1]) * 4096
        assert daemon.request("PATCH", f"/v1/sessions/{held.name}", {"memory_bytes": held.limit})[0] == 200
        daemon.kill()

    def resized_perhaps(held):
        ask_and_leave(daemon, "PATCH", f"/v1/sessions/{held.name}", {"memory_bytes": held.limit + MIB})
        daemon.kill()

    def released(held):
        held.end()
        wait_for(lambda: not daemon.session(held.name)["processes"], "its process to be gone")
        assert daemon.request("DELETE", f"/v1/sessions/{held.name}")[0] == 204
        daemon.kill()

    def died(held):
        daemon.kill()
        held.end()

    def expired(held):
        daemon.kill()
        time.sleep(max(0, held.ends - time.time()) + 0.01)

    def grew(held):
        daemon.kill()
        held.alloc(held.limit - held.held)

    def stopped(held):
        held.puppet.process.send_signal(signal.SIGSTOP)
        daemon.kill()

    fates = [resized, resized_perhaps, released, died, expired, grew, stopped]
    for round_number in range(ROUNDS):
        fate = fates[round_number % len(fates)]
        more = {"ttl_seconds": 1} if fate is expired else {}
        other = Held(daemon, f"s{round_number}", 8 * MIB, reap, **more)
        other.ends = time.time() + 1
        other.alloc(MIB)
        for held in steady:
            held.alloc(chance.randrange(1, MIB))
            if len(held.numbers) > 4:
                held.free()
        time.sleep(chance.random() * 0.03)
        fate(other)
        for held in steady:
            held.check_quota()
            held.alloc(1)
        daemon.start()

        assert names(daemon) == {"storm", *(held.name for held in steady)} | (
            {other.name} if fate is not released else set()), fate
        for held in steady:
            held.check_found()
            held.check_quota()
        storm = daemon.session("storm")
        assert storm["used_bytes"] <= STORM_LIMIT and len(storm["processes"]) == 2
        assert [process.poll() for process in storms] == [None, None]
        if fate is resized_perhaps:
            other.limit = daemon.session(other.name)["vram_limit_bytes"]
            assert other.limit in (8 * MIB, 9 * MIB)
        if fate is stopped:
            other.check_found()
            other.puppet.process.send_signal(signal.SIGCONT)
        if fate is died:
            shown = daemon.session(other.name)
            assert shown["used_bytes"] == 0 and shown["processes"] == []
        elif fate is expired:
            shown = daemon.session(other.name)
            assert shown["state"] == "expired" and shown["used_bytes"] == MIB
            assert other.puppet.code("alloc", 1) == OUT_OF_MEMORY
            other.end()
            wait_for(lambda: other.name not in names(daemon), "the expired session to end with its process")
        elif fate is not released:
            other.check_quota()  # attaches anew, to a new limit perhaps
            other.check_found()
            other.end()
            wait_for(lambda: not daemon.session(other.name)["processes"], "its end")
        if fate not in (released, expired):
            assert daemon.request("DELETE", f"/v1/sessions/{other.name}")[0] == 204

    for process in storms:
        process.send_signal(signal.SIGTERM)
    for process in storms:
        assert process.wait(20) in ENDED, process.stderr.read()
    for held in steady:
        held.end()
    wait_for(lambda: not any(session["used_bytes"] or session["processes"]
                             for session in daemon.request("GET", "/v1/sessions")[1]), "every byte to be back")
    wait_for(lambda: daemon.request("GET", "/v1/gpus")[1][0]["used_bytes"] == 0, "the card to be empty")
    assert len(os.listdir(daemon.runtime / "simulated" / "ledgers")) == 4


@pytest.mark.parametrize("moment", range(4))
def test_a_daemon_killed_at_its_own_start_leaves_the_next_one_everything(daemon, product, reap, moment):
    held = Held(daemon, "s", 8 * MIB, reap)
    held.alloc(MIB)
    daemon.kill()
    for i in range(6):  # at 0 to 50 ms of a start
        starting = daemon.spawn_daemon()
        time.sleep((moment * 6 + i) * 0.002)
        starting.kill()
        starting.wait()
        held.check_quota()
    daemon.start()
    held.check_found()
    held.check_quota()


def test_a_program_sees_another_daemon_only_when_it_can_attach_to_it(daemon):
    _, session = daemon.request("POST", "/v1/sessions", {"name": "s"})
    client = Client(daemon.attach_socket).attach(session["session_id"])
    seen = client.epoch
    others = []  # that it takes over after this one
    for number in range(30):
        _, other = daemon.request("POST", "/v1/sessions", {"name": f"other{number}"})
        others.append(Client(daemon.attach_socket).attach(other["session_id"]))
    daemon.kill()
    starting = daemon.spawn_daemon()
    try:
        end = time.monotonic() + 20
        while int.from_bytes(client.usage[16:24], "little") == seen:
            assert time.monotonic() < end and starting.poll() is None
        again = Client(daemon.attach_socket).attach(session["session_id"], slot=client.slot, generation=client.generation)
        assert again.epoch > seen
    finally:
        starting.kill()
        starting.wait()


@pytest.mark.parametrize("lost", ["the runtime folder", "the ledger", "the ledgers while no daemon runs"])
def test_a_program_whose_ledger_has_lost_its_name_is_found_again(daemon, product, reap, lost):
    held = Held(daemon, "job", 8 * MIB, reap)
    held.alloc(MIB)
    assert daemon.request("POST", "/v1/sessions", {"name": "after"})[0] == 201  # it is stored, and so is all that came before
    ledgers = daemon.runtime / "simulated" / "ledgers"
    if lost == "the runtime folder":
        shutil.rmtree(daemon.runtime)
        wait_for(daemon.control_socket.exists, "the sockets to be back")
    elif lost == "the ledger":
        (ledgers / held.session["session_id"]).unlink()
    daemon.kill()
    if lost == "the ledgers while no daemon runs":
        shutil.rmtree(ledgers)
    daemon.start()
    wait_for(lambda: daemon.session("job")["used_bytes"] == MIB, "the program to attach again")
    held.check_found()
    held.check_quota()
    other = Puppet(product, in_session(daemon, held.session))
    reap(other.process)
    other.get("context", 0)
    assert other.code("alloc", 7 * MIB + 1) == OUT_OF_MEMORY
    assert "1 process there holds" in daemon.log_text()


def test_a_process_that_maps_its_ledger_late_sees_that_it_must_attach_again(daemon):
    _, session = daemon.request("POST", "/v1/sessions", {"name": "s"})
    client = Client(daemon.attach_socket).attach(session["session_id"], map_it=False)
    daemon.kill()
    daemon.start()
    assert os.listdir(daemon.runtime / "simulated" / "ledgers") == []
    with mmap.mmap(client.fds[1], client.usage_bytes, mmap.MAP_SHARED, mmap.PROT_READ) as usage:
        assert int.from_bytes(usage[16:24], "little") != client.epoch
    client.close()


def test_limits_hold_at_once_after_daemons_that_follow_each_other_quickly(daemon, product, reap):
    held = Held(daemon, "s", 8 * MIB, reap)
    for limit in (2 * MIB, 4 * MIB, MIB):
        held.alloc(1)  # attaches to the daemon that is there
        held.limit = limit
        daemon.kill()
        daemon.start()
        assert daemon.request("PATCH", "/v1/sessions/s", {"memory_bytes": limit})[0] == 200
        held.check_quota()


def test_a_new_daemon_that_is_too_busy_to_answer_leaves_programs_under_the_limits_they_know(daemon, product, reap):
    held = Held(daemon, "s", 8 * MIB, reap)
    daemon.kill()
    daemon.start()
    assert daemon.request("PATCH", "/v1/sessions/s", {"memory_bytes": 16 * MIB})[0] == 200
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        assert held.puppet.code("alloc", 8 * MIB + 1) == OUT_OF_MEMORY  # after a second of waiting
        held.alloc(8 * MIB)
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    wait_for(lambda: held.puppet.do("info")[2] == 16 * MIB, "it to come again")
    held.limit = 16 * MIB
    held.check_quota()


def test_a_request_in_its_last_moments_does_not_hinder_a_daemon(daemon):
    """Requests come until nobody takes them any more: some are read when it has stopped to take them in turn."""
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def ask(client):
        with client, contextlib.suppress(OSError):
            while True:
                client.sendall(request)
                if not client.recv(4096):
                    return

    for _ in range(ENDS):
        clients = []
        for _ in range(8):
            clients.append(socket.socket(socket.AF_UNIX))
            clients[-1].connect(str(daemon.control_socket))
        threads = [threading.Thread(target=ask, args=[client]) for client in clients]
        for thread in threads:
            thread.start()
        wait_for(lambda: daemon.request("GET", "/healthz")[0] == 200, "an answer beside them")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(20) == 0
        for thread in threads:
            thread.join()
        daemon.start()
