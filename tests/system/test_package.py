"""The Debian package: installed, run, upgraded and purged on a copy of this machine that leaves nothing behind."""
import os
import pathlib
import subprocess

import pytest

from conftest import wait_for
from machine import Machine


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="module")
def package():
    """The package of this tree, which GPUSLICE_TEST_DEB names."""
    given = os.environ.get("GPUSLICE_TEST_DEB")
    if given:
        return pathlib.Path(given)
    pytest.skip("set GPUSLICE_TEST_DEB to what scripts/deb made; ./run-tests --all does both")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_it_installs_runs_upgrades_and_purges_clean(machine, package):

    def install():
        with open(package, "rb") as content:
            subprocess.run(machine.command("tee", f"/tmp/{package.name}"), stdin=content, stdout=subprocess.DEVNULL,
                           check=True)
        machine.run("dpkg", "--install", f"/tmp/{package.name}")

    before = machine.left()
    install()
    assert {"usr/bin/gpuslice", "usr/bin/gpusliced", "usr/lib/gpuslice/libgpuslice.so",
            "usr/share/man/man8/gpusliced.8.gz", "usr/share/bash-completion/completions/gpuslice.bash"} <= machine.left()
    group = int(machine.run("getent", "group", "gpuslice").stdout.split(":")[2])
    wanted = "/etc/systemd/system/sockets.target.wants"
    assert machine.exists(f"{wanted}/gpusliced.socket") and machine.exists(f"{wanted}/gpusliced-attach.socket")
    for unit in ("gpusliced.service", "gpusliced.socket", "gpusliced-attach.socket"):
        assert machine.run("systemd-analyze", "verify", unit).stderr == ""

    daemon = subprocess.Popen(machine.command("gpusliced", "--system", "--simulated",
                                              environment=("FAKECUDA_CONTEXT_BYTES=0",)), stderr=subprocess.PIPE)
    wait_for(lambda: machine.exists("/run/gpuslice/simulated/control.sock"), "the daemon to be ready")
    ran = machine.run("gpuslice", "run", "--simulated", "--memory", "8MiB", "--",
                      "/usr/share/gpuslice/examples/bin/target_app", environment=("ALLOC_BYTES=4194304", "ITERATIONS=3"))
    assert ran.stdout.splitlines()[:3] == ["ALLOC_OK iteration 0", "ALLOC_OK iteration 1", "ALLOC_FAIL at iteration 2 code=2"]

    def user(groups, **options):
        return machine.run("setpriv", "--reuid=12345", "--regid=12345", groups, "gpuslice", "list", "--simulated", **options)

    user(f"--groups={group}")
    assert "a member of the group 'gpuslice'" in user("--clear-groups", status=1).stderr

    # An upgrade takes nothing from a session and its program.
    program = subprocess.Popen(machine.command("gpuslice", "run", "--simulated", "--name", "stays", "--", "cat"),
                               stdin=subprocess.PIPE)
    wait_for(lambda: "stays" in machine.run("gpuslice", "list", "--simulated").stdout, "the session")
    install()
    assert "stays" in machine.run("gpuslice", "list", "--simulated").stdout
    assert program.poll() is None and daemon.poll() is None
    program.stdin.close()
    assert program.wait(20) == 0
    wait_for(lambda: "stays" not in machine.run("gpuslice", "list", "--simulated").stdout, "the session's end")

    machine.run("sh", "-c", 'kill "$(cat /run/gpuslice/simulated/lock)"')
    assert daemon.wait(20) == 0
    daemon.stderr.close()
    assert machine.exists("/var/lib/gpuslice/simulated/state.db")
    machine.run("dpkg", "--purge", "gpuslice")
    assert machine.left() == before
    assert not machine.exists("/run/gpuslice") and not machine.exists("/var/lib/gpuslice")
