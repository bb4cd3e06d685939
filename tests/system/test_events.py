"""What has happened: /v1/events and `gpuslice events`."""
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import threading

import pytest

from attacks import attack
from attach_client import BY_LIMIT, DENIED, DRAINED, UNDRAINED, Child, Client, notice
from conftest import DEADLINE_S, GIB, MIB, wait_for
from test_daemon_api import as_user
from test_leases import Party
from test_quota import OUT_OF_MEMORY, Puppet
from test_trust import value_of


def create(daemon, **body):
    status, session = daemon.request("POST", "/v1/sessions", body)
    assert status == 201, session
    return session


def parse(text):
    """The events of a stream's text: each an id line and a data line."""
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if fields:
            events.append(json.loads(fields["data"]))
            assert fields["id"] == events[-1]["id"]
    return events


def kept(daemon, but=("daemon.held",), **headers):
    """All events, but for that which a busy machine may see."""
    status, text = daemon.request("GET", "/v1/events?follow=false", headers=headers)
    assert status == 200, text
    return [event for event in parse(text) if event["kind"] not in but]


def kinds(events, name=None):
    return [event["kind"] for event in events if name is None or event.get("name") == name]


class Listener:
    """A connection that follows."""

    def __init__(self, daemon, last_id=None):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(str(daemon.control_socket))
        last = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
        self.socket.sendall(f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n{last}\r\n".encode())
        self.text = ""

    def read_until(self, wanted):
        while wanted not in self.text:
            part = self.socket.recv(65536).decode()
            assert part, self.text
            self.text += part
        return self

    def ends(self):
        """Read to its end: whether the stream was ended in order."""
        while part := self.socket.recv(65536).decode():
            self.text += part
            if self.text.endswith("0\r\n\r\n"):
                return True
        return False

    def close(self):
        self.socket.close()


def test_the_life_of_a_session_is_told_in_order(daemon, product):
    create(daemon, name="train", memory_bytes=64 * MIB)
    assert daemon.request("PATCH", "/v1/sessions/train",
                          {"memory_bytes": 32 * MIB, "compute": "25%", "priority": "high"})[0] == 200
    child = Child(daemon.attach_socket, daemon.session("train")["session_id"], held_bytes=5 * MIB)
    child.kill()
    wait_for(lambda: "process.ended" in kinds(kept(daemon)), "the process's end to be told")
    session = daemon.session("train")
    assert daemon.request("DELETE", "/v1/sessions/train")[0] == 204
    events = kept(daemon)
    assert kinds(events) == ["daemon.started", "session.created", "session.changed", "process.attached",
                             "process.ended", "session.released", "session.ended"]
    numbers = [int(event["id"].split("-")[1]) for event in events]
    assert numbers == list(range(1, 8)) and len({event["id"].split("-")[0] for event in events}) == 1
    assert all(event["session_id"] == session["session_id"] and event["owner_uid"] == os.getuid()
               for event in events[1:])
    assert events[2]["message"] == "memory 64MiB to 32MiB on GPU 0, share 0%..100% to 25%, priority normal to high"
    assert (events[4]["pid"], events[4]["recovered_bytes"]) == (child.pid, 5 * MIB)
    # The same by the command line, as lines of JSON and for people.
    lines = daemon.cli("events", "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == events
    table = daemon.cli("events").stdout.splitlines()
    assert len(table) == 7 and table[4].split()[3:5] == ["process.ended", "train"]


@pytest.mark.parametrize("name, shown", [(b"\xff\xfe", "??"), ("é" * 8, "ééééééé"), (b"\x1b[2Jcleared", "?[2Jcleared")],
                         ids=["bytes", "cut", "terminal"])
def test_a_process_of_any_name_has_its_events(daemon, name, shown):
    session = create(daemon, name="named")["session_id"]
    ctypes.CDLL(None).prctl(15, name if isinstance(name, bytes) else name.encode())
    try:
        child = Child(daemon.attach_socket, session)
    finally:
        ctypes.CDLL(None).prctl(15, b"pytest")
    assert daemon.session("named")["processes"][0]["command"] == shown
    child.kill()
    wait_for(lambda: "process.ended" in kinds(kept(daemon)), "the process's end to be told")
    told = [event for event in kept(daemon) if event["kind"].startswith("process.")]
    assert [(event["kind"], event["pid"], event["command"]) for event in told] == [
        ("process.attached", child.pid, shown), ("process.ended", child.pid, shown)]


def test_expiry_and_the_queue_are_told(make_daemon, make_gpu, reap):
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=GIB)).start()
    daemon.cli("create", "--name", "brief", "--memory", "1GiB", "--ttl", "1s")
    waiting = reap(daemon.spawn("run", "--name", "next", "--memory", "1GiB", "--wait", "cat"))
    wait_for(lambda: "session.admitted" in kinds(kept(daemon)), "the next to be admitted")
    assert kinds(kept(daemon), "brief") == ["session.created", "session.expired", "session.ended"]
    waiting.stdin.close()
    wait_for(lambda: kinds(kept(daemon), "next") == ["session.queued", "session.admitted", "session.ended"],
             "the program's session to end")


