"""Machines whose GPUs are not cards of their own: a daemon, a session with a quota and a share, and memory that leaves or is refused.
docs/machines.md says what each kind is."""
import json

import pytest

from conftest import GIB, MIB, has_words, wait_for

# A kind: the settings of the simulated machine, its trait, and what the daemon says where memory is to leave; None: it leaves.
SHARED = "it shares the host's memory, so memory that left it would stay in the same memory"
NO_VMM = "its driver has no virtual memory management, as on some vGPUs, which --oversubscribe needs"
KINDS = {
    "wsl2": ({"FAKECUDA_RDMA_ACCESS": 0}, "no-rdma-access", None),
    "vgpu": ({"FAKECUDA_VMM": 0}, "no-vmm", NO_VMM),
    "gb10": ({"FAKECUDA_NVML_NO_MEMORY": 1}, "unified", SHARED),
    "no-figures": ({"FAKECUDA_NVML_NO_MEMORY": 2}, "no-figures", None),
    "no-page-lock": ({"FAKECUDA_HOST_REGISTER": 0}, "no-page-lock", None),
    "grace": ({"FAKECUDA_GPU_NODE": 1}, "host-node", None),
}


def kind(name):
    return pytest.param(*KINDS[name], id=name)


@pytest.fixture
def begin(make_daemon, make_gpu):
    """begin(SETTINGS): a daemon over a machine of that kind, with a card of 1 GiB."""
    def make(settings, **more):
        return make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=GIB, FAKECUDA_CONTEXT_BYTES=32 * MIB, **settings), **more)
    return make


@pytest.fixture
def take(reap):
    """take(DAEMON, NAME, BYTES, *OPTIONS): a program of that session, which has taken so much and said what it got."""
    def make(daemon, name, bytes_wanted, *options, **more):
        settings = [f"{key}={value}" for key, value in more.items()]  # of the program alone: gpuslice run sets the daemon's
        program = reap(daemon.spawn("run", "--name", name, *options, "--", "env", *settings, daemon.product.program("taker"), "linear",
                                    str(bytes_wanted), str(8 * MIB)))
        assert has_words(program.stdout, 60)
        got, taken, result = program.stdout.readline().split()
        return program, int(taken), int(result)
    return make


def gpu_of(daemon):
    return daemon.request("GET", "/v1/gpus")[1][0]


def assert_good(program):
    program.stdin.write("check\n")
    program.stdin.flush()
    assert has_words(program.stdout, 60) and program.stdout.readline() == "good\n"


@pytest.mark.parametrize("settings, trait, stays", [kind(name) for name in KINDS])
def test_quotas_and_shares_work_on_each_kind_of_machine(begin, take, settings, trait, stays):
    daemon = begin(settings).start()
    gpu = gpu_of(daemon)
    assert [row["trait"] for row in gpu["traits"]] == [trait] and gpu["healthy"]
    assert (gpu["total_bytes"], gpu["used_bytes"], gpu["context_bytes"]) == (GIB, 0, 32 * MIB)
    assert f"GPU 0 is {trait}: {gpu['traits'][0]['text']}" in daemon.cli("gpus").stdout
    checks = {row["id"]: row for row in json.loads(daemon.cli("doctor", "--json", check=False).stdout)["checks"]}
    assert checks["machine"]["level"] == "warning" and f"GPU 0 is {trait}: " in checks["machine"]["finding"]
    program, taken, result = take(daemon, "a", 300 * MIB, "--memory", "256MiB", "--compute", "40%")
    assert (taken, result) == (224 * MIB, 2), "the quota holds, with the context in it"
    session = daemon.session("a")
    assert session["used_bytes"] == 256 * MIB and session["compute_min_ratio"] == 0.4
    wait_for(lambda: gpu_of(daemon)["used_bytes"] == 256 * MIB, "NVML, or the sum over processes, to show it")
    refused = daemon.cli("create", "--memory", "800MiB", check=False)
    assert refused.returncode == 1 and "does not fit on GPU 0" in refused.stderr
    assert_good(program)


