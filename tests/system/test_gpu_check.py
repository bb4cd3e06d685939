"""gpu-check on the simulated GPU: that it passes there, that planted faults make the right check fail, and that it leaves
nothing behind however it ends."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

from conftest import MIB, SOURCE, wait_for
from test_quota import Puppet

pytestmark = pytest.mark.usefixtures("before_others")

QUOTA = 2048 * MIB


class GpuCheck:
    def __init__(self, product, folder, prefix=None):
        self.prefix = prefix or product.prefix
        self.folder = folder
        self.before, self.simulated, self.given = [], ["--simulated"], {}
        self.temporary = folder / "t"
        self.temporary.mkdir()

    def environment(self, **more):
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith(("GPUSLICE_", "FAKECUDA_", "CUDA_")) and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
        return {**clean, "TMPDIR": str(self.temporary), **self.given, **more}

    def spawn(self, *options, **more):
        self.process = subprocess.Popen([*self.before, self.prefix / "bin" / "gpu-check", *self.simulated, *options],
                                        env=self.environment(**more), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return self.process

    def run(self, *options, **more):
        """Exit status, and the checks' results by name."""
        out = self.folder / "out.json"
        process = self.spawn("--json", out, *options, **more)
        text, errors = process.communicate(timeout=240)
        self.text = text
        assert errors == "", errors
        self.whole = json.loads(out.read_text())
        return process.returncode, {row["name"]: row for row in self.whole["checks"]}

    def only(self, *names, **more):
        return self.run(*[word for name in names for word in ("--only", name)], **more)

    def processes(self):
        """Those that were started with our folder for temporary files."""
        mark = f"TMPDIR={self.temporary}".encode()
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                pass
        return found

    def part_runs(self, name):
        """Whether a part of that name is there. (The first one, which says what the GPU is, comes before the daemon.)"""
        for pid in self.processes():
            try:
                if f"gpu-check\0--part\0{name}".encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pathlib.Path(f"/proc/{pid}/comm").read_text() == "gpu-check\n"
            except OSError:
                pass
        return False

    def left(self):
        return self.processes(), [path.name for path in self.temporary.iterdir()], self.shared()

    def shared(self):
        return [path.name for path in pathlib.Path("/dev/shm").glob(f"fakecuda-*-gpu-check-{self.process.pid}*")]


NOTHING = ([], [], [])


@pytest.fixture
def folder(tmp_path_factory):
    made = pathlib.Path(subprocess.check_output(["mktemp", "-d", "/tmp/gc-XXXX"], text=True).strip())
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def gpu_check(product, folder):
    return GpuCheck(product, folder)


@pytest.fixture
def as_card(product, folder, make_gpu):
    """gpu-check which takes the GPU of the simulated driver for a real one, as there is a sign of NVIDIA's kernel module."""
    sign = ["unshare", "--mount", "sh", "-ec", "mount -t tmpfs none /proc/driver; mkdir /proc/driver/nvidia; "
            "touch /proc/driver/nvidia/version; exec \"$@\"", "sh"]
    if subprocess.run([*sign, "true"], capture_output=True).returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    drivers = folder / "drivers"
    drivers.mkdir()
    shutil.copy(product.simulated / "libcuda.so.1", drivers)
    (drivers / "libnvidia-ml.so.1").symlink_to("libcuda.so.1")
    check = GpuCheck(product, folder)
    check.before, check.simulated, check.given = sign, [], {"LD_LIBRARY_PATH": str(drivers), "FAKECUDA_BLOCK_BYTES": "2MiB",
                                  "FAKECUDA_NAME": make_gpu().name}
    return check


@pytest.fixture
def planted(product, folder):
    """gpu-check of a tree whose interceptor has a fault."""
    tree = folder / "tree"
    shutil.copytree(product.prefix / "bin", tree / "bin", symlinks=True)
    shutil.copytree(product.prefix / "lib" / "gpuslice", tree / "lib" / "gpuslice", symlinks=True)
    (tree / "lib" / "gpuslice" / "real").mkdir()
    interceptor = tree / "lib" / "gpuslice" / "libgpuslice.so"
    interceptor.rename(tree / "lib" / "gpuslice" / "real" / "libgpuslice.so")
    shutil.copy(product.program("libplanted.so"), interceptor)
    return GpuCheck(product, folder, tree)


def outcomes(rows):
    """Of the checks asked for; the daemon's own comes with every run, and has to be well."""
    outcomes = {name: row["outcome"] for name, row in rows.items()}
    assert outcomes.pop("daemon") == "passed", rows["daemon"]["reasons"]
    return outcomes


@pytest.mark.long
def test_everything_that_can_run_simulated_passes(gpu_check):
    status, rows = gpu_check.run()
    assert [row for row in rows.values() if row["outcome"] == "failed"] == []
    assert status == 0
    needs_a_card = {"nvidia-smi", "cudart-static", "torch", "torch-line", "torch-expandable", "torch-moves", "torch-moves-expandable", "jax",
                    "jax-defaults", "cupy", "sanitizer", "pdl"}
    not_run = {name for name, outcome in outcomes(rows).items() if outcome == "not run"}
    busy = {name for name in not_run if rows[name]["reasons"] == ["the CPUs were busy with something else"]}
    assert not_run - busy - {"cudart-shared"} == needs_a_card  # cudart-shared needs nvcc
    assert all(rows[name]["reasons"] for name in not_run)
    assert f"{len(rows) - len(not_run)} passed, 0 failed, {len(not_run)} not run" in gpu_check.text
    assert gpu_check.whole["simulated"] is True
    assert gpu_check.whole["seconds"] < 200
    assert gpu_check.left() == NOTHING
    assert len(rows["fidelity"]["details"]) == rows["fidelity"]["figures"]["claims"]["value"] > 200
    assert set(rows["fidelity"]["details"].values()) == {"holds"}
    linear = rows["path-linear"]["figures"]
    assert linear["asked"] == {"value": 64 * MIB, "unit": "bytes"}
    assert linear["charged"]["value"] == linear["nvml"]["value"] == 64 * MIB
    assert rows["session-view"]["figures"]["cuMemGetInfo_total"]["value"] == QUOTA
    exact = rows["quota-exact"]["figures"]
    assert exact["granted"]["value"] + exact["left_at_refusal"]["value"] == exact["free_beside_context"]["value"]


