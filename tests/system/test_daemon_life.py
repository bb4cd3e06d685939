"""A daemon's own life: start, end, restart without loss, on demand."""
import fcntl
import http.client
import json
import os
import shutil
import pathlib
import signal
import socket
import sqlite3
import subprocess
import time

import pytest

from attach_client import GRANT, NO_SESSION, Agent, Child, Client, Refused
from conftest import DEADLINE_S, GIB, MIB, wait_for
from waiting import state_of


def create(daemon, **body):
    status, session = daemon.request("POST", "/v1/sessions", body)
    assert status == 201, session
    return session


def daemon_expired(daemon, session):
    """Whether the session's time is over, by the state file."""
    state = sqlite3.connect(f"file:{daemon.state / 'simulated' / 'state.db'}?mode=ro", uri=True)
    (expires_at_ms,), = state.execute("SELECT expires_at_ms FROM sessions WHERE id=?", (session,))
    state.close()
    return time.time() * 1000 > expires_at_ms


def lock_holder(daemon):
    """The pid of the daemon that holds the folder, or None."""
    lock = daemon.runtime / "simulated" / "lock"
    try:
        with open(lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            except BlockingIOError:
                return int(file.read() or 0) or None
    except FileNotFoundError:
        return None


@pytest.fixture
def on_demand(make_daemon, product):
    """A daemon that goes to the background; ended when the test ends."""
    daemon = make_daemon()
    # The daemon's log is in its state folder.
    daemon.log = daemon.state / "simulated" / "gpusliced.log"

    def start(*options, **more):
        more = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 60, **more}
        return subprocess.run([product.gpusliced, "--on-demand", "--simulated", *options], env=daemon.environment(),
                              **more)

    daemon.start = start
    yield daemon
    pid = lock_holder(daemon)
    if pid:
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: lock_holder(daemon) is None, "the daemon's end")


def test_a_driver_that_needs_seconds_for_its_first_answer_is_waited_for(make_daemon, make_gpu):
    """As where nobody has used the cards so far. Later a second without an answer is a fault, which ends no daemon either."""
    daemon = make_daemon(make_gpu(FAKECUDA_NVML_LIST_NS=1_300_000_000)).start()
    assert daemon.request("GET", "/v1/gpus")[1][0]["total_bytes"] > 0


def sleeps_with(pid, path):
    """Whether the process has the file open, and sleeps."""
    return str(path) in [os.readlink(fd) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir()] and state_of(pid) == "S"


def test_a_lock_that_a_killed_daemon_left_to_its_child_is_waited_for(daemon):
    """A program that it was about to execute has its descriptors until then."""
    daemon.kill()
    lock = daemon.runtime / "simulated" / "lock"
    with open(lock) as left:
        fcntl.flock(left, fcntl.LOCK_EX)
        daemon.process = daemon.spawn_daemon()
        wait_for(lambda: daemon.process.poll() is not None or sleeps_with(daemon.process.pid, lock), "it to wait")
    wait_for(lambda: daemon.process.poll() is not None or daemon.control_socket.exists(), "its sockets")
    assert daemon.process.poll() is None, daemon.log_text()


def test_sessions_outlive_a_killed_daemon(daemon):
    kept = create(daemon, name="kept", memory_bytes=3 * MIB)
    environment = kept.pop("environment")
    create(daemon, name="gone")
    assert daemon.request("DELETE", "/v1/sessions/gone")[0] == 204
    daemon.request("PATCH", "/v1/sessions/kept", {"memory_bytes": 5 * MIB})
    changed = daemon.session("kept")
    daemon.kill()
    daemon.start()
    assert daemon.request("GET", "/v1/sessions") == (200, [changed])
    assert daemon.request("GET", "/v1/sessions/kept/environment") == (200, environment)
    assert daemon.request("GET", "/v1/gpus")[1][0]["reserved_bytes"] == 5 * MIB


