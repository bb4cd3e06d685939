"""The chart and the manifests of packaging/kubernetes: valid, alike, and what the image's scripts do on a node."""
import json
import os
import subprocess

import pytest

from conftest import SOURCE
from kube import manifests

FOLDER = SOURCE / "packaging" / "kubernetes"


def test_manifests_and_examples_are_valid():
    files = [FOLDER / "gpuslice.yaml", *sorted((FOLDER / "examples").glob("*.yaml"))]
    assert len(files) > 4
    result = manifests("check", *files)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("old, new, said", [
    ("kind: DaemonSet", "kind: DeamonSet", "no schema"),
    ("hostPID: true", "hostPid: true", "hostPid"),
    ("hostPID: true", "hostPID: yes please", "hostPID must be boolean"),
    ("verbs: [get]", "verbs: [see]", "verbs/0"),
    ("mountPath: /run/gpuslice", "mountpath: /run/gpuslice", "mountPath"),
    ("name: gpuslice", "name: GPU_Slice", "metadata/name"),
])
def test_a_mistake_is_found(tmp_path, old, new, said):
    text = (FOLDER / "gpuslice.yaml").read_text()
    assert old in text
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text.replace(old, new, 1))
    result = manifests("check", wrong)
    assert result.returncode == 1 and said in result.stdout, result.stdout


def test_the_plain_manifests_are_the_chart_with_its_own_values():
    text = (FOLDER / "gpuslice.yaml").read_text()
    assert text.split("\n", 1)[1] == manifests("render").stdout, "run scripts/kubernetes-manifests"


@pytest.mark.parametrize("values, said", [
    ({"simulated": "yes"}, "/simulated"), ({"sliceMemory": "4"}, "/sliceMemory"), ({"sliceMemory": 4}, "/sliceMemory"),
    ({"sliceCompute": "30"}, "/sliceCompute"), ({"slices": 0}, "/slices"), ({"slices": "2000"}, "/slices"), ({"mode": "plugin"}, "/mode"),
    ({"resource": "gpu"}, "/resource"), ({"slicememory": "4GiB"}, "slicememory"), ({"kubeletDir": "var/lib"}, "/kubeletDir"),
])
def test_values_that_the_chart_cannot_mean_are_refused(values, said):
    result = manifests("render", json.dumps(values))
    assert result.returncode != 0 and said in result.stderr, result.stdout


@pytest.mark.parametrize("values, there, not_there", [
    ({"mode": "device-plugin", "resource": "nvshare.com/gpu"}, ["--mode=device-plugin", "--resource=nvshare.com/gpu"],
     ["kind: DeviceClass", "kind: Namespace", "--slice-memory", "--slice-compute"]),
    ({"mode": "both", "slices": "4", "sliceMemory": "4GiB", "sliceCompute": "20%"},
     ["--slices=4", "--slice-memory=4GiB", "--slice-compute=20%"], []),
    ({"createNamespace": True, "simulated": "true"}, ["kind: Namespace", 'value: "1"'], ['value: "0"', "--without-driver"]),
    ({"metricsPort": 0}, [], ["GPUSLICE_METRICS_ADDR", "containerPort", "kind: PodMonitor"]),
    ({"metricsPort": "9500", "podMonitor": True}, ["value: 0.0.0.0:9500", "containerPort: 9500", "kind: PodMonitor"], []),
    ({"resources": {"daemon": {"limits": {"cpu": "2"}}, "kubelet": {}}}, ['cpu: "2"'], ["cpu: 50m"]),
    ({"withoutDriver": "true", "kubeletDir": "/srv/kubelet"}, ["--without-driver", "path: /srv/kubelet/plugins,"],
     ["/var/lib/kubelet"]),
])
def test_values_of_the_chart_do_what_they_say(tmp_path, values, there, not_there):
    text = manifests("render", json.dumps(values)).stdout
    for words in there:
        assert words in text
    for words in not_there:
        assert words not in text
    (tmp_path / "made.yaml").write_text(text)
    assert manifests("check", tmp_path / "made.yaml").stdout == ""


def test_switches_are_values_of_either_kind():
    """`helm --set simulated=true` is a boolean, as in values.yaml; `--set-string` is a text. Helm compares none with the other."""
    switches = ("simulated", "withoutDriver", "sliceOversubscribe", "podMonitor")
    on, as_text = (manifests("render", json.dumps(dict.fromkeys(switches, value))).stdout for value in (True, "true"))
    assert on == as_text and "--slice-oversubscribe" in on
    assert "--slice-oversubscribe=managed" in manifests("render", json.dumps({"sliceOversubscribe": "managed"})).stdout
    off = manifests("render", json.dumps({**dict.fromkeys(switches, "false"), "createNamespace": True})).stdout
    assert off == manifests("render").stdout