def test_a_follower_is_told_at_once_and_a_last_id_resumes(daemon):
    first = create(daemon, name="first")
    listener = Listener(daemon).read_until("session.created")
    assert "daemon.started" in listener.text and first["session_id"] in listener.text
    create(daemon, name="second")
    listener.read_until("second")
    events = kept(daemon)
    assert kinds(kept(daemon, **{"Last-Event-ID": events[1]["id"]})) == ["session.created"]
    assert kept(daemon, **{"Last-Event-ID": events[-1]["id"]}) == []
    assert kept(daemon, **{"Last-Event-ID": "99999-1"}) == events, "an ID of another daemon says nothing"
    resumed = Listener(daemon, events[-1]["id"])
    create(daemon, name="third")
    resumed.read_until("third")
    assert "first" not in resumed.text
    # One that goes away disturbs nobody.
    resumed.close()
    create(daemon, name="fourth")
    listener.read_until("fourth")
    daemon.process.terminate()
    assert listener.ends()
    assert daemon.process.wait(DEADLINE_S) == 0, "listeners do not keep the daemon from ending"


@pytest.mark.parametrize("query, headers, expected", [
    ("?follow=perhaps", {}, "true or false"),
    ("", {"Last-Event-ID": "seven"}, "an event's id"),
    ("", {"Last-Event-ID": "1-2-3"}, "an event's id"),
])
def test_a_wrong_question_is_refused(daemon, query, headers, expected):
    status, answer = daemon.request("GET", f"/v1/events{query}", headers=headers)
    assert (status, answer["error"]["code"]) == (400, "ERR_BAD_REQUEST") and expected in answer["error"]["message"]


def test_follow_prints_as_it_comes_and_says_when_the_daemon_ends(daemon, reap):
    program = reap(daemon.spawn("events", "--follow", "--json"))
    assert json.loads(program.stdout.readline())["kind"] == "daemon.started"
    create(daemon, name="late")
    assert json.loads(program.stdout.readline())["name"] == "late"
    daemon.process.terminate()
    _, err = program.communicate(timeout=DEADLINE_S)
    assert (program.returncode, err) == (1, "gpuslice: the daemon has ended\n")


def test_refused_memory_is_told_with_how_often_and_not_more_often_than_every_ten_seconds(daemon, product, reap):
    daemon.cli("create", "--name", "tight", "--memory", "1MiB")
    puppet = Puppet(product, daemon.environment(), [product.gpuslice, "run", "--session", "tight", "--"])
    reap(puppet.process)
    puppet.get("context", 0)
    for _ in range(3):
        assert puppet.code("alloc", 2 * MIB) == OUT_OF_MEMORY
    wait_for(lambda: "memory.denied" in kinds(kept(daemon), "tight"), "the refusal to be told")
    for _ in range(50):
        assert puppet.code("alloc", 2 * MIB) == OUT_OF_MEMORY
    told = [event for event in kept(daemon) if event["kind"] == "memory.denied"]
    assert len(told) == 1 and 1 <= told[0]["denied_allocations"] <= 53
    refused = daemon.session("tight")["processes"][0]["denied_allocations"]
    assert refused == 53


