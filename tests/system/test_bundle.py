"""What users download: it runs where nothing is installed, on its own libraries, and leaves programs to the host's.

run-tests builds it and names its archive in GPUSLICE_TEST_BUNDLE; run by hand, the fixture does that itself.
"""
import fcntl
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tarfile

import pytest

from conftest import MIB, SOURCE, Product

OLDEST_GLIBC = (2, 31)
EXAMPLES = "share/gpuslice/examples/bin"
# 8 MiB are two times 4 MiB, and no byte more.
TARGET_APP = {"ALLOC_BYTES": str(4 * MIB), "ITERATIONS": "3", "FAKECUDA_CONTEXT_BYTES": "0"}
TARGET_APP_SAYS = ["ALLOC_OK iteration 0", "ALLOC_OK iteration 1", "ALLOC_FAIL at iteration 2 code=2"]


def unpack(folder, arch=platform.machine()):
    """Build the bundle, unless that was done, and unpack it; workers side by side take turns."""
    archive = os.environ.get("GPUSLICE_TEST_BUNDLE") if arch == platform.machine() else None
    (SOURCE / "build").mkdir(exist_ok=True)
    with open(SOURCE / "build" / f"bundle-{arch}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive:
            archive = subprocess.check_output([SOURCE / "scripts/bundle", arch], text=True).strip()
        with tarfile.open(archive) as packed:
            packed.extractall(folder)
    tree, = folder.iterdir()
    return tree


@pytest.fixture(scope="session")
def bundle(product, tmp_path_factory):
    return Product(unpack(tmp_path_factory.mktemp("bundle")), product.build)


@pytest.fixture(scope="session")
def bundle_aarch64(tmp_path_factory):
    for program in ("aarch64-linux-gnu-gcc", "qemu-aarch64-static"):
        if not shutil.which(program):
            pytest.skip(f"no {program}; run scripts/install-deps aarch64")
    return unpack(tmp_path_factory.mktemp("bundle-aarch64"), "aarch64")


@pytest.fixture
def bundled_daemon(bundle, make_daemon):
    daemon = make_daemon()
    daemon.product = bundle
    return daemon.start()


def apart(script, *arguments, options=(), **environment):
    """Run `script` in mounts and processes of its own; all that it starts ends with it. Skips where that is forbidden."""
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *options]
    allowed = subprocess.run([*unshare, "--mount-proc", "true"], capture_output=True, text=True, check=False)
    if allowed.returncode != 0:
        pytest.skip(f"this user cannot have mounts of its own: {allowed.stderr.strip()}")
    return subprocess.run([*unshare, "/bin/sh", "-euc", script, "sh", *map(str, arguments)], capture_output=True, text=True,
                          check=False, timeout=120, stdin=subprocess.DEVNULL,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment})


# Where nothing is installed.

@pytest.fixture
def bare_root(bundle, tmp_path):
    """A root with the C library of an old Debian, the bundle, and no other file but /dev/null."""
    libc = os.environ.get("GPUSLICE_TEST_OLD_LIBC")
    if not libc:
        pytest.skip("set GPUSLICE_TEST_OLD_LIBC to a folder made by tests/system/preloads/fetch-old-libc")
    root = tmp_path / "root"
    for folder in ("proc", "dev/shm", "tmp"):
        (root / folder).mkdir(parents=True)
    (root / "dev/null").touch()
    for folder in ("lib", "lib64"):
        if pathlib.Path(libc, folder).exists():
            shutil.copytree(pathlib.Path(libc, folder), root / folder, symlinks=True)
    shutil.copytree(bundle.prefix, root / "gpuslice", symlinks=True)
    return root


IN_ROOT = """
root=$1
shift
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev/shm"
mount --bind /dev/null "$root/dev/null"
exec chroot "$root" "$@"
"""