# --- Which GPU ---


def test_a_gpu_in_mig_mode_is_checked_by_its_first_instance(gpu_check):
    """CUDA's number 0 is that instance, and no GPU of sessions has this number."""
    status, rows = gpu_check.only("driver", "session-view", "path-linear", "standalone", FAKECUDA_MIG="3g.8gb")
    assert (status, set(outcomes(rows).values())) == (0, {"passed"}), rows
    assert rows["driver"]["figures"]["uuid"].startswith("MIG-")


def test_a_list_of_visible_gpus_means_its_first(as_card, product, reap):
    """Were sessions made on all, the one that somebody else has filled would refuse them."""
    card = {"FAKECUDA_GPUS": "2", "FAKECUDA_TOTAL_MEM": "5GiB"}
    holder = Puppet(product, as_card.environment(**card, CUDA_VISIBLE_DEVICES="1"))
    reap(holder.process)
    holder.get("context", 0)
    holder.get("alloc", 4 << 30)
    status, rows = as_card.only("session-view", **card, CUDA_VISIBLE_DEVICES="0,1")
    assert (status, outcomes(rows)) == (0, {"session-view": "passed"}), rows
    holder.end()


def test_a_gpu_that_does_not_exist_is_named(gpu_check):
    process = gpu_check.spawn("--gpu", "7", "--only", "driver")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "GPU '7' cannot be used (" in errors and "CUDA_ERROR_NO_DEVICE" in errors
    assert gpu_check.left() == NOTHING


NVIDIA_SMI = """#!/usr/bin/python3
import ctypes, sys
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
count = ctypes.c_uint()
assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
devices = [ctypes.c_void_p() for _ in range(1 if "-i" in sys.argv else count.value)]
for index, device in enumerate(devices):
    if "-i" in sys.argv:
        assert nvml.nvmlDeviceGetHandleByUUID(sys.argv[sys.argv.index("-i") + 1].encode(), ctypes.byref(device)) == 0
    else:
        assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0
    memory = (ctypes.c_ulonglong * 3)()
    assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
    print(memory[0] >> 20)
"""


def test_nvidia_smi_is_asked_about_the_gpu_of_the_session(as_card):
    """It lists all GPUs of the machine, and outside of the session GPU 0 is as large as ever."""
    path = program(as_card, "nvidia-smi", NVIDIA_SMI)
    _, rows = as_card.run("--gpu", "1", "--only", "nvidia-smi", PATH=path, FAKECUDA_GPUS="2")
    assert outcomes(rows) == {"nvidia-smi": "passed"}, rows
    assert rows["nvidia-smi"]["figures"]["memory_total"]["value"] == 2048
    _, rows = as_card.only("nvidia-smi", PATH=path, FAKECUDA_MIG="3g.8gb", FAKECUDA_NAME=f"{as_card.given['FAKECUDA_NAME']}-mig")
    assert outcomes(rows) == {"nvidia-smi": "not run"}, rows


# --- Other people's programs ---


def program(check, name, text):
    """A search path in which this program comes first."""
    folder = check.folder / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


NVCC = """#!/bin/sh
printf '#!/bin/sh\n%s\n' '{program}' >"$4"
chmod +x "$4"
"""


@pytest.mark.parametrize("built, outcome, reason", [
    ("echo 35 21 0 35", "not run", "what nvcc builds does not run here outside of sessions: 35 21 0 35"),
    ("[ -z \"$GPUSLICE_SESSION\" ] && echo 0 42 1 0", "failed", "the program ended with status 1: "),
])
def test_a_runtime_that_does_not_run_outside_says_nothing_about_sessions(gpu_check, built, outcome, reason):
    path = program(gpu_check, "nvcc", NVCC.format(program=built))
    _, rows = gpu_check.only("cudart-shared", PATH=path)
    assert outcomes(rows) == {"cudart-shared": outcome}
    assert rows["cudart-shared"]["reasons"][0].strip() == reason.strip()


def test_what_others_write_in_broken_utf_8_does_not_keep_results_from_being_written(gpu_check):
    path = program(gpu_check, "python3", "#!/bin/sh\nprintf 'failed caf\\303\\n'\n")
    status, rows = gpu_check.only("torch", PATH=path)
    assert status == 1
    assert rows["torch"]["reasons"][:2] == ["caf? (outside)", "caf?"]


PYTHON = """#!/usr/bin/python3
import os, subprocess, sys
assert sys.argv[1].endswith("/lib/gpuslice/gpu-check/check_torch_moves.py")
training = subprocess.Popen([{gpu_check!r}, "--part", "training", "--simulated"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
wrong = "GPUSLICE_SESSION" in os.environ and "PYTORCH_ALLOC_CONF" in os.environ
print(training.stdout.readline().decode(), end="", flush=True)
for number, line in enumerate(sys.stdin, 1):
    training.stdin.write(line.encode())
    training.stdin.flush()
    for _ in range(3 if line == "step\\n" else 1):
        answer = training.stdout.readline().decode()
        print("0" + answer[1:] if wrong and number == 3 and " " in answer else answer, end="", flush=True)
training.stdin.close()
sys.exit(training.wait())
"""


