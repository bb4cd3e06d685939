"""`gpuslice doctor`: each thing that keeps programs from their sessions is planted, and found."""
import ctypes
import json
import os
import shutil
import struct
import subprocess

import pytest

from attach_client import CONTEXT, Client, notice
from conftest import MIB, wait_for
from test_quota import Puppet

root_only = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


def findings(daemon, *command, under=(), environment=None, **more):
    """Every check's finding, by its ID, and the exit status."""
    result = subprocess.run([*under, daemon.product.gpuslice, "doctor", "--json", "--", *map(str, command)],
                            env={**daemon.environment(), **(environment or {})}, capture_output=True, text=True,
                            timeout=60, **more)
    report = json.loads(result.stdout)
    assert len(report["limits"]) == 3
    found = {check["id"]: check for check in report["checks"]}
    problems = [check for check in report["checks"] if check["level"] == "problem"]
    assert result.returncode == (1 if problems else 0), result.stderr
    return found


def expect(check, level, *words):
    assert check["level"] == level, check
    for word in words:
        assert word in check["finding"] + "; " + check["to_do"], check
    assert level == "ok" or check["to_do"]


def test_all_is_well_with_a_simulated_gpu(daemon):
    found = findings(daemon)
    assert {name: check for name, check in found.items() if check["level"] == "problem"} == {}
    for name in ("driver", "nvml", "kernel", "access", "daemon", "gpus", "mig", "uncovered", "functions", "pointers",
                 "library", "program"):
        expect(found[name], "ok")
    text = daemon.cli("doctor").stdout.splitlines()
    assert text[0].startswith("ok       driver") and text[-1].startswith("0 problems, ")


def test_without_a_driver_it_says_what_to_do(daemon):
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a driver")
    found = findings(daemon, environment={"GPUSLICE_SIMULATED": "0"})
    expect(found["driver"], "problem", "no NVIDIA driver", "--simulated")
    expect(found["nvml"], "problem", "libnvidia-ml.so.1 does not load", "install")
    expect(found["daemon"], "ok", "no daemon is running")


# --- Programs ---------------------------------------------------------------------------------------------

def patched(path, change):
    """A copy of /bin/true whose ELF image `change` has changed."""
    image = bytearray(open(shutil.which("true"), "rb").read())
    change(image)
    path.write_bytes(image)
    path.chmod(0o755)
    return path


def program_headers(image):
    offset, = struct.unpack_from("<Q", image, 32)
    size, count = struct.unpack_from("<HH", image, 54)
    return [offset + i * size for i in range(count)]


def interpreter_header(image):
    return next(at for at in program_headers(image) if struct.unpack_from("<I", image, at)[0] == 3)


def make_static(image):
    struct.pack_into("<I", image, interpreter_header(image), 0)


def make_foreign(image):
    struct.pack_into("<H", image, 18, 21)  # EM_PPC64


def make_32_bit(image):
    image[4] = 1


def with_interpreter(name):
    def change(image):
        at = interpreter_header(image)
        place, = struct.unpack_from("<Q", image, at + 8)
        room, = struct.unpack_from("<Q", image, at + 32)
        text = name.encode() + b"\0"
        assert len(text) <= room
        image[place:place + room] = text.ljust(room, b"\0")
    return change


@pytest.mark.parametrize("change, words", [
    (make_static, ("statically linked", "-static")),
    (make_foreign, ("another architecture",)),
    (make_32_bit, ("another architecture", "64-bit")),
    (with_interpreter("/lib/ld-musl-x.so.1"), ("musl", "glibc")),
    (with_interpreter("/nowhere/ld.so"), ("does not put the interceptor",)),
])
def test_a_program_that_cannot_be_intercepted_is_named(daemon, tmp_path, change, words):
    program = patched(tmp_path / "program", change)
    expect(findings(daemon, program)["program"], "problem", str(program), *words)