def test_processes_and_bytes_are_found_again_exactly(daemon):
    session = create(daemon, name="s")["session_id"]
    children = [Child(daemon.attach_socket, session, held_bytes=(i + 1) * 1000) for i in range(5)]
    before = daemon.session("s")
    assert before["used_bytes"] == 15000
    state = daemon.state / "simulated" / "state.db"
    wait_for(lambda: sqlite3.connect(f"file:{state}?mode=ro", uri=True).execute(
        "SELECT count(*) FROM processes").fetchone() == (5,), "all five to be in the state file")
    daemon.kill()
    children[1].kill()
    daemon.start()
    after = daemon.session("s")
    assert after["used_bytes"] == 13000
    assert after["processes"] == [process for process in before["processes"] if process["pid"] != children[1].pid]
    children[0].kill()
    wait_for(lambda: daemon.session("s")["used_bytes"] == 12000, "a death after the restart")
    # A new one takes a free slot; nobody else's moves.
    children.append(Child(daemon.attach_socket, session, held_bytes=7))
    assert daemon.session("s")["used_bytes"] == 12007
    for child in children:
        if not child.reaped:
            child.kill()
    wait_for(lambda: daemon.session("s")["used_bytes"] == 0, "all deaths")


def test_a_client_that_comes_back_keeps_its_slot_under_a_new_epoch(daemon):
    session = create(daemon, name="s", memory_bytes=9 * MIB)["session_id"]
    client = Client(daemon.attach_socket).attach(session)
    client.hold(4321)
    slot, generation, epoch = client.slot, client.generation, client.epoch
    daemon.kill()
    assert client.is_hung_up()
    daemon.start()
    assert int.from_bytes(client.usage[16:24], "little") > epoch
    usage = client.usage  # stays mapped, as in a program that goes on
    client.close()
    again = Client(daemon.attach_socket).attach(session, slot=slot, generation=generation)
    assert (again.slot, again.generation) == (slot, generation) and again.epoch > epoch
    assert again.limit() == 9 * MIB
    shown = daemon.session("s")
    assert shown["used_bytes"] == 4321 and len(shown["processes"]) == 1
    # Another's slot is not handed out by naming it.
    child = Child(daemon.attach_socket, session)
    stranger = Client(daemon.attach_socket).attach(session, slot=1, generation=generation)
    assert stranger.slot == 2
    child.kill()
    usage.close()


def test_a_process_of_a_session_that_expired_meanwhile_gets_the_closed_policy(daemon):
    session = create(daemon, name="s", ttl_seconds=1)["session_id"]
    client = Client(daemon.attach_socket).attach(session)
    client.hold(4321)
    slot, generation, usage = client.slot, client.generation, client.usage
    daemon.kill()
    wait_for(lambda: daemon_expired(daemon, session), "its time to be over")
    daemon.start()
    client.close()
    again = Client(daemon.attach_socket).attach(session, slot=slot, generation=generation)
    assert again.closed() and (again.slot, again.generation) == (slot, generation)
    assert Agent(daemon.attach_socket, again, session).receive()[0] == GRANT
    with pytest.raises(Refused) as refused:  # but nobody new
        Client(daemon.attach_socket).attach(session)
    assert refused.value.reason == NO_SESSION
    usage.close()


def test_an_execed_process_is_not_taken_for_the_one_it_was(daemon):
    session = create(daemon, name="s")["session_id"]
    child = Child(daemon.attach_socket, session, held_bytes=MIB)
    daemon.kill()
    child.tell(b"x")
    wait_for(lambda: os.readlink(f"/proc/{child.pid}/exe").endswith("sleep"), "the exec")
    daemon.start()
    assert daemon.session("s")["used_bytes"] == 0 and daemon.session("s")["processes"] == []
    child.kill()


def test_a_state_file_gets_the_columns_of_properties_that_it_lacks(daemon):
    daemon.cli("create", "--name", "a", "--memory", "1MiB", "--compute", "25%", "--priority", "high")
    daemon.stop()
    with sqlite3.connect(daemon.state / "simulated" / "state.db") as state:
        for column in ("compute", "pod"):
            state.execute(f"ALTER TABLE sessions DROP COLUMN {column}")
    state.close()
    daemon.start()
    session = daemon.session("a")
    assert (session["compute_min_ratio"], session["compute_max_ratio"], session["priority"]) == (0, 1, "high")
    daemon.cli("set", "a", "--compute", "30%")