def test_a_loss_that_moves_have_changed_is_seen(gpu_check):
    """Of a stand-in for PyTorch, which trains by a program of ours; with expandable segments one of its losses is another one in the
    session."""
    path = program(gpu_check, "python3", PYTHON.format(gpu_check=str(gpu_check.prefix / "bin" / "gpu-check")))
    status, rows = gpu_check.only("torch-moves", "torch-moves-expandable", PATH=path)
    assert outcomes(rows) == {"torch-moves": "passed", "torch-moves-expandable": "failed"}, rows
    right = rows["torch-moves"]["figures"]
    assert right["in_the_middle_of_the_way_there"]["value"] >= 1 and right["in_the_middle_of_the_way_back"]["value"] >= 1
    (reason,) = rows["torch-moves-expandable"]["reasons"]
    assert re.fullmatch(r"the loss of step 3 is 0[0-9a-f]{7}, and undisturbed [1-9a-f][0-9a-f]{7}", reason)
    assert status == 1
    assert gpu_check.left() == NOTHING


# --- What was measured ---


def test_a_copy_is_timed_from_when_it_is_told_to_begin(gpu_check):
    """Not from when it was ready, while the other one was measured."""
    status, rows = gpu_check.only("copies-two-processes")
    assert status == 0
    figures = {name: figure["value"] for name, figure in rows["copies-two-processes"]["figures"].items()}
    assert figures["device_to_host_alone"] > figures["host_to_device_alone"] / 5, figures
    assert figures["host_to_device_beside"] > figures["host_to_device_alone"] / 20, figures


def test_the_length_of_a_step_is_measured_when_the_kernel_has_been_loaded(as_card, remote):
    """Else the first kernel seems so long that short ones are compared."""
    drivers = pathlib.Path(as_card.given["LD_LIBRARY_PATH"])
    _, rows = as_card.only("kernels", **remote(drivers), REMOTE_LOADS_MS="20")
    assert rows["kernels"]["outcome"] == "passed", rows
    assert rows["kernels"]["figures"]["calibrated_by_kernels_of"]["value"] >= 4


def test_exits_that_take_longer_than_there_is_time_are_fewer(gpu_check):
    _, rows = gpu_check.run("--only", "exits", "--budget", "9")
    assert outcomes(rows)["exits"] != "failed", rows
    assert 0 < rows["exits"]["figures"]["exits"]["value"] < 40


def test_claims_that_a_group_did_not_come_to_are_not_lost_among_others(gpu_check):
    """Of a GPU that has no room for a context."""
    _, rows = gpu_check.only("fidelity", FAKECUDA_TOTAL_MEM="128MiB")
    figures = {name: figure["value"] for name, figure in rows["fidelity"]["figures"].items()}
    details = rows["fidelity"]["details"]
    assert figures["groups_cut_short"] > 20
    assert len(details) == figures["claims"] + figures["groups_cut_short"]
    assert details["cuCtxCreate_v2, which the group pools needs"] == "claimed CUDA_SUCCESS, found CUDA_ERROR_OUT_OF_MEMORY"


# --- What checks leave to each other and to others ---


def test_a_check_that_ends_early_leaves_no_short_turns(planted, reap):
    out = planted.folder / "out.json"
    process = reap(planted.spawn("--only", "capture-gates", "--only", "small-launches", "--json", out,
                                 PLANTED="extra:cuStreamBeginCapture_v2"))
    wait_for(lambda: out.exists() and "has 21 nodes" in out.read_text(), "the first check to fail", 60)
    (runtime,) = planted.temporary.glob("gpu-check-*/run")
    scheduler = subprocess.run([planted.prefix / "bin" / "gpuslice", "scheduler", "--json"], text=True, check=True, timeout=60,
                               env=planted.environment(GPUSLICE_RUNTIME_DIR=str(runtime), GPUSLICE_SIMULATED="1"),
                               stdout=subprocess.PIPE)
    assert json.loads(scheduler.stdout)["quantum_auto"] is True
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 1


def test_ranks_that_hang_leave_no_file(planted, reap):
    before = set(pathlib.Path("/dev/shm").glob("gpu-check-*"))
    process = reap(planted.spawn("--only", "ranks", PLANTED="hang:cuMemHostRegister_v2"))
    wait_for(lambda: planted.part_runs("rank"), "a rank", 60)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 1
    assert set(pathlib.Path("/dev/shm").glob("gpu-check-*")) <= before
    assert planted.left() == NOTHING


def test_another_daemons_settings_mean_nothing_to_the_checks(gpu_check):
    others, log, audit = gpu_check.folder / "others", gpu_check.folder / "log", gpu_check.folder / "audit"
    (others / "simulated").mkdir(parents=True)
    (others / "simulated" / "gpuslice.conf").write_text(f"[daemon]\nlog-file = {log}\n")
    status, rows = gpu_check.only("session-view", GPUSLICE_CONFIG_DIR=str(others), GPUSLICE_AUDIT_PATH=str(audit))
    assert (status, outcomes(rows)) == (0, {"session-view": "passed"})
    assert not log.exists() and not audit.exists()


FIRST_DEF = (SOURCE / "src/gpucheck/first.def").read_text()
FIRST = re.findall(r'^FIRST\("([\w-]+)"', FIRST_DEF, re.MULTILINE)
STAGES = [[int(number), int(seconds)] for number, seconds in re.findall(r"^STAGE\((\d+), (\d+),", FIRST_DEF, re.MULTILINE)]
STAGE = {number: re.findall(r'^FIRST\("([\w-]+)"', part, re.MULTILINE)
         for (number, _), part in zip(STAGES, re.split(r"^STAGE", FIRST_DEF, flags=re.MULTILINE)[1:])}
CHECKS = re.findall(r'^CHECK\("([\w-]+)"', (SOURCE / "src/gpucheck/checks.def").read_text(), re.MULTILINE)


def test_first_names_checks_that_there_are_and_ends_with_what_may_break_the_driver():
    assert len(FIRST) == len(set(FIRST)) and set(FIRST) <= set(CHECKS)
    assert FIRST[0] == "modes" and FIRST[-1] == "checkpoint"


