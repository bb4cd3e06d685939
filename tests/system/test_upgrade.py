"""A daemon and interceptors of different releases: the previous version of the wire beside today's, each way round.

tests/system/previous builds today's code so that it speaks the previous version and knows no other.
"""
import pathlib
import shutil
import sqlite3
import subprocess

import pytest

from attach_client import BAD_VERSION, Client, Refused
from conftest import MIB, Product, wait_for
from test_quota import OK, OUT_OF_MEMORY, Puppet, in_session
from workers import Worker

LIMIT = 64 * MIB


@pytest.fixture
def previous(product, tmp_path):
    """The previous release, installed: another daemon, another interceptor; the simulated GPU is the same."""
    built = product.build / "tests" / "system" / "previous"
    (tmp_path / "bin").mkdir()
    library = tmp_path / "lib" / "gpuslice"
    library.mkdir(parents=True)
    shutil.copy2(built / "gpusliced", tmp_path / "bin")
    shutil.copy2(product.gpuslice, tmp_path / "bin")
    shutil.copy2(built / "libgpuslice.so", library)
    (library / "simulated").symlink_to(product.simulated)
    return Product(tmp_path, product.build)


@pytest.fixture
def start(reap):
    """start(daemon, session, release): a program of that release's interceptor with a context, in the session."""
    def start(daemon, session, release):
        environment = {**in_session(daemon, session), "LD_PRELOAD": str(release.interceptor)}
        puppet = Puppet(release, environment)
        reap(puppet.process)
        puppet.get("context", 0)
        return puppet
    return start


def create(daemon, **body):
    status, session = daemon.request("POST", "/v1/sessions", {"name": "s", "memory_bytes": LIMIT, **body})
    assert status == 201, session
    return session


def replace(daemon, release):
    """The daemon is ended, and one of another release is started in its place."""
    daemon.stop()
    daemon.product = release
    daemon.start()


def outdated(daemon):
    return [process["outdated"] for process in daemon.session("s")["processes"]]


def agents(puppet):
    names = [path.read_text().strip() for path in pathlib.Path(f"/proc/{puppet.process.pid}/task").glob("*/comm")]
    return names.count("gpuslice-agent")


def check_quota(daemon, puppet, held):
    """To the byte: what is left of LIMIT beside `held`, and no more."""
    assert daemon.session("s")["used_bytes"] == held
    number = puppet.get("alloc", LIMIT - held)
    assert puppet.code("alloc", 1) == OUT_OF_MEMORY
    assert daemon.session("s")["used_bytes"] == LIMIT
    puppet.get("free", number)


def test_an_older_program_under_a_newer_daemon(daemon, previous, product, start):
    session = create(daemon)
    puppet = start(daemon, session, previous)
    puppet.get("alloc", 3 * MIB)
    newer = start(daemon, session, product)
    assert outdated(daemon) == [True, False]
    assert agents(puppet) == 0
    check_quota(daemon, puppet, 3 * MIB)
    check_quota(daemon, newer, 3 * MIB)
    assert "outdated" in daemon.cli("show", "s").stdout
    newer.process.kill()
    puppet.process.kill()
    wait_for(lambda: daemon.session("s")["used_bytes"] == 0, "the bytes to be back")


def test_a_newer_program_under_an_older_daemon(make_daemon, previous, product, start):
    daemon = make_daemon()
    daemon.product = previous
    daemon.start()
    puppet = start(daemon, create(daemon, compute="50%"), product)
    puppet.get("alloc", 5 * MIB)
    assert agents(puppet) == 0
    assert outdated(daemon) == [False]
    check_quota(daemon, puppet, 5 * MIB)


def test_a_daemon_knows_no_version_newer_than_its_own(make_daemon, previous):
    daemon = make_daemon()
    daemon.product = previous
    daemon.start()
    session = create(daemon)["session_id"]
    with pytest.raises(Refused) as refused:
        Client(daemon.attach_socket).attach(session, versions=(2, 2))
    assert refused.value.reason == BAD_VERSION


@pytest.mark.parametrize("first, second", [("previous", "product"), ("product", "previous")],
                         ids=["upgrade", "downgrade"])
def test_the_daemon_is_replaced_under_running_programs(make_daemon, previous, product, start, first, second):
    releases = {"previous": previous, "product": product}
    daemon = make_daemon()
    daemon.product = releases[first]
    daemon.start()
    session = create(daemon)
    older, newer = start(daemon, session, previous), start(daemon, session, product)
    kept = older.get("alloc", 10 * MIB)
    newer.get("alloc", 20 * MIB)
    before = outdated(daemon)
    assert before == ([False, False] if first == "previous" else [True, False])
    check_quota(daemon, newer, 30 * MIB)

    daemon.stop()
    # With no daemon there, the ledger says what fits.
    fill = older.get("alloc", LIMIT - 30 * MIB)
    assert newer.code("alloc", 1) == OUT_OF_MEMORY
    older.get("free", fill)
    daemon.product = releases[second]
    daemon.start()

    found = daemon.session("s")
    assert found["used_bytes"] == 30 * MIB and len(found["processes"]) == 2
    assert outdated(daemon) == ([False, False] if second == "previous" else [True, True])  # by what was recorded
    assert daemon.request("PATCH", "/v1/sessions/s", {"memory_bytes": 32 * MIB})[0] == 200
    for puppet in (older, newer):  # both attach anew, and know the new limit
        assert puppet.code("alloc", 2 * MIB + 1) == OUT_OF_MEMORY
    assert older.get("free", kept) is None
    number = newer.get("alloc", 12 * MIB)
    assert older.code("alloc", 1) == OUT_OF_MEMORY
    newer.get("free", number)
    assert daemon.session("s")["used_bytes"] == 20 * MIB
    assert outdated(daemon) == ([False, False] if second == "previous" else [True, False])