@pytest.mark.parametrize("settings, trait, stays", [kind(name) for name in KINDS if not KINDS[name][2]])
def test_memory_leaves_and_comes_back_where_it_can(begin, take, settings, trait, stays):
    daemon = begin(settings).start()
    program, taken, result = take(daemon, "a", 128 * MIB, "--memory", "256MiB", "--oversubscribe")
    assert (taken, result) == (128 * MIB, 0)
    daemon.cli("suspend", "a")
    session = daemon.session("a")
    assert (session["residency"], session["evicted_bytes"], session["stays_why"]) == ("away", 128 * MIB, None)
    daemon.cli("resume", "a")
    assert_good(program)


@pytest.mark.parametrize("settings, trait, stays", [kind(name) for name in KINDS if KINDS[name][2]])
def test_where_memory_cannot_leave_the_promise_is_refused_with_the_reason(begin, take, settings, trait, stays):
    daemon = begin(settings).start()
    for options in (["--oversubscribe"], ["--when-full", "oversubscribe"], ["--oversubscribe", "--wait"], ["--oversubscribe", "--gpu", "0"]):
        refused = daemon.cli("create", "--memory", "256MiB", *options, check=False)
        assert refused.returncode == 1 and f"memory cannot leave GPU 0: {stays}" in refused.stderr
    assert daemon.request("GET", "/v1/sessions")[1] == []
    # What a default says alone is not promised to anybody: such a session stays, and that is said once.
    daemon.config.mkdir(parents=True, exist_ok=True)
    (daemon.config / "gpuslice.conf").write_text("[defaults]\nwhen-full = oversubscribe\nidle-suspend = 600s\n")
    daemon.stop()
    daemon.start()
    made = daemon.cli("create", "--name", "kept", "--memory", "256MiB")
    assert made.stderr.count(f"stays on the card: memory cannot leave GPU 0: {stays}") == 1
    session = daemon.session("kept")
    assert (session["oversubscribe"], session["when_full"], session["stays_why"]) == ("none", "oversubscribe", f"GPU 0: {stays}")
    assert session["idle_suspend_seconds"] is None
    assert f"its memory cannot leave GPU 0: {stays}" in " ".join(daemon.cli("show", "kept").stdout.split())
    created = [json.loads(line) for line in daemon.cli("events", "--json").stdout.splitlines()]
    assert [event["message"] for event in created if event["kind"] == "session.created"] == [
        f"created; its memory stays on the card: GPU 0: {stays}"]
    # What stays is promised to it, and to nobody else.
    refused = daemon.cli("create", "--memory", "800MiB", check=False)
    assert refused.returncode == 1 and "does not fit on GPU 0" in refused.stderr


def test_nothing_leaves_a_gpu_that_shares_the_hosts_memory(begin, take):
    """Nor as managed memory, nor by the driver's checkpoints."""
    daemon = begin(KINDS["gb10"][0]).start()
    refused = daemon.cli("create", "--oversubscribe=managed", check=False)
    assert refused.returncode == 1 and SHARED in refused.stderr
    program, *_ = take(daemon, "a", 64 * MIB, "--memory", "256MiB")
    refused = daemon.cli("suspend", "a", check=False)
    assert refused.returncode == 1 and refused.stderr.strip().endswith(f"cannot leave the card: GPU 0: {SHARED}")
    assert daemon.session("a")["residency"] == "resident"
    assert_good(program)


def test_a_program_whose_own_driver_cannot_move_its_memory_says_so_and_stays(begin, take):
    """The daemon could not know, as where its probe failed."""
    daemon = begin({}).start()
    program, taken, result = take(daemon, "a", 128 * MIB, "--memory", "256MiB", "--oversubscribe", FAKECUDA_VMM=0)
    assert (taken, result) == (128 * MIB, 0)
    assert daemon.cli("suspend", "a", check=False).returncode == 3
    assert daemon.session("a")["residency"] == "partly_away"
    daemon.cli("resume", "a")
    assert_good(program)
    program.stdin.close()
    program.wait(20)
    assert program.stderr.read().count("this program's memory stays on the card") == 1


def test_a_kind_combines_with_another(begin, take):
    """WSL2 has no figures of what the driver keeps either, and may page-lock nothing."""
    daemon = begin({"FAKECUDA_RDMA_ACCESS": 0, "FAKECUDA_HOST_REGISTER": 0, "FAKECUDA_NVML_NO_RESERVED": 2, "FAKECUDA_DEVICE": "h100",
                    "FAKECUDA_CONSTANTS": "default", "FAKECUDA_NVML_NO_FIGURES": 2}).start()
    assert [row["trait"] for row in gpu_of(daemon)["traits"]] == ["no-rdma-access", "no-page-lock"]
    program, taken, result = take(daemon, "a", 128 * MIB, "--memory", "256MiB", "--oversubscribe")
    daemon.cli("suspend", "a")
    daemon.cli("resume", "a")
    assert_good(program)


