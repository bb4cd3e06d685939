"""The daemon's HTTP API: sessions, GPUs, health, metrics, errors (docs/api.md)."""
import concurrent.futures
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess

import pytest

from conftest import GIB, MIB, wait_for


def create(daemon, **body):
    status, session = daemon.request("POST", "/v1/sessions", body)
    assert status == 201, session
    return session


def refusal(answer):
    status, body = answer
    return status, body["error"]["code"]


def test_a_session_is_made_shown_changed_and_released(daemon):
    made = create(daemon, name="train", memory_bytes=256 * MIB)
    environment = made.pop("environment")
    assert re.fullmatch("[0-9a-f]{12}", made["session_id"])
    assert (made["name"], made["state"], made["vram_limit_bytes"], made["used_bytes"], made["expires_at"]) == (
        "train", "active", 256 * MIB, 0, None)
    assert made["gpus"][0]["reserved"] is True and made["gpus"][0]["total_bytes"] == GIB
    assert environment["GPUSLICE_SESSION"] == made["session_id"]
    assert environment["GPUSLICE_IPC_SOCK"] == str(daemon.attach_socket)
    assert re.fullmatch("[0-9a-f]{64}", environment["GPUSLICE_IPC_TOKEN"])
    assert environment["CUDA_VISIBLE_DEVICES"] == made["gpus"][0]["uuid"]
    assert environment["FAKECUDA_NAME"] == daemon.gpu.name

    for called in (made["session_id"], made["session_id"][:4], "train"):
        assert daemon.request("GET", f"/v1/sessions/{called}") == (200, made)
    assert daemon.request("GET", "/v1/sessions/train/environment") == (200, environment)
    assert daemon.request("GET", "/v1/sessions") == (200, [made])

    status, changed = daemon.request("PATCH", "/v1/sessions/train", {"memory_bytes": 512 * MIB, "name": "tune"})
    assert (status, changed["vram_limit_bytes"], changed["name"]) == (200, 512 * MIB, "tune")
    assert daemon.request("DELETE", "/v1/sessions/tune") == (204, "")
    assert daemon.request("GET", "/v1/sessions") == (200, [])
    assert refusal(daemon.request("GET", "/v1/sessions/tune")) == (404, "ERR_SESSION_NOT_FOUND")


def test_a_session_without_a_size_may_use_the_card_and_reserves_nothing(daemon):
    session = create(daemon)
    assert session["name"] == session["session_id"]
    assert session["vram_limit_bytes"] == GIB
    assert session["gpus"][0]["reserved"] is False
    assert daemon.request("GET", "/v1/gpus")[1][0]["reserved_bytes"] == 0


def test_no_more_is_promised_than_the_card_has(daemon):
    create(daemon, name="a", memory_bytes=GIB - 10)
    assert refusal(daemon.request("POST", "/v1/sessions", {"memory_bytes": 11})) == (409, "ERR_ADMISSION")
    create(daemon, name="b", memory_bytes=10)
    status, body = daemon.request("POST", "/v1/sessions", {"memory_bytes": 1})
    assert status == 409
    assert str(GIB) not in body["error"]["message"].split("leaves")[1] and "(0 bytes)" in body["error"]["message"]
    assert refusal(daemon.request("PATCH", "/v1/sessions/b", {"memory_bytes": 11})) == (409, "ERR_ADMISSION")
    assert daemon.session("b")["vram_limit_bytes"] == 10
    assert daemon.request("PATCH", "/v1/sessions/a", {"memory_bytes": GIB - 11})[0] == 200
    assert daemon.request("PATCH", "/v1/sessions/b", {"memory_bytes": 11})[0] == 200
    gpu = daemon.request("GET", "/v1/gpus")[1][0]
    assert (gpu["reserved_bytes"], gpu["unreserved_bytes"], gpu["sessions"]) == (GIB, 0, 2)


def test_limits_are_by_gpu_and_the_roomiest_is_taken_when_none_is_named(make_daemon, make_gpu):
    daemon = make_daemon(make_gpu(FAKECUDA_GPUS=3)).start()
    gpus = daemon.request("GET", "/v1/gpus")[1]
    assert [gpu["index"] for gpu in gpus] == [0, 1, 2]
    session = create(daemon, gpus=[{"gpu": "1", "memory_bytes": 3 * MIB}, {"gpu": gpus[0]["uuid"].upper()}],
                     memory_bytes=5 * MIB)
    assert [(gpu["index"], gpu["limit_bytes"]) for gpu in session["gpus"]] == [(1, 3 * MIB), (0, 5 * MIB)]
    assert session["vram_limit_bytes"] == 8 * MIB
    assert create(daemon, memory_bytes=MIB)["gpus"][0]["index"] == 2
    assert create(daemon)["gpus"][0]["index"] == 2  # 1 MiB reserved there, 3 and 5 elsewhere
    status, changed = daemon.request("PATCH", f"/v1/sessions/{session['session_id']}",
                                     {"gpus": [{"gpu": "0", "memory_bytes": MIB}]})
    assert status == 200
    assert [gpu["limit_bytes"] for gpu in changed["gpus"]] == [3 * MIB, MIB]
    assert refusal(daemon.request("PATCH", f"/v1/sessions/{session['session_id']}",
                                  {"gpus": [{"gpu": "2", "memory_bytes": MIB}]})) == (400, "ERR_BAD_REQUEST")