def test_a_refusal_says_who_asked_for_how_much_and_what_was_in_the_way(daemon, product, reap):
    daemon.cli("create", "--name", "tight", "--memory", "64MiB")
    puppet = Puppet(product, daemon.environment(), [product.gpuslice, "run", "--session", "tight", "--"])
    reap(puppet.process)
    puppet.get("context", 0)
    puppet.get("alloc", 48 * MIB)
    assert puppet.code("alloc", 32 * MIB) == OUT_OF_MEMORY
    event = wait_for(lambda: next((event for event in kept(daemon) if event["kind"] == "memory.denied"), None), "the event")
    used = event["used_bytes"]
    assert used >= 48 * MIB
    assert {name: event[name] for name in ("pid", "cause", "asked_bytes", "limit_bytes", "denied_allocations", "uuid")} == {
        "pid": daemon.session("tight")["processes"][0]["pid"], "cause": "limit", "asked_bytes": 32 * MIB,
        "limit_bytes": 64 * MIB, "denied_allocations": 1, "uuid": daemon.session("tight")["gpus"][0]["uuid"]}
    assert re.fullmatch(rf"{event['command']} \({event['pid']}\) was refused 32MiB on GPU 0: "
                        r"the session uses \d+MiB of its limit 64MiB", event["message"]), event["message"]


def test_a_refusal_by_a_full_card_names_who_holds_it(make_gpu, make_daemon, product, reap):
    gpu = make_gpu(FAKECUDA_TOTAL_MEM=100 * MIB)
    daemon = make_daemon(gpu=gpu).start()
    outside = Puppet(product, gpu.environment())
    reap(outside.process)
    outside.get("context", 0)
    outside.get("alloc", 80 * MIB)
    daemon.cli("create", "--name", "lab", "--gpu", "0")
    puppet = Puppet(product, daemon.environment(), [product.gpuslice, "run", "--session", "lab", "--"])
    reap(puppet.process)
    puppet.get("context", 0)
    assert puppet.code("alloc", 64 * MIB) == OUT_OF_MEMORY
    event = wait_for(lambda: next((event for event in kept(daemon) if event["kind"] == "memory.denied"), None), "the event")
    assert (event["cause"], event["asked_bytes"]) == ("card", 64 * MIB)
    assert "the card is full (programs outside of sessions have " in event["message"], event["message"]


def test_what_a_program_was_refused_is_told_after_its_session_has_ended(daemon, product):
    done = daemon.cli("run", "--name", "brief", "--memory", "1MiB", product.program("target_app"),
                      env=daemon.environment(ALLOC_BYTES=2 * MIB, ITERATIONS=1))
    assert "out of memory" in done.stderr
    event = wait_for(lambda: next((event for event in kept(daemon) if event["kind"] == "memory.denied"), None), "the event")
    assert (event["name"], event["asked_bytes"], event["limit_bytes"]) == ("brief", 2 * MIB, MIB)
    assert "was refused 2MiB on GPU 0: the session uses 0B of its limit 1MiB" in event["message"]


def test_a_refusal_that_makes_no_sense_ends_the_connection(daemon):
    session = create(daemon, name="liar", memory_bytes=MIB)
    for wrong in ({"gpu": 1, "cause": BY_LIMIT}, {"gpu": 2**32 - 1, "cause": BY_LIMIT}, {"cause": 99}):
        client = Client(daemon.attach_socket).attach(session["session_id"])
        client.send(notice(DENIED, **wrong))
        assert client.is_hung_up(), wrong
        client.policy.close(), client.usage.close(), client.close()
    huge = Client(daemon.attach_socket).attach(session["session_id"])
    huge.send(notice(DENIED, cause=BY_LIMIT, asked=2**64 - 1, used=2**64 - 1, limit=2**64 - 1))
    huge.count_refused(1)
    event = wait_for(lambda: next((event for event in kept(daemon) if event["kind"] == "memory.denied"), None), "the event")
    assert [event[name] for name in ("asked_bytes", "used_bytes", "limit_bytes")] == [2**63 - 1] * 3
    huge.policy.close(), huge.usage.close(), huge.close()