def test_it_runs_in_a_root_with_an_old_glibc_and_nothing_else(bare_root):
    result = apart(IN_ROOT, bare_root, "/gpuslice/bin/gpuslice", "run", "--simulated", "--memory", "8MiB", "--",
                   f"/gpuslice/{EXAMPLES}/target_app", HOME="/tmp", **TARGET_APP)
    assert result.stdout.splitlines()[:3] == TARGET_APP_SAYS, result.stderr
    assert "asked for 4MiB (4194304 bytes)" in result.stderr and "used 8MiB of the limit 8MiB" in result.stderr


def test_the_check_of_a_gpu_runs_there_on_a_simulated_one(bare_root):
    """One check of each kind; all of them are run by test_gpu_check.py."""
    only = [word for name in ("kernels", "session-view", "path-vmm", "death", "fidelity") for word in ("--only", name)]
    result = apart(IN_ROOT, bare_root, "/gpuslice/bin/gpu-check", "--simulated", *only, HOME="/tmp")
    assert result.returncode == 0 and " passed, 0 failed, " in result.stdout, result.stdout + result.stderr


def test_kernels_compute_there(bare_root):
    result = apart(IN_ROOT, bare_root, "/gpuslice/bin/gpuslice", "run", "--simulated", "--memory", "16MiB", "--",
                   f"/gpuslice/{EXAMPLES}/saxpy", HOME="/tmp", FAKECUDA_CONTEXT_BYTES="0")
    assert result.stdout.startswith("GPU Slice Simulated GPU: 16 MiB of memory, 16 MiB free\n"), result.stderr
    assert result.stdout.splitlines()[-1] == "PASS"


# On its own libraries, and the host's programs on the host's.

def test_the_programs_use_the_bundles_libraries_alone(bundled_daemon, bundle):
    process = pathlib.Path("/proc", str(bundled_daemon.process.pid))
    assert (process / "exe").readlink() == bundle.gpusliced
    assert (process / "comm").read_text() == "gpusliced\n"
    mapped = set(re.findall(r"(/\S+\.so\S*)$", (process / "maps").read_text(), re.MULTILINE))
    runtime = {path for path in mapped if pathlib.Path(path).parent == bundle.prefix / "lib/gpuslice/runtime"}
    assert {"libc.so.6", "libmicrohttpd.so.12"} <= {pathlib.Path(path).name for path in runtime}
    assert mapped - runtime == {str(bundle.simulated.resolve() / "libcuda.so.1")}


def test_libraries_on_the_callers_path_do_not_come_in_between(bundled_daemon, bundle, tmp_path):
    for library in (bundle.prefix / "lib/gpuslice/runtime").iterdir():
        (tmp_path / library.name).write_bytes(b"no library")
    environment = bundled_daemon.environment(LD_LIBRARY_PATH=tmp_path)
    assert "Simulated" in bundled_daemon.cli("gpus", env=environment).stdout


def test_a_command_gets_nothing_of_the_bundles_environment(bundled_daemon, bundle):
    before = bundled_daemon.environment()
    after = dict(line.split("=", 1) for line in
                 bundled_daemon.cli("run", "--memory", "8MiB", "--", "env", "-0").stdout.split("\0") if line)
    assert after["LD_LIBRARY_PATH"] == str(bundle.simulated)
    assert after["LD_PRELOAD"] == str(bundle.interceptor)
    added = {name for name in after if after[name] != before.get(name)} - {"LD_LIBRARY_PATH", "LD_PRELOAD", "_"}
    assert all(name.startswith(("GPUSLICE_", "CUDA_")) for name in added), added
    assert bundled_daemon.cli("run", "--memory", "8MiB", "--", "readlink", "/proc/self/exe").stdout.strip() \
        == str(pathlib.Path(shutil.which("readlink")).resolve())


def test_the_command_line_works_inside_a_session(bundled_daemon, bundle):
    """The interceptor is in it then, and asks for libraries of the C library that it runs on."""
    result = bundled_daemon.cli("run", "--name", "inside", "--memory", "8MiB", "--", bundle.gpuslice, "list")
    assert "inside" in result.stdout


