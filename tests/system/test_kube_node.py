"""A node of a real Kubernetes: kubelet, API server, scheduler and containerd, from a folder that others prepared.

GPUSLICE_TEST_NODE is the folder of a node that is up, GPUSLICE_TEST_NODE_KIT the folder with its `in` (runs a command inside the
node) and `image` (packs a folder as an image). Without them this is skipped.
"""
import json
import os
import pathlib
import subprocess
import time

import pytest

from conftest import MIB, SOURCE, wait_for
from podman_host import make_root

OUT, KIT = os.environ.get("GPUSLICE_TEST_NODE"), os.environ.get("GPUSLICE_TEST_NODE_KIT")
pytestmark = pytest.mark.skipif(not (OUT and KIT), reason="needs a node: set GPUSLICE_TEST_NODE and GPUSLICE_TEST_NODE_KIT")
IMAGE = "localhost/gpuslice-test:1"
TEMPLATE = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "share"},
            "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
                "deviceClassName": "gpuslice", "capacity": {"requests": {"memory": "400Mi", "cores": "40"}}}}]}}}}


class Node:
    def __init__(self, product, folder):
        self.product, self.folder = product, pathlib.Path(folder)
        self.processes = {}
        (self.name,) = [item["metadata"]["name"] for item in self.get("nodes")]

    def inside(self, *words, **more):
        more.setdefault("check", True)
        return subprocess.run([f"{KIT}/in", OUT, *map(str, words)], capture_output=True, text=True, timeout=120, **more)

    def get(self, *what):
        return json.loads(self.inside("kubectl", "get", *what, "-o", "json").stdout)["items"]

    def apply(self, *documents):
        for document in documents:
            self.inside("kubectl", "apply", "-f", "-", input=document if isinstance(document, str) else json.dumps(document))

    def start(self, name, *words):
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [f"{KIT}/in", OUT, "env", "GPUSLICE_SIMULATED=1", "FAKECUDA_NAME=node", f"FAKECUDA_TOTAL_MEM={1000 * MIB}",
                 "FAKECUDA_CONTEXT_BYTES=0", "sh", "-c", "echo $$ >$0; exec \"$@\"", self.folder / f"{name}.pid",
                 self.product.prefix / "bin" / name, *map(str, words)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_all(self, mode):
        self.start("gpusliced", "--system")
        self.start("gpuslice-kubelet", "--mode", mode, "--node", self.name, "--api-server", "https://10.96.0.1", "--ca-file",
                   f"{OUT}/pki/ca.crt", "--token-file", self.folder / "token")

    def stop(self, name):
        """SIGKILL, by its number in the node."""
        self.inside("kill", "-9", (self.folder / f"{name}.pid").read_text().strip(), check=False)
        self.processes.pop(name).wait(20)

    def log(self):
        return "".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.log"))

    def sessions(self):
        found = self.inside("env", "GPUSLICE_SIMULATED=1", self.product.gpuslice, "list", "--json", check=False)
        return json.loads(found.stdout) if found.returncode == 0 else None

    def phases(self):
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in self.get("pods")}


def pod(name, script, container=None, **spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **spec,
        "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script],
                        **(container or {})}]}}


def sharing(name, script="ALLOC_BYTES=%d ITERATIONS=2 /bin/target_app; /bin/sleep 600" % (300 * MIB)):
    return pod(name, script, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "share"}],
               container={"resources": {"claims": [{"name": "gpu"}]}})