def test_the_state_file_is_believed_before_a_hostile_slot(daemon):
    session = create(daemon, name="s")["session_id"]
    child = Child(daemon.attach_socket, session, held_bytes=MIB)
    state = daemon.state / "simulated" / "state.db"
    wait_for(lambda: sqlite3.connect(f"file:{state}?mode=ro", uri=True).execute(
        "SELECT count(*) FROM processes").fetchone() == (1,), "the process's row")
    daemon.kill()
    # The process writes another's name into its slot, to keep the bytes for ever.
    ledger = daemon.runtime / "simulated" / "ledgers" / session
    with open(ledger, "r+b") as file:
        start = int(open("/proc/1/stat").read().rpartition(")")[2].split()[19])
        file.seek(64)
        file.write(start.to_bytes(8, "little") + (1).to_bytes(4, "little"))
    daemon.start()
    assert daemon.session("s")["processes"] == [] and daemon.session("s")["used_bytes"] == 0
    child.kill()


def test_a_session_ends_at_the_restart_if_its_program_has_gone(daemon, product, reap):
    runner = reap(daemon.spawn("run", "--name", "ran", "--simulated", "--", "sleep", "1000"))
    wait_for(lambda: os.readlink(f"/proc/{runner.pid}/exe").endswith("sleep"), "the program")
    daemon.kill()
    daemon.start()
    assert daemon.request("GET", "/v1/sessions/ran")[0] == 200
    daemon.kill()
    runner.kill()
    runner.wait()
    daemon.start()
    assert daemon.request("GET", "/v1/sessions") == (200, [])
    assert os.listdir(daemon.runtime / "simulated" / "ledgers") == []


@pytest.mark.parametrize("damage", ["missing", "short", "rubbish"])
def test_a_damaged_ledger_is_one_sessions_trouble(daemon, damage):
    session, other = create(daemon, name="s")["session_id"], create(daemon, name="other")["session_id"]
    attached = Client(daemon.attach_socket).attach(session)  # so that there is one
    daemon.kill()
    ledger = daemon.runtime / "simulated" / "ledgers" / session
    if damage == "missing":
        ledger.unlink()
    elif damage == "short":
        os.truncate(ledger, 100)
    else:
        ledger.write_bytes(os.urandom(ledger.stat().st_size))
    daemon.start()
    Client(daemon.attach_socket).attach(other)
    if damage == "missing":  # a reboot
        Client(daemon.attach_socket).attach(session)
    else:
        with pytest.raises(Refused):
            Client(daemon.attach_socket).attach(session)
    assert daemon.request("DELETE", "/v1/sessions/other")[0] in (204, 409)


def test_a_ledger_of_no_session_is_removed(daemon):
    daemon.stop()
    stray = daemon.runtime / "simulated" / "ledgers" / "0123456789ab"
    stray.write_bytes(b"x")
    daemon.start()
    assert not stray.exists()


def test_a_clean_end_leaves_sessions_and_no_sockets(daemon):
    create(daemon, name="s")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(20) == 0
    assert not daemon.control_socket.exists() and not daemon.attach_socket.exists()
    daemon.start()
    assert daemon.session("s")["name"] == "s"


def test_an_answer_under_way_is_whole_or_broken_off_when_the_daemon_ends(daemon):
    names = {f"s{number}" for number in range(20)}
    for name in names:
        create(daemon, name=name, memory_bytes=MIB)
    daemon.process.send_signal(signal.SIGSTOP)  # so that all ask at once, and the end comes in the midst of the answers
    asked = []
    for number in range(60):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(DEADLINE_S)
        connection.sock.connect(str(daemon.control_socket))
        connection.request("GET", "/v1/sessions" if number % 2 else "/v1/scheduler")
        asked.append(connection)
    daemon.process.send_signal(signal.SIGCONT)
    asked[0].sock.recv(1, socket.MSG_PEEK)
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(DEADLINE_S) == 0
    for connection in asked:
        try:
            answer = connection.getresponse()
            told = json.loads(answer.read())
        except (http.client.HTTPException, ConnectionError):
            continue
        if isinstance(told, list):
            assert {session["name"] for session in told} == names
        else:
            assert told.keys() & {"gpus", "error"}
        connection.close()


def test_a_second_daemon_names_the_first(daemon, product):
    second = subprocess.run([product.gpusliced, "--simulated"], env=daemon.environment(), capture_output=True, text=True,
                            timeout=60)
    assert second.returncode == 1
    assert f"process {daemon.process.pid}" in second.stderr
    assert daemon.request("GET", "/healthz")[0] == 200


