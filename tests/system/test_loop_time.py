"""Nothing that a tenant does takes more than 5 ms of the daemon's loop: make_daemon() looks at that after every test of
./run-tests --all, and here are requests about what tenants made long."""
import contextlib
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import GIB, MIB, wait_for

GPUS, PROCESSES = 8, 1000


# Forks so many processes that attach; a small program, since each costs the time that its memory takes to be forked.
MANY = r"""
import os, signal, sys
import attach_client
path, session, count = sys.argv[1:]
pids = []
while len(pids) < int(count):
    pids.append(os.fork())
    if pids[-1] == 0:
        try:
            client = attach_client.Client(path).attach(session, map_it=False)
            os.write(1, b"%d\n" % os.getpid())
            signal.pause()
        finally:
            os.write(1, b"not attached\n")
sys.stdin.read()
for pid in pids:
    os.kill(pid, signal.SIGKILL)
for pid in pids:
    os.waitpid(pid, 0)
"""


@contextlib.contextmanager
def attached(daemon, session, count):
    """So many processes in the session, until the block ends: their process ids."""
    with subprocess.Popen([sys.executable, "-c", MANY, daemon.attach_socket, session, str(count)], text=True,
                          cwd=pathlib.Path(__file__).parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as mother:
        yield [int(mother.stdout.readline()) for _ in range(count)]
        mother.stdin.close()


def test_a_session_of_many_processes_is_answered_in_pieces(make_daemon, make_gpu):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_GPUS=GPUS)).start()
    gpus = [{"gpu": str(i), "memory_bytes": MIB} for i in range(GPUS)]
    made = daemon.request("POST", "/v1/sessions", {"name": "big", "gpus": gpus})[1]
    with attached(daemon, made["session_id"], PROCESSES) as pids:
        status, session = daemon.request("GET", "/v1/sessions/big")
        assert status == 200 and session["name"] == "big"
        assert {process["pid"] for process in session["processes"]} == set(pids)
        assert all(len(process["gpus"]) == GPUS for process in session["processes"])
        assert session["processes"] == sorted(session["processes"], key=lambda process: process["attached_at"])
        listed, = daemon.request("GET", "/v1/sessions")[1]
        assert {**listed, "processes": None} == {**session, "processes": None}
        assert len(listed["processes"]) == PROCESSES
        assert daemon.request("PATCH", "/v1/sessions/big", {"name": "bigger"})[1]["name"] == "bigger"
        gslice = daemon.request("GET", "/sessions/bigger")[1]
        assert (gslice["state"], len(gslice["processes"])) == ("ACTIVE", PROCESSES)
        assert daemon.request("GET", "/metrics")[1].count("gpuslice_session_used_bytes{") == GPUS
        assert [gpu["sessions"] for gpu in daemon.request("GET", "/v1/gpus")[1]] == [1] * GPUS
    wait_for(lambda: not daemon.session("bigger")["processes"], "the processes to be gone", 60)


@pytest.mark.long
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to ask for many users")
def test_a_long_queue_of_many_users_holds_nobody_up(make_daemon, make_gpu):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_TOTAL_MEM=GIB)).start()
    assert daemon.request("POST", "/v1/sessions", {"name": "large", "memory_bytes": GIB - MIB})[0] == 201
    for number in range(2500):
        uid = 20_000 + (number % 7 if number < 1250 else number)  # a few users with many each, and many with one
        status, made = daemon.request("POST", "/v1/sessions", {"memory_bytes": 2 * MIB, "wait": True, "owner_uid": uid})
        assert (status, made["queue_position"]) == (202, number + 1)
    assert daemon.request("DELETE", "/v1/sessions/large")[0] == 204
    wait_for(lambda: daemon.session(made["session_id"])["queue_position"] == 2500 - GIB // (2 * MIB), "as many as fit to be let in")


def test_one_user_has_so_many_in_the_queue(daemon):
    assert daemon.request("POST", "/v1/sessions", {"name": "large", "memory_bytes": GIB})[0] == 201
    wish = {"memory_bytes": GIB, "wait": True}
    made = [daemon.request("POST", "/v1/sessions", wish)[1]["session_id"] for _ in range(1000)]
    status, answer = daemon.request("POST", "/v1/sessions", wish)
    assert (status, answer["error"]["code"]) == (429, "ERR_TOO_MANY")
    assert answer["error"]["message"] == (f"uid {os.getuid()} has 1000 sessions that wait in the queue already; expected fewer; "
                                          "release some")
    assert daemon.request("DELETE", f"/v1/sessions/{made[500]}")[0] == 204
    assert daemon.request("POST", "/v1/sessions", wish)[1]["queue_position"] == 1000
