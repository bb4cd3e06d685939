"""A session's own socket: the folder that a container is given, seen from other namespaces and by other users."""
import json
import os
import shutil
import socket
import stat
import subprocess

import pytest

from attach_client import BAD_TOKEN, CROWD, NOT_OWNER, REFUSED, WELCOME, Agent, Client, Refused, attach_at_once, hello
from conftest import MIB, wait_for
from test_daemon_api import as_user
from test_quota import OUT_OF_MEMORY, Puppet

root_only = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be other users")
SILENT_MAX = 64


def make(daemon, name="s", **more):
    status, made = daemon.request("POST", "/v1/sessions", {"name": name, "memory_bytes": 64 * MIB, "own_socket": True,
                                                           **more})
    assert status == 201, made
    return made


def folder_of(session):
    return os.path.dirname(session["own_socket"])


# --- Who comes by it is in that session --------------------------------------------------------------------

def test_the_socket_says_which_session(daemon):
    session, other = make(daemon), make(daemon, "other")
    assert session["own_socket"] == str(daemon.control_socket.parent / "s" / session["session_id"] / "attach.sock")
    clients = [Client(session["own_socket"]).attach(""),
               Client(session["own_socket"]).attach(session["session_id"], session["environment"]["GPUSLICE_IPC_TOKEN"])]
    assert [process["pid"] for process in daemon.session("s")["processes"]] == [os.getpid()] * len(clients)
    for wanted in (other["session_id"], "000000000000", "nonsense"):
        with pytest.raises(Refused) as refused:
            Client(session["own_socket"]).attach(wanted)
        assert refused.value.reason == NOT_OWNER
    with pytest.raises(Refused) as refused:
        Client(session["own_socket"]).attach("", other["environment"]["GPUSLICE_IPC_TOKEN"])
    assert refused.value.reason == BAD_TOKEN
    assert daemon.session("other")["processes"] == []


def test_a_program_without_the_sessions_id_calls_it_own(daemon):
    token = "0123456789abcdef" * 4
    session = make(daemon, token=token, compute="50%")
    assert session["environment"]["GPUSLICE_IPC_TOKEN"] == token
    client = Client(session["own_socket"]).attach("own", token)
    Agent(session["own_socket"], client, "own", token).socket.recv(100)
    with pytest.raises(Refused):
        Client(daemon.attach_socket).attach("own", token)


@pytest.mark.parametrize("token", ["", "0" * 63, "0" * 65, "G" * 64, "A" * 64, 7, None])
def test_an_invalid_token_is_refused(daemon, token):
    status, answer = daemon.request("POST", "/v1/sessions", {"token": token})
    assert status == 400 and "64 hexadecimal digits" in answer["error"]["message"]
    assert daemon.request("GET", "/v1/sessions")[1] == []