def test_what_the_probe_finds_of_the_machine_is_kept_for_the_next_daemon(begin):
    """Of a real card, as which this daemon takes the simulated one: the next daemon starts no probe and knows the same."""
    daemon = begin(KINDS["vgpu"][0])
    for probes in (1, 0):
        with daemon.as_on_a_card():
            pass
        assert daemon.log_text().count("a context on GPU 0 costs") == probes and daemon.log_text().count(NO_VMM) == 1


def test_where_no_context_can_be_had_the_machine_is_known_all_the_same(make_daemon, make_gpu):
    """As where a process has the GPU for itself: its size and traits are the device's, and need no context."""
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=GIB, FAKECUDA_NVML_NO_MEMORY=2, FAKECUDA_VMM=0, FAKECUDA_COMPUTE_MODE=2)).start()
    gpu = gpu_of(daemon)
    assert (gpu["total_bytes"], gpu["context_bytes"]) == (GIB, 0)
    assert [row["trait"] for row in gpu["traits"]] == ["no-vmm", "no-figures"]


# --- Grace without CDMM --------------------------------------------------------------------------------------------------------


def make_nodes(folder, host_mib, gpu_mib):
    """A folder that stands for /sys: node 0 has CPUs, node 1 is the GPU's memory."""
    nodes = folder / "devices/system/node"
    for node, mib in ((0, host_mib), (1, gpu_mib)):
        (nodes / f"node{node}").mkdir(parents=True)
        (nodes / f"node{node}/meminfo").write_text(f"Node {node} MemTotal: {mib << 10} kB\nNode {node} MemFree: {mib << 10} kB\n")
    (nodes / "has_memory").write_text("0-1\n")
    (nodes / "has_cpu").write_text("0\n")
    return folder


def test_a_gpus_memory_does_not_count_as_the_hosts(begin, take, tmp_path):
    """However much the node without CPUs has, what can be spared is what node 0 has, less what is left to others."""
    sysfs = make_nodes(tmp_path / "sys", 192, 1 << 20)
    daemon = begin({"FAKECUDA_GPU_NODE": 1}, FAKECUDA_SYSFS=sysfs).configure("host-memory = 1GiB").start()
    program, *_ = take(daemon, "a", 200 * MIB, "--memory", "256MiB", "--oversubscribe")
    refused = daemon.cli("suspend", "a", check=False)
    assert refused.returncode == 1 and "can spare 128MiB" in refused.stderr, refused.stderr
    assert_good(program)


# --- An NVML that hangs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [9, pytest.param(20, marks=pytest.mark.long)], ids=["at-the-first-sample", "later"])
def test_the_daemon_goes_on_where_nvml_hangs_for_good(begin, take, calls):
    """Its programs have an NVML that works, or have none."""
    daemon = begin({}, FAKECUDA_NVML_HANGS=calls)
    daemon.process = daemon.spawn_daemon()  # it may never be ready
    wait_for(lambda: "is ready" in daemon.log_text(), "the daemon to serve", 60)
    wait_for(lambda: not gpu_of(daemon)["healthy"], "the daemon to notice", 60)
    assert "sessions, limits and shares go on without NVML" in daemon.log_text()
    program, taken, result = take(daemon, "a", 300 * MIB, "--memory", "256MiB", "--compute", "40%", "--oversubscribe", FAKECUDA_NVML_HANGS=0)
    assert result == 2 and taken >= 224 * MIB, "the quota holds"
    daemon.cli("suspend", "a")
    assert daemon.session("a")["residency"] == "away"
    daemon.cli("resume", "a")
    assert_good(program)
    finding = [row for row in json.loads(daemon.cli("doctor", "--json", check=False).stdout)["checks"] if row["id"] == "gpus"][0]
    assert finding["level"] == "problem" and "its sessions go on" in finding["finding"]
    assert "does not answer" in daemon.cli("gpus").stdout
    assert daemon.request("GET", "/readyz")[0] == 503
    daemon.stop()
