"""The API over TCP: on this machine alone, for who has the token, and under no other name (docs/api.md)."""
import json
import os
import pathlib
import socket
import stat
import statistics
import subprocess
import time

import pytest

from attacks import attack, crowd_tcp
from conftest import MIB, read_answer, wait_for


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Tcp:
    def __init__(self, daemon, port):
        self.daemon, self.port = daemon, port

    @property
    def token_file(self):
        return pathlib.Path(self.daemon.runtime / "simulated" / "http-token")

    def ask(self, method, path, body=None, host="localhost", token=None):
        payload = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Connection: close", f"Content-Length: {len(payload)}"]
        lines += [f"Host: {host}"] if host is not None else []
        lines += [f"Authorization: {token}"] if token is not None else []
        with socket.create_connection(("127.0.0.1", self.port), 20) as connection:
            connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + payload)
            return read_answer(connection)

    def bearer(self):
        return "Bearer " + self.token_file.read_text().strip()


@pytest.fixture
def tcp(make_daemon, port):
    return Tcp(make_daemon(GPUSLICE_HTTP_ADDR=f"127.0.0.1:{port}").start(), port)


def refusal(answer):
    return answer[0], answer[1]["error"]["code"]


def test_a_client_with_the_token_is_the_daemons_user(tcp):
    status, made = tcp.ask("POST", "/v1/sessions", {"name": "far", "memory_bytes": MIB}, token=tcp.bearer())
    assert (status, made["owner_uid"]) == (201, os.geteuid())
    assert tcp.daemon.session("far")["session_id"] == made["session_id"]
    assert tcp.ask("GET", "/v1/sessions", token=tcp.bearer())[1][0]["name"] == "far"
    assert tcp.ask("DELETE", "/v1/sessions/far", token=tcp.bearer())[0] == 204


def test_a_client_over_tcp_cannot_wait_in_the_queue(make_daemon, port):
    """Where gpuslice.conf has sessions wait, what fits is made, and what does not is refused."""
    daemon = make_daemon(GPUSLICE_HTTP_ADDR=f"127.0.0.1:{port}")
    daemon.config.mkdir(parents=True)
    (daemon.config / "gpuslice.conf").write_text("[defaults]\nwhen-full = wait\n")
    tcp = Tcp(daemon.start(), port)
    total = daemon.request("GET", "/v1/gpus")[1][0]["total_bytes"]
    most, little = {"name": "most", "memory_bytes": total * 9 // 10}, {"memory_bytes": total // 5}
    assert tcp.ask("POST", "/v1/sessions", most, token=tcp.bearer())[0] == 201
    assert refusal(tcp.ask("POST", "/v1/sessions", little, token=tcp.bearer())) == (409, "ERR_ADMISSION")
    for more in ({"when_full": "wait"}, {"wait": True}, {"run": True}):
        assert refusal(tcp.ask("POST", "/v1/sessions", {**little, **more}, token=tcp.bearer())) == (400, "ERR_BAD_REQUEST")


def test_the_token_is_the_users_alone_and_new_with_each_daemon(tcp):
    first = tcp.token_file.read_text()
    assert len(first) == 65 and int(first, 16)
    status = tcp.token_file.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o600, os.geteuid())
    before = tcp.bearer()
    tcp.daemon.kill()
    tcp.daemon.start()
    assert tcp.token_file.read_text() != first
    assert refusal(tcp.ask("GET", "/v1/sessions", token=before)) == (401, "ERR_UNAUTHORIZED")
    assert tcp.ask("GET", "/v1/sessions", token=tcp.bearer()) == (200, [])


def test_a_link_in_the_tokens_place_is_not_followed(make_daemon, port):
    daemon = make_daemon(GPUSLICE_HTTP_ADDR=f"127.0.0.1:{port}")
    tcp = Tcp(daemon, port)
    tcp.token_file.parent.mkdir(mode=0o700)
    other = daemon.folder / "other"
    other.write_text("kept")
    tcp.token_file.symlink_to(other)
    pathlib.Path(f"{tcp.token_file}.new").symlink_to(other)
    daemon.start()
    assert other.read_text() == "kept" and not tcp.token_file.is_symlink()
    assert tcp.ask("GET", "/v1/sessions", token=tcp.bearer()) == (200, [])