def test_what_was_refused_under_an_earlier_daemon_is_not_told_or_counted_again(daemon, product, reap):
    daemon.cli("create", "--name", "tight", "--memory", "1MiB")
    puppet = Puppet(product, daemon.environment(), [product.gpuslice, "run", "--session", "tight", "--"])
    reap(puppet.process)
    puppet.get("context", 0)

    def told():
        assert daemon.request("GET", "/v1/gpus")[0] == 200  # which takes a sample
        return [event["denied_allocations"] for event in kept(daemon) if event["kind"] == "memory.denied"]

    def in_history():
        return sum(row["denied_allocations"] for row in daemon.request("GET", "/v1/usage")[1]["rows"])

    assert puppet.code("alloc", 2 * MIB) == OUT_OF_MEMORY
    wait_for(lambda: told() == [1], "the refusal to be told")
    for _ in range(2):
        assert puppet.code("alloc", 2 * MIB) == OUT_OF_MEMORY
    assert value_of(daemon, "gpuslice_denied_alloc_total") == 3
    wait_for(lambda: in_history() == 3, "the history to have them")
    daemon.stop()
    daemon.start()
    assert told() == [] and value_of(daemon, "gpuslice_denied_alloc_total") == 0
    assert puppet.code("alloc", 2 * MIB) == OUT_OF_MEMORY
    wait_for(lambda: told() == [1], "one more to be told")
    assert value_of(daemon, "gpuslice_denied_alloc_total") == 1
    puppet.process.kill()
    wait_for(lambda: not daemon.session("tight")["processes"], "it to be gone")
    assert told() == [1] and value_of(daemon, "gpuslice_denied_alloc_total") == 1
    wait_for(lambda: in_history() == 4, "the history to have one more")


def test_what_a_process_was_refused_before_it_ended_is_told_once(daemon):
    session = create(daemon, name="brief", memory_bytes=MIB)
    Child(daemon.attach_socket, session["session_id"], held_bytes=MIB, refused=3).kill()
    wait_for(lambda: "process.ended" in kinds(kept(daemon)), "the process's end to be told")
    assert [event["denied_allocations"] for event in kept(daemon) if event["kind"] == "memory.denied"] == [3]


def test_a_broken_ledger_is_told(daemon):
    session = create(daemon, name="hurt", memory_bytes=MIB)
    client = Client(daemon.attach_socket).attach(session["session_id"])
    os.ftruncate(client.fds[1], 4096)
    wait_for(lambda: "ledger.broken" in kinds(kept(daemon), "hurt"), "the broken ledger to be told")
    client.policy.close(), client.usage.close(), client.close()


def test_what_happened_while_no_daemon_ran_is_told_by_the_next(daemon):
    session = create(daemon, name="s")
    child = Child(daemon.attach_socket, session["session_id"], held_bytes=MIB)
    last = kept(daemon)[-1]["id"]
    daemon.kill()
    child.kill()
    daemon.start()
    events = kept(daemon, **{"Last-Event-ID": last})
    ended = next(event for event in events if event["kind"] == "process.ended")
    assert (ended["pid"], ended["recovered_bytes"]) == (child.pid, MIB)
    assert int(ended["id"].split("-")[0]) > int(last.split("-")[0])


def told(daemon, *options):
    return [json.loads(line) for line in daemon.cli("events", "--json", *options).stdout.splitlines()]


