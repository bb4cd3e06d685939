"""Fixtures for tests of whole processes: the installed product, a private simulated GPU, a private daemon.

`make test` installs into a staging folder and names it in GPUSLICE_TEST_PREFIX; run by hand, the fixture does
that itself from the build folder (GPUSLICE_TEST_BUILD, default `build`). Nothing here sleeps and hopes: wait_for() waits
for a condition, with a deadline.
"""
import contextlib
import functools
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid

import pytest

from cpus import stolen_ms
from waiting import DEADLINE_S, wait_for

SOURCE = pathlib.Path(__file__).resolve().parents[2]
HELD = re.compile(r"a callback held the loop for ([0-9.]+) ms, and computed for ([0-9.]+) ms of them")
FAULT = re.compile(r"a condition that must hold does not|ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|: runtime error: ")
CRASHES = {-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE}
# The host of a virtual machine stops it for no longer than this, beyond what it tells (stolen_ms()).
STOPPED_MS = 100
LOG_BYTES_SHOWN = 8000
MIB = 1 << 20
GIB = 1 << 30
# Where runtime folders are, as /run is. On a disk, who first writes to a page of a ledger after the disk has it computes for the
# file system's journal: 16 ms were seen on a busy one, in the daemon's loop.
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


# What we start gets its signals as a person's shell would give them, whatever started us: a shell that puts a program into the
# background ignores SIGINT for it and all of its children, nohup does so with SIGHUP. A handler is not inherited through exec,
# and we ourselves go on ignoring them.
for number in signal.valid_signals():
    if signal.getsignal(number) is signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ):  # those are Python's own
        signal.signal(number, lambda *_: None)
signal.pthread_sigmask(signal.SIG_SETMASK, [])


def has_words(file, deadline_s=DEADLINE_S):
    """Whether there is something to read, or an end, within so many seconds. By poll(): select() takes no descriptor above 1023."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(1000 * max(0, deadline_s)))


class Product:
    """The installed tree."""

    def __init__(self, prefix, build):
        self.prefix = prefix
        self.build = build  # where the tests' own programs are
        self.gpuslice = prefix / "bin" / "gpuslice"
        self.gpusliced = prefix / "bin" / "gpusliced"
        self.interceptor = prefix / "lib" / "gpuslice" / "libgpuslice.so"
        self.path_library = prefix / "lib" / "gpuslice" / "libgpuslice-path.so"
        self.simulated = prefix / "lib" / "gpuslice" / "simulated"

    @functools.cached_property
    def hold_ms(self):
        """How long one callback of the daemon's loop may compute, whatever clients do: three times what it may on a machine that
        has nothing else to do and whose runtime folder is no disk's (src/daemon/loop/watch.h)."""
        options = json.loads(subprocess.check_output(["meson", "introspect", self.build, "--buildoptions"]))
        is_sanitized = next(o["value"] for o in options if o["name"] == "b_sanitize") not in ("none", [])
        return 100 if is_sanitized else 15

    def program(self, name):
        """One of the tests' own programs (tests/system/programs/NAME.c), of the gallery (tests/frameworks) or an example
        (examples/NAME.c)."""
        for folder in ("tests/system/programs", "tests/frameworks", "examples", "tests/system/preloads"):
            path = self.build / folder / name
            if path.exists():
                return path
        raise FileNotFoundError(name)


def _install(build, folder):
    # Under a path that holds a lock, so that workers running side by side install once.
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder],
                   check=True, stdout=subprocess.DEVNULL)
    options = json.loads(subprocess.check_output(["meson", "introspect", build, "--buildoptions"]))
    prefix = next(o["value"] for o in options if o["name"] == "prefix")
    return folder / prefix.lstrip("/")


@pytest.fixture(scope="session")
def product(tmp_path_factory):
    build = pathlib.Path(os.environ.get("GPUSLICE_TEST_BUILD", SOURCE / "build")).resolve()
    given = os.environ.get("GPUSLICE_TEST_PREFIX")
    if given:
        return Product(pathlib.Path(given).resolve(), build)
    return Product(_install(build, tmp_path_factory.mktemp("stage")), build)