@pytest.fixture(scope="module")
def node(product, tmp_path_factory):
    folder = tmp_path_factory.mktemp("node")
    made = Node(product, folder)
    root = make_root(tmp_path_factory.mktemp("root"), product, product.prefix / "share/gpuslice/examples/bin/target_app",
                     "/bin/sleep")
    subprocess.run([f"{KIT}/image", folder / "image.tar", IMAGE, root, "/bin/sh"], check=True, timeout=120)
    made.inside("ctr", "-n", "k8s.io", "images", "import", folder / "image.tar")
    documents = (SOURCE / "packaging/kubernetes/gpuslice.yaml").read_text().split("\n---\n")
    made.apply(*[document for document in documents if "kind: DaemonSet" not in document], TEMPLATE)
    token = made.inside("kubectl", "-n", "gpuslice", "create", "token", "gpuslice", "--duration=2h").stdout
    (folder / "token").write_text(token)
    made.start_all("both")
    yield made
    made.inside("kubectl", "delete", "pods", "--all", "--wait=false", check=False)
    for name in list(made.processes):
        made.stop(name)


def test_two_pods_share_a_gpu_and_the_third_waits(node):
    (published,) = wait_for(lambda: [item for item in node.get("resourceslices")
                                     if item["spec"]["driver"] == "gpu.gpuslice.io"], "the slice", deadline_s=60)
    assert published["spec"]["devices"][0]["capacity"]["memory"]["requestPolicy"]["default"], "the feature gate is on"
    node.apply(sharing("one"), sharing("two"), sharing("three"))
    wait_for(lambda: sorted(node.phases().values()) == ["Pending", "Running", "Running"], f"two of three ({node.log()})",
             deadline_s=120)
    running = [name for name, phase in node.phases().items() if phase == "Running"]
    for name in running:
        wait_for(lambda: "ALLOC_FAIL at iteration 1 code=2" in node.inside("kubectl", "logs", name).stdout,
                 f"{name} to be limited", deadline_s=60)
    assert {(one["pod"], one["vram_limit_bytes"], one["compute_max_ratio"]) for one in node.sessions()} == {
        (name, 400 * MIB, 0.4) for name in running}
    node.inside("kubectl", "delete", "pod", running[0])
    wait_for(lambda: "Pending" not in node.phases().values(), "the third", deadline_s=120)
    node.inside("kubectl", "delete", "pods", "--all")
    wait_for(lambda: node.sessions() == [], f"no session to be left ({node.log()})", deadline_s=60)


def test_slices_by_the_device_plug_in(node):
    wait_for(lambda: node.get("nodes")[0]["status"]["allocatable"].get("gpuslice.io/gpu") == "10", "ten slices", deadline_s=60)
    node.apply(pod("sliced", "ALLOC_BYTES=%d ITERATIONS=2 /bin/target_app; /bin/sleep 600" % (150 * MIB),
                   container={"resources": {"limits": {"gpuslice.io/gpu": "2"}}}))
    wait_for(lambda: "ALLOC_FAIL at iteration 1 code=2" in node.inside("kubectl", "logs", "sliced", check=False).stdout,
             f"it to be limited ({node.log()})", deadline_s=120)
    wait_for(lambda: [one["pod"] for one in node.sessions()] == ["sliced"], "the pod's name", deadline_s=60)
    node.inside("kubectl", "delete", "pod", "sliced")
    wait_for(lambda: node.sessions() == [], f"no session to be left ({node.log()})", deadline_s=90)


def test_nothing_is_left_whoever_is_killed_when(node):
    end = time.monotonic() + float(os.environ.get("GPUSLICE_TEST_NODE_SECONDS", 60))
    number = 0
    while time.monotonic() < end:
        number += 1
        node.apply(sharing(f"chaos-{number}"))
        if number % 4 == 0:
            node.inside("sh", "-c", f"kill $(cat {OUT}/run/kubelet.pid)")
        elif number % 4 == 1:
            node.stop("gpuslice-kubelet")
            node.stop("gpusliced")
            node.start_all("both")
        if number > 2:
            node.inside("kubectl", "delete", "pod", f"chaos-{number - 2}", "--wait=false", check=False)
        for one in node.sessions() or []:
            assert one["vram_limit_bytes"] == 400 * MIB
    node.inside("kubectl", "delete", "pods", "--all")
    wait_for(lambda: node.sessions() == [], f"no session to be left ({node.log()})", deadline_s=120)