def test_names_are_unique_an_owner_and_prefixes_must_fit_one(daemon):
    create(daemon, name="first")
    assert refusal(daemon.request("POST", "/v1/sessions", {"name": "first"})) == (409, "ERR_NAME_TAKEN")
    other = create(daemon, name="second")
    assert refusal(daemon.request("PATCH", "/v1/sessions/second", {"name": "first"})) == (409, "ERR_NAME_TAKEN")
    assert daemon.request("PATCH", "/v1/sessions/second", {"name": "second"})[0] == 200
    for name in ("", "a b", "x" * 64, "../etc"):
        assert refusal(daemon.request("POST", "/v1/sessions", {"name": name})) == (400, "ERR_BAD_REQUEST")
    ids = [other["session_id"]]
    while len({first[0] for first in ids}) == len(ids):  # 17 IDs have two that begin alike
        ids.append(create(daemon)["session_id"])
    assert refusal(daemon.request("GET", f"/v1/sessions/{ids[-1][0]}")) == (409, "ERR_AMBIGUOUS")


@pytest.mark.parametrize("method,path,body,expected", [
    ("GET", "/", None, (404, "ERR_NOT_FOUND")),
    ("GET", "/v1/sessions/", None, (404, "ERR_NOT_FOUND")),
    ("GET", "/v1/sessions/a/b", None, (404, "ERR_NOT_FOUND")),
    ("GET", "/v1/sessions/" + "a" * 5000, None, (404, "ERR_NOT_FOUND")),
    ("GET", "/v1/sessions/nobody", None, (404, "ERR_SESSION_NOT_FOUND")),
    ("GET", "/v1/version%00x", None, (404, "ERR_NOT_FOUND")),
    ("POST", "/v1/sessions", b'{"name": ".."}', (400, "ERR_BAD_REQUEST")),
    ("POST", "/v1/sessions", b'{"name": "-"}', (400, "ERR_BAD_REQUEST")),
    ("PUT", "/v1/sessions", None, (405, "ERR_METHOD_NOT_ALLOWED")),
    ("DELETE", "/healthz", None, (405, "ERR_METHOD_NOT_ALLOWED")),
    ("POST", "/v1/sessions", b"{", (400, "ERR_BAD_REQUEST")),
    ("POST", "/v1/sessions", b"\xff\xfe", (400, "ERR_BAD_REQUEST")),
    ("POST", "/v1/sessions", b"[" * 60_000, (400, "ERR_BAD_REQUEST")),
    ("POST", "/v1/sessions", b'{"memory": 1}', (400, "ERR_BAD_REQUEST")),
    ("POST", "/v1/sessions", b'{"gpus": [{"gpu": "7"}]}', (404, "ERR_GPU_NOT_FOUND")),
    ("POST", "/v1/sessions", b'{"memory_bytes": %d}' % (GIB + 1), (409, "ERR_ADMISSION")),
    ("POST", "/v1/sessions", b" " * (64 << 10), (400, "ERR_BAD_REQUEST")),
    ("POST", "/v1/sessions", b" " * ((64 << 10) + 1), (413, "ERR_TOO_LARGE")),
], ids=lambda value: str(value)[:24] if isinstance(value, (bytes, str)) else None)
def test_what_is_wrong_has_its_code(daemon, method, path, body, expected):
    assert refusal(daemon.request(method, path, raw=body or b"")) == expected
    assert daemon.request("GET", "/healthz") == (200, "ok\n")


def test_head_is_get_without_the_body(daemon):
    for path in ("/v1/sessions", "/v1/gpus", "/healthz", "/metrics", "/v1/events"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(str(daemon.control_socket))
            connection.sendall(f"HEAD {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200") and body == b"", (path, answer)
    assert refusal(daemon.request("GET", "/v1/nothing")) == (404, "ERR_NOT_FOUND")


def test_an_endless_chunked_body_ends_that_connection_alone(daemon):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(daemon.control_socket))
        connection.sendall(b"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(OSError):
            for _ in range(1000):
                connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
    assert daemon.request("GET", "/healthz")[0] == 200


def test_half_a_request_and_rubbish_harm_nobody(daemon):
    connections = []
    for text in (b"GET /v1/ses", b"\x00" * 1000, b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/sessions HTTP/1.1\r\nHost: x\r\n"
                 b"Content-Length: 100\r\n\r\n{", b""):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(daemon.control_socket))
        connection.sendall(text)
        connections.append(connection)
    assert daemon.request("GET", "/v1/sessions") == (200, [])
    for connection in connections:
        connection.close()
    assert daemon.request("GET", "/healthz")[0] == 200