def test_events_outlive_the_daemon_and_say_how_it_ended(daemon):
    create(daemon, name="before")
    daemon.kill()
    daemon.start()
    assert kinds(told(daemon)) == ["daemon.started", "session.created", "daemon.died", "daemon.started"]
    assert kinds(kept(daemon)) == ["daemon.died", "daemon.started"], "without 'since', what this daemon has seen"
    daemon.stop()
    daemon.start()
    events = told(daemon)
    assert kinds(events)[4:] == ["daemon.stopped", "daemon.started"]
    assert told(daemon, "-n", "2") == events[-2:]
    assert kinds(told(daemon, "before")) == ["session.created"]
    created = events[1]["time"]
    assert told(daemon, "--since", "2020-01-31T14:30") == events and created.endswith("Z")


def test_events_say_who_asked(daemon):
    daemon.cli("create", "--name", "s", "--memory", "64MiB", "--oversubscribe")
    for words in (["set", "s", "--memory", "32MiB"], ["suspend", "s"], ["resume", "s"], ["release", "s"]):
        daemon.cli(*words)
    asked = {event["kind"]: event.get("by") for event in told(daemon)}
    for kind in ("session.created", "session.changed", "session.suspend_asked", "session.resume_asked", "session.released"):
        assert asked[kind]["uid"] == os.getuid() and asked[kind]["command"] == "gpuslice" and asked[kind]["pid"] > 0
    assert asked["session.ended"] is None and asked["daemon.started"] is None
    line = next(line for line in daemon.cli("events").stdout.splitlines() if "session.released" in line)
    assert re.search(r"released, by \S+ \(gpuslice, pid \d+\)$", line)


def test_events_beyond_the_daemons_memory_come_from_the_file(daemon):
    for _ in range(360):
        assert daemon.request("POST", "/v1/sessions", {"name": "brief"})[0] == 201
        assert daemon.request("DELETE", "/v1/sessions/brief")[0] == 204
    assert len(kept(daemon, but=())) == 1000
    numbers = [int(event["id"].split("-")[1]) for event in told(daemon)]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 1 + 3 * 360


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be other users")
def test_users_see_their_own_events_and_cannot_push_anothers_out(daemon):
    for path in (daemon.folder, daemon.runtime, daemon.runtime / "simulated"):
        path.chmod(0o755)
    daemon.control_socket.chmod(0o666)  # as for members of the system daemon's group
    quiet = as_user(12345, lambda: daemon.request("POST", "/v1/sessions", {"name": "quiet"}))
    assert quiet[0] == 201

    def make_noise():
        for _ in range(400):
            assert daemon.request("POST", "/v1/sessions", {"name": "noise"})[0] == 201
            assert daemon.request("DELETE", "/v1/sessions/noise")[0] == 204
        return True

    assert as_user(54321, make_noise)
    assert kinds(as_user(12345, lambda: kept(daemon))) == ["daemon.started", "session.created"]
    noisy = as_user(54321, lambda: kept(daemon))
    assert kinds(noisy)[0] == "daemon.started" and kinds(noisy)[-1] == "session.ended"
    others = [event for event in kept(daemon) if event not in noisy]
    assert len(kept(daemon, but=())) == 1000 and kinds(others) == ["session.created"] and others[0]["name"] == "quiet"


def test_one_user_cannot_listen_without_end(daemon):
    listeners = [Listener(daemon).read_until("daemon.started") for _ in range(32)]
    status, answer = daemon.request("GET", "/v1/events")
    assert (status, answer["error"]["code"]) == (429, "ERR_TOO_MANY")
    listeners.pop().close()
    # The one that went is seen to have gone when something is told.
    create(daemon)
    wait_for(lambda: daemon.request("GET", "/v1/events?follow=false")[0] == 200, "its place to be free")
    for listener in listeners:
        listener.close()


def test_a_listener_that_never_reads_holds_nobody_up(daemon):
    stuck = Listener(daemon)
    for _ in range(300):
        create(daemon, name="x" * 60)
        assert daemon.request("DELETE", f"/v1/sessions/{'x' * 60}")[0] == 204
    assert len(kept(daemon)) == 901
    stuck.read_until("daemon.started")
    stuck.close()


