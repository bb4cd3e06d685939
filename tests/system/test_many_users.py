"""Several users on one machine: the system daemon, users' own daemons, and what each can do to another."""
import grp
import json
import os
import shutil
import socket
import subprocess

import pytest

from attach_client import Client, Refused, hello
from conftest import GIB, MIB, has_words, wait_for
from test_daemon_api import as_user
from test_quota import OK, OUT_OF_MEMORY, Puppet

ALICE, BOB = 12345, 54321
root_only = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be other users")


def become(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


@pytest.fixture
def shared(make_daemon, product):
    """A system daemon whose group both users are in, so to speak, in folders that they may enter."""
    daemon = make_daemon()
    daemon.folder.chmod(0o755)
    daemon.runtime.chmod(0o755)
    daemon.start("--system")
    daemon.control_socket.chmod(0o666)
    for folder in product.gpuslice.parents:  # the installed tree may lie where only root looks
        if folder != folder.parent and folder.stat().st_uid == 0 and not folder.stat().st_mode & 1:
            pytest.skip(f"{folder} is closed to other users")
    return daemon


def run_as(daemon, uid, *words):
    return subprocess.run([*become(uid), daemon.product.gpuslice, *map(str, words)], env=daemon.environment(),
                          capture_output=True, text=True, timeout=60)


def puppet_as(daemon, uid, name, reap, memory="64MiB"):
    puppet = Puppet(daemon.product, daemon.environment(),
                    [*become(uid), daemon.product.gpuslice, "run", "--name", name, "--memory", memory, "--"])
    reap(puppet.process)
    puppet.get("context", 0)
    return puppet


@root_only
def test_users_of_one_daemon_share_its_gpus_each_within_their_own_quota(shared, reap):
    alice, bob = (puppet_as(shared, uid, "train", reap) for uid in (ALICE, BOB))
    roots = puppet_as(shared, 0, "train", reap)
    for number, puppet in enumerate((alice, bob, roots), 1):
        puppet.get("alloc", number * 10 * MIB)
        assert puppet.code("alloc", 60 * MIB) == OUT_OF_MEMORY
    sessions = {one["owner_uid"]: one for one in json.loads(shared.cli("list", "--json").stdout)}
    assert {uid: one["used_bytes"] for uid, one in sessions.items()} == {
        ALICE: 10 * MIB, BOB: 20 * MIB, 0: 30 * MIB}
    card = json.loads(shared.cli("gpus", "--json").stdout)[0]
    assert card["used_bytes"] == 60 * MIB, "one card, not one for each user"
    assert all(process["session_id"] for process in card["processes"])
    assert [one["owner_uid"] for one in json.loads(run_as(shared, ALICE, "list", "--json").stdout)] == [ALICE]
    for words in (("show",), ("release", "--kill"), ("set", "--memory", "1MiB")):
        refused = run_as(shared, ALICE, words[0], sessions[BOB]["session_id"], *words[1:])
        assert refused.returncode == 1 and "another user" in refused.stderr
    assert bob.code("alloc", MIB) == OK


@root_only
def test_a_user_cannot_squat_on_the_system_daemons_gpus(make_daemon):
    daemon = make_daemon()
    path = f"/dev/shm/fakecuda-0-{daemon.gpu.name}"
    as_user(ALICE, lambda: open(path, "w").close())
    assert os.stat(path).st_uid == ALICE
    result = subprocess.run([daemon.product.gpusliced, "--simulated", "--system"], env=daemon.environment(),
                            capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and "Traceback" not in result.stderr


@root_only
def test_the_control_socket_is_the_groups(make_daemon):
    daemon = make_daemon().start("--system")
    status = daemon.control_socket.stat()
    try:
        group = grp.getgrnam("gpuslice").gr_gid
    except KeyError:
        group = 0
    assert (oct(status.st_mode & 0o777), status.st_uid, status.st_gid) == ("0o660", 0, group)


@root_only
def test_what_a_session_hands_on_to_another_user_is_worth_nothing_there(shared):
    """A tenant passes its connected socket, and its token, to another user, who tries to come in by them."""
    made = as_user(ALICE, lambda: shared.request("POST", "/v1/sessions", {"name": "hers"}))[1]
    token = made["environment"]["GPUSLICE_IPC_TOKEN"]
    ours, theirs = socket.socketpair()

    def hand_on():
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(str(shared.attach_socket))
        socket.send_fds(ours, [b"x"], [connection.fileno()])
        return ours.recv(1) == b"y"  # lives until it was used

    def come_in():
        fd = socket.recv_fds(theirs, 1, 1)[1][0]
        taken = socket.socket(fileno=fd)
        taken.settimeout(20)
        taken.send(hello(made["session_id"], token))
        data, control, _, _ = taken.recvmsg(4096, socket.CMSG_SPACE(64))
        theirs.send(b"y")
        return data[6], len(control)

    pid = os.fork()
    if pid == 0:
        os._exit(0 if as_user(ALICE, hand_on) else 1)
    answer = as_user(BOB, come_in)
    assert os.waitpid(pid, 0)[1] == 0
    # It is Alice's process that has the slot, and with her the bytes count: Bob has got no more than she gave him.
    assert answer[0] == 2
    assert as_user(BOB, lambda: shared.request("GET", f"/v1/sessions/{made['session_id']}"))[0] == 403
    # With the token alone he gets nothing.
    def with_token():
        try:
            Client(shared.attach_socket).attach(made["session_id"], token)
            return "in"
        except Refused as refused:
            return refused.reason
    assert as_user(BOB, with_token) == 2


@root_only
def test_a_tenant_that_fills_and_scribbles_its_ledger_harms_nobody_else(shared, reap):
    bob = puppet_as(shared, BOB, "good", reap)
    bob.get("alloc", 10 * MIB)
    made = as_user(ALICE, lambda: shared.request("POST", "/v1/sessions", {"name": "evil", "memory_bytes": 64 * MIB}))[1]

    def be_evil():
        client = Client(shared.attach_socket).attach(made["session_id"])
        client.usage[:] = b"\xff" * client.usage_bytes
        try:
            while True:
                Client(shared.attach_socket).attach(made["session_id"], map_it=False).close()
        except Refused as refused:
            reason = refused.reason
        os.ftruncate(client.fds[1], 0)
        return reason

    assert as_user(ALICE, be_evil) in (3, 6)  # full or broken
    wait_for(lambda: shared.request("GET", "/readyz")[0] == 200, "the daemon to be well")
    assert shared.session("good")["used_bytes"] == 10 * MIB
    bob.get("alloc", 10 * MIB)
    assert bob.code("alloc", 60 * MIB) == OUT_OF_MEMORY
    assert shared.session("good")["used_bytes"] == 20 * MIB


@root_only
def test_a_setuid_program_runs_as_it_would_without_us(shared, tmp_path):
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != folder.parent:
            folder.chmod(folder.stat().st_mode | 0o011)
    program = tmp_path / "setuid-cat"
    shutil.copy(shutil.which("cat"), program)
    program.chmod(0o4755)
    result = run_as(shared, ALICE, "run", "--name", "s", "--", program, "/proc/self/maps")
    assert result.returncode == 0 and "libc.so.6" in result.stdout and "libgpuslice" not in result.stdout
    assert result.stderr == ""
    plain = run_as(shared, ALICE, "run", "--name", "s", "--", "cat", "/proc/self/maps")
    assert "libgpuslice" in plain.stdout


@root_only
def test_a_fallback_in_tmp_that_is_a_link_or_anothers_is_refused(make_daemon):
    daemon = make_daemon()
    uid = 40000 + os.getpid() % 20000
    fallback = f"/tmp/gpuslice-{uid}"
    environment = {key: value for key, value in daemon.environment().items()
                   if key not in ("GPUSLICE_RUNTIME_DIR", "GPUSLICE_CONFIG_DIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")}
    environment["HOME"] = "/nonexistent"
    environment["GPUSLICE_STATE_DIR"] = f"/tmp/gpuslice-state-{uid}"

    def start():
        return subprocess.run([*become(uid), daemon.product.gpusliced, "--simulated"], env=environment,
                              capture_output=True, text=True, timeout=60)

    def plant_link():
        os.symlink("/tmp", fallback)

    def plant_folder():
        os.mkdir(fallback, 0o777)

    for plant, words in ((plant_link, "is not a folder"), (plant_folder, "belongs to user")):
        as_user(ALICE, plant)
        result = start()
        os.unlink(fallback) if os.path.islink(fallback) else os.rmdir(fallback)
        assert result.returncode == 1 and words in result.stderr and len(result.stderr.splitlines()) == 1


def test_two_daemons_on_one_gpu_leave_each_other_what_is_held(make_daemon, make_gpu, product, reap):
    gpu = make_gpu(FAKECUDA_TOTAL_MEM=GIB)
    first, second = make_daemon(gpu).start(), make_daemon(gpu).start()
    first.cli("create", "--name", "a", "--memory", "1GiB")
    puppet = Puppet(product, first.environment(), [product.gpuslice, "run", "--session", "a", "--"])
    reap(puppet.process)
    puppet.get("context", 0)
    memory = puppet.get("alloc", 768 * MIB)
    cards = json.loads(second.cli("gpus", "--json").stdout)
    assert (cards[0]["uncovered_bytes"], cards[0]["unreserved_bytes"]) == (768 * MIB, 256 * MIB)
    assert json.loads(first.cli("gpus", "--json").stdout)[0]["uncovered_bytes"] == 0
    assert "768MiB" in second.cli("gpus").stdout
    refused = second.cli("create", "--memory", "257MiB", check=False)
    assert refused.returncode == 1 and "processes in no session here hold 768MiB" in refused.stderr
    second.cli("create", "--name", "b", "--memory", "256MiB")
    waiting = reap(second.spawn("run", "--name", "c", "--memory", "512MiB", "--wait", "true"))
    wait_for(lambda: second.session("c").get("state") == "queued", "it to wait")
    assert puppet.code("free", memory) == OK
    assert waiting.wait(20) == 0, "it is admitted once the others let go"


def connect_as(uid, path, kind, count):
    """So many connections of a process of that user."""
    os.seteuid(uid)
    try:
        connections = [socket.socket(socket.AF_UNIX, kind) for _ in range(count)]
        for connection in connections:
            connection.connect(str(path))
        return connections
    finally:
        os.seteuid(0)


@root_only
def test_user_ids_that_were_lent_for_containers_are_one_user_more_and_ask_nothing(make_daemon, product, tmp_path):
    """As rootless containers have them, which may keep the group (newuidmap): each would be a user without a ceiling."""
    lent = tmp_path / "subuid"
    lent.write_text("alice:100000:65536\n")
    if not os.path.exists("/etc/subuid"):
        pytest.skip("there is no file to put the test's over")
    daemon = make_daemon()

    def spawn_daemon(*options):
        words = ("mount --bind \"$0\" /etc/subuid && exec \"$@\"", lent, product.gpusliced, "--simulated", *options)
        with open(daemon.log, "ab") as log:
            return subprocess.Popen(["unshare", "--mount", "sh", "-c", *map(str, words)], env=daemon.environment(),
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    daemon.spawn_daemon = spawn_daemon
    for folder in (daemon.folder, daemon.runtime):
        folder.chmod(0o755)
    daemon.start("--system")
    daemon.control_socket.chmod(0o666)

    def ask():
        return daemon.request("POST", "/v1/sessions", {"memory_bytes": MIB})
    status, answer = as_user(100005, ask)
    assert status == 403 and "is lent to alice" in answer["error"]["message"]
    assert as_user(99999, ask)[0] == as_user(165536, ask)[0] == 201

    def descriptors():
        return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
    before = descriptors()
    connections = [connection for uid in range(100000, 100010)
                   for connection in connect_as(uid, daemon.attach_socket, socket.SOCK_SEQPACKET, 60)]
    assert has_words(connections[0])  # its end: the first of them is closed
    wait_for(lambda: descriptors() - before <= 256, "no more than one user may have")
    assert Client(daemon.attach_socket).attach(as_user(99999, ask)[1]["session_id"], map_it=False)
    for connection in connections:
        connection.close()
