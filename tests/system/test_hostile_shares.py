"""Tenants that lie about the GPU's time, and change sessions to get rid of what they took: a neighbour's minimum is kept."""
import os
import re
import signal
import socket
import time

import pytest

from attach_client import REVOKE, Agent, Client
from attacks import attack, change_sessions, die_with_parent
from conftest import MIB, wait_for
from test_shares import start_clock
from workers import Worker

WINDOW_S = 4
TRIES = 3  # windows; the CPUs are shared with other tests


@pytest.fixture
def victim(daemon, reap):
    """A program with a minimum of 90 %, and a function that tells which part of the GPU it has in a window."""
    worker = Worker(reap(daemon.spawn("run", "--compute", "90%..100%", "--", daemon.product.program("worker"), "500")))
    clock = start_clock(daemon, reap)

    def part_of_the_gpu():
        worker.begin(1000 * (WINDOW_S + 1))
        wait_for(lambda: worker.process.pid in clock.read()[1], "the victim to work on the GPU")
        time.sleep(0.5)
        before_ns, before = clock.read()
        time.sleep(WINDOW_S)
        after_ns, after = clock.read()
        worker.end()
        return 100 * (after[worker.process.pid] - before[worker.process.pid]) / (after_ns - before_ns)
    return part_of_the_gpu


def test_turns_of_ever_new_sessions_do_not_take_a_minimum(daemon, victim):
    seen = []
    with attack(change_sessions, daemon, uid=os.getuid()):
        for _ in range(TRIES):
            seen.append(victim())
            if seen[-1] >= 85:
                return
    pytest.fail(f"of 90 % it had {seen}")


@pytest.mark.parametrize("sign", [signal.SIGUSR1, signal.SIGUSR2], ids=["again and again", "and has none for others"])
def test_a_program_that_closes_its_sockets_keeps_to_its_maximum(daemon, reap, sign):
    """Alone on the GPU (preloads/descriptors.c). Without a connection it would be free, if the daemon had gone."""
    preload = f"LD_PRELOAD={daemon.product.interceptor}:{daemon.product.program('descriptors.so')}"
    worker = Worker(reap(daemon.spawn("run", "--compute", "10%..10%", "--", "env", preload, daemon.product.program("worker"), "500")))
    clock = start_clock(daemon, reap)
    worker.begin(60_000)
    wait_for(lambda: worker.process.pid in clock.read()[1], "it to work on the GPU")
    before_ns, before = clock.read()
    for _ in range(8):
        worker.process.send_signal(sign)
        time.sleep(0.25)
    after_ns, after = clock.read()
    assert 100 * (after[worker.process.pid] - before[worker.process.pid]) / (after_ns - before_ns) < 30


def busy_liar(daemon, session):
    """A process that keeps the GPU busy without a gate, as one that has taken the interceptor out: the pipe to it, and the
    connections in its name, by which it says what it likes."""
    here, there = socket.socketpair()
    reading, writing = os.pipe()
    environment = dict(daemon.gpu.environment())
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        client = Client(daemon.attach_socket).attach(session)
        agent = Agent(daemon.attach_socket, client, session)
        socket.send_fds(there, [b"x"], [client.socket.fileno(), agent.socket.fileno()])
        os.dup2(reading, 0)
        os.execve(daemon.product.program("worker"), ["worker", "500"], environment)
    os.close(reading)
    _, (attached, spoken), _, _ = socket.recv_fds(here, 1, 2)
    agent = Agent.__new__(Agent)
    agent.socket = socket.socket(fileno=spoken)
    os.write(writing, b"60000\n")
    return pid, writing, attached, agent


def test_a_program_that_says_it_uses_nothing_is_charged_by_what_nvml_shows(make_daemon, make_gpu):
    daemon = make_daemon(make_gpu(FAKECUDA_CONTEXT_BYTES=MIB)).start()  # NVML lists those that hold memory
    wishes = {"memory_bytes": MIB, "name": "liar", "compute": "0%..90%"}
    made = daemon.request("POST", "/v1/sessions", wishes)[1]
    pid, pipe, attached, agent = busy_liar(daemon, made["session_id"])
    try:
        agent.want()

        def answer():
            while True:
                try:
                    kind, lease = agent.receive(0.01)[:2]
                except TimeoutError:
                    return
                if kind == REVOKE:
                    agent.give_back(lease)
                    agent.want()

        def is_marked():
            answer()
            daemon.request("GET", "/v1/gpus")  # NVML is asked
            return daemon.session("liar")["understates_use"]
        wait_for(is_marked, "the liar to be found out")
        assert daemon.session("liar")["gpus"][0]["gpu_seconds"] > 0.2
        assert re.search(r"^Charged +as NVML shows it", daemon.cli("show", "liar").stdout, re.M)
        assert "use.understated" in daemon.cli("events").stdout
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(pipe)
        os.close(attached)
        agent.close()