def test_a_change_of_the_configuration_and_a_mistake_in_it_are_told(make_daemon, tmp_path):
    daemon = make_daemon(GPUSLICE_CONFIG_DIR=tmp_path).start()
    folder = tmp_path / "simulated"
    folder.mkdir(exist_ok=True)
    for text, kind in (("[daemon]\nnonsense = 1\n", "config.refused"), ("[daemon]\n", "config.read")):
        (folder / "gpuslice.conf").write_text(text)
        daemon.process.send_signal(signal.SIGHUP)
        wait_for(lambda: kind in kinds(kept(daemon)), f"{kind} to be told")
    rejected = next(event for event in kept(daemon) if event["kind"] == "config.refused")
    assert "gpuslice.conf:2" in rejected["message"]


def idle_worker(daemon, reap, **variables):
    """A program in no session that has a context."""
    program = reap(subprocess.Popen([daemon.product.program("worker"), "100"], stdin=subprocess.PIPE, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=daemon.gpu.environment(**variables)))
    assert program.stdout.readline() == "ready\n"
    return program


def worker_with_fault(daemon, fault, reap):
    """A program in no session whose first kernel has the fault."""
    program = idle_worker(daemon, reap, FAKECUDA_FAULT=fault)
    program.stdin.write("60000\n")
    program.stdin.flush()
    return program


def test_a_driver_that_hangs_and_comes_back_is_told_to_everybody(make_daemon, make_gpu, reap):
    """NVML answers nobody while a program hangs the driver: the daemon goes on, says so, and says when it is over."""
    daemon = make_daemon(make_gpu(FAKECUDA_GPUS=2)).start()
    printed, kinds = reap(daemon.spawn("events", "--follow", "--json")), []
    reader = threading.Thread(target=lambda: kinds.extend(json.loads(line)["kind"] for line in printed.stdout))
    reader.start()
    hanging = worker_with_fault(daemon, "hang@1", reap)

    def told(kind):
        return [event for event in kept(daemon) if event["kind"] == kind]

    wait_for(lambda: len(told("gpu.unhealthy")) == 2, "the daemon to notice")
    assert [event["index"] for event in told("gpu.unhealthy")] == [0, 1]
    assert told("gpu.unhealthy")[0]["message"] == "GPU 0: NVML has not answered for a second"
    status, why = daemon.request("GET", "/readyz")
    assert (status, why) == (503, "GPU 0: NVML does not answer\n")
    assert create(daemon, name="meanwhile", memory_bytes=MIB)["state"] == "active", "the loop goes on"
    assert daemon.request("GET", "/v1/gpus")[1][0]["healthy"] is False
    assert told("gpu.healthy") == []
    hanging.kill()
    wait_for(lambda: len(told("gpu.healthy")) == 2, "the daemon to notice that it is over")
    assert daemon.request("GET", "/readyz")[0] == 200
    wait_for(lambda: kinds.count("gpu.healthy") == 2, "the events to be printed")
    printed.terminate()
    reader.join()
    assert [kind for kind in kinds if kind.startswith("gpu.")] == ["gpu.unhealthy"] * 2 + ["gpu.healthy"] * 2


def test_a_lost_gpu_is_told(make_daemon, reap):
    daemon = make_daemon().start()
    worker_with_fault(daemon, "lost@1", reap)
    wait_for(lambda: "gpu.unhealthy" in kinds(kept(daemon)), "the daemon to notice")
    assert next(e["message"] for e in kept(daemon) if e["kind"] == "gpu.unhealthy") == "GPU 0: NVML cannot tell the GPU's state"
    assert "GPU 0: NVML cannot tell the GPU's state" in daemon.cli("events").stdout
    assert daemon.request("GET", "/v1/gpus")[1][0]["busy_ratio"] is None


