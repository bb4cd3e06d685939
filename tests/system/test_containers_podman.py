"""Containers that are given a session: by a CDI device, and by `gpuslice run --container`; podman, and stand-ins for others."""
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile

import pytest

from conftest import MIB, SOURCE, wait_for
from podman_host import NoPodman, Podman, make_root
from test_quota import OUT_OF_MEMORY, Puppet


# --- podman itself -----------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def root(product, tmp_path_factory):
    return make_root(tmp_path_factory.mktemp("root"), product, product.program("puppet"))


@pytest.fixture
def podman(root):
    with tempfile.TemporaryDirectory(prefix="gp-", ignore_cleanup_errors=True) as folder:  # podman takes no long paths
        try:
            host = Podman(folder)
            host.check(root)
        except NoPodman as why:
            pytest.skip(str(why))
        yield host


@pytest.fixture
def in_container(podman, daemon, product, root, reap):
    """A puppet in a container: by `gpuslice run --container`, or with podman's own option --device."""
    started = []

    def start(*before, device=None):
        if device:
            words = [*podman.words("puppet", root=root)]
            at = words.index("run") + 1
            words[at:at] = ["--device", device, *before]
        else:
            words = [str(product.gpuslice), "run", *map(str, before), "--container", "--",
                     *podman.words("puppet", root=root)]
        puppet = Puppet.__new__(Puppet)
        puppet.process = subprocess.Popen([*podman.enter, *words], env=daemon.environment(), bufsize=0,
                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        puppet.pending = b""
        reap(puppet.process)
        started.append(puppet.process)
        puppet.hear()
        return puppet

    yield start
    for process in started:  # without input the container's program ends, and podman behind it
        process.stdin.close()
        process.wait(60)


def expect_limited(daemon, puppet, name="s", limit=64 * MIB):
    puppet.get("context", 0)
    puppet.get("alloc", limit - 24 * MIB)
    assert puppet.code("alloc", 40 * MIB) == OUT_OF_MEMORY
    session = daemon.session(name)
    assert session["used_bytes"] == limit - 24 * MIB
    (process,) = session["processes"]
    assert process["command"] == "puppet"
    status = open(f"/proc/{process['pid']}/status").read()
    assert len(status.split("NSpid:")[1].split("\n")[0].split()) == 2, "it is in a pid namespace of its own"
    return process["pid"]


def test_a_cdi_device_is_a_session(daemon, podman, in_container):
    daemon.cli("create", "--name", "s", "--memory", "64MiB")
    podman.cdi.mkdir()
    daemon.cli("cdi", "--to", podman.cdi, "s")
    (file,) = podman.cdi.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first = in_container(device="gpuslice.io/session=s")
    pid = expect_limited(daemon, first)
    second = in_container(device=f"gpuslice.io/session={daemon.session('s')['session_id']}")
    second.get("context", 0)
    assert second.code("alloc", 40 * MIB) == OUT_OF_MEMORY, "both containers share the session"
    os.kill(pid, 9)
    wait_for(lambda: daemon.session("s")["used_bytes"] == 0, "the first one's memory to be back")
    second.get("alloc", 40 * MIB)


def test_a_preload_of_the_images_stays_beside_ours(daemon, podman, in_container, product, root):
    daemon.cli("create", "--name", "s", "--memory", "64MiB")
    podman.cdi.mkdir()
    daemon.cli("cdi", "--to", podman.cdi, "s")
    other = root / "usr/lib/other.so"
    other.write_bytes(product.path_library.read_bytes())
    puppet = in_container("--env", "LD_PRELOAD=/usr/lib/other.so", device="gpuslice.io/session=s")
    pid = expect_limited(daemon, puppet)
    maps = open(f"/proc/{pid}/maps").read()
    assert "/usr/lib/other.so" in maps and "libgpuslice.so" in maps


def test_a_user_without_a_name_on_the_host_is_limited_too(daemon, podman, in_container):
    daemon.cli("create", "--name", "s", "--memory", "64MiB")
    podman.cdi.mkdir()
    daemon.cli("cdi", "--to", podman.cdi, "s")
    for path in files_of_gpu(daemon):
        path.chmod(0o666)  # the daemon is a user's own, whose simulated GPU is that user's alone
    expect_limited(daemon, in_container("--user", "65534:65534", device="gpuslice.io/session=s"))


def files_of_gpu(daemon):
    return list(pathlib.Path("/dev/shm").glob(f"fakecuda-*{daemon.gpu.name}*"))


def test_run_gives_the_container_a_session_that_ends_with_it(daemon, in_container):
    puppet = in_container("--name", "s", "--memory", "64MiB")
    expect_limited(daemon, puppet)
    puppet.process.stdin.close()
    assert puppet.process.wait(60) == 0, puppet.process.stderr.read()
    wait_for(lambda: daemon.request("GET", "/v1/sessions")[1] == [], "the session to end")


@pytest.mark.skipif(not shutil.which("podman-compose"), reason="podman-compose is not installed")
def test_the_manuals_compose_file_runs(daemon, podman, product, tmp_path):
    root = make_root(tmp_path, product, product.program("target_app"))
    podman.import_image(root, "localhost/train:1", "ENV ALLOC_BYTES=" + str(20 * MIB), "ENV ITERATIONS=6", "CMD /bin/target_app")
    daemon.cli("create", "--name", "train", "--memory", "64MiB")
    podman.cdi.mkdir()
    daemon.cli("cdi", "--to", podman.cdi, "train")
    (text,) = re.findall(r"```yaml\n(services:\n.*?)```", (SOURCE / "docs/containers.md").read_text(), re.S)
    composition = podman.folder / "compose.yaml"
    composition.write_text(text.replace("IMAGE", "localhost/train:1"))
    result = podman.bring_up(composition)
    assert result.stdout.count("ALLOC_OK") == 3 and "of the limit 64MiB" in result.stdout + result.stderr, result


def test_the_image_for_kubernetes_names_its_version_in_one_word(podman, product, tmp_path):
    """On this machine's own programs in place of Debian's image, and a bundle of one program."""
    programs = ("mv", "rmdir", "find", "sort", "xargs", "sha256sum", "cut", "sed")
    base, context, bundle = (tmp_path / name for name in ("base", "context", "gpuslice-1-bundle"))
    base.mkdir()
    make_root(base, product, product.gpuslice, *map(shutil.which, programs))
    (base / "usr/share").mkdir()
    podman.import_image(base, "docker.io/library/debian:12-slim")
    (bundle / "bin").mkdir(parents=True)
    shutil.copy2(product.gpuslice, bundle / "bin")
    shutil.copytree(SOURCE / "packaging/kubernetes", context / "packaging/kubernetes")
    subprocess.run(["tar", "-C", tmp_path, "-czf", context / "bundle.tar.gz", bundle.name], check=True, timeout=60)
    podman.build(context, "localhost/gpuslice:1", context / "packaging/kubernetes/Containerfile", "--build-arg", "BUNDLE=bundle.tar.gz")
    said = podman.in_image("localhost/gpuslice:1", "cat", "/usr/share/gpuslice/version")
    assert re.fullmatch(r"\d+\.\d+\.\d+-[0-9a-f]{8}\n", said), repr(said)


def test_a_container_finds_the_daemon_that_was_restarted(daemon, in_container):
    puppet = in_container("--name", "s", "--memory", "64MiB")
    expect_limited(daemon, puppet)
    daemon.kill()
    daemon.start()
    wait_for(lambda: puppet.code("alloc", 1) == 0 and daemon.session("s")["processes"][0]["pid"], "it to attach again")
    daemon.cli("set", "s", "--memory", "44MiB")
    assert puppet.code("alloc", 8 * MIB) == OUT_OF_MEMORY


# --- Slices: a session for each container --------------------------------------------------------------------

@pytest.fixture
def slice_device(daemon, podman):
    """The device of a slice of 64 MiB and a quarter of the time."""
    podman.cdi.mkdir()
    daemon.cli("cdi", "--to", podman.cdi, "--slice", "quarter", "--memory", "64MiB", "--compute", "25%", "--priority", "high")
    (file,) = podman.cdi.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert daemon.request("GET", "/v1/sessions")[1] == [], "nothing is taken before a container is there"
    return "gpuslice.io/slice=quarter"


def allocate_to_the_limit(puppet):
    puppet.get("context", 0)
    puppet.get("alloc", 40 * MIB)
    assert puppet.code("alloc", 40 * MIB) == OUT_OF_MEMORY


def sessions(daemon):
    return daemon.request("GET", "/v1/sessions")[1]


def test_each_container_with_a_slice_has_a_session_that_ends_with_it(daemon, in_container, slice_device):
    puppets = [in_container(device=slice_device) for _ in range(2)]
    for puppet in puppets:
        allocate_to_the_limit(puppet)
    made = sessions(daemon)
    assert {(one["vram_limit_bytes"], one["used_bytes"], one["compute_min_ratio"], one["priority"], len(one["container"]))
            for one in made} == {(64 * MIB, 40 * MIB, 0.25, "high", 12)} and len(made) == 2
    assert [process["command"] for one in made for process in one["processes"]] == ["puppet"] * 2
    puppets[0].process.stdin.close()
    wait_for(lambda: len(sessions(daemon)) == 1, "one session to end with its container")
    os.kill(sessions(daemon)[0]["processes"][0]["pid"], 9)
    wait_for(lambda: sessions(daemon) == [], "the other to end too")


@pytest.mark.parametrize("options", [("--user", "65534:65534"), ("--env", "GPUSLICE_SESSION=")],
                         ids=["nobody", "no session named"])
def test_a_slice_holds_for_any_user_and_environment(daemon, in_container, slice_device, options):
    for path in files_of_gpu(daemon):
        path.chmod(0o666)
    allocate_to_the_limit(in_container(*options, device=slice_device))
    assert [one["used_bytes"] for one in sessions(daemon)] == [40 * MIB]


def test_a_slices_session_outlives_the_daemon_and_not_the_container(daemon, in_container, slice_device):
    puppet = in_container(device=slice_device)
    allocate_to_the_limit(puppet)
    daemon.kill()
    daemon.start()
    wait_for(lambda: puppet.code("alloc", 1) == 0 and sessions(daemon)[0]["processes"], "it to attach again")
    assert puppet.code("alloc", 40 * MIB) == OUT_OF_MEMORY
    puppet.process.stdin.close()
    wait_for(lambda: sessions(daemon) == [], "the session to end")


def start(daemon, podman, root, *words, lines=""):
    command = podman.words("puppet", root=root)
    at = command.index("run") + 1
    command[at:at] = words
    return subprocess.run([*podman.enter, *command], env=daemon.environment(), input=lines, capture_output=True, text=True, timeout=120)


def hook_of(podman):
    (file,) = podman.cdi.iterdir()
    (device,) = json.loads(file.read_text())["devices"]
    (hook,) = device["containerEdits"]["hooks"]
    assert hook["hookName"] == "createContainer"
    return hook


def call_hook(podman, text):
    hook = hook_of(podman)
    return subprocess.run([hook["path"], *hook["args"][1:]], env=dict(one.split("=", 1) for one in hook["env"]), input=text,
                          capture_output=True, text=True, timeout=60)


def test_a_container_for_which_there_is_no_room_does_not_start(daemon, podman, root, slice_device, tmp_path):
    daemon.cli("create", "--name", "big", "--compute", "80%")
    refused = start(daemon, podman, root, "--device", slice_device, lines="context 0\n")
    assert refused.returncode != 0 and "hook" in refused.stderr and refused.stdout == ""
    (tmp_path / "config.json").write_text(json.dumps({"root": {"path": str(root)}}))
    said = call_hook(podman, json.dumps({"id": "c", "bundle": str(tmp_path)}))
    assert said.returncode == 1 and "80%" in said.stderr, said.stderr
    assert [one["name"] for one in sessions(daemon)] == ["big"]


def test_a_container_has_one_slice(daemon, podman, root, slice_device):
    daemon.cli("cdi", "--to", podman.cdi, "--slice", "other", "--memory", "32MiB")
    refused = start(daemon, podman, root, "--device", slice_device, "--device", "gpuslice.io/slice=other", lines="context 0\n")
    assert refused.returncode != 0 and refused.stdout == ""
    wait_for(lambda: sessions(daemon) == [], "no session to be left")


def test_a_container_does_not_start_while_no_daemon_runs(daemon, podman, root, slice_device, tmp_path):
    daemon.stop()
    assert start(daemon, podman, root, "--device", slice_device, lines="context 0\n").returncode != 0
    (tmp_path / "config.json").write_text(json.dumps({"root": {"path": str(root)}}))
    said = call_hook(podman, json.dumps({"id": "c", "bundle": str(tmp_path)}))
    assert said.returncode == 1 and "daemon" in said.stderr, said.stderr


@pytest.mark.parametrize("text", ["", "[]", "{}", "{\"id\": \"c\"}", "{\"id\": \"c\", \"bundle\": \"/nowhere\"}"])
def test_a_hook_that_is_told_nonsense_takes_nothing(daemon, podman, slice_device, text):
    said = call_hook(podman, text)
    assert said.returncode == 1 and said.stderr.startswith("gpuslice: ") and sessions(daemon) == []


def test_an_images_links_lead_the_socket_nowhere_else(daemon, podman, product, tmp_path, slice_device):
    """/run of this one would be a folder of the host's."""
    (tmp_path / "linked").mkdir()
    (tmp_path / "host").mkdir()
    root = make_root(tmp_path / "linked", product, product.program("puppet"))
    (root / "run").rmdir()
    (root / f".{tmp_path}/host").mkdir(parents=True)
    (root / "run").symlink_to(f"/../../../../../../../..{tmp_path}/host")
    done = start(daemon, podman, root, "--device", slice_device, lines=f"context 0\nalloc {80 * MIB}\n")
    assert list((tmp_path / "host").iterdir()) == []
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["0", str(OUT_OF_MEMORY)], (done.stdout, done.stderr)
    wait_for(lambda: sessions(daemon) == [], "the session to end")


@pytest.mark.parametrize("words, expected", [
    ((), "--slice NAME"), (("--slice", "a", "session"), "not both"), (("--memory", "1GiB", "session"), "--slice NAME"),
    (("--slice", "a", "--memory", "1PiB"), "is more than GPU 0 has"), (("--slice", "a", "--gpu", "7"), "7"), (("--slice", "a/b"), "a/b"),
])
def test_a_slice_that_cannot_be_is_refused_when_it_is_written(daemon, words, expected, tmp_path):
    result = daemon.cli("cdi", "--to", tmp_path / "cdi", *words, check=False)
    assert result.returncode in (1, 2) and expected in result.stderr, result.stderr
    assert not (tmp_path / "cdi").exists() and sessions(daemon) == []


def test_each_gpu_has_a_device_of_a_slice(make_daemon, make_gpu, tmp_path):
    daemon = make_daemon(make_gpu(FAKECUDA_GPUS=2)).start()
    uuids = [gpu["uuid"] for gpu in daemon.request("GET", "/v1/gpus")[1]]
    daemon.cli("cdi", "--to", tmp_path / "each", "--slice", "half", "--memory", "50%")
    daemon.cli("cdi", "--to", tmp_path / "both", "--slice", "both", "--memory", "50%", "--gpu", "0,1")
    found = {}
    for file in (*(tmp_path / "each").iterdir(), *(tmp_path / "both").iterdir()):
        (device,) = json.loads(file.read_text())["devices"]
        found[device["name"]] = [one for one in device["containerEdits"]["env"] if one.startswith("CUDA_VISIBLE_DEVICES=")]
    assert found == {"half-0": [f"CUDA_VISIBLE_DEVICES={uuids[0]}"], "half-1": [f"CUDA_VISIBLE_DEVICES={uuids[1]}"],
                     "both": [f"CUDA_VISIBLE_DEVICES={','.join(uuids)}"]}


# --- What is asked of the others ---------------------------------------------------------------------------

@pytest.fixture
def fake(tmp_path, daemon):
    """fake(name) puts a program into PATH that prints its words and the variables that it was told to pass on."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(name):
        (folder / name).write_text(
            "#!/bin/sh\nfor word; do echo \"word $word\"; done\n"
            "env | grep -E '^(GPUSLICE_|CUDA_|FAKECUDA_|LD_|APPTAINERENV_)' | sed 's/^/set /'\n")
        (folder / name).chmod(0o755)
        return {**daemon.environment(), "PATH": f"{folder}:{os.environ['PATH']}"}
    return make


@pytest.mark.parametrize("name", ["docker", "podman", "nerdctl"])
def test_options_stand_behind_run_and_secrets_stay_in_the_environment(daemon, fake, name):
    environment = fake(name)
    said = daemon.cli("run", "--memory", "64MiB", "--container", "--", name, "--debug", "run", "--rm", "image", "train",
                      "run", env=environment).stdout.splitlines()
    words = [line[5:] for line in said if line.startswith("word ")]
    passed = dict(line[4:].split("=", 1) for line in said if line.startswith("set "))
    assert words[:2] == ["--debug", "run"] and words[-4:] == ["--rm", "image", "train", "run"]
    given = list(zip(words[2:-4:2], words[3:-4:2]))
    variables = {value for option, value in given if option == "--env"}
    assert {"GPUSLICE_SESSION", "GPUSLICE_IPC_TOKEN", "GPUSLICE_IPC_SOCK", "CUDA_VISIBLE_DEVICES"} <= variables
    assert passed["GPUSLICE_IPC_SOCK"] == "/run/gpuslice/attach.sock" and len(passed["GPUSLICE_IPC_TOKEN"]) == 64
    assert not any(passed["GPUSLICE_IPC_TOKEN"] in word for word in words)
    assert "LD_PRELOAD" not in passed and "LD_PRELOAD" not in variables
    mounts = {value.split(":")[1]: value.split(":") for option, value in given if option == "--volume"}
    assert {"/run/gpuslice", "/etc/ld.so.preload", "/usr/local/gpuslice/libgpuslice.so"} <= set(mounts)
    assert mounts["/run/gpuslice"][2] == "ro" and mounts["/run/gpuslice"][0].endswith(passed["GPUSLICE_SESSION"])
    assert len(given) == len(variables) + len(mounts)


def test_apptainer_is_told_by_its_own_variables(daemon, fake):
    said = daemon.cli("run", "--memory", "64MiB", "--container", "--", "apptainer", "exec", "image.sif", "train",
                      env=fake("apptainer")).stdout
    assert "word exec\nword --bind\n" in said and said.count("word --bind\n") >= 3
    assert "set APPTAINERENV_GPUSLICE_IPC_SOCK=/run/gpuslice/attach.sock\n" in said


@pytest.mark.parametrize("words, expected", [
    (("run", "--", "podman", "run", "image"), "add --container"),
    (("run", "--", "/usr/bin/docker", "--log-level", "debug", "run", "image"), "add --container"),
    (("run", "--", "apptainer", "exec", "image.sif", "x"), "add --container"),
    (("run", "--", "sudo", "-E", "docker", "run", "image"), "'docker' starts programs in a container"),
    (("run", "--", "env", "A=b", "/usr/bin/podman", "--log-level", "debug", "run", "image"), "add --container"),
    (("run", "--", "docker-compose", "-f", "x.yaml", "up"), "add --container"),
    (("run", "--container", "--", "podman-compose", "up"), "gpuslice.io/session=NAME"),
    (("run", "--container", "--", "sudo", "podman", "run", "image"), "sudo gpuslice run --container -- podman"),
    (("run", "--container", "--", "podman", "start", "x"), "gpuslice.io/session=NAME"),
    (("run", "--container", "--", "docker", "compose", "up"), "gpuslice.io/session=NAME"),
    (("run", "--container", "--", "podman", "run", "-d", "image"), "--session NAME --container"),
    (("run", "--container", "--", "podman", "run", "-itd", "image"), "--session NAME --container"),
    (("run", "--container", "--", "docker", "run", "--detach", "image"), "--session NAME --container"),
    (("run", "--container", "--", "podman", "create", "image"), "--session NAME --container"),
    (("run", "--container", "--", "python", "train.py"), "expected podman, docker"),
    (("run", "--without-driver", "--", "true"), "add --container"),
])
def test_what_would_run_without_limits_is_refused_with_what_to_do(daemon, fake, words, expected):
    result = daemon.cli(*words, check=False, env=fake("podman"))
    assert result.returncode == 2 and expected in result.stderr, result.stderr
    assert daemon.request("GET", "/v1/sessions")[1] == []


def test_commands_that_start_no_container_are_programs_like_others(daemon, fake):
    said = daemon.cli("run", "--memory", "64MiB", "--", "podman", "ps", env=fake("podman")).stdout
    assert "word ps\n" in said and "set LD_PRELOAD=" in said
    said = daemon.cli("run", "--memory", "64MiB", "--", "env", "podman", "images", env=fake("podman")).stdout
    assert "word images\n" in said and "set LD_PRELOAD=" in said


def test_a_detached_container_may_join_a_session_that_stays(daemon, fake):
    daemon.cli("create", "--name", "s", "--memory", "64MiB")
    said = daemon.cli("run", "--session", "s", "--container", "--", "docker", "run", "-d", "image",
                      env=fake("docker")).stdout
    assert f"set GPUSLICE_SESSION={daemon.session('s')['session_id']}\n" in said


def test_doctor_tells_the_truth_about_a_container_program(daemon, fake):
    environment = fake("docker")
    for words, level in ((("docker", "run", "image"), "problem"), (("sudo", "docker", "run", "image"), "problem"),
                         (("docker", "images"), "ok")):
        report = json.loads(daemon.cli("doctor", "--json", "--", *words, check=False, env=environment).stdout)
        (found,) = [check for check in report["checks"] if check["id"] == "program"]
        assert found["level"] == level, found
        assert level == "ok" or "run --container" in found["to_do"]


# --- The specification -------------------------------------------------------------------------------------

def test_a_specification_is_printed_for_each_session(daemon):
    daemon.cli("create", "--name", "good", "--memory", "64MiB")
    daemon.cli("create", "--name", "_odd_", "--memory", "64MiB")
    text = daemon.cli("cdi", "good").stdout
    printed = json.loads(text)
    session = daemon.session("good")
    assert printed["cdiVersion"] == "0.5.0" and printed["kind"] == "gpuslice.io/session"
    assert [device["name"] for device in printed["devices"]] == [session["session_id"], "good"]
    edits = printed["devices"][0]["containerEdits"]
    assert f"GPUSLICE_SESSION={session['session_id']}" in edits["env"]
    assert all(os.path.exists(mount["hostPath"]) for mount in edits["mounts"])
    assert os.path.dirname(session["own_socket"]) in [mount["hostPath"] for mount in edits["mounts"]]
    (odd,) = [one for one in daemon.request("GET", "/v1/sessions")[1] if one["name"] == "_odd_"]
    devices = json.loads(daemon.cli("cdi", odd["session_id"]).stdout)["devices"]
    assert [device["name"] for device in devices] == [odd["session_id"]], "CDI knows no such name"


def test_a_name_is_in_one_file_and_files_of_sessions_that_ended_go(daemon, tmp_path):
    folder = tmp_path / "cdi"
    daemon.cli("create", "--name", "gone", "--memory", "1MiB")
    daemon.cli("create", "--name", "train", "--memory", "1MiB")
    assert f"made the folder {folder}" in daemon.cli("cdi", "--to", folder, "gone").stderr
    assert daemon.cli("cdi", "--to", folder, "train").stderr == ""
    first = daemon.session("train")["session_id"]
    daemon.cli("set", "train", "--name", "earlier")
    daemon.cli("create", "--name", "train", "--memory", "1MiB")
    daemon.cli("release", "gone")
    (folder / "gpuslice-slice-quarter.json").write_text('{"devices": [{"name": "train"}]}')
    daemon.cli("cdi", "--to", folder, "train")
    second = daemon.session("train")["session_id"]
    assert first != second
    assert {file.name for file in folder.iterdir()} == {f"gpuslice-session-{second}.json", "gpuslice-slice-quarter.json"}


def test_a_folder_that_cannot_be_written_is_said(daemon, tmp_path):
    daemon.cli("create", "--name", "s")
    (tmp_path / "file").write_text("")
    result = daemon.cli("cdi", "--to", tmp_path / "file", "s", check=False)
    assert result.returncode == 1 and str(tmp_path / "file") in result.stderr
