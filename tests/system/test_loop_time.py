"""Nothing that a tenant does takes more than 5 ms of the daemon's loop: make_daemon() looks at that after every test, and here
are requests about what tenants made long."""
import contextlib
import os
import time

import pytest

import attach_client
from conftest import MIB, wait_for

GPUS, PROCESSES = 8, 1000


@contextlib.contextmanager
def attached(daemon, session, count):
    """So many processes in the session, until the block ends."""
    pids = []
    try:
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                try:
                    client = attach_client.Client(daemon.attach_socket).attach(session, map_it=False)
                    time.sleep(1000)
                    client.close()
                finally:
                    os._exit(1)
            pids.append(pid)
        wait_for(lambda: len(daemon.session(session)["processes"]) == count, "all processes to be attached", 60)
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, 9)
        for pid in pids:
            os.waitpid(pid, 0)


def test_a_session_of_many_processes_is_answered_in_pieces(make_daemon, make_gpu):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_GPUS=GPUS)).start()
    gpus = [{"gpu": str(i), "memory_bytes": MIB} for i in range(GPUS)]
    made = daemon.request("POST", "/v1/sessions", {"name": "big", "gpus": gpus})[1]
    with attached(daemon, made["session_id"], PROCESSES) as pids:
        status, session = daemon.request("GET", "/v1/sessions/big")
        assert status == 200 and session["name"] == "big"
        assert [process["pid"] for process in session["processes"]] == pids or set(pids) == {
            process["pid"] for process in session["processes"]}
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
