"""podman, from Debian, in a mount namespace of its own: nothing outside the test's folder is written.

A container's root is a folder with this machine's C library, a shell and the tests' own programs, so no image is fetched.
"""
import os
import pathlib
import re
import resource
import shutil
import subprocess


class NoPodman(Exception):
    """Why it cannot run here."""


def libraries_of(*programs):
    found = set()
    for program in map(str, programs):
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        found |= {path for path in re.findall(r"(/\S+)", listed)
                  if "gpuslice" not in path and not path.startswith(str(program))}
    return found


def make_root(folder, product, *programs):
    """A root file system with `programs` in /bin, beside sh, env and cat, and all of the C library."""
    root = pathlib.Path(folder)
    root.chmod(0o755)
    programs = [*map(str, programs), *(shutil.which(name) for name in ("sh", "env", "cat"))]
    for name in ("bin", "etc", "proc", "sys", "dev", "run", "tmp", "usr/lib"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for program in programs:
        shutil.copy2(program, root / "bin" / os.path.basename(program))
    for library in libraries_of(*programs, product.interceptor, product.simulated / "libcuda.so.1"):
        to = root / library.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, to)
    return root


class Podman:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        if os.getuid() != 0:
            raise NoPodman("needs root")
        if not shutil.which("podman"):
            raise NoPodman("podman is not installed")
        # crun refuses a machine with both versions of cgroups; a wider limit than ours may not be set.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self.limits = ["--ulimit", f"nofile={min(1024, hard)}:{hard}", "--ulimit", "nproc=1000:1000"]
        self.enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                      "umount /sys/fs/cgroup/unified 2>/dev/null; mount -t tmpfs none /run && mkdir -p /run/cdi && "
                      f"if [ -d {self.cdi} ]; then cp {self.cdi}/* /run/cdi/; fi; exec \"$@\"", "sh"]
        self.podman = ["podman", "--root", self.folder / "root", "--runroot", self.folder / "run", "--tmpdir",
                       self.folder / "tmp", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs",
                       "--events-backend", "file"]

    @property
    def cdi(self):
        """What is in there is in /run/cdi when podman runs."""
        return self.folder / "cdi"

    def options(self, *more):
        return ["run", *map(str, more), "--rm", "--network", "none", "--cgroups", "disabled", *self.limits]

    def words(self, *more, root):
        """The command that runs `more`, in a container of `root`; without entering the mount namespace."""
        return [*map(str, self.podman), *self.options(), "-i", "--rootfs", str(root), *map(str, more)]

    def bring_up(self, composition, *services):
        """podman-compose's `up`, in a network namespace of its own, where it may make what networks it likes."""
        settings = [*map(str, self.podman), "--network-config-dir", str(self.folder / "net")]
        return subprocess.run([*self.enter, "unshare", "--net", "podman-compose", "--podman-args", " ".join(settings[1:]),
                               "--podman-run-args", " ".join(["--cgroups", "disabled", *self.limits]), "-f", str(composition), "up",
                               *services], capture_output=True, text=True, timeout=120)

    def import_image(self, root, name, *changes):
        archive = self.folder / "image.tar"
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True, timeout=60)
        subprocess.run([*self.enter, *self.podman, "import", *(f"--change={one}" for one in changes), archive, name], check=True,
                       capture_output=True, timeout=120)

    def build(self, context, name, file, *words):
        subprocess.run([*self.enter, *map(str, self.podman), "build", "--isolation", "chroot", "--pull=never", "-t", name,
                        *map(str, words), "-f", str(file), str(context)], check=True, capture_output=True, timeout=120)

    def in_image(self, name, *words):
        """What `words` print in a container of the image."""
        return subprocess.run([*self.enter, *map(str, self.podman), *self.options(), name, *words], check=True, capture_output=True,
                              text=True, timeout=120).stdout

    def check(self, root):
        result = subprocess.run([*self.enter, *self.words("env", root=root)], capture_output=True, text=True, timeout=120)
        if result.returncode != 0:
            raise NoPodman(f"podman does not run here: {result.stderr.strip()[-300:]}")
