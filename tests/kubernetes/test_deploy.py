"""As a cluster's operator does it: an image of our own files, the manifests as they are shipped, rights, upgrade, uninstall.

With GPUSLICE_TEST_HELM, a `helm` that runs in the node, the chart is installed, upgraded and uninstalled by it; otherwise the tests'
own renderer stands for `helm template`, and kubectl for the rest."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from node import DRIVER, IMAGE, KIT, MIB, OUT, SLEEP, SOURCE, allocations, container, granted, pod, request, template, wait_for

FOLDER = SOURCE / "packaging" / "kubernetes"
HELM = os.environ.get("GPUSLICE_TEST_HELM")
MEMORY = "656Mi"  # four pieces of 100, beside the context of the simulated GPU as it is without settings
PROGRAMS = ("sh", "cat", "cp", "ln", "mv", "rm", "mkdir", "readlink", "sleep", "nsenter", "sed")


def make_image(node, folder, bundle, version):
    """What the Containerfile makes, with programs of this machine in place of Debian's image."""
    from podman_host import libraries_of
    root = folder / f"image-{version}"
    for name in ("bin", "etc", "proc", "sys", "dev", "run", "tmp", "usr/share/gpuslice"):
        (root / name).mkdir(parents=True)
    paths = [shutil.which(name) for name in PROGRAMS]
    for path in (*paths, *libraries_of(*paths)):
        to = root / ("bin/" + os.path.basename(path) if path in paths else path.lstrip("/"))
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, to)
    subprocess.run(["tar", "-xzf", bundle, "--strip-components=1", "-C", root / "usr/share/gpuslice"], check=True, timeout=120)
    (root / "usr/share/gpuslice/version").write_text(version + "\n")
    for name in ("install-on-node", "run-daemon"):
        shutil.copy2(FOLDER / name, root / name)
    archive, image = folder / f"{version}.tar", f"localhost/gpuslice:{version}"
    subprocess.run([f"{KIT}/image", archive, image, root, "/bin/sh"], check=True, timeout=120)
    node.inside("ctr", "-n", "k8s.io", "images", "import", archive)
    shutil.rmtree(root)
    return image


def render(**values):
    """The chart, as `helm template` gives it."""
    modules = subprocess.run([SOURCE / "scripts/install-node-modules", "kubernetes"], capture_output=True, text=True, check=True, timeout=300)
    return subprocess.run(["node", SOURCE / "tests/kubernetes/manifests.js", "render", json.dumps(values)], capture_output=True,
                          text=True, check=True, timeout=60, env={**os.environ, "NODE_PATH": modules.stdout.strip()}).stdout


def install(node, **values):
    """The chart with these values, for the first time or again."""
    if HELM:
        node.inside(HELM, "upgrade", "--install", "gpuslice", FOLDER / "chart", "--namespace", "gpuslice", "--create-namespace",
                    *(f"--set={name}={value}" for name, value in values.items()))
    else:
        node.apply(render(createNamespace=True, **values))


def uninstall(node):
    if HELM:
        node.inside(HELM, "uninstall", "gpuslice", "--namespace", "gpuslice", "--ignore-not-found")
    else:
        node.kubectl("delete", "daemonset", "-n", "gpuslice", "gpuslice", "--ignore-not-found", timeout=180)


def daemon_pods(node):
    return [one for one in node.get("pods", "-n", "gpuslice") if not one["metadata"].get("deletionTimestamp")]


def wait_rolled_out(node):
    node.kubectl("-n", "gpuslice", "rollout", "status", "daemonset/gpuslice", "--timeout=150s", timeout=180)


@pytest.fixture(scope="module")
def shipped(node, tmp_path_factory):
    """The node with nothing of ours but what the manifests bring, in folders of its own."""
    bundle = os.environ.get("GPUSLICE_TEST_BUNDLE")
    if not bundle:
        pytest.skip("needs GPUSLICE_TEST_BUNDLE, as scripts/bundle makes it")
    for place in ("/opt", "/dev/shm"):
        node.inside("sh", "-c", f"grep -q '^of-the-test {place} ' /proc/mounts || mount -t tmpfs of-the-test {place}")
    node.inside("rm", "-rf", "/opt/gpuslice")
    folder = tmp_path_factory.mktemp("images")
    node.first, node.second = (make_image(node, folder, bundle, version) for version in ("1.0.0", "2.0.0"))
    if HELM:
        node.remove_rights()  # Helm takes nothing over that somebody else has made
    install(node, simulated="true", image=node.first)
    wait_rolled_out(node)
    yield node
    uninstall(node)
    node.apply_rights()


