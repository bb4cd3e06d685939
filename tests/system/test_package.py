"""The Debian package: installed, run, upgraded and purged on a copy of this machine that leaves nothing behind."""
import os
import pathlib
import subprocess

import pytest

from conftest import wait_for

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What dpkg, and the tools that it sets off, write for themselves.
NOT_THE_PACKAGES = ("var/lib/dpkg/", "var/log/", "var/cache/", "etc/group", "etc/gshadow", "etc/.pwd.lock")

MACHINE = """
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/new" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/new,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$1/root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$1/root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$1/root/run"
rm -rf "$1/root/var/lib/gpuslice" "$1/root/etc/gpuslice"
echo ready
read -r _
"""


class Machine:
    """A copy of this machine, of which only the differences are kept, in namespaces of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.first = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", MACHINE, "sh",
                                       folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True)
        if self.first.stdout.readline() != "ready\n":
            said = self.first.communicate()[1]
            pytest.skip(f"no copy of this machine can be made here: {said.strip()}")
        children = pathlib.Path(f"/proc/{self.first.pid}/task/{self.first.pid}/children").read_text()
        self.inside = ["nsenter", f"--target={children.split()[0]}", "--mount", "--pid"]

    def command(self, *words, environment=()):
        return [*self.inside, "chroot", self.folder / "root", "env", "-i", f"PATH={PATH}", "LC_ALL=C.UTF-8",
                "DEBIAN_FRONTEND=noninteractive", *environment, *words]

    def run(self, *words, environment=(), status=0):
        result = subprocess.run(self.command(*words, environment=environment), capture_output=True, text=True, timeout=120,
                                stdin=subprocess.DEVNULL)
        assert result.returncode == status, f"{words}: {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result

    def exists(self, path):
        return subprocess.run(self.command("test", "-e", path)).returncode == 0

    def left(self):
        """Files that are new or changed, and new folders, but for dpkg's own."""
        def listed(*conditions):
            found = subprocess.run([*self.inside, "find", self.folder / "new", "-mindepth", "1", *conditions, "-printf",
                                    "%P\n"], capture_output=True, text=True, check=True)
            return set(found.stdout.splitlines())

        files = {path for path in listed("-not", "-type", "d") if not path.startswith(NOT_THE_PACKAGES)}
        return files | {path for path in listed("-type", "d") if not os.path.isdir(f"/{path}")}

    def end(self):
        self.first.stdin.close()
        self.first.kill()
        self.first.wait()


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