def test_fifty_connections_at_once_are_all_answered(daemon):
    def one(number):
        status, made = daemon.request("POST", "/v1/sessions", {"name": f"s{number}", "memory_bytes": MIB})
        assert status == 201
        assert daemon.request("GET", "/v1/gpus")[0] == 200
        assert daemon.request("PATCH", f"/v1/sessions/s{number}", {"memory_bytes": 2 * MIB})[0] == 200
        return made["session_id"]

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        ids = list(pool.map(one, range(50)))
    assert len(set(ids)) == 50
    sessions = daemon.request("GET", "/v1/sessions")[1]
    assert {session["session_id"] for session in sessions} == set(ids)
    assert all(session["vram_limit_bytes"] == 2 * MIB for session in sessions)


def test_racing_requests_never_promise_more_than_the_card(daemon):
    def one(_):
        return daemon.request("POST", "/v1/sessions", {"memory_bytes": 300 * MIB})[0]

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        statuses = list(pool.map(one, range(20)))
    assert sorted(statuses) == [201] * 3 + [409] * 17


def test_a_required_token_is_required_and_a_wrong_one_never_passes(make_daemon):
    daemon = make_daemon(GPUSLICE_IPC_TOKEN="secret", GPUSLICE_IPC_TOKEN_REQUIRED="1").start()
    assert refusal(daemon.request("GET", "/v1/sessions")) == (401, "ERR_UNAUTHORIZED")
    for token in ("secreT", "secre", "secretsecret", ""):
        assert refusal(daemon.request("GET", "/v1/sessions", headers={"Authorization": f"Bearer {token}"})) == (
            401, "ERR_UNAUTHORIZED")
    assert daemon.request("GET", "/v1/sessions", headers={"Authorization": "Bearer secret"}) == (200, [])
    assert daemon.request("GET", "/healthz")[0] == 200
    assert daemon.request("GET", "/metrics")[0] == 200


def test_a_token_that_is_not_required_may_be_left_out_but_not_be_wrong(make_daemon):
    daemon = make_daemon(GPUSLICE_IPC_TOKEN="secret").start()
    assert daemon.request("GET", "/v1/sessions") == (200, [])
    assert daemon.request("GET", "/v1/sessions", headers={"Authorization": "Bearer other"})[0] == 401


def test_gslices_shapes_are_answered(daemon):
    status, session = daemon.request("POST", "/sessions", {"limit_bytes": 64 * MIB, "ttl_seconds": 3600})
    assert status == 200
    assert session["vram_limit_bytes"] == 64 * MIB and session["used_bytes"] == 0
    assert session["expires_at"] > session["created_at"]
    assert daemon.request("GET", f"/sessions/{session['session_id']}")[1]["session_id"] == session["session_id"]
    assert [one["session_id"] for one in daemon.request("GET", "/sessions")[1]] == [session["session_id"]]
    assert daemon.request("DELETE", f"/sessions/{session['session_id']}")[0] == 204
    for wrong in ({}, {"limit_bytes": 0}, {"limit_bytes": 1, "ttl_seconds": 0}, {"limit_bytes": 1, "name": "x"}):
        assert refusal(daemon.request("POST", "/sessions", wrong)) == (400, "ERR_BAD_REQUEST")


def test_an_expired_session_that_nobody_uses_is_gone(daemon):
    status, session = daemon.request("POST", "/sessions", {"limit_bytes": MIB, "ttl_seconds": 1})
    assert status == 200
    wait_for(lambda: daemon.request("GET", f"/sessions/{session['session_id']}")[0] == 404, "the session to expire")


def test_metrics_are_clean_and_count(daemon):
    create(daemon, name="m", memory_bytes=7 * MIB)
    status, text = daemon.request("GET", "/metrics")
    assert status == 200
    uuid = daemon.request("GET", "/v1/gpus")[1][0]["uuid"]
    lines = text.splitlines()
    assert "gpuslice_sessions_active 1" in lines
    assert f'gpuslice_reserved_bytes{{gpu="0",UUID="{uuid}"}} {7 * MIB}' in lines
    assert any(line.startswith('gpuslice_session_limit_bytes{session="m",') and line.endswith(f" {7 * MIB}")
               for line in lines)
    promtool = shutil.which("promtool")
    if promtool:
        checked = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def tcp_get(port, path):
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return int(answer.split(None, 2)[1]), answer.partition(b"\r\n\r\n")[2].decode()