def test_an_old_c_library_is_named(daemon, tmp_path):
    loader = f"/tmp/ld-{os.getpid()}.so"
    with open(loader, "w") as script:
        script.write("#!/bin/sh\necho \"$LD_PRELOAD: version 'GLIBC_2.17' not found\" >&2\nexit 1\n")
    os.chmod(loader, 0o755)
    try:
        program = patched(tmp_path / "program", with_interpreter(loader))
        expect(findings(daemon, program)["program"], "problem", "too old", "2.17 or newer")
    finally:
        os.unlink(loader)


@pytest.mark.parametrize("bits, word", [(0o4755, "setuid"), (0o2755, "setgid")])
def test_a_program_with_anothers_rights_is_named(daemon, tmp_path, bits, word):
    program = patched(tmp_path / "program", lambda image: None)
    expect(findings(daemon, program)["program"], "ok", str(program))
    program.chmod(bits)
    expect(findings(daemon, program)["program"], "problem", word, "unlimited")


@root_only
def test_file_capabilities_are_named(daemon, tmp_path):
    program = patched(tmp_path / "program", lambda image: None)
    os.setxattr(program, "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0))
    expect(findings(daemon, program)["program"], "problem", "file capabilities", "getcap")


def test_a_scripts_interpreter_is_what_counts(daemon, tmp_path):
    static = patched(tmp_path / "static", make_static)
    script = tmp_path / "script"
    for line, level in ((f"#!{static}", "problem"), ("#!/bin/sh -e", "ok"), ("#!/usr/bin/env sh", "ok")):
        script.write_text(line + "\n")
        script.chmod(0o755)
        expect(findings(daemon, script)["program"], level)
    script.write_text("no program at all\n")
    expect(findings(daemon, script)["program"], "problem", "neither")
    expect(findings(daemon, "no-such-program-anywhere")["program"], "problem", "does not exist")


def test_an_unreadable_interceptor_is_named(daemon, product, tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(product.prefix, tree)
    (tree / "lib" / "gpuslice" / "libgpuslice.so").unlink()
    result = subprocess.run([tree / "bin" / "gpuslice", "doctor", "--json"], env=daemon.environment(),
                            capture_output=True, text=True)
    found = {check["id"]: check for check in json.loads(result.stdout)["checks"]}
    assert result.returncode == 1
    expect({**found["library"], "to_do": "-"}, "problem", "libgpuslice.so is missing")


@root_only
def test_an_interceptor_on_a_noexec_file_system_is_named(daemon, product, tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(product.prefix, tree)
    inside = f"mount -t tmpfs -o noexec none {tree}/lib && cp -r {product.prefix}/lib/gpuslice {tree}/lib/ && " \
             f"exec {tree}/bin/gpuslice doctor --json"
    result = subprocess.run(["unshare", "-m", "sh", "-c", inside], env=daemon.environment(), capture_output=True,
                            text=True)
    if "permission denied" in result.stderr.lower() and not result.stdout:
        pytest.skip("no mounts here")
    found = {check["id"]: check for check in json.loads(result.stdout)["checks"]}
    expect(found["library"], "problem", "noexec")
    expect(found["program"], "problem", "does not put the interceptor")


def test_an_example_runs_on_a_simulated_gpu(daemon, product):
    expect(findings(daemon, product.prefix / "share/gpuslice/examples/bin/saxpy")["program"], "ok", "saxpy")


def test_nvidias_runtime_inside_a_program_is_named(daemon, tmp_path):
    source = tmp_path / "static.c"
    source.write_text('const char *volatile names[] = {"libcuda.so.1", "cudaErrorMemoryAllocation"};\nint main(void) { return !names[0]; }\n')
    subprocess.run(["cc", "-o", tmp_path / "static", source], check=True)
    expect(findings(daemon, tmp_path / "static")["program"], "problem", "linked into", "-cudart shared")


def test_nvidias_runtime_beside_a_program_is_named(daemon, product, tmp_path):
    """A run path in the program leads past the simulated runtime."""
    (tmp_path / "empty.c").write_text("int cudaRuntimeGetVersion(void) { return 0; }\n")
    (tmp_path / "main.c").write_text("int cudaRuntimeGetVersion(void);\nint main(void) { return cudaRuntimeGetVersion(); }\n")
    subprocess.run(["cc", "-shared", "-Wl,-soname,libcudart.so.12", "-o", tmp_path / "libcudart.so.12", tmp_path / "empty.c"],
                   check=True)
    program = tmp_path / "program"
    subprocess.run(["cc", "-o", program, tmp_path / "main.c", tmp_path / "libcudart.so.12"], check=True)
    expect(findings(daemon, program)["program"], "ok")
    subprocess.run(["cc", "-Wl,--disable-new-dtags", f"-Wl,-rpath,{tmp_path}", "-o", program, tmp_path / "main.c",
                    tmp_path / "libcudart.so.12"], check=True)
    expect(findings(daemon, program)["program"], "problem", f"{tmp_path}/libcudart.so.12", "refuses simulated")


@pytest.mark.parametrize("launcher", ["podman", "/usr/bin/docker", "nerdctl"])
def test_a_launcher_of_containers_is_named(daemon, launcher):
    expect(findings(daemon, launcher, "run", "image")["program"], "problem", "containers", "--container")


def test_a_script_that_does_not_exist_and_one_that_looks_for_its_program_are_named(daemon, tmp_path):
    expect(findings(daemon, "python3", "nowhere.py")["program"], "problem", "the script 'nowhere.py' does not exist")
    (tmp_path / "train.py").write_text("")
    expect(findings(daemon, "/usr/bin/python3", tmp_path / "train.py")["program"], "ok")
    shim = tmp_path / "python"
    shim.write_text('#!/usr/bin/env bash\nexec "/opt/pyenv/libexec/pyenv" exec "$program" "$@"\n')
    shim.chmod(0o755)
    expect(findings(daemon, shim)["program"], "warning", "looks for the program when it runs", "pyenv which")


def test_a_program_that_starts_others_elsewhere_is_named(daemon):
    expect(findings(daemon, "ssh", "host", "train")["program"], "problem", "on another machine", "ssh HOST gpuslice run")


# --- The daemon -------------------------------------------------------------------------------------------

def test_folders_and_sockets_that_others_could_replace_are_named(daemon):
    folder = daemon.runtime / "simulated"
    folder.chmod(0o777)
    expect(findings(daemon)["access"], "problem", str(folder), "written by others", "chmod")
    folder.chmod(0o700)
    daemon.attach_socket.unlink()
    expect(findings(daemon)["access"], "problem", "cannot attach", "restart the daemon")


@root_only
def test_a_socket_that_one_may_not_use_is_named(daemon):
    for path in (daemon.folder, daemon.runtime, daemon.runtime / "simulated"):
        path.chmod(0o755)
    found = findings(daemon, under=["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"])
    expect({**found["access"], "to_do": "-"}, "problem", "no permission to use")


def test_a_missing_daemon_is_not_a_problem(daemon):
    daemon.stop()
    found = findings(daemon)
    expect(found["daemon"], "ok", "no daemon is running")
    expect(found["gpus"], "ok", "not known")


@root_only
def test_other_daemons_are_counted(daemon):
    alone = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"]
    expect(findings(daemon, under=alone)["other-daemons"], "ok")
    inside = findings(daemon)["other-daemons"]
    assert f" {daemon.process.pid}" not in inside["finding"], "the one that answers is no other"


def test_another_daemon_is_named(daemon, make_daemon):
    make_daemon(daemon.gpu).start()
    expect(findings(daemon)["other-daemons"], "warning", "other daemon", "the GPUs' time", "system daemon")


def test_another_daemon_may_be_simulated_by_its_environment(daemon, make_daemon):
    other = make_daemon(daemon.gpu)
    other.process = subprocess.Popen([other.product.gpusliced], env=other.environment(), stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(other._ready_or_dead, "the other daemon")
    expect(findings(daemon)["other-daemons"], "warning", str(other.process.pid))


def test_a_daemon_of_another_simulated_machine_does_not_count(daemon, make_daemon):
    make_daemon().start()
    expect(findings(daemon)["other-daemons"], "ok")


def test_a_program_outside_of_sessions_is_named(daemon, product, reap):
    puppet = Puppet(product, daemon.gpu.environment())
    reap(puppet.process)
    puppet.get("context", 0)
    puppet.get("alloc", MIB)
    expect(findings(daemon)["uncovered"], "warning", str(puppet.process.pid), "gpuslice run")


def test_a_gpu_in_mig_mode_is_named(make_daemon, make_gpu):
    daemon = make_daemon(make_gpu(FAKECUDA_DEVICE="h100", FAKECUDA_MIG="1g.10gb,2g.20gb",
                                  FAKECUDA_TOTAL_MEM=8192 * MIB)).start()
    expect(findings(daemon)["mig"], "warning", "GPU 0", "--gpu 0:1")


def test_functions_that_the_driver_does_not_export_are_counted(daemon):
    session = daemon.request("POST", "/v1/sessions", {"name": "s"})[1]
    client = Client(daemon.attach_socket).attach(session["session_id"])
    client.send(notice(CONTEXT, unknown_pointers=7))
    wait_for(lambda: daemon.session("s")["processes"][0]["unknown_pointers"] == 7, "the notice to be read")
    expect(findings(daemon)["pointers"], "warning", f"process {os.getpid()} 7 times", "GPUSLICE_DEBUG=1")
    client.policy.close(), client.usage.close(), client.close()


# --- The machine ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("program, said, level, words", [
    ("containerd", "containerd github.com/containerd/containerd v1.6.33 abc", "warning", ("1.6", "CDI", "1.7")),
    ("containerd", "containerd containerd.io 1.7.0 abc", "ok", ("containerd 1.7",)),
    ("dockerd", "Docker version 24.0.7, build 1", "warning", ("24.0", "25.0")),
    ("podman", "podman version 4.3.1", "ok", ("podman 4.3",)),
])
def test_container_runtimes_without_cdi_are_named(daemon, tmp_path, program, said, level, words):
    script = tmp_path / program
    script.write_text(f"#!/bin/sh\necho '{said}'\n")
    script.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    expect(findings(daemon, environment=path)["containers"], level, *words)


def test_mps_is_named(daemon, tmp_path, reap):
    control = tmp_path / "nvidia-cuda-mps-control"
    shutil.copy(shutil.which("sleep"), control)
    reap(subprocess.Popen([control, "1000"]))
    expect(findings(daemon)["mps"], "warning", "MPS runs", "quit")


@root_only
def test_a_login_without_linger_is_named(daemon):
    def inside(more):
        script = "mount -t tmpfs none /run && mkdir -p /run/systemd/system && mount -t tmpfs none /var/lib && " \
                 f"mkdir -p /var/lib/systemd/linger && {more} exec \"$0\" \"$@\""
        return findings(daemon, under=["unshare", "-m", "sh", "-c", script])["linger"]

    expect(inside(""), "warning", "log out", "enable-linger")
    expect(inside("touch /var/lib/systemd/linger/root &&"), "ok", "lingers")


def forbid(number):
    """In the child: have the kernel answer ENOSYS to one system call, as one that does not know it."""
    def act():
        libc = ctypes.CDLL(None, use_errno=True)
        rules = b"".join(struct.pack("<HBBI", *rule) for rule in [
            (0x20, 0, 0, 0),            # load the number of the call
            (0x15, 0, 1, number),       # is it this one?
            (0x06, 0, 0, 0x00050026),   # ENOSYS
            (0x06, 0, 0, 0x7FFF0000)])  # else go on
        buffer = ctypes.create_string_buffer(rules, len(rules))
        program = struct.pack("<HxxxxxxQ", 4, ctypes.addressof(buffer))
        assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
    return act


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are x86-64's")
@pytest.mark.parametrize("number, level, words", [
    (434, "problem", ("pidfd_open", "5.3")),
    (319, "problem", ("sealed", "5.1")),
    (324, "warning", ("membarrier", "4.14")),
])
def test_an_old_kernel_is_named(daemon, number, level, words):
    expect(findings(daemon, preexec_fn=forbid(number))["kernel"], level, *words)


# --- Kubernetes -------------------------------------------------------------------------------------------

@root_only
@pytest.mark.parametrize("sockets, level, words", [
    (None, "ok", ("not a Kubernetes node",)),
    ([], "warning", ("without gpuslice-kubelet",)),
    (["device-plugins/nvidia-gpu.sock"], "warning", ("without gpuslice-kubelet",)),
    (["plugins_registry/gpu.gpuslice.io-reg.sock"], "ok", ("by DRA",)),
    (["device-plugins/gpuslice.io-gpu.sock", "plugins_registry/gpu.gpuslice.io-reg.sock"], "ok",
     ("DRA and the device plug-in",)),
    (["device-plugins/gpuslice.io-gpu.sock", "device-plugins/nvidia-gpu.sock"], "warning",
     ("nvidia-gpu.sock", "whole GPUs", "remove it")),
])
def test_the_node_is_known(daemon, sockets, level, words):
    expect(findings(daemon, under=on_node(sockets))["kubernetes"], level, *words)


@root_only
def test_what_the_plug_in_notes_is_told(daemon):
    note = "GPU GPU-1 offers 3 of its 10 slices; one more does not fit"
    found = findings(daemon, under=on_node(["device-plugins/gpuslice.io-gpu.sock"], note))
    expect(found["kubernetes"], "warning", note, "events")


def on_node(sockets, note=None):
    node = "/var/lib/kubelet"
    steps = ["mount -t tmpfs none /var/lib"]
    if sockets is not None:
        steps += [f"mkdir -p {node}/device-plugins {node}/plugins_registry", *[f"touch {node}/{name}" for name in sockets]]
    if note:
        steps += [f"mkdir -p {node}/plugins/gpu.gpuslice.io", f"echo '{note}' >{node}/plugins/gpu.gpuslice.io/notes"]
    under = ["unshare", "--mount", "--propagation", "private", "sh", "-c", " && ".join([*steps, "exec \"$@\""]), "sh"]
    if subprocess.run([*under, "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    return under


@root_only
@pytest.mark.parametrize("switch, level, words", [("false", "warning", ("enable_cdi = false", "enable_cdi = true", "without a GPU")),
                                                  ("true", "ok", ("by DRA",))])
def test_a_runtime_whose_cdi_is_off_is_named(daemon, tmp_path, switch, level, words):
    script = tmp_path / "containerd"
    script.write_text("#!/bin/sh\n[ \"$1\" = --version ] && exec echo containerd x 1.7.24 abc\n[ \"$*\" = 'config dump' ] || exit 1\n"
                      f"echo '    disable_tcp_service = true'\necho '    enable_cdi = {switch}'\n")
    script.chmod(0o755)
    found = findings(daemon, under=on_node(["plugins_registry/gpu.gpuslice.io-reg.sock"]), environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    expect(found["kubernetes"], level, *words)


def test_a_full_disk_is_named(make_daemon, small_disk):
    daemon = make_daemon()
    daemon.state = small_disk("state", 4)
    daemon.more["GPUSLICE_STATE_DIR"] = str(daemon.state)
    expect(findings(daemon.start())["disk"], "problem", f"the disk of {daemon.state}", "is full", "make room")