class Gpu:
    """A private simulated GPU, as environment for programs. Contexts cost nothing, so that quotas are exact.

    GPUSLICE_TEST_CONSTANTS=h100 makes it as unkind as that card (docs/simulated-gpu.md), but for the bytes that the driver
    takes for itself: tests of those set them."""

    AS_A_CARD = {"FAKECUDA_BLOCK_BYTES": "0", "FAKECUDA_MODULE_BYTES": "0", "FAKECUDA_LOCAL_MEMORY": "0",
                 "FAKECUDA_PAGING": "0"}

    def __init__(self, product, **settings):
        self.product = product
        self.name = f"test-{uuid.uuid4().hex[:12]}"
        self.settings = {
            "FAKECUDA_NAME": self.name,
            "FAKECUDA_TOTAL_MEM": str(GIB),
            "FAKECUDA_CONTEXT_BYTES": "0",
            **({"FAKECUDA_CONSTANTS": os.environ["GPUSLICE_TEST_CONSTANTS"], **self.AS_A_CARD}
               if "GPUSLICE_TEST_CONSTANTS" in os.environ else {}),
            **{key: str(value) for key, value in settings.items()},
        }

    def environment(self, **more):
        """The caller's environment without any of ours, with this GPU and `more`."""
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith(("GPUSLICE_", "FAKECUDA_", "CUDA_", "TENSOR_FUSION_", "NVSHARE_", "TF_"))
                 and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH", "DISABLE_GPU_LIMITER", "ENABLE_CUDA_HOOKS", "ENABLE_NVML_HOOKS")}
        return {**clean, "LD_LIBRARY_PATH": str(self.product.simulated), **self.settings,
                **{key: str(value) for key, value in more.items()}}

    def standalone(self, memory, **more):
        """Environment of a program under the interceptor without a daemon."""
        return self.environment(LD_PRELOAD=self.product.interceptor, GPUSLICE_MEMORY_LIMIT=memory, **more)

    def remove(self):
        for path in pathlib.Path("/dev/shm").glob(f"fakecuda-*{self.name}*"):
            path.unlink(missing_ok=True)


@pytest.fixture
def make_gpu(product):
    """make_gpu(FAKECUDA_GPUS=2, ...) makes a private simulated GPU machine."""
    made = []

    def make(**settings):
        gpu = Gpu(product, **settings)
        made.append(gpu)
        return gpu

    yield make
    for gpu in made:
        gpu.remove()


@pytest.fixture
def gpu(make_gpu):
    return make_gpu()


@pytest.fixture
def remote(product, tmp_path):
    """remote(DRIVER): environment of a driver that leads to that one, which it looks up by dlsym."""
    def make(driver):
        inner = tmp_path / "libcuda.so.1.1"  # as WSL2 names its own
        shutil.copy(driver / "libcuda.so.1", inner)
        folder = tmp_path / "remote"
        folder.mkdir()
        (folder / "libcuda.so.1").symlink_to(product.build / "tests/system/preloads/remote/libcuda.so.1")
        (folder / "libnvidia-ml.so.1").symlink_to(product.simulated / "libnvidia-ml.so.1")
        return {"LD_LIBRARY_PATH": str(folder), "REMOTE_DRIVER": str(inner)}
    return make