def our_sessions(node):
    found = node.inside("env", "GPUSLICE_SIMULATED=1", "/opt/gpuslice/current/bin/gpuslice", "list", "--json", check=False)
    return json.loads(found.stdout) if found.returncode == 0 else None


def logs(node):
    return "".join(node.inside("kubectl", "-n", "gpuslice", "logs", "-l", "app.kubernetes.io/name=gpuslice", "-c", name, "--tail=30",
                               check=False).stdout for name in ("install", "daemon", "kubelet")) + node.kubectl(
                                   "-n", "gpuslice", "describe", "pods")


def test_the_shipped_manifests_are_taken_as_they_are(node):
    node.kubectl("apply", "--dry-run=server", "-f", FOLDER / "gpuslice.yaml")
    for example in sorted((FOLDER / "examples").glob("*.yaml")):
        node.kubectl("apply", "--dry-run=server", "-f", example)


def test_pods_are_limited_by_what_the_manifests_bring(shipped, space):
    wait_for(shipped.slices, lambda: f"the slice {logs(shipped)}")
    space.apply(template("share", request(memory=MEMORY, cores="40")),
                *[pod(name, container(allocations(100, 6) + ";" + SLEEP), claims={"gpu": "share"}) for name in ("one", "two")])
    for name in ("one", "two"):
        wait_for(lambda: granted(space.log(name)) == 4, lambda: f"{name} to be limited: {space.log(name)} {space.events()} {logs(shipped)}")
    space.delete("pods", "--all")
    wait_for(lambda: our_sessions(shipped) == [], lambda: f"no session to be left {logs(shipped)}")


def test_rights_end_where_the_work_does(shipped, space, tmp_path):
    if not pathlib.Path(KIT, "account").exists():
        pytest.skip("the kit has no `account`")
    view = tmp_path / "view"
    view.write_text(subprocess.run([f"{KIT}/account", OUT, "gpuslice", "gpuslice"], capture_output=True, text=True, check=True,
                                   timeout=60).stdout)

    def may(*words, **more):
        return shipped.inside("env", f"KUBECONFIG={view}", "kubectl", *words, check=False, **more)

    for words in (("list", "resourceclaims"), ("list", "secrets"), ("get", "secrets"), ("list", "pods"), ("create", "pods"),
                  ("list", "nodes"), ("update", "nodes"), ("update", "resourceclaims"), ("update", "resourceclaims/status"),
                  ("create", "pods/exec"), ("create", "deviceclasses"), ("impersonate", "users"), ("escalate", "clusterroles")):
        assert may("auth", "can-i", *words, "--all-namespaces").stdout.strip() == "no", words
    for words in (("get", "resourceclaims"), ("get", "pods"), ("get", "nodes"), ("watch", "resourceslices")):
        assert may("auth", "can-i", *words, "--all-namespaces").stdout.strip() == "yes", words

    def slice_of(node_name, driver=DRIVER):
        return json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"of-the-test-{node_name}"},
                           "spec": {"driver": driver, "nodeName": node_name, "pool": {"name": "of-the-test", "generation": 1,
                                    "resourceSliceCount": 1}, "devices": [{"name": "one"}]}})
    refused = may("create", "-f", "-", input=slice_of("node-2"))
    assert refused.returncode != 0 and "of the node that it runs on only" in refused.stderr
    refused = may("create", "-f", "-", input=slice_of(shipped.name, "gpu.nvidia.com"))
    assert refused.returncode != 0 and "its own driver's devices only" in refused.stderr
    shipped.apply(slice_of("node-2"))
    assert may("delete", "resourceslice", "of-the-test-node-2").returncode != 0
    shipped.kubectl("delete", "resourceslice", "of-the-test-node-2")