def test_two_runtime_folders_do_not_share_a_state_folder(daemon, product, tmp_path):
    environment = {**daemon.environment(), "GPUSLICE_RUNTIME_DIR": str(tmp_path)}
    second = subprocess.run([product.gpusliced, "--simulated"], env=environment, capture_output=True, text=True,
                            timeout=60)
    assert second.returncode == 1 and "GPUSLICE_STATE_DIR" in second.stderr


def test_the_files_are_the_owners_alone(daemon):
    create(daemon, name="s")
    simulated_run, simulated_state = daemon.runtime / "simulated", daemon.state / "simulated"
    modes = {path.name: oct(path.stat().st_mode & 0o777)
             for path in (simulated_run, simulated_run / "ledgers", simulated_run / "control.sock",
                          simulated_run / "attach.sock", simulated_state, simulated_state / "state.db",
                          simulated_state / "state.db-wal")}
    assert modes == {"simulated": "0o700", "ledgers": "0o700", "control.sock": "0o600", "attach.sock": "0o600",
                     "state.db": "0o600", "state.db-wal": "0o600"}


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_a_system_daemon_lets_all_users_attach_and_root_control(make_daemon, product):
    daemon = make_daemon()
    daemon.start("--system")
    simulated_run = daemon.runtime / "simulated"
    assert oct(simulated_run.stat().st_mode & 0o777) == "0o755"
    assert oct((simulated_run / "ledgers").stat().st_mode & 0o777) == "0o700"
    assert oct(daemon.control_socket.stat().st_mode & 0o777) == "0o660"
    assert oct(daemon.attach_socket.stat().st_mode & 0o777) == "0o666"


def test_without_a_driver_it_says_what_to_do(make_daemon, product):
    daemon = make_daemon()
    environment = daemon.environment()
    environment.pop("GPUSLICE_SIMULATED")
    result = subprocess.run([product.gpusliced], env=environment, capture_output=True, text=True, timeout=60)
    if result.returncode != 1 and pathlib.Path("/dev/nvidiactl").exists():
        pytest.skip("there is a driver here")
    assert result.returncode == 1
    assert "no NVIDIA driver; add --simulated" in result.stderr