def test_it_starts_through_a_link_and_by_its_bare_name(bundled_daemon, bundle, tmp_path):
    (tmp_path / "gpuslice").symlink_to(bundle.gpuslice)
    environment = bundled_daemon.environment(PATH=f"{tmp_path}:{os.environ['PATH']}")
    result = subprocess.run(["gpuslice", "run", "--memory", "8MiB", "--", "true"], env=environment, capture_output=True,
                            text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_it_says_so_when_its_libraries_are_missing(bundle, tmp_path):
    (tmp_path / "bin").mkdir()
    shutil.copy2(bundle.gpuslice, tmp_path / "bin")
    result = subprocess.run([tmp_path / "bin/gpuslice", "list"], capture_output=True, text=True, check=False)
    assert result.returncode == 127
    loader, = (bundle.prefix / "lib/gpuslice/runtime").glob("ld-linux-*")
    assert result.stderr.startswith(f"gpuslice: cannot read {tmp_path.resolve()}/lib/gpuslice/runtime/{loader.name}; ")


# What is in it.

def newest_glibc(path):
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", subprocess.check_output(["readelf", "-VW", path], text=True))
    return max((int(major), int(minor)) for major, minor in versions)


def check_what_programs_load(tree):
    loaded = [path for path in (tree / "lib/gpuslice").rglob("*.so*") if path.parent.name != "runtime" and path.suffix != ".preload"]
    assert {"libgpuslice.so", "libcuda.so.1", "libcudart.so.13"} <= {path.name for path in loaded}
    for path in [*loaded, *(tree / EXAMPLES).iterdir()]:
        assert newest_glibc(path) <= ((2, 17) if path.name == "libgpuslice.so" else OLDEST_GLIBC), path
        dynamic = subprocess.check_output(["readelf", "-dW", path], text=True)
        assert "RPATH" not in dynamic and "RUNPATH" not in dynamic, path


def test_what_programs_load_needs_only_the_oldest_glibc(bundle):
    check_what_programs_load(bundle.prefix)


def test_every_library_comes_with_its_licence_and_its_source(bundle):
    licenses = bundle.prefix / "licenses"
    rows = re.findall(r"^\| `(\S+)` \| .*\(https://snapshot\.debian\.org/\S+/\S+/\) \| \S+ \| \[.*\]\((\S+)\) \|$",
                      (licenses / "SOURCES.md").read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == {path.name for path in (bundle.prefix / "lib/gpuslice/runtime").iterdir()}
    for _, text in rows:
        assert "opyright" in (licenses / text).read_text()
    for path in licenses.glob("*.txt"):
        for name in re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", path.read_text()):
            assert (licenses / name).exists(), f"{path.name} speaks of {name}"
    assert (bundle.prefix / "LICENSE").read_text() == (SOURCE / "LICENSE").read_text()
    assert (bundle.prefix / "README.md").exists()


# The other processor.

UNDER_QEMU = """
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc || exit 77
cat /usr/lib/binfmt.d/qemu-aarch64.conf >/proc/sys/fs/binfmt_misc/register
exec "$@"
"""


def test_it_runs_on_aarch64(bundle_aarch64, tmp_path):
    check_what_programs_load(bundle_aarch64)
    # A user namespace of its own, so that what is registered there holds for this test alone (Linux 6.7).
    result = apart(UNDER_QEMU, bundle_aarch64 / "bin/gpuslice", "run", "--simulated", "--memory", "8MiB", "--",
                   bundle_aarch64 / EXAMPLES / "target_app", options=("--user", "--map-root-user", "--mount-proc"),
                   GPUSLICE_RUNTIME_DIR=str(tmp_path / "run"), GPUSLICE_STATE_DIR=str(tmp_path / "state"),
                   FAKECUDA_NAME=f"aarch64-{os.getpid()}", **TARGET_APP)
    for path in pathlib.Path("/dev/shm").glob(f"fakecuda-*aarch64-{os.getpid()}*"):
        path.unlink()
    if result.returncode == 77:
        pytest.skip(f"programs for another processor cannot be registered here: {result.stderr.strip()}")
    assert result.stdout.splitlines()[:3] == TARGET_APP_SAYS, result.stderr