def test_its_pods_can_be_killed(shipped, space):
    space.apply(template("share", request(memory=MEMORY, cores="40")),
                pod("before", container(f"ALLOC_BYTES={100 * MIB} ITERATIONS=6 HOLD=signal /bin/target_app"), claims={"gpu": "share"}))
    wait_for(lambda: granted(space.log("before")) == 4, lambda: f"memory to be held {logs(shipped)}")
    (session,) = our_sessions(shipped)
    (old,) = daemon_pods(shipped)
    shipped.kubectl("-n", "gpuslice", "delete", "pod", old["metadata"]["name"], "--force", "--grace-period=0")
    wait_for(lambda: [one["metadata"]["uid"] for one in daemon_pods(shipped)] not in ([], [old["metadata"]["uid"]]), "another pod")
    wait_rolled_out(shipped)
    space.apply(pod("after", container(allocations(100, 6) + ";" + SLEEP), claims={"gpu": "share"}))
    wait_for(lambda: granted(space.log("after")) == 4, lambda: f"another pod to be limited {space.events()} {logs(shipped)}", deadline_s=150)
    (same,) = [one for one in our_sessions(shipped) if one["pod"] == "before"]
    assert same["session_id"] == session["session_id"] and same["used_bytes"] == 656 * MIB
    space.delete("pods", "--all")
    wait_for(lambda: our_sessions(shipped) == [], "no session to be left")


def test_an_upgrade_keeps_sessions_and_the_old_versions_files(shipped, space):
    space.apply(template("share", request(memory=MEMORY, cores="40")),
                pod("before", container(allocations(100, 6) + "; while :; do /bin/sleep 2; " + allocations(100, 6) + "; done"),
                    claims={"gpu": "share"}))
    wait_for(lambda: granted(space.log("before")) >= 4, lambda: f"memory to be had {logs(shipped)}")
    (session,) = our_sessions(shipped)
    install(shipped, simulated="true", image=shipped.second)
    wait_rolled_out(shipped)
    wait_for(lambda: shipped.inside("readlink", "/opt/gpuslice/current").stdout.strip() == "2.0.0", "the new version")
    assert shipped.inside("ls", "/opt/gpuslice").stdout.split() == ["1.0.0", "2.0.0", "current"]
    seen = granted(space.log("before"))
    wait_for(lambda: granted(space.log("before")) >= seen + 8, lambda: f"programs under the new daemon {space.log('before')} {logs(shipped)}")
    assert "ALLOC_OK iteration 4" not in space.log("before")
    assert [one["session_id"] for one in our_sessions(shipped)] == [session["session_id"]]


def test_uninstalling_leaves_no_trace_in_the_cluster(shipped, space):
    space.apply(template("share", request(memory=MEMORY, cores="40")), pod("main", container(SLEEP), claims={"gpu": "share"}))
    space.wait_phase("main", "Running")
    space.delete("pods", "--all")
    wait_for(lambda: our_sessions(shipped) == [], "no session to be left")
    uninstall(shipped)
    wait_for(lambda: shipped.get("pods", "-n", "gpuslice") == [], "its pods to end")
    wait_for(lambda: shipped.slices() == [], lambda: "the slice to go", deadline_s=120)
    assert [name for name in shipped.inside("ls", "/run/cdi").stdout.split() if "gpuslice" in name] == []


def test_a_node_without_a_gpu_publishes_nothing(shipped):
    install(shipped, image=shipped.first)
    wait_for(lambda: any("no NVIDIA driver" in shipped.inside("kubectl", "-n", "gpuslice", "logs", one["metadata"]["name"], "-c", "daemon",
                                                              check=False).stdout for one in daemon_pods(shipped)), "it to say so")
    assert shipped.slices() == []
    (one,) = daemon_pods(shipped)
    assert all(status["ready"] for status in wait_for(
        lambda: (lambda said: said if said and all(each["ready"] for each in said) else None)(
            daemon_pods(shipped)[0]["status"].get("containerStatuses", [])), lambda: f"it to idle {logs(shipped)}"))