def test_the_stages_of_first_take_thirty_minutes_and_none_ten():
    assert [number for number, _ in STAGES] == [1, 2, 3, 4, 5]
    assert sum(seconds for _, seconds in STAGES) == 1800
    assert all(seconds < 600 for _, seconds in STAGES)


def test_the_pages_tables_are_those_of_the_code():
    checked = subprocess.run([SOURCE / "scripts/gpu-check-page", "--check"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr


def test_first_goes_in_its_own_order_and_writes_after_each_check(gpu_check, reap):
    """Ended early, it has written what it found, and leaves nothing."""
    out = gpu_check.folder / "out.json"
    process = reap(gpu_check.spawn("--first", "--json", out, FAKECUDA_DEVICE="h100"))

    def written():
        try:
            return [row["name"] for row in json.loads(out.read_text())["checks"]]
        except (OSError, ValueError):
            return []  # just being written
    wait_for(lambda: len(written()) >= 5, "five checks to be written", 60)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 1
    names = written()
    assert names == FIRST[:len(names)] and len(names) < len(FIRST)
    assert gpu_check.left() == NOTHING


@pytest.mark.long
@pytest.mark.parametrize("device", ["default", "h100"])
def test_first_ends_within_its_time(gpu_check, device):
    out = gpu_check.folder / "out.json"
    process = gpu_check.spawn("--first", "--json", out, FAKECUDA_DEVICE=device)
    text, errors = process.communicate(timeout=620)
    rows = json.loads(out.read_text())["checks"]
    assert [row["name"] for row in rows] == [*FIRST, "daemon"], errors
    assert [row for row in rows if row["outcome"] == "failed"] == []
    assert process.returncode == 0
    assert gpu_check.left() == NOTHING


# --- What is believed of a card ---


def verdicts(row):
    return {belief["claim"]: belief["verdict"] for belief in row["beliefs"]}


def test_the_micro_checks_find_a_sound_simulated_card_as_the_docs_say(gpu_check):
    status, rows = gpu_check.run("--first", "--stage", "2", FAKECUDA_DEVICE="h100")
    assert status == 0 and list(rows) == [*STAGE[2], "daemon"]
    found = {name: verdicts(row) for name, row in rows.items()}
    for name in ("unmap-running", "free-waits", "legacy-query", "graph-remapped", "buffer-id", "most-asked"):
        assert rows[name]["outcome"] == "passed" and set(found[name].values()) == {"as believed"}, rows[name]
    assert {rows["digests"]["figures"][f"of_{size}MiB"] for size in (2, 20, 256)} == {"right"}  # what they take, the CPUs decide here
    assert found["create-access"]["memory that is created for RDMA can be reached as plain memory can"] == "as believed"
    # Kernels of one GPU do not run side by side here, so that an overlap cannot be seen.
    assert set(found["pdl"].values()) == {"could not be tried"}
    assert "do not run side by side" in rows["pdl"]["reasons"][0]
    assert "    as believed: docs/oversubscription.md: digests tell whether memory has changed" in gpu_check.text
    assert re.search(r"^of what the docs say of a card: \d+ as believed, \d+ not as believed, \d+ could not be tried$", gpu_check.text, re.M)


@pytest.mark.parametrize("setting, check, belief, verdict, found, outcome", [
    ({"FAKECUDA_RDMA_ACCESS": "0"}, "create-access", "memory that is created for RDMA can be reached as plain memory can",
     "not as believed", "cuMemSetAccess answers CUDA_ERROR_UNKNOWN", "passed"),
    ({"FAKECUDA_DEVICE": "t4"}, "create-access", "memory with FABRIC handles can be made where the GPU claims it",
     "could not be tried", "not tried: the GPU does not claim it; cuMemCreate answers CUDA_ERROR_NOT_SUPPORTED", "passed"),
    ({"FAKECUDA_FREE_WAITS": "1"}, "free-waits", "a free of one byte does not wait for the context's work", "not as believed", "yes", "passed"),
    ({"FAKECUDA_UNMAP_WAITS": "1"}, "unmap-running", "unmapping does not wait for kernels that use the memory", "not as believed", "yes", "passed"),
    ({"FAKECUDA_FAULT": "wrong@3"}, "digests", "digests tell whether memory has changed", "not as believed", "wrong", "failed"),
    ({"FAKECUDA_FAULT": "wrong@10"}, "digests", "... of 20 MiB", "not as believed", "wrong", "failed"),
    ({"FAKECUDA_IMEX": "0"}, "create-access", "memory with FABRIC handles can be made where the GPU claims it",
     "not as believed", "cuMemCreate answers CUDA_ERROR_NOT_PERMITTED", "passed"),
    ({"FAKECUDA_NVML_NO_FIGURES": "2"}, "memory-figures", "NVML tells what a process has", "not as believed", "no", "passed"),
    ({"FAKECUDA_NVML_NO_FIGURES": "1"}, "memory-figures", "NVML tells what a process has", "not as believed", "no", "passed"),
    # It measures: beside other work, the figures say little.
    pytest.param({"FAKECUDA_EVENT_WAITS": "0"}, "slices", "an event is reached in a slice of its context", "not as believed", "no",
                 "passed", marks=pytest.mark.long),
])
def test_a_fault_of_the_card_is_named_by_the_step_that_is_about_it(gpu_check, setting, check, belief, verdict, found, outcome):
    status, rows = gpu_check.only(check, **{"FAKECUDA_DEVICE": "h100", **setting})
    (told,) = [row for row in rows[check]["beliefs"] if row["claim"] == belief]
    assert (told["verdict"], told["found"]) == (verdict, found)
    assert outcomes(rows) == {check: outcome} and status == (outcome == "failed")
    if outcome == "failed":
        (reason,) = rows[check]["reasons"]
        assert reason.startswith("GPU Slice rests on this (docs/") and f"found '{found}'" in reason


def test_a_gpu_whose_memory_nvml_does_not_tell_is_named_as_one(gpu_check):
    """The daemon does without, so nothing fails; sessions keep their quotas."""
    status, rows = gpu_check.only("driver", "memory-figures", "nvml-latency", "quota-exact", FAKECUDA_NVML_NO_MEMORY="1")
    assert status == 0 and outcomes(rows) == {
        "driver": "passed", "memory-figures": "passed", "nvml-latency": "not run", "quota-exact": "passed"}
    (told,) = [row for row in rows["memory-figures"]["beliefs"] if row["claim"] == "NVML tells what a GPU has"]
    assert (told["verdict"], told["found"]) == ("not as believed", "no")
    assert rows["nvml-latency"]["reasons"] == ["NVML does not tell what this GPU has, as where it shares the host's memory"]


@pytest.mark.parametrize("setting, why", [("FAKECUDA_VMM=0", "has no virtual memory management"),
                                          ("FAKECUDA_NVML_NO_MEMORY=1", "shares the host's memory")])
def test_what_is_about_memory_that_leaves_is_not_run_where_none_can(gpu_check, setting, why):
    """Docs say that such sessions are refused there, so nothing has failed."""
    status, rows = gpu_check.only("moves", "moves-training", "quota-exact", **dict([setting.split("=")]))
    assert status == 0 and outcomes(rows) == {"moves": "not run", "moves-training": "not run", "quota-exact": "passed"}
    assert rows["moves"]["reasons"] == rows["moves-training"]["reasons"] == [f"no memory leaves this GPU, which {why}"]


@pytest.mark.parametrize("number, mode", [("3", "EXCLUSIVE_PROCESS"), ("2", "PROHIBITED")])
def test_a_compute_mode_in_which_nobody_shares_ends_the_run_at_once(gpu_check, number, mode):
    begin = time.monotonic()
    status, rows = gpu_check.run("--first", FAKECUDA_COMPUTE_MODE=number)
    assert status == 1 and time.monotonic() - begin < 60
    assert rows["modes"]["outcome"] == "failed" and rows["modes"]["reasons"][0].startswith(f"the GPU's compute mode is {mode}")
    rest = [rows[name] for name in FIRST[1:]]
    assert {row["outcome"] for row in rest} == {"not run"}
    assert {tuple(row["reasons"]) for row in rest} == {("the check modes stopped the run",)}
    assert gpu_check.left() == NOTHING


def test_work_is_measured_when_the_clock_has_risen(gpu_check):
    """A step takes 20 ns, and twice that at first: at the clock of a GPU that was idle, shares would be judged by half."""
    _, rows = gpu_check.only("kernels", "share-max", FAKECUDA_RAMP_NS="2e9")
    assert outcomes(rows)["kernels"] == "passed" and outcomes(rows)["share-max"] != "failed", rows
    assert rows["kernels"]["figures"]["steps_a_microsecond"]["value"] == pytest.approx(50, rel=0.03)


def test_most_of_the_hosts_memory_is_for_what_leaves_the_card(planted, reap):
    """A daemon takes half of it by default, and nine tenths of a card may need more."""
    process = reap(planted.spawn("--only", "path-managed", PLANTED="hang:cuMemAllocManaged"))
    wait_for(lambda: planted.part_runs("path"), "the check's part")
    (conf,) = planted.temporary.glob("gpu-check-*/config/simulated/gpuslice.conf")
    host_memory = int(re.search(r"host-memory = (\d+)", conf.read_text())[1])
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    available = int(re.search(r"MemAvailable: +(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) * 1024
    assert total / 20 < host_memory < total and host_memory == pytest.approx(0.85 * available, rel=0.3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 1


def test_each_constant_that_a_check_measures_is_a_figure_of_it(gpu_check):
    """Else a card's results would leave it as it is, and nobody would know."""
    text = (SOURCE / "src/simgpu/device/constants.def").read_text()
    wanted = {tuple(name.split(".", 1)) for name in re.findall(r'^SIM_CONSTANT\([^"]*"([\w-]+\.\w+)"', text, re.MULTILINE)}
    _, rows = gpu_check.only(*sorted({check for check, _ in wanted}), FAKECUDA_DEVICE="h100")
    missing = {(check, figure) for check, figure in wanted if figure not in rows[check]["figures"]}
    if rows["registering"]["figures"]["in_huge_pages"]["value"] == 0:  # where the kernel gives none
        missing.discard(("registering", "huge_pages_at_once_rate"))
    assert missing == set()
    assert {check for check, _ in wanted} <= set(FIRST)


@pytest.mark.long  # it measures too
def test_slices_are_found_as_the_simulated_card_has_them(gpu_check):
    """The default card's are of 2 ms and change without a cost; h100's of 1.024 ms, and a change takes 0.1 ms."""
    status, rows = gpu_check.only("slices", "call-times", FAKECUDA_DEVICE="h100")
    assert status == 0 and outcomes(rows) == {"slices": "passed", "call-times": "passed"}
    figures = rows["slices"]["figures"]
    assert figures["a_running_kernel_is_preempted"] == "yes"
    assert figures["slice"]["value"] == pytest.approx(1024, rel=0.5)
    assert figures["switch"]["value"] == pytest.approx(100, rel=0.5)
    assert figures["an_event_waits_for_a_slice"] == "yes"
    assert figures["short_kernel_beside_long_ones_by_events"]["value"] < figures["short_kernel_beside_long_ones"]["value"] / 4
    assert rows["call-times"]["figures"]["launch"]["value"] > 2.4  # 2.5 us of CPU time, and what the machine adds


@pytest.mark.long  # it measures: beside other work, the figures say little
def test_whether_events_wait_for_slices_is_found(gpu_check):
    status, rows = gpu_check.only("slices", FAKECUDA_DEVICE="h100", FAKECUDA_EVENT_WAITS="0")
    figures = rows["slices"]["figures"]
    assert status == 0 and figures["an_event_waits_for_a_slice"] == "no"
    assert figures["short_kernel_beside_long_ones_by_events"]["value"] > figures["short_kernel_beside_long_ones"]["value"] / 2


def test_the_planted_tree_without_a_fault_passes(planted):
    status, rows = planted.only("path-linear", "path-pitched", "cost-alloc")
    assert set(outcomes(rows).values()) == {"passed"}, rows
    assert status == 0


@pytest.mark.parametrize("fault, check, reason", [
    ("unhooked:cuMemAllocPitch_v2", "path-pitched", "by dlsym: 67108864 bytes taken, 0 charged"),
    ("unhooked:cuMemCreate", "path-vmm", "by dlsym: 67108864 bytes taken, 0 charged"),
    ("unhooked:cuArrayCreate_v2", "path-array", "by dlsym: 67108864 bytes taken, 0 charged"),
    ("unhooked:cuMemGetInfo_v2", "session-view", f"in a session of {QUOTA} bytes cuMemGetInfo says {16 << 30}"),
    ("half:cuMemAlloc_v2", "path-linear", "by dlsym: 67108864 bytes taken, 33554432 charged"),
    ("unhooked:cuMemAlloc_v2", "standalone", "more than the limit was answered with CUDA_SUCCESS"),
    ("slow:cuMemAlloc_v2", "cost-alloc", "us more inside a session"),
    pytest.param("unhooked:cuLaunchKernel", "shares-even", "the daemon counts 0.0 and 0.0 %", marks=pytest.mark.long),
    pytest.param("unhooked:cuLaunchKernel", "shares-uneven", "sessions of 25%..100% and 75%..100% got", marks=pytest.mark.long),
    ("unhooked:cuLaunchKernel", "share-max", "a session of at most 25 % got"),
    ("extra:cuStreamBeginCapture_v2", "capture-gates", "has 21 nodes and 20 edges"),
    ("unhooked:cuLaunchKernel", "handover", "and 0 by the daemon"),
    ("unhooked:cuLaunchKernel", "ranks", "gates closed 0 times meanwhile"),
    ("crash:cuMemAllocManaged", "path-managed", "its part 'path' was ended by signal 6"),
])
def test_a_planted_fault_fails_the_check_that_is_about_it(planted, fault, check, reason):
    status, rows = planted.only(check, "path-array3d", PLANTED=fault)
    assert outcomes(rows) == {check: "failed", "path-array3d": "passed"}
    assert any(reason in said for said in rows[check]["reasons"]), rows[check]["reasons"]
    assert status == 1
    assert planted.left() == NOTHING


MOVES = ("moves", "moves-exchange", "moves-training", "torch-moves", "torch-moves-expandable")


@pytest.mark.parametrize("fault, reason", [
    ("unhooked:cuMemAlloc_v2", r"of \d{8,} bytes, 0 left the card"),  # it is outside of the session: nothing leaves, and nothing is lost
    ("pinned:cuMemAlloc_v2", r"is partly away: 0B left the card, and [\d.]+MiB stay \(set to CU_POINTER_ATTRIBUTE_SYNC_MEMOPS\)"),
])
def test_a_check_of_moves_fails_where_nothing_left(planted, fault, reason):
    """Although no byte is wrong, and every loss is the same."""
    path = program(planted, "python3", PYTHON.format(gpu_check=str(planted.prefix / "bin" / "gpu-check")))
    status, rows = planted.only(*MOVES, PLANTED=fault, PATH=path)
    assert status == 1 and outcomes(rows) == dict.fromkeys(MOVES, "failed")
    for check in MOVES:
        assert any(re.search(reason, said) for said in rows[check]["reasons"]), rows[check]["reasons"]


def test_a_daemon_that_does_not_start_fails_what_needs_it_alone(planted):
    daemon = planted.prefix / "bin" / "gpusliced"
    daemon.unlink()
    daemon.write_text("#!/bin/sh\necho gpusliced: made up >&2\nexit 1\n")
    daemon.chmod(0o755)
    status, rows = planted.only("kernels", "session-view")
    assert {name: row["outcome"] for name, row in rows.items()} == {"kernels": "passed", "session-view": "failed",
                                                                   "daemon": "failed"}
    assert rows["daemon"]["reasons"] == ["the daemon ended: gpusliced: made up"]
    assert "made up" in rows["session-view"]["reasons"][0]
    assert status == 1
    assert planted.left() == NOTHING


def test_a_daemon_that_dies_meanwhile_is_told(planted, reap):
    out = planted.folder / "out.json"
    process = reap(planted.spawn("--only", "kernels", "--only", "path-managed", "--json", out, "--budget", "8",
                                 PLANTED="hang:cuMemAllocManaged"))
    wait_for(lambda: planted.part_runs("path"), "the check's part")
    for pid in planted.processes():
        try:
            if pathlib.Path(f"/proc/{pid}/comm").read_text() == "gpusliced\n":
                os.kill(pid, signal.SIGKILL)
        except OSError:
            pass  # another one of them, which has just ended
    assert process.wait(30) == 1
    rows = {row["name"]: row for row in json.loads(out.read_text())["checks"]}
    assert rows["kernels"]["outcome"] == "passed"
    assert rows["daemon"]["outcome"] == "failed"
    assert rows["daemon"]["reasons"] == ["ended by signal 9 (Killed)"]
    assert planted.left() == NOTHING


def test_a_check_that_hangs_ends_at_its_deadline_and_the_rest_is_not_run(planted):
    begin = time.monotonic()
    status, rows = planted.run("--only", "path-managed", "--only", "path-vmm", "--budget", "7",
                               PLANTED="hang:cuMemAllocManaged")
    assert outcomes(rows) == {"path-managed": "failed", "path-vmm": "not run"}
    assert "it had not ended after" in rows["path-managed"]["reasons"][0]
    assert "was used up" in rows["path-vmm"]["reasons"][0]
    assert status == 1
    assert time.monotonic() - begin < 25
    assert planted.left() == NOTHING


def test_it_ends_on_a_signal_and_leaves_nothing(planted, reap):
    process = reap(planted.spawn("--only", "path-managed", PLANTED="hang:cuMemAllocManaged"))
    wait_for(lambda: planted.part_runs("path"), "the check's part")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 1
    assert planted.left() == NOTHING


def test_its_processes_die_with_it(planted, reap):
    process = reap(planted.spawn("--only", "path-managed", PLANTED="hang:cuMemAllocManaged"))
    wait_for(lambda: planted.part_runs("path"), "the check's part")
    process.kill()
    process.wait()
    wait_for(lambda: planted.processes() == [], "all of its processes to be gone")
    for name in planted.shared():  # nobody was left to do it
        pathlib.Path("/dev/shm", name).unlink(missing_ok=True)


def test_without_a_driver_it_says_so(gpu_check):
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has an NVIDIA driver")
    process = subprocess.run([gpu_check.prefix / "bin" / "gpu-check"], env=gpu_check.environment(), timeout=60,
                             capture_output=True, text=True)
    assert process.returncode == 1
    assert "no NVIDIA driver" in process.stderr
    assert gpu_check.processes() == [] and list(gpu_check.temporary.iterdir()) == []


@pytest.mark.parametrize("words", [["--only", "nonsense"], ["--budget", "0"], ["--json"], ["nonsense"], ["--stage", "2"],
                                   ["--first", "--stage", "6"]])
def test_wrong_usage_is_2(gpu_check, words):
    process = gpu_check.spawn(*words)
    assert process.wait(20) == 2
    process.communicate()


def test_the_list_names_every_check_of_the_table(gpu_check):
    process = gpu_check.spawn("--list")
    text, _ = process.communicate(timeout=20)
    named = [line.split()[0] for line in text.splitlines()]
    assert len(named) == len(set(named)) > 30
    assert {"driver", "path-linear", "fidelity", "event-times"} <= set(named)


PAGE = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "gpu-results-page"


def write_page(folder):
    return subprocess.run([PAGE, "--folder", folder], capture_output=True, text=True, timeout=60)


def card_result(simulated):
    driver = {"name": "driver", "claim": "The driver starts.", "outcome": "passed", "reasons": [], "seconds": 0.1,
              "figures": {"name": "Card", "driver_version": "580.1", "cuda_version": "13.0",
                          "total_memory": {"value": 85899345920.0, "unit": "bytes"}}}
    torch = {"name": "torch", "claim": "PyTorch trains.", "outcome": "not run", "reasons": ["python3 cannot import torch"],
             "seconds": 0.0, "figures": {}}
    return {"version": "0", "date": "2026-01-02T03:04:05Z", "simulated": simulated, "machine": "x86_64", "kernel": "6.1",
            "seconds": 12.0, "checks": [driver, torch]}


def test_the_page_shows_a_cards_results(tmp_path):
    (tmp_path / "card-2026-01-02.json").write_text(json.dumps(card_result(False)))
    assert write_page(tmp_path).returncode == 0
    page = (tmp_path / "README.md").read_text()
    assert "## Card, driver 580.1, 2026-01-02" in page
    assert "1 passed, 0 failed, 1 not run in 12 s" in page
    assert "| total_memory | `driver` | 85,899,345,920 bytes |" in page
    assert "| `torch` | **not run** | PyTorch trains.<br>python3 cannot import torch |" in page
    assert "Not yet run" not in page


def test_the_page_says_when_there_are_no_results(tmp_path):
    assert write_page(tmp_path).returncode == 0
    assert "Not yet run on hardware" in (tmp_path / "README.md").read_text()


def test_results_of_the_simulated_gpu_are_not_a_card_s(tmp_path):
    (tmp_path / "card.json").write_text(json.dumps(card_result(True)))
    refused = write_page(tmp_path)
    assert refused.returncode == 1
    assert "not of a card" in refused.stderr


CONSTANTS = PAGE.parent / "simulated-constants"


@pytest.fixture
def constants(tmp_path):
    """A copy of the simulated GPU's constants, and what runs the script on it and on one of its profiles."""
    copy, profiles = tmp_path / "constants.def", tmp_path / "profiles.def"
    shutil.copy(PAGE.parents[1] / "src/simgpu/device/constants.def", copy)
    shutil.copy(PAGE.parents[1] / "src/simgpu/device/profiles.def", profiles)

    def run(*words):
        return subprocess.run([CONSTANTS, "--constants", copy, "--profiles", profiles, "--results", tmp_path, *words], capture_output=True, text=True,
                              timeout=60)
    return copy, run


def test_the_simulated_gpus_constants_come_from_a_cards_results(constants, tmp_path):
    copy, run = constants
    result = card_result(False)
    result["checks"] += [{"name": "driver-costs", "figures": {"context": {"value": 520093696.0, "unit": "bytes"}}},
                         {"name": "copies", "figures": {"host_to_device_pinned": {"value": 55.4321, "unit": "GB/s"},
                                                        "inside_the_device": {"value": 1234.567, "unit": "GB/s"}}},
                         {"name": "slices", "figures": {"slice": {"value": 1987.4, "unit": "us"},
                                                        "switch": {"value": 61.25, "unit": "us"}}},
                         {"name": "call-times", "figures": {}}]  # it was not run
    card = tmp_path / "card-2026-01-02.json"
    card.write_text(json.dumps(result))
    assert run(card).returncode == 1  # which profile's card that is, nobody can tell
    assert run("--profile", "t4", card).returncode == 0
    text = copy.read_text()
    assert ('SIM_CONSTANT(CONTEXT_BYTES, MACHINE, 268435456, 545259520, 520093696, 314572800, 314572800, 545259520, 545259520, '
            '"driver-costs.context", "card-2026-01-02.json (t4)') in text
    assert 'SIM_CONSTANT(LINK_GBPS, PROCESS, 25, 25, 55.4, ' in text
    assert 'SIM_CONSTANT(DEVICE_GBPS, PROCESS, 1500, 1500, 1235, ' in text
    assert 'SIM_CONSTANT(SLICE_NS, MACHINE, 2000000, 1024000, 1987400, 1024000, 1024000, 1024000, 1024000, "slices.slice",' in text
    assert ('SIM_CONSTANT(SWITCH_NS, MACHINE, 0, 100000, 61250, 100000, 100000, 100000, 100000, "slices.switch", '
            '"card-2026-01-02.json (t4)') in text
    assert 'SIM_CONSTANT(LAUNCH_NS, PROCESS, 0, 2500, 2500, 2500, 2500, 2500, 2500, "call-times.launch", "assumed' in text
    assert run("--check").returncode == 0
    copy.write_text(text.replace("520093696", "520093697"))
    assert run("--check").returncode == 1


def column(text, name, key):
    """The value of a profile in a row of constants.def or profiles.def."""
    keys = re.findall(r'^DEVICE_PROFILE\("(\w+)"', (SOURCE / "src/simgpu/device/profiles.def").read_text(), re.MULTILINE)
    scopes = r"\w+, " if text.count("SIM_CONSTANT(") else ""
    (row,) = re.findall(rf"^\w+\({name}, {scopes}([-\d., ]+)", text, re.MULTILINE)
    return row.strip(" ,").split(", ")[keys.index(key)]


def test_what_micro_checks_find_becomes_the_cards_column(constants, tmp_path):
    copy, run = constants
    result = card_result(False)
    result["checks"][0]["details"] = {"CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED": "1", "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE": "62914560"}
    result["checks"] += [{"name": "unmap-running", "figures": {"waits": "yes"}},
                         {"name": "free-waits", "figures": {"of_1_byte": "not tried: the kernel had ended before"}},
                         {"name": "create-access", "figures": {"rdma_can_be_reached": "cuMemSetAccess answers CUDA_ERROR_UNKNOWN"}},
                         {"name": "registering", "figures": {"small_pages_at_once_rate": {"value": 4.0, "unit": "GB/s"}}},
                         {"name": "mapping", "figures": {"cuMemCreate_64MiB_alone": {"value": 1000.0, "unit": "us"}}},
                         {"name": "entry-points", "figures": {"of_two_addresses": {"value": 0.0, "unit": "count"}}}]
    card = tmp_path / "card-2026-01-02.json"
    card.write_text(json.dumps(result))
    assert run("--profile", "h100", card).returncode == 0
    text = copy.read_text()
    found = {name: column(text, name, "h100") for name in ("UNMAP_WAITS", "FREE_WAITS", "RDMA_ACCESS", "REGISTER_GIB_NS", "CREATE_GIB_NS",
                                                           "APART_POINTERS")}
    assert found == {"UNMAP_WAITS": "1", "FREE_WAITS": "0", "RDMA_ACCESS": "0", "REGISTER_GIB_NS": "268435456",
                     "CREATE_GIB_NS": "16000000", "APART_POINTERS": "0"}
    assert column(text, "UNMAP_WAITS", "t4") == "0"
    assert run("--check").returncode == 0
    profiles = (tmp_path / "profiles.def").read_text()
    assert column(profiles, "CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED", "h100") == "1"
    assert column(profiles, "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE", "h100") == "62914560"
    assert column(profiles, "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE", "t4") == "4194304"


def test_the_page_shows_what_a_card_does_not_bear_out(tmp_path):
    result = card_result(False)
    result["checks"][1]["beliefs"] = [
        {"page": "sharing.md", "claim": "it holds", "expected": "yes", "found": "yes", "verdict": "as believed"},
        {"page": "sharing.md", "claim": "a free waits", "expected": "yes", "found": "no", "verdict": "not as believed"}]
    (tmp_path / "card-2026-01-02.json").write_text(json.dumps(result))
    assert write_page(tmp_path).returncode == 0
    page = (tmp_path / "README.md").read_text()
    assert "## What to do with a file that somebody sends" in page
    assert "Of 2 sentences of the docs about a card, 1 are as believed." in page
    assert "| not as believed | [sharing.md](../sharing.md): a free waits | `torch` | yes | no |" in page and "it holds" not in page


def test_constants_are_not_taken_from_a_simulation_or_a_run_that_lacks_them(constants, tmp_path):
    copy, run = constants
    before = copy.read_text()
    for simulated in (True, False):
        (tmp_path / "card.json").write_text(json.dumps(card_result(simulated)))
        assert run("--profile", "h100", tmp_path / "card.json").returncode == 1
    assert copy.read_text() == before


def test_claims_that_held_on_every_card_are_marked(tmp_path):
    files = []
    for number, odd in enumerate(["holds", "claimed 1, found 2"]):
        result = card_result(False)
        result["checks"].append({"name": "fidelity", "details": {'a "claim"': "holds", "another": odd}})
        files.append(tmp_path / f"card-{number}.json")
        files[-1].write_text(json.dumps(result))
    out = tmp_path / "verified.def"

    def rows(*paths):
        subprocess.run([PAGE.parent / "verified-claims", "--out", out, *paths], check=True, timeout=60)
        return [line for line in out.read_text().splitlines() if line.startswith("VERIFIED")]

    assert rows(files[0]) == ['VERIFIED("a \\"claim\\"", "Card", "580.1", "2026-01-02")',
                              'VERIFIED("another", "Card", "580.1", "2026-01-02")']
    assert rows(*files) == ['VERIFIED("a \\"claim\\"", "Card", "580.1", "2026-01-02")']
    files[1].write_text(json.dumps(card_result(True)))
    assert subprocess.run([PAGE.parent / "verified-claims", "--out", out, files[1]], capture_output=True).returncode == 1
