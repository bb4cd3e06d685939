"""A copy of this machine that leaves nothing behind: for installing what changes a machine."""
import os
import pathlib
import subprocess

import pytest

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
