"""What tenants cannot do to the daemon's figures and files, and to whoever reads them."""
import os
import shutil
import socket
import struct

import pytest

import attach_client
from conftest import MIB, read_answer, wait_for

HUGE = 1 << 62


def value_of(daemon, metric):
    """The sum of a metric's samples."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in daemon.request("GET", "/metrics")[1].splitlines()
               if line.startswith((metric + " ", metric + "{")))


def scribble_counts(client):
    """A program may write any number of requests into its slot."""
    at = attach_client.GPUS + attach_client.REQUESTS + 64 * client.slot
    struct.pack_into("<QQ", client.usage, at + 24, HUGE, HUGE)  # granted and refused


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
def test_no_program_sets_a_counter_of_all_users(daemon, dies):
    session = daemon.request("POST", "/v1/sessions", {"name": "liar", "memory_bytes": MIB})[1]["session_id"]
    pid = os.fork()
    if pid == 0:
        try:
            client = attach_client.Client(daemon.attach_socket).attach(session)
            client.hold(HUGE)
            scribble_counts(client)
            client.socket.recv(1)  # until the test ends us
        finally:
            os._exit(0)
    try:
        wait_for(lambda: daemon.session("liar")["processes"] and daemon.session("liar")["used_bytes"] >= HUGE, "the lie")
        wait_for(lambda: value_of(daemon, "gpuslice_denied_alloc_total") > 0, "the counts")
        if dies:
            os.kill(pid, 9)
            wait_for(lambda: not daemon.session("liar")["processes"], "it to be gone")
        card = value_of(daemon, "gpuslice_gpu_memory_bytes")
        assert value_of(daemon, "gpuslice_used_bytes") <= card
        assert value_of(daemon, "gpuslice_recovered_bytes_total") <= card
        for metric in ("gpuslice_alloc_events_total", "gpuslice_denied_alloc_total"):
            assert 0 < value_of(daemon, metric) < 1e10, "as many as a process can make within a quarter of an hour"
    finally:
        if not dies:
            os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_a_state_folder_that_was_removed_takes_no_session(daemon):
    assert daemon.request("POST", "/v1/sessions", {"name": "before"})[0] == 201
    shutil.rmtree(daemon.state / "simulated")
    status, answer = daemon.request("POST", "/v1/sessions", {"name": "lost"})
    assert (status, answer["error"]["code"]) == (500, "ERR_INTERNAL")
    assert "the state file was removed; start gpusliced again" in answer["error"]["message"]
    assert [one["name"] for one in daemon.request("GET", "/v1/sessions")[1]] == ["before"]


def ask_metrics(address, host):
    with socket.create_connection(address, timeout=20) as connection:
        head = f"Host: {host}\r\n" if host is not None else ""
        connection.sendall(f"GET /metrics HTTP/1.{int(host is not None)}\r\n{head}Connection: close\r\n\r\n".encode())
        return read_answer(connection)[0]


def test_another_sites_page_does_not_read_the_metrics(make_daemon):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    make_daemon(GPUSLICE_METRICS_ADDR=f"127.0.0.1:{address[1]}").start()
    for host in (f"127.0.0.1:{address[1]}", "10.1.2.3", "localhost", "node7:9400", socket.gethostname(), None):
        assert ask_metrics(address, host) == 200, host
    for host in ("evil.example", f"evil.example:{address[1]}", f"127.0.0.1.evil.example:{address[1]}"):
        assert ask_metrics(address, host) == 403, host


IN_STATE = ["state.db-journal", "state.db-wal", "state.reserve", "history.db", "audit.log"]


@pytest.mark.parametrize("folder, names, starts", [
    ("runtime", ["control.sock", "attach.sock"], True), ("runtime", ["lock"], False), ("runtime", ["ledgers"], False),
    ("state", IN_STATE, True), ("state", ["state.db"], False)], ids=str)
def test_links_in_the_place_of_the_daemons_files_are_not_followed(make_daemon, tmp_path, folder, names, starts):
    daemon = make_daemon()
    place = {"runtime": daemon.runtime, "state": daemon.state}[folder] / "simulated"
    place.mkdir(mode=0o700, parents=True)
    for name in names:
        (tmp_path / name).write_text("another's")
        (place / name).symlink_to(tmp_path / name)
    if starts:
        daemon.start()
        assert daemon.request("POST", "/v1/sessions", {"memory_bytes": MIB})[0] == 201
        daemon.stop()
    else:
        assert daemon.spawn_daemon().wait(20) == 1
        assert str(place / names[0]) in daemon.log_text().splitlines()[-1]
    assert {(tmp_path / name).read_text() for name in names} == {"another's"}
    assert all(path.stat().st_size == len("another's") for path in tmp_path.iterdir() if path.name in names)