def test_a_session_of_the_callers_parent_ends_with_that_one(daemon, product, tmp_path):
    """A hook asks for it as a child of the container's first process."""
    asks = (f"curl -s --unix-socket {daemon.control_socket} -d '{{\"name\": \"s\", \"run\": \"parent\"}}' "
            "-H 'Content-Type: application/json' http://localhost/v1/sessions >/dev/null; echo asked; read line")
    parent = subprocess.Popen(["sh", "-c", asks], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "asked\n"
    assert daemon.session("s")["state"] == "active"
    daemon.kill()
    daemon.start()
    assert daemon.session("s")["state"] == "active"
    parent.communicate("\n", timeout=20)
    wait_for(lambda: daemon.request("GET", "/v1/sessions")[1] == [], "the session to end with the parent")


def test_agents_come_by_it_too(daemon):
    session = make(daemon, compute="50%")
    client = Client(session["own_socket"]).attach("")
    agent = Agent(session["own_socket"], client, "")
    agent.socket.recv(100)
    wait_for(lambda: daemon.session("s")["lease"] != "free", "the agent to be known")


def test_a_session_without_one_gets_one_when_it_is_asked_for(daemon):
    assert daemon.request("POST", "/v1/sessions", {"name": "s"})[1]["own_socket"] is None
    status, given = daemon.request("POST", "/v1/sessions/s/socket")
    assert status == 200 and stat.S_ISSOCK(os.stat(given["own_socket"]).st_mode)
    assert daemon.request("POST", "/v1/sessions/s/socket") == (200, given)
    Client(given["own_socket"]).attach("")
    assert daemon.request("PATCH", "/v1/sessions/s", {"own_socket": False})[0] == 400
    assert daemon.request("POST", "/v1/sessions/none/socket")[0] == 404


def test_the_folder_ends_with_the_session(daemon):
    session = make(daemon)
    assert daemon.request("DELETE", "/v1/sessions/s")[0] == 204
    assert not os.path.exists(folder_of(session))
    assert os.listdir(os.path.dirname(folder_of(session))) == []


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_program_that_holds_the_folder_finds_the_next_daemon_in_it(daemon, end):
    session = make(daemon)
    before = os.stat(folder_of(session)).st_ino
    getattr(daemon, end)()
    assert not os.path.exists(session["own_socket"]) or end == "kill"
    daemon.start()
    assert os.stat(folder_of(session)).st_ino == before
    assert daemon.session("s")["own_socket"] == session["own_socket"]
    Client(session["own_socket"]).attach("")


def test_a_folder_that_no_session_has_is_removed_at_the_start(daemon):
    session = make(daemon)
    daemon.stop()
    stray = os.path.join(os.path.dirname(folder_of(session)), "0123456789ab")
    os.mkdir(stray)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(os.path.join(stray, "attach.sock"))
    daemon.start()
    assert os.listdir(os.path.dirname(stray)) == [session["session_id"]]


@pytest.fixture
def far_daemon(make_daemon):
    """Its runtime folder has as long a path as it may have: there is none left for a session's own socket."""
    daemon = make_daemon()
    room = 107 - len("/simulated/control.sock") - len(str(daemon.runtime)) - 1
    daemon.use_runtime(daemon.runtime / ("x" * room))
    daemon.runtime.mkdir(mode=0o700)
    return daemon.start()


def test_a_path_that_no_socket_can_have_is_refused_with_its_length(far_daemon):
    daemon = far_daemon
    status, answer = daemon.request("POST", "/v1/sessions", {"own_socket": True})
    assert status == 500 and "107" in answer["error"]["message"], answer
    assert daemon.request("GET", "/v1/sessions")[1] == []


def test_a_change_that_is_refused_has_changed_nothing(far_daemon):
    daemon = far_daemon
    before = daemon.request("POST", "/v1/sessions", {"name": "s", "ttl_seconds": 3600})[1]
    status, answer = daemon.request("PATCH", "/v1/sessions/s", {"ttl_seconds": 60, "own_socket": True})
    assert status == 500 and "expected at most 107" in answer["error"]["message"]
    after = daemon.session("s")
    assert (after["expires_at"], after["own_socket"]) == (before["expires_at"], None)


def test_silent_connections_of_a_container_keep_nobody_out(daemon):
    session = make(daemon)
    silent = [Client(session["own_socket"]) for _ in range(SILENT_MAX)]
    Client(daemon.attach_socket).attach(session["session_id"], session["environment"]["GPUSLICE_IPC_TOKEN"])
    assert answers(session["own_socket"])
    assert silent[0].is_hung_up()
    silent[1].send(hello(session["session_id"]))
    assert silent[1].receive()[0] == WELCOME


def test_all_are_let_in_that_come_to_a_container_faster_than_they_are_heard(daemon):
    session = make(daemon)
    assert attach_at_once(daemon, session["own_socket"], "", CROWD) == [WELCOME] * CROWD


def test_silent_connections_that_are_older_than_the_socket_keep_nobody_out_of_it(daemon):
    session = make(daemon)
    silent = [Client(session["own_socket"]) for _ in range(2)]
    Client(session["own_socket"]).attach("").close()  # those before are known to the daemon
    shutil.rmtree(daemon.runtime)
    wait_for(lambda: answers(session["own_socket"]), "the socket to be back")
    for client in silent:
        client.send(hello(session["session_id"], "nonsense"))
        assert client.receive()[0] == REFUSED and client.is_hung_up()
    assert answers(session["own_socket"])


def test_a_socket_that_could_not_be_made_comes_with_a_new_runtime_folder(daemon):
    session = make(daemon)
    daemon.stop()
    folders = daemon.control_socket.parent / "s"
    shutil.rmtree(folders)
    folders.write_text("not a folder")
    daemon.start()
    assert daemon.session("s")["own_socket"] is None
    shutil.rmtree(daemon.runtime)
    wait_for(lambda: answers(session["own_socket"]), "the socket to be back")


def answers(path):
    try:
        Client(path).attach("")
        return True
    except (Refused, AssertionError, OSError):
        return False


# --- Other users and other namespaces ----------------------------------------------------------------------

def open_to_others(daemon):
    daemon.folder.chmod(0o755)
    daemon.runtime.chmod(0o755)


@root_only
def test_another_user_needs_the_token_and_nobody_lists_the_folders(make_daemon, product, reap):
    daemon = make_daemon()
    open_to_others(daemon)
    daemon.start("--system")
    session = make(daemon)
    for folder in (folder_of(session), os.path.dirname(folder_of(session))):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o711
    with_token = daemon.gpu.environment(LD_PRELOAD=product.interceptor, FAKECUDA_OWNER=0,
                                        GPUSLICE_IPC_SOCK=session["own_socket"],
                                        GPUSLICE_SESSION=session["session_id"],
                                        GPUSLICE_IPC_TOKEN=session["environment"]["GPUSLICE_IPC_TOKEN"])
    for uid in (1000, 65534):  # in a container, both may be anybody
        other = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        puppet = Puppet(product, with_token, other)
        reap(puppet.process)
        puppet.get("context", 0)
        puppet.get("alloc", 40 * MIB)
        assert puppet.code("alloc", 40 * MIB) == OUT_OF_MEMORY
        assert daemon.session("s")["used_bytes"] == 40 * MIB
        puppet.process.kill()
        puppet.process.wait()
        wait_for(lambda: daemon.session("s")["used_bytes"] == 0, "its memory to be back")
        without = Puppet(product, {k: v for k, v in with_token.items() if k != "GPUSLICE_IPC_TOKEN"}, other)
        reap(without.process)
        assert without.do("context", 0)[0] == OUT_OF_MEMORY
        without.process.stdin.close()
        assert "GPUSLICE_IPC_TOKEN is not the token" in without.process.stderr.read().decode()


def can_unshare(*options):
    return subprocess.run(["unshare", *options, "true"], capture_output=True).returncode == 0


NAMESPACES = [
    pytest.param(["--pid", "--fork", "--mount-proc", "--kill-child"], id="pid"),
    pytest.param(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"], id="user-and-pid"),
]


@pytest.mark.parametrize("options", NAMESPACES)
def test_a_process_in_other_namespaces_is_known_by_the_hosts_pid(daemon, product, reap, options):
    if not can_unshare(*options):
        pytest.skip(f"unshare {' '.join(options)} is not allowed here")
    session = make(daemon)
    environment = daemon.gpu.environment(LD_PRELOAD=product.interceptor, GPUSLICE_IPC_SOCK=session["own_socket"],
                                         GPUSLICE_SESSION=session["session_id"],
                                         FAKECUDA_OWNER=os.getuid(), FAKECUDA_FOLDER="/dev/shm",
                                         GPUSLICE_IPC_TOKEN=session["environment"]["GPUSLICE_IPC_TOKEN"])
    puppet = Puppet(product, environment, ["unshare", *options])
    reap(puppet.process)
    puppet.get("context", 0)
    puppet.get("alloc", 40 * MIB)
    assert puppet.code("alloc", 40 * MIB) == OUT_OF_MEMORY
    (process,) = daemon.session("s")["processes"]
    inside = open(f"/proc/{process['pid']}/status").read()
    assert "\nNSpid:\t%d\t1\n" % process["pid"] in inside
    assert os.readlink(f"/proc/{process['pid']}/exe") == str(product.program("puppet"))

    def seen_by_nvml():
        (gpu,) = daemon.request("GET", "/v1/gpus")[1]
        return [(one["pid"], one["session_id"]) for one in gpu["processes"]] == [
            (process["pid"], session["session_id"])]
    wait_for(seen_by_nvml, "NVML to name the process as the host does")
    assert daemon.request("GET", "/v1/gpus")[1][0]["uncovered_bytes"] == 0
    os.kill(process["pid"], 9)
    wait_for(lambda: daemon.session("s")["used_bytes"] == 0, "its memory to be back")


# --- Labels ------------------------------------------------------------------------------------------------

LABELS = {"namespace": "team-a", "pod": "notebook-0." + "x" * 242, "container": "main"}


def test_a_pods_name_is_shown_everywhere_and_survives_a_restart(daemon, product):
    session = make(daemon, **LABELS)
    make(daemon, "plain")
    daemon.kill()
    daemon.start()
    shown = daemon.session("s")
    assert {key: shown[key] for key in LABELS} == LABELS
    assert [daemon.session("plain")[key] for key in LABELS] == [None] * 3
    _, metrics = daemon.request("GET", "/metrics")
    lines = [line for line in metrics.splitlines() if line.startswith("gpuslice_session_limit_bytes{")]
    labels = "".join(f',{key}="{value}"' for key, value in LABELS.items())
    assert sum(labels in line for line in lines) == 1 and len(lines) == 2
    Client(session["own_socket"]).attach("")
    events = [json.loads(line) for line in daemon.cli("events", "--json").stdout.splitlines()]
    (attached,) = [event for event in events if event["kind"] == "process.attached"]
    assert {key: attached[key] for key in LABELS} == LABELS


def test_labels_are_changed_one_by_one_and_checked(daemon):
    make(daemon, **LABELS)
    status, changed = daemon.request("PATCH", "/v1/sessions/s", {"container": "second"})
    assert status == 200 and {key: changed[key] for key in LABELS} == {**LABELS, "container": "second"}
    for wrong in ({"pod": ""}, {"pod": "x" * 254}, {"namespace": "a\"b"}, {"container": 7}, {"namespace": "x" * 64}):
        status, answer = daemon.request("PATCH", "/v1/sessions/s", wrong)
        assert status == 400 and f"'{next(iter(wrong))}' is wrong" in answer["error"]["message"], answer


# --- Sessions that root makes for others -------------------------------------------------------------------

@root_only
def test_root_makes_sessions_of_other_users_and_nobody_else_does(make_daemon):
    daemon = make_daemon()
    open_to_others(daemon)
    daemon.start("--system")
    daemon.control_socket.chmod(0o666)
    status, made = daemon.request("POST", "/v1/sessions", {"name": "theirs", "owner_uid": 12345})
    assert status == 201 and made["owner_uid"] == 12345

    def ask(*request):
        return as_user(12345, lambda: daemon.request(*request))

    assert ask("GET", "/v1/sessions/theirs")[0] == 200
    assert ask("POST", "/v1/sessions", {"owner_uid": 12345})[0] == 201
    for other in (0, 54321):
        status, answer = ask("POST", "/v1/sessions", {"owner_uid": other})
        assert status == 403 and "only root" in answer["error"]["message"]
    for wrong in (-1, 2**32, "alice", 65534):
        assert daemon.request("POST", "/v1/sessions", {"owner_uid": wrong})[0] in (400, 403)


def test_list_has_a_column_of_pods_where_there_are_any(daemon):
    make(daemon, "plain")
    assert "POD" not in daemon.cli("list").stdout.splitlines()[0]
    make(daemon, namespace="team-a", pod="train-0")
    listed = daemon.cli("list").stdout
    assert "POD" in listed.splitlines()[0] and "team-a/train-0" in listed