def test_a_daemon_starts_beside_a_lost_gpu(make_daemon, make_gpu, reap):
    daemon = make_daemon(make_gpu(FAKECUDA_GPUS=2)).start()
    for gpu in "01":
        daemon.cli("create", "--name", f"on{gpu}", "--gpu", gpu, "--memory", "1MiB")
    idle_worker(daemon, reap)  # while a process has the GPU, it stays lost
    worker_with_fault(daemon, "lost@1", reap)
    wait_for(lambda: "gpu.unhealthy" in kinds(kept(daemon)), "the daemon to notice")
    daemon.stop()
    daemon.start()
    assert [gpu["index"] for gpu in daemon.request("GET", "/v1/gpus")[1]] == [1]
    assert "NVML cannot name GPU 0: GPU is lost" in daemon.log_text()
    assert {daemon.session(f"on{gpu}")["state"] for gpu in "01"} == {"active"}
    refused = daemon.cli("create", "--gpu", "0", "--memory", "1MiB", check=False)
    assert refused.returncode == 1 and "0" in refused.stderr
    daemon.cli("create", "--gpu", "1", "--memory", "1MiB")


def test_a_holder_that_does_not_answer_is_told_to_its_owner(daemon):
    a, b = (Party(daemon, name, compute="50%..100%") for name in "ab")
    a.begin()
    a.granted()
    b.begin()
    a.revoked()
    b.granted()  # a never answered
    told = wait_for(lambda: [e for e in kept(daemon) if e["kind"] == "lease.overrun"], "it to be told")
    assert [event["name"] for event in told] == ["a"] and 0.1 < told[0]["seconds"] < 10
    assert "a process did not give the GPU back in time" in daemon.cli("events").stdout


def never_drain(say, daemon):
    """As a program whose kernel does not end."""
    party = Party(daemon, "endless", compute="50%..100%")
    lease, _ = party.begin().granted()
    say(1)
    while True:
        assert party.revoked() == lease
        party.agent.give_back(lease, busy_ns=10**9, outcome=UNDRAINED)
        lease, _ = party.granted()


@pytest.mark.parametrize("bound", ["", "stop-undrainable = 1s"], ids=["not asked for", "asked for"])
def test_programs_whose_work_does_not_drain_are_ended_where_that_is_asked_for(make_daemon, bound):
    daemon = make_daemon()
    daemon.config.mkdir(parents=True)
    (daemon.config / "gpuslice.conf").write_text(f"[scheduler]\n{bound}\n")
    daemon.start()
    with attack(never_drain, daemon, uid=os.getuid()):
        other = Party(daemon, "other", compute="50%..100%").begin()
        other.granted()
        wait_for(lambda: "lease.undrained" in kinds(kept(daemon), "endless"), "it to be told")
        if bound:
            wait_for(lambda: "session.ended" in kinds(kept(daemon), "endless"), "the session to end")
            (event,) = [event for event in kept(daemon) if event["kind"] == "session.ending"]
            assert event["message"].startswith("its work has not left the GPU for longer than stop-undrainable allows: its 1 process")
        else:
            wait_for(lambda: "lease.undrainable" in kinds(kept(daemon), "endless"), "it to be told again")
            assert "session.ending" not in kinds(kept(daemon)) and daemon.session("endless")["processes"]
    assert daemon.session("other")["processes"]


def test_work_that_does_not_drain_is_told_and_that_it_has(daemon):
    a, b = (Party(daemon, name, compute="50%..100%") for name in "ab")
    a.begin()
    lease, _ = a.granted()
    b.begin()

    def told():
        return [kind for kind in kinds(kept(daemon), "a") if kind.startswith("lease.")]

    for expected in (["lease.undrained"], ["lease.undrained"], ["lease.undrained", "lease.undrainable"]):
        assert a.revoked() == lease
        a.agent.give_back(lease, busy_ns=10**9, outcome=UNDRAINED)
        lease, _ = a.granted()
        wait_for(lambda: told() == expected, f"{expected} to be told")  # once in ten seconds
    assert daemon.session("a")["undrainable"] is True
    assert a.revoked() == lease  # tried again, ten seconds later
    a.agent.give_back(lease, outcome=DRAINED)
    wait_for(lambda: told()[-1] == "lease.drained", "it to be told")
    assert daemon.session("a")["undrainable"] is False
    assert kinds(kept(daemon), "b") == ["session.created", "process.attached"]
    printed = daemon.cli("events").stdout
    assert printed.index("its work does not drain") < printed.index("its work has drained again")