class Daemon:
    """A private daemon over a private simulated GPU. start() runs it in the foreground, as our child."""

    def __init__(self, product, gpu, folder, **more):
        self.product, self.gpu = product, gpu
        self.folder = pathlib.Path(folder)
        self.runtime = self.folder / "run"
        self.state = self.folder / "state"
        self.log = self.folder / "daemon.log"
        self.config = self.folder / "config" / "simulated"  # gpuslice.conf and sessions.conf; made by who needs it
        self.runtime.mkdir(mode=0o700, exist_ok=True)
        self.more = {"GPUSLICE_SIMULATED": "1", "GPUSLICE_RUNTIME_DIR": str(self.runtime),
                     "GPUSLICE_STATE_DIR": str(self.state), "GPUSLICE_CONFIG_DIR": str(self.folder / "config"),
                     **{k: str(v) for k, v in more.items()}}
        self.process = None

    def configure(self, *lines):
        """These lines of [daemon] in gpuslice.conf; a daemon that runs reads them at SIGHUP."""
        self.config.mkdir(parents=True, exist_ok=True)
        (self.config / "gpuslice.conf").write_text("\n".join(["[daemon]", *lines, ""]))
        return self

    def use_runtime(self, folder):
        """Another runtime folder; before start()."""
        self.runtime = pathlib.Path(folder)
        self.more["GPUSLICE_RUNTIME_DIR"] = str(folder)

    @property
    def control_socket(self):
        return self.runtime / "simulated" / "control.sock"

    @property
    def attach_socket(self):
        return self.runtime / "simulated" / "attach.sock"

    def environment(self, **more):
        """What a person's shell has: this GPU, this daemon's folders; no library paths, no preload."""
        environment = self.gpu.environment(**self.more, **more)
        environment.pop("LD_LIBRARY_PATH")
        return environment

    def spawn_daemon(self, *options):
        """Start one and wait for nothing."""
        with open(self.log, "ab") as log:
            return subprocess.Popen([self.product.gpusliced, "--simulated", *options], env=self.environment(),
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self, *options, deadline_s=DEADLINE_S):
        self.process = self.spawn_daemon(*options)
        wait_for(self._ready_or_dead, f"the daemon to be ready (log: {self.log_text()})", deadline_s)
        assert self.process.poll() is None, self.log_text()
        return self

    @contextlib.contextmanager
    def as_on_a_card(self):
        """Meanwhile it runs, with a new log, and takes the simulated GPU for a real card."""
        environment = {**self.environment(), "LD_LIBRARY_PATH": str(self.product.simulated)}
        del environment["GPUSLICE_SIMULATED"]
        self.log.unlink(missing_ok=True)
        with open(self.log, "ab") as log:
            process = subprocess.Popen([self.product.gpusliced], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_for(lambda: "is ready" in self.log_text(), "the daemon to be ready")
            yield
        finally:
            process.terminate()
            assert process.wait(20) == 0

    def _ready_or_dead(self):
        if self.process.poll() is not None:
            return True
        try:
            return self.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def log_text(self):
        """What this daemon, and those before it in its folder, wrote; nothing before the first is started."""
        try:
            return self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def long_holds(self):
        """How long single callbacks held the loop of this daemon, and those before it, for more than 5 ms: [(ms, ms computing)]."""
        return [(float(ms), float(computing)) for ms, computing in HELD.findall(self.log_text())]

    def faults(self):
        """What this daemon, and those before it, said of a fault of their own before they ended."""
        return [line for line in self.log_text().splitlines() if FAULT.search(line)]

    def kill(self):
        """SIGKILL, as a crash."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.kill()
                pytest.fail("the daemon did not end on SIGTERM")

    def request(self, method, path, body=None, headers=None, raw=None):
        """One HTTP request on the control socket: (status, decoded JSON or text)."""
        payload = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close",
                 f"Content-Length: {len(payload)}", "Content-Type: application/json"]
        lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE_S)
            connection.connect(str(self.control_socket))
            try:
                connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + payload)
            except BrokenPipeError:
                pass  # refused before it was read to its end: the answer is there
            return read_answer(connection)

    def session(self, name_or_id):
        return self.request("GET", f"/v1/sessions/{name_or_id}")[1]

    def cli(self, *arguments, check=True, **options):
        """Run `gpuslice ARGUMENTS` to its end."""
        options.setdefault("env", self.environment())
        options.setdefault("timeout", 60)
        result = subprocess.run([self.product.gpuslice, *map(str, arguments)], capture_output=True, text=True,
                                stdin=subprocess.DEVNULL, **options)
        if check:
            assert result.returncode == 0, f"gpuslice {arguments}: {result.returncode}\n{result.stderr}\n{self.log_text()}"
        return result

    def spawn(self, *arguments, **options):
        """Start `gpuslice ARGUMENTS` with pipes; the caller ends it."""
        options.setdefault("env", self.environment())
        return subprocess.Popen([self.product.gpuslice, *map(str, arguments)], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def read_answer(connection):
    """What a server that closes behind its answer says: (status, decoded JSON or text)."""
    answer = bytearray()
    try:
        while chunk := connection.recv(65536):
            answer += chunk
    except ConnectionResetError:
        pass  # refused before the request was read to its end: the answer is there
    head, _, content = bytes(answer).partition(b"\r\n\r\n")
    if b"chunked" in head.lower():
        content = _dechunk(content)
    text = content.decode()
    return int(head.split(None, 2)[1]), json.loads(text) if b"application/json" in head.lower() and text else text


def _dechunk(content):
    out, at = bytearray(), 0
    while (end := content.find(b"\r\n", at)) > at and (length := int(content[at:end], 16)):
        out += content[end + 2:end + 2 + length]
        at = end + 2 + length + 2
    return bytes(out)


def pytest_collection_modifyitems(config, items):
    """What is marked long is for ./run-tests --all: further cases of what shorter tests show, or what takes minutes."""
    if os.environ.get("GPUSLICE_TEST_ALL") or config.option.markexpr:
        return
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
    items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """What fails shows the ends of its daemons' logs: their folders go with the test."""
    report = (yield).get_result()
    if report.failed and call.when == "call" and "make_daemon" in item.funcargs:
        for daemon in item.funcargs["make_daemon"].made:
            report.sections.append((f"log of the daemon in {daemon.folder}", daemon.log_text()[-LOG_BYTES_SHOWN:]))


@pytest.fixture
def make_daemon(product, make_gpu):
    """make_daemon(gpu=..., GPUSLICE_...=...) makes a private daemon, not yet started; make_daemon.made are those so far."""
    made, folders = [], []
    stolen_before_ms = stolen_ms()

    def make(gpu=None, **more):
        folder = tempfile.mkdtemp(prefix="gs-", dir=IN_MEMORY)  # short: socket paths have 107 bytes
        folders.append(folder)
        daemon = Daemon(product, gpu or make_gpu(), folder, **more)
        made.append(daemon)
        return daemon

    make.made = made
    yield make
    for daemon in made:
        daemon.stop()
    held = [hold for daemon in made for hold in daemon.long_holds()]
    faults = [fault for daemon in made for fault in daemon.faults()]
    stolen = stolen_ms() - stolen_before_ms
    logs = "\n".join(daemon.log_text()[-4000:] for daemon in made if daemon.long_holds())
    told = "\n".join(line for daemon in made if daemon.long_holds() for line in daemon.log_text().splitlines() if HELD.search(line))
    ends = [daemon.process.returncode for daemon in made if daemon.process]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    assert not faults and not set(ends) & CRASHES, f"a daemon came to grief: {faults or ends}"
    if not os.environ.get("GPUSLICE_TEST_ALL"):
        return  # it says as much of the machine, and of what else that does, as of the daemon
    # A host that stops the whole virtual machine for a moment need not tell. It rarely does so twice in one test, for so long.
    long = [computing for _, computing in held if computing > product.hold_ms + stolen]
    assert len(long) < 2 and all(computing <= STOPPED_MS for computing in long), (
        f"a callback held a daemon's loop ({stolen} ms were stolen from all CPUs meanwhile):\n{told}\n\n{logs}")


@pytest.fixture
def daemon(make_daemon):
    return make_daemon().start()


@pytest.fixture
def before_others():
    """What the test starts is run before what other tests do, where we may say so. For tests of what programs get of the GPU's time:
    who is not run asks for none."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    except PermissionError:
        pass
    yield
    os.setpriority(os.PRIO_PROCESS, 0, before)


@pytest.fixture
def reap():
    """reap(process) promises that a started program is gone when the test ends."""
    started = []
    yield lambda process: started.append(process) or process
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()


@pytest.fixture
def small_disk(tmp_path):
    """Mounts of a size, as folders; gone with the test."""
    mounted = []

    def mount(name, megabytes):  # a name, or a whole path
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "none", folder],
                          capture_output=True).returncode != 0:
            pytest.skip("file systems cannot be mounted here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", folder], check=True)
