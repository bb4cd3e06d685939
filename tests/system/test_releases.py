"""What earlier releases left behind: their state files are read, their agents served, and no form of a message has changed."""
import json
import os
import select
import socket
import sqlite3
import struct

import pytest

import release
from attach_client import AGENT, BURST, CLOSED, HELLO, MAGIC, MOVED, REPORT, RETURNED
from conftest import MIB, wait_for

releases = pytest.mark.parametrize("folder", release.kept_releases(), ids=lambda folder: folder.name)


def test_the_first_release_is_kept():
    assert (release.RELEASES / "0.2.0" / "forms.txt").exists()


@releases
def test_no_form_of_a_message_or_of_the_ledger_changes(product, folder):
    now, _ = release.forms(product)
    then = release.read_forms((folder / "forms.txt").read_text())
    assert {what: now.get(what) for what in then} == then


@releases
def test_a_state_file_is_read_with_every_property(make_daemon, folder):
    daemon = make_daemon().start()
    uuid = daemon.request("GET", "/v1/gpus")[1][0]["uuid"]
    daemon.stop()
    release.state_file(daemon).unlink()
    with sqlite3.connect(release.state_file(daemon)) as state:
        state.executescript((folder / "state.sql").read_text())
        state.execute("UPDATE session_gpus SET uuid=?", (uuid,))
        state.execute("UPDATE sessions SET owner_uid=?", (os.getuid(),))
    state.close()
    expected = json.loads((folder / "sessions.json").read_text())
    for _ in range(2):  # and again from what today's daemon writes
        daemon.start()
        for name, then in expected.items():
            now = release.kept(daemon.session(name))
            assert {field: now.get(field) for field in then} == then
            assert daemon.session(name)["gpus"][0]["index"] == 0
            assert daemon.request("PATCH", f"/v1/sessions/{then['session_id']}", {"memory_bytes": then["vram_limit_bytes"]})[0] == 200
        daemon.stop()


class RecordedAgent:
    """Says what a release's library said, with this session's names and numbers in place of those."""

    def __init__(self, daemon, session, forms):
        self.daemon, self.session, self.forms = daemon, session, forms
        self.slot = self.generation = self.lease = self.order = 0
        self.connections = {}

    def listen(self, name, wanted, timeout_s=20):
        """Take up what has come until a message of this type, or, with None, all. Each has to be one that the release knows."""
        connection = self.connections[name]
        while select.select([connection], [], [], timeout_s if wanted else 0)[0]:
            data, fds, _, _ = socket.recv_fds(connection, 4096, 2)
            assert data, f"the daemon hung up: {self.daemon.log_text()[-500:]}"
            for fd in fds:
                os.close(fd)
            magic, version, kind = struct.unpack_from("<IHH", data)
            assert (magic, version) == (MAGIC, 1) and self.forms.get(f"message.{kind}") == len(data), (kind, len(data))
            self.note(release.TYPES[kind], data[8:])
            if release.TYPES[kind] == wanted:
                return
        assert not wanted, f"no {wanted} came"

    def note(self, name, body):
        if name == "WELCOME":
            self.slot, _, self.generation = struct.unpack_from("<IIQ", body)
        elif name == "GRANT":
            self.lease = struct.unpack_from("<Q", body)[0]
        elif name in ("EVICT", "RESTORE"):
            self.order = struct.unpack_from("<Q", body)[0]

    def say(self, name, data):
        message = bytearray(data)
        kind = message[6]
        if kind in (HELLO, AGENT):
            self.connections[name] = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.connections[name].connect(str(self.daemon.attach_socket))
            names = struct.pack("<16s72s", self.session["session_id"].encode(), self.session["environment"]["GPUSLICE_IPC_TOKEN"].encode())
            message[-len(names):] = names
        if kind == AGENT:
            struct.pack_into("<IQ", message, 12, self.slot, self.generation)
        if kind in (CLOSED, RETURNED, REPORT, BURST):
            struct.pack_into("<Q", message, 8, self.lease)
        if kind == MOVED and any(message[8:16]):
            struct.pack_into("<Q", message, 8, self.order)
        self.listen(name, None) if kind not in (HELLO, AGENT) else None
        self.connections[name].send(message)


@releases
def test_an_agent_is_served(daemon, folder):
    status, session = daemon.request("POST", "/v1/sessions", {"name": "s", "memory_bytes": 256 * MIB, "oversubscribe": "swap",
                                                              "compute": "0%..50%"})
    assert status == 201
    agent = RecordedAgent(daemon, session, release.read_forms((folder / "forms.txt").read_text()))
    orders, last_report = {"EVICT": "suspend", "RESTORE": "resume"}, None
    for line in (folder / "agent.txt").read_text().splitlines():
        name, way, kind, data = line.split()
        if way == ">":
            agent.say(name, bytes.fromhex(data))
        elif kind in orders:
            daemon.request("POST", f"/v1/sessions/s/{orders[kind]}")
            agent.listen(name, kind)
        elif kind in ("WELCOME", "CONTEXT_COST"):
            agent.listen(name, kind)
        last_report = data if kind == "REPORT" else last_report
    wait_for(lambda: daemon.session("s")["residency"] == "resident", "the memory to be back")
    assert [process["pid"] for process in daemon.session("s")["processes"]] == [os.getpid()]

    def is_charged():
        agent.say("agent", bytes.fromhex(last_report))
        return daemon.session("s")["gpus"][0]["gpu_seconds"] > 0
    wait_for(is_charged, "its work to be charged")