@pytest.mark.parametrize("variables,named", [
    ({"GPUSLICE_RECOVERY_INTERVAL": "soon"}, "GPUSLICE_RECOVERY_INTERVAL"),
    ({"GPUSLICE_IPC_TOKEN_REQUIRED": "1"}, "GPUSLICE_IPC_TOKEN"),
    ({"GPUSLICE_METRICS_ADDR": "nowhere"}, "GPUSLICE_METRICS_ADDR"),
    ({"GPUSLICE_RUNTIME_DIR": "relative"}, "GPUSLICE_RUNTIME_DIR"),
])
def test_a_wrong_setting_is_named(make_daemon, product, variables, named):
    daemon = make_daemon()
    result = subprocess.run([product.gpusliced, "--simulated"], env={**daemon.environment(), **variables},
                            capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and named in result.stderr


def test_options(product):
    assert subprocess.run([product.gpusliced, "--version"], capture_output=True, text=True).stdout == "gpusliced 0.2.0\n"
    help_text = subprocess.run([product.gpusliced, "--help"], capture_output=True, text=True)
    assert help_text.returncode == 0 and "--on-demand" in help_text.stdout
    for wrong in (["--nonsense"], ["word"], ["--idle-exit", "x"]):
        assert subprocess.run([product.gpusliced, *wrong], capture_output=True).returncode == 2


def test_on_demand_it_is_ready_when_the_command_returns_and_holds_nothing_of_ours(on_demand):
    # A pipe that the daemon held would never end for us; run() reads both to their end.
    result = on_demand.start()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert on_demand.request("GET", "/readyz")[0] == 200
    pid = lock_holder(on_demand)
    assert os.getsid(pid) == pid and os.getpgid(pid) == pid
    assert os.readlink(f"/proc/{pid}/fd/0") == os.readlink(f"/proc/{pid}/fd/1") == "/dev/null"
    log = on_demand.state / "simulated" / "gpusliced.log"
    assert os.readlink(f"/proc/{pid}/fd/2") == str(log)
    assert oct(log.stat().st_mode & 0o777) == "0o600"
    assert os.readlink(f"/proc/{pid}/cwd") == "/"


def test_asking_for_a_running_daemon_is_done_at_once(on_demand):
    assert on_demand.start().returncode == 0
    pid = lock_holder(on_demand)
    assert on_demand.start().returncode == 0
    assert lock_holder(on_demand) == pid


def test_ten_at_once_make_one_daemon(on_demand, product):
    started = [subprocess.Popen([product.gpusliced, "--on-demand", "--simulated"], env=on_demand.environment(),
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
               for _ in range(10)]
    assert [(one.communicate(timeout=60)[1], one.returncode) for one in started] == [(b"", 0)] * 10
    assert on_demand.request("GET", "/readyz")[0] == 200


def test_it_ends_when_there_have_been_no_sessions_for_a_while(on_demand):
    assert on_demand.start("--idle-exit", "1s").returncode == 0
    create(on_demand, name="s")
    pid = lock_holder(on_demand)
    # It stays for the session, longer than it would without.
    started = time.monotonic()
    wait_for(lambda: time.monotonic() - started > 2.5 or lock_holder(on_demand) != pid, "2.5 s")
    assert lock_holder(on_demand) == pid
    assert on_demand.request("DELETE", "/v1/sessions/s")[0] == 204
    wait_for(lambda: lock_holder(on_demand) is None, "its end")
    assert not on_demand.control_socket.exists()
    assert on_demand.start().returncode == 0


def test_a_failed_start_says_why_and_leaves_no_process(on_demand):
    on_demand.more["GPUSLICE_METRICS_ADDR"] = "nowhere"
    result = on_demand.start()
    assert result.returncode == 1 and "GPUSLICE_METRICS_ADDR" in result.stderr
    wait_for(lambda: lock_holder(on_demand) is None, "the process that failed to be gone")


def test_a_log_file_that_is_a_link_is_refused(on_demand, tmp_path):
    (on_demand.state / "simulated").mkdir(parents=True, mode=0o700)
    target = tmp_path / "precious"
    target.write_text("precious")
    (on_demand.state / "simulated" / "gpusliced.log").symlink_to(target)
    result = on_demand.start()
    assert result.returncode == 1 and "gpusliced.log" in result.stderr
    assert target.read_text() == "precious"


def test_it_is_itself_in_no_session(on_demand, product):
    on_demand.more.update(GPUSLICE_SESSION="0123456789ab", GPUSLICE_IPC_TOKEN="x", GPUSLICE_IPC_TOKEN_REQUIRED="",
                          LD_PRELOAD=str(product.interceptor))
    assert on_demand.start().returncode == 0
    pid = lock_holder(on_demand)
    assert "libgpuslice.so" not in pathlib.Path(f"/proc/{pid}/maps").read_text()
    assert on_demand.request("GET", "/v1/gpus")[1][0]["total_bytes"] == GIB


def test_the_log_goes_where_it_is_told_to(make_daemon, tmp_path):
    log = tmp_path / "elsewhere.log"
    daemon = make_daemon(GPUSLICE_LOG_FILE=str(log)).start()
    assert "1 GPUs (simulated), 0 sessions" in log.read_text()
    assert oct(log.stat().st_mode & 0o777) == "0o600"
    assert daemon.log_text() == ""


def test_a_runtime_folder_that_is_removed_is_made_anew(daemon):
    """As systemd-logind does when a user logs out while a job of his goes on."""
    session = create(daemon, name="job")["session_id"]
    client = Client(daemon.attach_socket).attach(session)
    client.hold(4321)
    shutil.rmtree(daemon.runtime)
    wait_for(lambda: daemon.control_socket.exists() and daemon.attach_socket.exists(), "the sockets to be back")
    assert daemon.session("job")["used_bytes"] == 4321
    Client(daemon.attach_socket).attach(session).close()
    other = create(daemon, name="other")["session_id"]
    Client(daemon.attach_socket).attach(other).close()
    assert oct(daemon.control_socket.parent.stat().st_mode)[-3:] == "700"
    second = daemon.cli("create", "--name", "third", "--memory", "1MiB")
    assert second.returncode == 0, "it is this daemon that is found"
    client.close()


def test_the_toolkits_stand_in_for_nvml_is_named(make_daemon, product, tmp_path):
    daemon = make_daemon()
    (tmp_path / "libnvidia-ml.so.1").symlink_to(product.program("toolkit_nvml.so"))
    environment = {**daemon.environment(), "LD_LIBRARY_PATH": str(tmp_path)}
    del environment["GPUSLICE_SIMULATED"]
    result = subprocess.run([product.gpusliced], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and "stand-in" in result.stderr, result