def test_a_token_that_cannot_be_written_opens_no_port(daemon):
    token = daemon.control_socket.parent / "http-token"
    descriptors = pathlib.Path(f"/proc/{daemon.process.pid}/fd")
    token.mkdir()
    assert daemon.request("POST", "/v1/dashboard")[0] == 500
    before = len(os.listdir(descriptors))
    for _ in range(5):
        status, answer = daemon.request("POST", "/v1/dashboard")
        assert status == 500 and str(token) in answer["error"]["message"]
    wait_for(lambda: len(os.listdir(descriptors)) <= before, "the connections to be closed")
    token.rmdir()
    assert daemon.request("POST", "/v1/dashboard")[0] == 200


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/gpus", "/v1/version", "/v1/scheduler", "/v1/events", "/sessions"])
def test_without_the_right_token_nothing_is_told(tcp, path):
    right = tcp.bearer()
    for token in (None, "", "Bearer ", right[:-1], right + "0", right.upper().replace("BEARER", "Bearer"),
                  right.replace("Bearer", "Basic"), "Bearer " + "0" * 64):
        if token != right:
            assert refusal(tcp.ask("GET", path, token=token)) == (401, "ERR_UNAUTHORIZED")


def test_health_and_metrics_need_no_token(tcp):
    assert tcp.ask("GET", "/healthz") == (200, "ok\n")
    assert "gpuslice_sessions_active 0" in tcp.ask("GET", "/metrics")[1]


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "128.0.0.1", "", "[::2]",
                                  "localhost:80x", "localhost:", "127.0.0.1@evil.example", "x" * 3000])
def test_another_name_for_this_machine_is_refused(tcp, host):
    for path in ("/v1/sessions", "/metrics"):
        answer = tcp.ask("GET", path, host=host, token=tcp.bearer())
        assert refusal(answer) == (403, "ERR_FORBIDDEN")
        assert "expected localhost" in answer[1]["error"]["message"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.1.2.3:65535", "[::1]", "[::1]:8080"])
def test_this_machines_own_names_are_taken(tcp, host):
    assert tcp.ask("GET", "/v1/sessions", host=host, token=tcp.bearer()) == (200, [])


def test_a_request_without_a_host_is_refused(tcp):
    assert tcp.ask("GET", "/v1/sessions", host=None, token=tcp.bearer())[0] in (400, 403)


def test_a_process_that_tcp_does_not_show_cannot_be_followed(tcp):
    for body in ({"run": True}, {"wait": True, "memory_bytes": MIB}):
        assert refusal(tcp.ask("POST", "/v1/sessions", body, token=tcp.bearer())) == (400, "ERR_BAD_REQUEST")
    assert tcp.daemon.request("GET", "/v1/sessions") == (200, [])


def start_in_vain(daemon):
    """The one line that a daemon says which does not start."""
    result = subprocess.run([daemon.product.gpusliced, "--simulated"], env=daemon.environment(), capture_output=True,
                            text=True, timeout=60)
    assert (result.returncode, result.stdout) == (1, "")
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("gpusliced: "), result.stderr
    return lines[0]


@pytest.mark.parametrize("address, said", [
    ("0.0.0.0:0", "can be reached from other machines"),
    ("[::]:0", "can be reached from other machines"), ("nowhere", "is not an address"), ("127.0.0.1:99999", "is not an address"),
])
def test_an_address_that_others_reach_is_refused(make_daemon, address, said):
    line = start_in_vain(make_daemon(GPUSLICE_HTTP_ADDR=address))
    assert said in line and "GPUSLICE_HTTP_ADDR" in line


@pytest.mark.parametrize("variable", ["GPUSLICE_HTTP_ADDR", "GPUSLICE_METRICS_ADDR"])
def test_a_port_in_use_is_named(make_daemon, variable):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = start_in_vain(make_daemon(**{variable: address}))
        assert f"({variable}) {address}: Address already in use; expected an address of this machine" in line


@pytest.mark.parametrize("text", [b"", b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 10_000, b"GET /metrics HTTP/1.0\r\n\r\n"],
                         ids=["silent", "byte_by_byte", "whole"])
def test_a_crowd_on_tcp_keeps_nobody_out(tcp, text):
    """There is no room for so many: the oldest that asked nothing goes."""
    with attack(crowd_tcp, ("127.0.0.1", tcp.port), text) as rounds:
        rounds(3)
        took = []
        for _ in range(10):
            begin = time.monotonic()
            assert tcp.ask("GET", "/v1/sessions", token=tcp.bearer())[0] == 200
            took.append(time.monotonic() - begin)
        assert statistics.median(took) < 1, took
    assert tcp.daemon.request("GET", "/healthz")[0] == 200