def test_a_program_gets_its_agent_from_the_daemon_that_has_one_for_it(make_daemon, previous, product, start):
    daemon = make_daemon()
    daemon.product = previous
    daemon.start()
    puppet = start(daemon, create(daemon), product)
    replace(daemon, product)
    assert agents(puppet) == 0 and daemon.session("s")["lease"] == "none"
    puppet.get("alloc", MIB)  # sees that there is another daemon
    wait_for(lambda: agents(puppet) == 1, "its agent")
    wait_for(lambda: daemon.session("s")["lease"] == "free", "the session to be arbitrated")


def test_an_agent_does_not_press_a_daemon_that_knows_no_agents(make_daemon, previous, product, start):
    daemon = make_daemon().start()
    puppet = start(daemon, create(daemon), product)
    wait_for(lambda: agents(puppet) == 1, "its agent")
    begun = len(daemon.log_text())
    replace(daemon, previous)
    puppet.get("alloc", MIB)
    attached = "has slot 0"
    wait_for(lambda: attached in daemon.log_text()[begun:], "the program to attach anew")
    # An agent tries every second; three of them would show.
    with pytest.raises(subprocess.TimeoutExpired):
        puppet.process.wait(2.5)
    assert daemon.request("GET", "/metrics")[1].count("gpuslice_refused_attaches_total 0") == 1
    assert daemon.log_text()[begun:].count(attached) == 1
    assert puppet.code("sync") == OK
    replace(daemon, product)
    puppet.get("alloc", MIB)
    wait_for(lambda: daemon.session("s")["lease"] == "free", "its agent to be back")


@pytest.mark.parametrize("ends", ["terminate", "kill"])
def test_daemons_of_two_releases_take_each_other_s_place_under_load(make_daemon, previous, product, reap, ends):
    """Programs of both allocate and free as fast as they can meanwhile, and one works under a share."""
    daemon = make_daemon().start()
    session, shared = create(daemon), create(daemon, name="shared", compute="10%..50%")
    storms = [reap(subprocess.Popen([product.program("storm"), "2", str(seed)], stderr=subprocess.PIPE, text=True,
                                    env={**in_session(daemon, session), "LD_PRELOAD": str(release.interceptor)}))
              for seed, release in enumerate((previous, product))]
    worker = Worker(reap(daemon.spawn("run", "--session", "shared", "--", product.program("worker"), "500")))
    worker.begin(600_000)

    def attached():
        return sorted(process["pid"] for process in daemon.session("s")["processes"])

    def gpu_seconds():
        return daemon.session("shared")["gpus"][0]["gpu_seconds"]
    wait_for(lambda: len(attached()) == 2, "both storms")
    for release in (previous, product) * 2:
        getattr(daemon.process, ends)()
        daemon.process.wait()
        daemon.product = release
        daemon.start()
        wait_for(lambda: attached() == sorted(storm.pid for storm in storms), "both storms to be attached")
        assert [storm.poll() for storm in storms] == [None, None]
        assert [process["pid"] for process in daemon.session("shared")["processes"]] == [worker.process.pid]
    wait_for(lambda: gpu_seconds() > 0, "the worker to be charged again")
    worker.process.kill()
    for storm in storms:
        storm.terminate()
    for storm in storms:
        assert storm.wait(20) == 0, storm.stderr.read()
    wait_for(lambda: not daemon.session("s")["processes"] and daemon.session("s")["used_bytes"] == 0, "all bytes to be back")
    puppet = Puppet(product, in_session(daemon, session))
    reap(puppet.process)
    puppet.get("context", 0)
    check_quota(daemon, puppet, 0)
    assert daemon.session(shared["session_id"])["used_bytes"] == 0


def test_a_newer_state_file_that_older_daemons_can_use_is_used(daemon):
    create(daemon)
    daemon.stop()
    path = daemon.state / "simulated" / "state.db"
    with sqlite3.connect(path) as state:
        layout = state.execute("PRAGMA user_version").fetchone()[0]
        for table in ("sessions", "session_gpus", "processes", "context_costs"):
            state.execute(f"ALTER TABLE {table} ADD COLUMN of_tomorrow INTEGER NOT NULL DEFAULT 7")
        state.execute(f"PRAGMA user_version={layout + 1}")
        (oldest,) = state.execute("SELECT value FROM meta WHERE key='layout_oldest'").fetchone()
        assert 3 <= int(oldest) <= layout
    state.close()
    daemon.start()
    assert daemon.session("s")["vram_limit_bytes"] == LIMIT
    assert daemon.request("PATCH", "/v1/sessions/s", {"memory_bytes": 2 * LIMIT})[0] == 200
    Client(daemon.attach_socket).attach(daemon.session("s")["session_id"])
    daemon.stop()
    with sqlite3.connect(path) as state:
        assert state.execute("PRAGMA user_version").fetchone() == (layout + 1,)
        assert state.execute("SELECT limit_bytes, of_tomorrow FROM session_gpus").fetchall() == [(2 * LIMIT, 7)]
    state.close()
    daemon.start()
