"""The daemon answers while its loop has other things to do."""
import contextlib
import json
import socket
import sqlite3
import threading

import pytest

SESSIONS = 10_000


def test_every_change_is_answered_while_others_connect_and_go(daemon):
    # An answer waits for the commit, so it is sent from the loop; events in between must not make it forgotten.
    stop = threading.Event()

    def knock():
        while not stop.is_set():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.connect(str(daemon.attach_socket))

    knockers = [threading.Thread(target=knock) for _ in range(3)]
    for thread in knockers:
        thread.start()
    try:
        for _ in range(150):
            status, session = daemon.request("POST", "/v1/sessions", {"memory_bytes": 1 << 20})
            assert status == 201
            assert daemon.request("DELETE", f"/v1/sessions/{session['session_id']}")[0] == 204
    finally:
        stop.set()
        for thread in knockers:
            thread.join()


@pytest.fixture
def crowded(make_daemon):
    """A daemon with 10,000 sessions: one made by it, the others written into its state file behind it."""
    daemon = make_daemon().start()
    assert daemon.request("POST", "/v1/sessions", {"name": "s0"})[0] == 201
    daemon.stop()
    with contextlib.closing(sqlite3.connect(daemon.state / "simulated" / "state.db")) as state, state:
        def columns(table, skip):
            return ",".join([row[1] for row in state.execute(f"PRAGMA table_info({table})")][skip:])
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<?)"
        state.execute(f"{numbers} INSERT INTO sessions SELECT printf('%012x',i),'s'||i,{columns('sessions', 2)} "
                      "FROM sessions,n", [SESSIONS - 1])
        state.execute(f"INSERT INTO session_gpus SELECT s.id,{columns('session_gpus', 1)} FROM sessions s, session_gpus "
                      "WHERE s.name<>'s0'")
    return daemon.start(deadline_s=120)


@contextlib.contextmanager
def asked(daemon, path):
    """A request that has been sent, and whose answer waits to be read."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(daemon.control_socket))
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        yield connection


def read_all(connection, begun=b""):
    answer = bytearray(begun)
    while chunk := connection.recv(1 << 20):
        answer += chunk
    return json.loads(bytes(answer).partition(b"\r\n\r\n")[2])


def test_a_list_of_10000_sessions_is_written_while_others_are_served(crowded):
    """Who asks meanwhile is answered, and what ends meanwhile is not listed: it is written as it is read."""
    before = {one["session_id"]: one["name"] for one in crowded.request("GET", "/v1/sessions")[1]}
    oldest_first = list(before)
    with asked(crowded, "/v1/sessions") as connection:
        head = connection.recv(100)  # begun, and far from its end: the socket holds a small part of it
        assert head.startswith(b"HTTP/1.1 200"), head
        gone = oldest_first[-2000::2]
        for session in gone:
            assert crowded.request("DELETE", f"/v1/sessions/{session}")[0] == 204
        assert crowded.request("POST", "/v1/sessions", {"name": "late"})[0] == 201
        listed = read_all(connection, head)
    assert [one["session_id"] for one in listed] == [one for one in oldest_first if one not in set(gone)]
