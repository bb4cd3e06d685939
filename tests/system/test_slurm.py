"""The SPANK plug-in, under Debian's own slurmctld, slurmd and munged on this machine: two nodes, a folder of their own."""
import contextlib
import json
import os
import pathlib
import pwd
import re
import shutil
import socket
import stat
import subprocess
import tempfile

import pytest

from attach_client import Client, Refused
from conftest import DEADLINE_S, IN_MEMORY, MIB, Daemon, Gpu, wait_for
from test_daemon_api import as_user

NOT_OWNER = 2

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo", "munged")


def why_not(product):
    if os.getuid() != 0:
        return "needs root"
    missing = [name for name in PROGRAMS if not shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if not (product.prefix / "lib/gpuslice/slurm/gpuslice_spank.so").exists():
        return "the plug-in was left out of this build"
    return None


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Slurm:
    """A controller and two nodes, each with 1000 MiB and 100 hundredths of a GPU to give."""

    def __init__(self, product, daemon, *plugin_words):
        self.product, self.daemon, self.started = product, daemon, []
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gl-"))
        host = socket.gethostname().split(".")[0]
        controller, first, second = free_ports(3)
        for name in ("log", "spool/n1", "spool/n2", "spool/ctld"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        tree = product.prefix / "lib" / "gpuslice"
        self.write_job_submit(tree / "slurm" / "job_submit.lua",
                              next((word.removeprefix("default=") for word in plugin_words if "memory" in word), None))
        words = " ".join([f"library={tree}/libgpuslice.so", f"runtime_dir={daemon.runtime}", "simulated", *plugin_words])
        (self.folder / "plugstack.conf").write_text(f"required {tree}/slurm/gpuslice_spank.so {words}\n")
        (self.folder / "gres.conf").write_text(
            "NodeName=n[1-2] Name=gpuslice_memory Count=1000 Flags=CountOnly\n"
            "NodeName=n[1-2] Name=gpuslice_cores Count=100 Flags=CountOnly\n")
        (self.folder / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainCores=no\nConstrainRAMSpace=no\n")
        self.config = self.folder / "slurm.conf"
        gres = "Gres=gpuslice_memory:1000,gpuslice_cores:100"
        self.config.write_text(f"""ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={self.folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1
MpiDefault=none
ReturnToService=2
KillWait=2
PrologFlags=Alloc
SlurmdParameters=config_overrides
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
JobSubmitPlugins=lua
PlugStackConfig={self.folder}/plugstack.conf
GresTypes=gpuslice_memory,gpuslice_cores
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.%n.pid
SlurmdSpoolDir={self.folder}/spool/%n
SlurmctldLogFile={self.folder}/log/slurmctld.log
SlurmdLogFile={self.folder}/log/slurmd.%n.log
StateSaveLocation={self.folder}/spool/ctld
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=8 RealMemory=1000 {gres}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=8 RealMemory=1000 {gres}
PartitionName=main Nodes=n1,n2 Default=YES State=UP
""")

    def write_job_submit(self, ours, default):
        """Ours as it is, or a site's own that loads it."""
        if default is None:
            shutil.copy(ours, self.folder)
            return
        (self.folder / "job_submit.lua").write_text(f"""
local gpuslice = dofile("{ours}")
gpuslice.default = "{default}"
function slurm_job_submit(job, partitions, uid) return gpuslice.submit(job) end
function slurm_job_modify(job, record, partitions, uid) return gpuslice.modify(job, record) end
""")

    def environment(self):
        return {**self.daemon.gpu.environment(), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": str(self.config)}

    def spawn(self, *words):
        with open(self.folder / "log" / "output", "ab") as log:
            self.started.append(subprocess.Popen([*map(str, words)], env=self.environment(), stdin=subprocess.DEVNULL,
                                                 stdout=log, stderr=log))

    def start(self):
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munge = self.folder / "munge.socket"
        self.spawn("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}",
                   f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/log/munged.log",
                   f"--seed-file={self.folder}/munged.seed")
        wait_for(munge.exists, f"munged ({self.log()})")
        self.spawn("slurmctld", "-c", "-D", "-f", self.config)
        for node in ("n1", "n2"):
            self.spawn("slurmd", "-D", "-N", node, "-f", self.config)
        wait_for(lambda: self.run("sinfo", "-h", "-o", "%T %D").stdout.split() == ["idle", "2"],
                 f"two idle nodes ({self.log()})", deadline_s=60)
        return self

    def log(self):
        return "".join(path.read_text(errors="replace")[-1500:] for path in (self.folder / "log").iterdir())

    def run(self, *words, deadline_s=60, **more):
        return subprocess.run(["timeout", str(deadline_s), *map(str, words)], env=self.environment(), capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, cwd=self.folder, **more)

    def stop(self):
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(product):
    """make(words of plugstack.conf) gives a running cluster; one at a time, kept for the tests that want the same."""
    reason = why_not(product)
    if reason:
        pytest.skip(reason)
    now = {}

    def stop():
        if now:
            now["slurm"].stop()
            now["daemon"].stop()
            now["daemon"].gpu.remove()
            shutil.rmtree(now["daemon"].folder, ignore_errors=True)
            now.clear()

    def make(*words):
        if now.get("words") != words:
            stop()
            daemon = Daemon(product, Gpu(product, FAKECUDA_TOTAL_MEM=1000 * MIB, FAKECUDA_GPUS=2),
                            tempfile.mkdtemp(prefix="gs-", dir=IN_MEMORY))
            daemon.folder.chmod(0o755)
            daemon.runtime.chmod(0o755)
            daemon.start("--system")
            now.update(words=words, daemon=daemon, slurm=Slurm(product, daemon, *words))
            now["slurm"].start()
        return now["slurm"]
    yield make
    stop()


@pytest.fixture
def slurm(cluster):
    made = cluster()
    yield made
    wait_for(lambda: sessions(made) == [], f"no session to be left ({made.log()})")
    wait_for(lambda: list((made.daemon.runtime / "slurm").glob("*")) == [], "no record to be left")


def sessions(slurm):
    return slurm.daemon.request("GET", "/v1/sessions")[1]


TARGET = "share/gpuslice/examples/bin/target_app"


def allocating(product, mebibytes, times):
    return ["env", f"ALLOC_BYTES={mebibytes * MIB}", f"ITERATIONS={times}", product.prefix / TARGET]


def test_a_jobs_tasks_run_in_a_session_of_their_own(slurm, product):
    result = slurm.run("srun", "-w", "n1", "--gpuslice=memory=64MiB,compute=20%..50%", *allocating(product, 40, 2))
    assert "ALLOC_OK iteration 0" in result.stdout and "ALLOC_FAIL at iteration 1 code=2" in result.stdout, result


def test_the_session_is_the_jobs_users_with_what_was_asked(slurm):
    job = subprocess.Popen(["timeout", "60", "srun", "-w", "n2", "--gpuslice=memory=64MiB,compute=20%..50%,priority=high",
                            "sh", "-c", "env; cat"], env=slurm.environment(), stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    (session,) = wait_for(lambda: sessions(slurm), "the session")
    assert session["name"].startswith("slurm-") and session["name"].endswith(".n2") and session["owner_uid"] == 0
    assert session["vram_limit_bytes"] == 64 * MIB and session["priority"] == "high"
    assert (session["compute_min_ratio"], session["compute_max_ratio"]) == (0.2, 0.5)
    record = slurm.daemon.runtime / "slurm" / session["name"].removeprefix("slurm-")
    assert stat.S_IMODE(record.stat().st_mode) == 0o600 and stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    output, errors = job.communicate("", timeout=60)
    variables = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    assert variables["GPUSLICE_SESSION"] == session["session_id"], errors
    assert variables["LD_PRELOAD"].split(":")[0].endswith("/libgpuslice.so")


def test_every_step_task_and_node_of_a_job_is_in_it(slurm, product):
    script = slurm.folder / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gpuslice=memory=64MiB\nenv | grep ^GPUSLICE_SESSION=\n"
                      "srun --overlap -N2 -n2 sh -c 'echo $SLURMD_NODENAME $GPUSLICE_SESSION'\n"
                      f"srun --overlap -N1 -n1 {' '.join(map(str, allocating(product, 40, 2)))}\n")
    result = slurm.run("sbatch", "--wait", "-N2", "-o", slurm.folder / "job.out", script)
    assert result.returncode == 0, (result, slurm.log())
    output = (slurm.folder / "job.out").read_text()
    batch = output.splitlines()[0].split("=")[1]
    by_node = dict(line.split() for line in output.splitlines() if line.startswith("n"))
    assert set(by_node) == {"n1", "n2"} and by_node["n1"] == batch != by_node["n2"], output
    assert "ALLOC_FAIL at iteration 1 code=2" in output


def test_slurm_counts_memory_and_cores(slurm):
    """Two of three jobs that want 40 % of a node run at a time; what fits on no node is refused at once."""
    jobs = [subprocess.Popen(["timeout", "60", "srun", "-w", "n1", "--gpuslice=memory=100MiB,compute=40%", "cat"],
                             env=slurm.environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE) for _ in range(3)]
    wait_for(lambda: len(sessions(slurm)) == 2, "two sessions")
    states = slurm.run("squeue", "-h", "-o", "%T").stdout.split()
    assert sorted(states) == ["PENDING", "RUNNING", "RUNNING"]
    assert "gpuslice: memory=100MiB,compute=40%" in slurm.run("scontrol", "show", "job").stdout
    for job in jobs:
        job.stdin.close()
    assert [job.wait(60) for job in jobs] == [0, 0, 0], [job.stderr.read() for job in jobs]
    for job in jobs:
        job.stderr.close()
    result = slurm.run("srun", "--gpuslice=memory=2GiB", "true")
    assert result.returncode != 0 and "GRES" in result.stderr.upper() + "GRES", result.stderr


@pytest.mark.parametrize("wish, mebibytes, cores", [
    ("memory=64MiB,compute=25", 64, 25), ("memory=64m,compute=12.5%", 64, 13), ("memory=0.25gb,compute=20..60", 256, 20),
    ("memory=1000000B,compute=0%..60%", 1, None),
])
def test_all_ways_to_say_it_are_counted(slurm, wish, mebibytes, cores):
    said = slurm.run("srun", "-w", "n1", f"--gpuslice={wish}", "sh", "-c", "scontrol show job $SLURM_JOB_ID").stdout
    counted = re.search(r"TresPerNode=(\S*)", said)
    assert counted, said
    assert counted[1] == f"gres:gpuslice_memory:{mebibytes}" + (f",gres:gpuslice_cores:{cores}" if cores else "")


def test_a_job_cannot_be_changed_to_be_counted_with_less(slurm):
    script = slurm.folder / "held.sh"
    script.write_text("#!/bin/sh\n#SBATCH --hold --gpuslice=memory=600MiB,compute=60%\n:\n")
    job = slurm.run("sbatch", "--parsable", "-o", "/dev/null", script).stdout.strip()
    for change in ("Gres=gpuslice_memory:1", "Gres=", "Gres=gpu:1"):
        refused = slurm.run("scontrol", "update", f"JobId={job}", change)
        assert refused.returncode != 0, refused  # 22.05 does not show why
    assert "gpuslice_memory:600,gres:gpuslice_cores:60" in slurm.run("scontrol", "show", "job", job).stdout
    assert slurm.run("scontrol", "update", f"JobId={job}", "Comment=mine", "TimeLimit=5").returncode == 0
    assert slurm.run("scancel", job).returncode == 0


@pytest.mark.parametrize("words, said", [
    (["--gpuslice=compute=10%"], "memory"), (["--gpuslice=memory=lots"], "lots"), (["--gpuslice=memory=1GiB,x=1"], "'x=1'"),
    (["--gpuslice=memory=1MiB,memory=2MiB"], "twice"), (["--gpuslice=memory=1MiB,compute=200%"], "200%"),
    (["--gres=gpuslice_memory:10"], "not for users"),
    (["--gres=GpuSlice_Cores:0", "--gpuslice=memory=10MiB,compute=60%"], "not for users"),
])
def test_what_cannot_be_is_refused_where_it_is_typed(slurm, words, said):
    result = slurm.run("srun", *words, "true")
    assert result.returncode != 0 and said in result.stderr, result.stderr


def test_a_step_cannot_ask_for_what_the_job_did_not(slurm):
    result = slurm.run("salloc", "-w", "n1", "srun", "--gpuslice=memory=10MiB", "echo", "started")
    assert "started" not in result.stdout and "cannot ask for it later" in result.stderr, result
    wait_for_idle_nodes(slurm)


def test_a_job_that_asks_for_nothing_is_left_alone(slurm):
    environment = slurm.environment() | {"GPUSLICE_SESSION": "of-the-submit-host"}
    result = subprocess.run(["timeout", "60", "srun", "-w", "n1", "env"], env=environment, capture_output=True, text=True)
    assert result.returncode == 0 and "GPUSLICE_SESSION" not in result.stdout and "LD_PRELOAD" not in result.stdout


def test_a_cancelled_job_leaves_nothing(slurm):
    job = subprocess.Popen(["timeout", "60", "srun", "-w", "n1", "--gpuslice=memory=64MiB", "sleep", "1000"],
                           env=slurm.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    wait_for(lambda: sessions(slurm), "the session")
    assert slurm.run("scancel", "-u", "root").returncode == 0
    assert job.wait(60) != 0
    wait_for(lambda: sessions(slurm) == [], "its end")


def test_tasks_of_a_step_share_the_sessions_memory(slurm, product):
    step = subprocess.Popen(["timeout", "60", "srun", "-w", "n1", "-n3", "--gpuslice=memory=64MiB", "env", "HOLD=stdin",
                             *map(str, allocating(product, 40, 1)[1:])], env=slurm.environment(), stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: sessions(slurm) and sessions(slurm)[0]["processes"] and sum(
        one["used_bytes"] for one in sessions(slurm)) == 40 * MIB, "one of them to have its memory")
    (session,) = sessions(slurm)
    output = ""
    while "ALLOC_FAIL" not in output:  # two at once have no room: the next one fails while the first still holds its own
        line = step.stdout.readline()
        assert line, output
        output += line
    step.stdin.write("\n" * 3)
    step.stdin.close()
    output += step.stdout.read()  # with what came along with the last line, which communicate() would not know of
    step.wait(60)
    assert "ALLOC_FAIL at iteration 0 code=2" in output and "ALLOC_OK iteration 0" in output, output
    assert session["vram_limit_bytes"] == 64 * MIB


def test_each_job_of_an_array_has_a_session(slurm, product):
    script = slurm.folder / "array.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gpuslice=memory=64MiB,compute=10%\n#SBATCH --array=1-4%2\n"
                      f"echo session $GPUSLICE_SESSION\n{' '.join(map(str, allocating(product, 40, 2)))}\n")
    result = slurm.run("sbatch", "--wait", "-w", "n1", "-o", slurm.folder / "array-%a.out", script, deadline_s=120)
    assert result.returncode == 0, (result, slurm.log())
    outputs = [(slurm.folder / f"array-{number}.out").read_text() for number in range(1, 5)]
    assert len({output.splitlines()[0] for output in outputs}) == 4, "each has its own"
    assert all("ALLOC_FAIL at iteration 1 code=2" in output for output in outputs)


def test_each_part_of_a_heterogeneous_job_has_what_it_asked_for(slurm, product):
    def part(node, mebibytes):
        return ["-w", node, f"--gpuslice=memory={mebibytes}MiB", "sh", "-c",
                f"echo $SLURMD_NODENAME; {' '.join(map(str, allocating(product, 30, 4)))} >{slurm.folder}/part-{node}"]
    result = slurm.run("srun", *part("n1", 100), ":", *part("n2", 64))
    assert sorted(result.stdout.split()) == ["n1", "n2"], (result, slurm.log())
    assert [(slurm.folder / f"part-{node}").read_text().count("ALLOC_OK") for node in ("n1", "n2")] == [3, 2]


def test_a_job_that_is_requeued_lets_its_session_go(slurm):
    """Slurm lets it begin again after two minutes, which is too long for a test."""
    script = slurm.folder / "again.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gpuslice=memory=64MiB --requeue\nexec sleep 1000\n")
    job = slurm.run("sbatch", "--parsable", "-w", "n1", "-o", slurm.folder / "again.out", script).stdout.strip()
    wait_for(lambda: [session["name"] for session in sessions(slurm)] == [f"slurm-{job}.n1"], "its first life")
    assert slurm.run("scontrol", "requeue", job).returncode == 0
    wait_for(lambda: sessions(slurm) == [], "the first session's end", deadline_s=60)
    assert slurm.run("scancel", job).returncode == 0


@pytest.fixture
def other_user(slurm):
    """A user with no rights, who can read what is under test."""
    user = pwd.getpwnam("daemon")
    reach = subprocess.run(["test", "-r", slurm.product.interceptor], user=user.pw_uid, group=user.pw_gid, extra_groups=[])
    if reach.returncode != 0:
        pytest.skip("other users cannot read the tree under test")
    return user


def test_another_users_job_is_in_a_session_of_that_user(slurm, product, other_user):
    as_user = {"user": other_user.pw_uid, "group": other_user.pw_gid, "extra_groups": []}
    job = subprocess.Popen(["timeout", "60", "srun", "-w", "n1", "-D", "/tmp", "--gpuslice=memory=64MiB", "sh", "-c",
                            f"{' '.join(map(str, allocating(product, 40, 2)))}; cat"], env=slurm.environment(), cwd="/tmp",
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **as_user)
    (session,) = wait_for(lambda: sessions(slurm), f"the session ({slurm.log()})")
    assert session["owner_uid"] == other_user.pw_uid
    record = slurm.daemon.runtime / "slurm" / session["name"].removeprefix("slurm-")
    assert record.stat().st_uid == 0 and stat.S_IMODE(record.stat().st_mode) == 0o600
    output, errors = job.communicate("", timeout=60)
    assert "ALLOC_OK iteration 0" in output and "ALLOC_FAIL at iteration 1 code=2" in output, (output, errors)


def test_a_user_does_not_see_another_users_job_beside_their_own(slurm, other_user):
    """Not its session, its token, its record, nor its name."""
    slurm.daemon.control_socket.chmod(0o666)
    slurm.daemon.attach_socket.chmod(0o666)
    third = pwd.getpwnam("bin")
    users = {other_user.pw_uid: other_user.pw_gid, third.pw_uid: third.pw_gid}
    jobs = [subprocess.Popen(["timeout", "60", "srun", "-w", "n1", "-D", "/tmp", "--gpuslice=memory=64MiB", "sh", "-c",
                              "echo $GPUSLICE_SESSION; exec cat"], env=slurm.environment(), stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd="/tmp", user=uid, group=gid,
                             extra_groups=[]) for uid, gid in users.items()]
    first, second = (job.stdout.readline().strip() for job in jobs)
    assert first and second and first != second

    def attach():
        try:
            return Client(slurm.daemon.attach_socket).attach(first, map_it=False) and "in"
        except Refused as refused:
            return refused.reason

    def intrude():
        seen = [one["session_id"] for one in slurm.daemon.request("GET", "/v1/sessions")[1]]
        path = f"/v1/sessions/{first}"
        refused = [slurm.daemon.request(method, path + more)[0] for method, more in
                   (("GET", ""), ("GET", "/environment"), ("DELETE", ""), ("POST", "/suspend"))]
        return [seen, [status in (403, 404) for status in refused], attach(), os.access(slurm.daemon.runtime / "slurm", os.R_OK)]
    try:
        assert as_user(third.pw_uid, intrude) == [[second], [True] * 4, NOT_OWNER, False]
    finally:
        for job in jobs:
            job.communicate(timeout=60)
    assert [job.returncode for job in jobs] == [0, 0]


def wait_for_idle_nodes(slurm):
    wait_for(lambda: slurm.run("sinfo", "-h", "-o", "%T").stdout.split() == ["idle"], f"idle nodes ({slurm.log()})")


@contextlib.contextmanager
def records_lost(slurm):
    """As when the node was down: its folder of records is of this boot, the daemon's sessions are on its disk."""
    shutil.rmtree(slurm.daemon.runtime / "slurm")
    yield


@contextlib.contextmanager
def daemon_away(slurm):
    slurm.daemon.stop()
    try:
        yield
    finally:
        slurm.daemon.start("--system")


@pytest.mark.parametrize("trouble", [records_lost, daemon_away])
def test_a_session_that_nobody_could_end_goes_before_the_next_is_made(slurm, trouble):
    job = subprocess.Popen(["timeout", "60", "srun", "-w", "n1", "--gpuslice=memory=900MiB,gpu=0", "sh", "-c",
                            "echo started; exec sleep 1000"],
                           env=slurm.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True)
    assert job.stdout.readline() == "started\n"  # its prolog has written the record for the last time
    (left,) = sessions(slurm)
    with trouble(slurm):
        assert slurm.run("scancel", left["name"].removeprefix("slurm-").removesuffix(".n1")).returncode == 0
        assert job.wait(60) != 0
        wait_for_idle_nodes(slurm)
    assert [session["session_id"] for session in sessions(slurm)] == [left["session_id"]]
    result = slurm.run("srun", "-w", "n1", "--gpuslice=memory=900MiB,gpu=0", "echo", "started")
    assert result.stdout == "started\n", (result, slurm.log())


def test_a_session_is_not_taken_for_one_of_a_job_that_has_left(slurm):
    """Jobs of this node and of the other one run on, and so do sessions that are no job's."""
    jobs = [subprocess.Popen(["timeout", "60", "srun", "-w", node, "--gpuslice=memory=64MiB", "cat"],
                             env=slurm.environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE) for node in ("n1", "n2")]
    assert slurm.daemon.request("POST", "/v1/sessions", {"name": "slurm-1.other", "memory_bytes": MIB})[0] == 201
    before = wait_for(lambda: len(sessions(slurm)) == 3 and sessions(slurm), "three sessions")
    assert slurm.run("srun", "-w", "n1", "--gpuslice=memory=64MiB", "echo", "started").stdout == "started\n"
    wait_for(lambda: sorted(one["session_id"] for one in sessions(slurm)) == sorted(one["session_id"] for one in before),
             "the same three")
    for job in jobs:
        job.communicate(timeout=60)
    assert [job.returncode for job in jobs] == [0, 0]
    assert slurm.daemon.request("DELETE", "/v1/sessions/slurm-1.other")[0] in (200, 204)


def test_sessions_that_users_call_by_jobs_names_are_nothing_to_jobs(slurm, other_user):
    """Neither root's nor another user's, nor one of the job's own user: all jobs start, and each leaves with its session."""
    last = int(slurm.run("srun", "-w", "n1", "sh", "-c", "echo $SLURM_JOB_ID").stdout)
    own = []
    for job in range(last + 1, last + 9):
        for uid in (0, other_user.pw_uid, other_user.pw_uid + 1000):
            status, made = slurm.daemon.request("POST", "/v1/sessions", {"name": f"slurm-{job}.n1", "memory_bytes": MIB,
                                                                         "owner_uid": uid})
            assert status == 201, made
            own.append(made["session_id"])
    for _ in range(2):
        result = slurm.run("srun", "-w", "n1", "--gpuslice=memory=900MiB,gpu=0", "echo", "started")
        assert result.stdout == "started\n", (result, slurm.log())
        wait_for(lambda: sorted(one["session_id"] for one in sessions(slurm)) == sorted(own), "the job's session alone to be gone")
    for session in own:
        assert slurm.daemon.request("DELETE", f"/v1/sessions/{session}")[0] == 204


def test_a_jobs_user_cannot_change_its_session(slurm, other_user):
    slurm.daemon.control_socket.chmod(0o666)
    job = subprocess.Popen(["timeout", "60", "srun", "-w", "n1", "-D", "/tmp", "--gpuslice=memory=64MiB", "sh", "-c",
                            "echo started; exec cat"], env=slurm.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True, cwd="/tmp", user=other_user.pw_uid, group=other_user.pw_gid,
                           extra_groups=[])
    assert job.stdout.readline() == "started\n"
    (session,) = sessions(slurm)
    path = f"/v1/sessions/{session['session_id']}"
    assert session["managed"] and session["owner_uid"] == other_user.pw_uid

    def change():
        return [slurm.daemon.request("PATCH", path, {"name": "mine"})[0], slurm.daemon.request("DELETE", path)[0],
                slurm.daemon.request("GET", path)[0], slurm.daemon.request("POST", "/v1/sessions", {"managed": True})[0]]
    assert as_user(other_user.pw_uid, change) == [403, 403, 200, 403]
    job.communicate(timeout=60)
    assert job.returncode == 0
    wait_for(lambda: sessions(slurm) == [], "its session to be gone")


def test_programs_whose_jobs_record_is_lost_run_on(slurm, product):
    step = subprocess.Popen(["timeout", "60", "srun", "-w", "n1", "--gpuslice=memory=64MiB", "env", "HOLD=stdin",
                             *map(str, allocating(product, 40, 1)[1:])], env=slurm.environment(), stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: sessions(slurm) and sessions(slurm)[0]["used_bytes"] == 40 * MIB, "the program to have its memory")
    with records_lost(slurm):
        assert slurm.run("srun", "-w", "n1", "--gpuslice=memory=64MiB", "echo", "started").stdout == "started\n"
    assert sum(session["used_bytes"] for session in sessions(slurm)) == 40 * MIB
    output, _ = step.communicate("\n", timeout=60)
    assert step.returncode == 0 and "ALLOC_OK iteration 0" in output, output
    wait_for_idle_nodes(slurm)
    assert slurm.run("srun", "-w", "n1", "--gpuslice=memory=64MiB", "echo", "started").stdout == "started\n"
    wait_for(lambda: sessions(slurm) == [], "the session that was left to end")


def test_without_a_daemon_the_tasks_say_why_and_the_node_stays(slurm):
    slurm.daemon.stop()
    try:
        result = slurm.run("srun", "-w", "n1", "--gpuslice=memory=64MiB", "echo", "started")
        assert result.returncode != 0 and "started" not in result.stdout and "daemon" in result.stderr, result
        wait_for_idle_nodes(slurm)
    finally:
        slurm.daemon.start("--system")
    assert slurm.run("srun", "-w", "n1", "--gpuslice=memory=64MiB", "echo", "started").stdout == "started\n"


def test_a_site_can_set_what_jobs_get_that_ask_for_nothing(cluster, product):
    slurm = cluster("default=memory=64MiB")
    result = slurm.run("srun", "-w", "n1", "sh", "-c",
                       f"scontrol show job $SLURM_JOB_ID; {' '.join(map(str, allocating(product, 40, 2)))}")
    assert "ALLOC_FAIL at iteration 1 code=2" in result.stdout, result
    assert "TresPerNode=gres:gpuslice_memory:64\n" in result.stdout, "it is counted too"
    slurm = cluster("default=deny")
    result = slurm.run("srun", "-w", "n1", *allocating(product, 1, 1))
    assert "ALLOC_OK" not in result.stdout, result
    assert slurm.run("srun", "-w", "n1", "echo", "no GPU needed").stdout == "no GPU needed\n"
    assert "ALLOC_OK iteration 0" in slurm.run("srun", "-w", "n1", "--gpuslice=memory=64MiB",
                                               *allocating(product, 40, 1)).stdout


@pytest.mark.parametrize("default", ["deny", "memory=64MiB"])
def test_a_job_whose_record_cannot_be_written_does_not_get_the_whole_gpu(cluster, default):
    slurm = cluster(f"default={default}")
    records = slurm.daemon.runtime / "slurm"
    shutil.rmtree(records, ignore_errors=True)
    records.touch()  # no folder can be made there
    try:
        result = slurm.run("srun", "-w", "n1", "echo", "started")
        assert result.returncode != 0 and "started" not in result.stdout and str(records) in result.stderr, result
        log = slurm.folder / "log" / "slurmd.n1.log"
        wait_for(lambda: "has no record of its session" in log.read_text(), "slurmd's log to say why")
        wait_for_idle_nodes(slurm)
    finally:
        records.unlink()
    assert slurm.run("srun", "-w", "n1", "echo", "started").stdout == "started\n"


def test_with_a_word_that_is_not_known_no_task_starts(cluster):
    slurm = cluster("defualt=deny")
    result = slurm.run("srun", "-w", "n1", "echo", "started")
    assert result.returncode != 0 and "started" not in result.stdout and "'defualt=deny'" in result.stderr, result
    wait_for_idle_nodes(slurm)