# --- On a node ---------------------------------------------------------------------------------------------

def install(from_, to, cdi="/nowhere"):
    subprocess.run([FOLDER / "install-on-node", from_, to, cdi], check=True, timeout=60)


def tree(tmp_path, version, content):
    made = tmp_path / f"bundle-{version}-{content}"
    (made / "lib").mkdir(parents=True)
    (made / "version").write_text(version + "\n")
    (made / "lib" / "library").write_text(content)
    return made


def test_an_upgrade_writes_over_no_file_that_is_in_use(tmp_path):
    node = tmp_path / "node"
    node.mkdir()
    install(tree(tmp_path, "1.0", "first"), node)
    library = node / "current" / "lib" / "library"
    before = os.stat(library)
    with open(library) as in_use:
        install(tree(tmp_path, "1.0", "again"), node)
        assert os.stat(library).st_ino == before.st_ino, "a version that is there stays"
        install(tree(tmp_path, "2.0", "second"), node)
        assert library.read_text() == "second" and in_use.read() == "first"
    assert (node / "1.0" / "lib" / "library").read_text() == "first", "the one before stays, for what starts just now"
    install(tree(tmp_path, "3.0", "third"), node)
    assert sorted(os.listdir(node)) == ["2.0", "3.0", "current"]
    (node / ".new" / "lib").mkdir(parents=True)  # of one that was interrupted
    install(tree(tmp_path, "4.0", "fourth"), node)
    assert library.read_text() == "fourth" and sorted(os.listdir(node)) == ["3.0", "4.0", "current"]


def test_a_version_that_a_container_has_stays(tmp_path):
    """However often the installation runs: when the container of a running pod is made again, its files must be there."""
    node, cdi = tmp_path / "node", tmp_path / "cdi"
    node.mkdir()
    cdi.mkdir()
    trees = {version: tree(tmp_path, version, "content") for version in ("1.0", "2.0", "3.0")}
    install(trees["1.0"], node, cdi)
    specification = cdi / "gpuslice-claim-1.json"
    specification.write_text(json.dumps({"devices": [{"containerEdits": {"mounts": [
        {"hostPath": f"{node}/1.0/lib/libgpuslice.so", "containerPath": "/usr/local/gpuslice/libgpuslice.so"}]}}]}, indent=2))
    for version in ("2.0", "2.0", "3.0"):
        install(trees[version], node, cdi)
        assert (node / "1.0" / "lib" / "library").exists()
    assert sorted(os.listdir(node)) == ["1.0", "2.0", "3.0", "current"]
    specification.unlink()
    install(trees["3.0"], node, cdi)
    assert sorted(os.listdir(node)) == ["3.0", "current"]


def test_probes_ask_the_daemon_and_pass_where_there_is_no_gpu(tmp_path, daemon):
    """In place of nsenter, a program that does the same in the mount namespace at hand."""
    (tmp_path / "nsenter").write_text('#!/bin/sh\nshift 4\nexec "$@"\n')
    (tmp_path / "nsenter").chmod(0o755)
    (tmp_path / "current").symlink_to(daemon.product.gpuslice.parent.parent)

    def check(**more):
        environment = {**daemon.environment(), "PATH": f"{tmp_path}:{os.environ['PATH']}", **more}
        return subprocess.run([FOLDER / "run-daemon", "--check", tmp_path], env=environment, timeout=60).returncode

    assert check() == 0
    daemon.stop()
    assert check() != 0
    if not os.path.exists("/proc/driver/nvidia/version"):
        assert check(GPUSLICE_SIMULATED="0") == 0


def test_a_node_without_a_gpu_waits(tmp_path):
    if os.path.exists("/proc/driver/nvidia/version"):
        pytest.skip("there is a driver")
    waiting = subprocess.Popen([FOLDER / "run-daemon", tmp_path], stdout=subprocess.PIPE, text=True,
                               start_new_session=True)
    assert "no NVIDIA driver" in waiting.stdout.readline()
    assert waiting.poll() is None
    os.killpg(waiting.pid, 15)
    waiting.wait(20)
    waiting.stdout.close()