def test_over_tcp_there_are_metrics_and_health_alone(make_daemon):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    daemon = make_daemon(GPUSLICE_METRICS_ADDR=f"127.0.0.1:{port}").start()
    assert tcp_get(port, "/healthz") == (200, "ok\n")
    assert tcp_get(port, "/readyz") == (200, "ok\n")
    status, text = tcp_get(port, "/metrics")
    assert status == 200 and "gpuslice_sessions_active 0" in text
    for path in ("/v1/sessions", "/v1/gpus", "/sessions", "/v1/version", "/"):
        assert tcp_get(port, path)[0] == 404
    assert daemon.request("GET", "/v1/sessions") == (200, [])


def test_the_version_is_told(daemon):
    assert daemon.request("GET", "/v1/version") == (200, {"version": "0.2.0", "pid": daemon.process.pid, "host": os.uname().nodename})


def as_user(uid, action, groups=()):
    """What `action` returns in a process of that user, in these groups beside its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups(groups)
            os.setgid(uid)
            os.setuid(uid)
            os.write(writing, json.dumps(action()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = json.loads(pipe.read() or b"null")
    os.waitpid(pid, 0)
    return answer


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be other users")
def test_a_user_sees_and_touches_only_their_own_sessions(daemon):
    for path in (daemon.folder, daemon.runtime, daemon.runtime / "simulated"):
        path.chmod(0o755)
    daemon.control_socket.chmod(0o666)  # as for members of the system daemon's group
    roots = create(daemon, name="same")
    alice = as_user(12345, lambda: daemon.request("POST", "/v1/sessions", {"name": "same", "memory_bytes": MIB}))
    assert alice[0] == 201 and alice[1]["owner_uid"] == 12345
    hers = alice[1]["session_id"]
    assert as_user(12345, lambda: [one["session_id"] for one in daemon.request("GET", "/v1/sessions")[1]]) == [hers]
    assert as_user(12345, lambda: daemon.session("same"))["session_id"] == hers
    for method, path, body in (("GET", "", None), ("GET", "/environment", None), ("PATCH", "", {"memory_bytes": 1}),
                               ("DELETE", "", None)):
        answer = as_user(12345, lambda: daemon.request(method, f"/v1/sessions/{roots['session_id']}{path}", body))
        assert (answer[0], answer[1]["error"]["code"]) == (403, "ERR_FORBIDDEN")
        answer = as_user(54321, lambda: daemon.request(method, f"/v1/sessions/{hers[:11]}{path}", body))
        assert (answer[0], answer[1]["error"]["code"]) == (404, "ERR_SESSION_NOT_FOUND")  # a prefix tells nothing
    # Root sees all, and its own by a name that two have.
    assert len(daemon.request("GET", "/v1/sessions")[1]) == 2
    assert daemon.session("same")["session_id"] == roots["session_id"]
    # The overflow uid owns nothing.
    assert as_user(65534, lambda: daemon.request("POST", "/v1/sessions", {}))[1]["error"]["code"] == "ERR_FORBIDDEN"
    assert as_user(65534, lambda: daemon.request("GET", "/v1/sessions")) == [200, []]
    assert daemon.request("DELETE", f"/v1/sessions/{hers}")[0] == 204


def test_what_cannot_be_stored_is_not_made_and_others_are_served_meanwhile(daemon):
    create(daemon, name="before")
    blocker = sqlite3.connect(daemon.state / "simulated" / "state.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(daemon.request, "POST", "/v1/sessions", {"name": "stuck", "memory_bytes": GIB})
        while not waiting.done():
            assert daemon.request("GET", "/healthz")[0] == 200
            assert daemon.session("before")["name"] == "before"
        assert refusal(waiting.result()) == (500, "ERR_INTERNAL")
    blocker.execute("ROLLBACK")
    assert [one["name"] for one in daemon.request("GET", "/v1/sessions")[1]] == ["before"]
    create(daemon, name="stuck", memory_bytes=GIB)


@pytest.mark.skipif(os.getuid() != 0, reason="needs to act as other users")
def test_metrics_and_gpus_tell_nobody_of_others_sessions(daemon):
    """On control.sock: names, owners, use and processes are their owner's, and root's."""
    for path in (daemon.folder, daemon.runtime, daemon.runtime / "simulated"):
        path.chmod(0o755)
    daemon.control_socket.chmod(0o666)
    assert create(daemon, name="secret")["session_id"]
    as_user(12345, lambda: daemon.request("POST", "/v1/sessions", {"name": "own", "memory_bytes": MIB}))
    seen = as_user(12345, lambda: daemon.request("GET", "/metrics")[1])
    assert 'session="own"' in seen and "secret" not in seen
    everything = daemon.request("GET", "/metrics")[1]
    assert 'session="own"' in everything and 'session="secret"' in everything
