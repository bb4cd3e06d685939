"""What tests/releases keeps of a release: how it is made, and what it is compared with.

forms.txt      the form of each message and of the ledger, as tests/releases/forms.c prints it
state.sql      a state file, as SQL
sessions.json  what the release's daemon answered of the sessions in it
agent.txt      what a program and the daemon sent each other, a message a line: which of the program's connections, > or < for
               what it sent or received, the message's name, and its bytes
"""
import json
import pathlib
import re
import sqlite3
import subprocess

from conftest import MIB, SOURCE, wait_for
from moved import resume, suspend
from test_moves import Movable
from test_quota import in_session

RELEASES = SOURCE / "tests/releases"
# Every property of a session, in sessions that can have them together.
SESSIONS = [
    {"name": "plain", "memory_bytes": 64 * MIB},
    {"name": "shared", "memory_bytes": 64 * MIB, "compute": "20%..60%", "priority": "high", "ttl_seconds": 2147483647,
     "ttl_action": "kill", "own_socket": True, "when_full": "refuse", "label": "team=vision,job=4711"},
    {"name": "moves", "memory_bytes": 128 * MIB, "oversubscribe": "swap", "host_memory_bytes": 256 * MIB, "idle_suspend_seconds": 3600,
     "namespace": "lab", "pod": "train-0", "container": "main"},
    {"name": "paged", "memory_bytes": 128 * MIB, "oversubscribe": "managed", "single_oversubscribe": True, "managed": True},
    {"name": "suspended", "memory_bytes": 64 * MIB, "oversubscribe": "swap"},
]
FIELDS = ("session_id", "name", "state", "created_at", "declared", "managed", "vram_limit_bytes", "compute_min_ratio", "compute_max_ratio",
          "priority", "ttl_action", "when_full", "oversubscribe", "single_oversubscribe", "host_memory_limit_bytes",
          "idle_suspend_seconds", "suspended_by", "namespace", "pod", "container", "label")
TYPES = {int(number): name for name, number in re.findall(r"\bWIRE_(\w+) = (\d+),", re.search(
    r"enum wire_type \{(.*?)\};", (SOURCE / "src/wire/wire.h").read_text(), re.S)[1])}


def forms(product):
    """{what: number}"""
    text = subprocess.check_output([product.build / "tests/releases/forms"], text=True)
    return read_forms(text), text


def read_forms(text):
    return {what: int(number) for what, number in (line.split() for line in text.splitlines())}


def state_file(daemon):
    return daemon.state / "simulated" / "state.db"


def make_sessions(daemon):
    """Returns what is kept of each."""
    for body in SESSIONS:
        status, session = daemon.request("POST", "/v1/sessions", body)
        assert status == 201, session
    daemon.cli("suspend", "suspended")
    return {body["name"]: kept(daemon.session(body["name"])) for body in SESSIONS}


def kept(session):
    """What holds at any moment, on any machine, in any folder."""
    return {**{field: session[field] for field in FIELDS}, "expires": session["expires_at"] is not None,
            "has_own_socket": session["own_socket"] is not None}


def dump(daemon):
    """The state file of a daemon that has ended, as SQL that can be read."""
    with sqlite3.connect(state_file(daemon)) as state:
        layout = state.execute("PRAGMA user_version").fetchone()[0]
        text = "\n".join(state.iterdump())
    state.close()
    return f"PRAGMA user_version={layout};\n{text}\n"


def converse(daemon, reap, folder):
    """A program attaches, works, leaves the card and comes back. Returns the lines of agent.txt."""
    product, tap = daemon.product, folder / "tap"
    tap.touch()
    status, session = daemon.request("POST", "/v1/sessions", {"name": "talks", "memory_bytes": 256 * MIB, "oversubscribe": "swap",
                                                              "compute": "0%..50%"})
    assert status == 201, session
    environment = {**in_session(daemon, session), "TAP_FILE": str(tap),
                   "LD_PRELOAD": f"{product.build / 'tests/releases/wire_tap.so'}:{product.interceptor}"}
    movable = Movable(reap(subprocess.Popen([product.program("movable"), "4", str(8 * MIB)], env=environment, text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)))
    assert movable.ask("fill 1") == "filled"
    assert movable.ask("work 300").startswith("worked")
    suspend(daemon, "talks")
    resume(daemon, "talks")
    assert movable.ask("check") == "good"
    movable.end()
    wait_for(lambda: not daemon.session("talks")["processes"], "the program to have ended")
    return name_messages(tap.read_text().splitlines())


def name_messages(lines):
    """Descriptors become names of connections, by what is sent there first."""
    connections, named = {}, []
    for line in lines:
        fd, way, data = line.split()
        name = TYPES[bytes.fromhex(data)[6] | bytes.fromhex(data)[7] << 8]
        if name in ("HELLO", "AGENT"):
            connections[fd] = name.lower()
        named.append(f"{connections[fd]} {way} {name} {data}")
    return named


def write(folder, product, sessions, state, conversation):
    folder.mkdir(exist_ok=True)
    (folder / "forms.txt").write_text(forms(product)[1])
    (folder / "sessions.json").write_text(json.dumps(sessions, indent=2, sort_keys=True) + "\n")
    (folder / "state.sql").write_text(state)
    (folder / "agent.txt").write_text("\n".join(conversation) + "\n")


def kept_releases():
    return sorted(path.parent for path in pathlib.Path(RELEASES).glob("*/forms.txt"))
