"""The examples, applied as they stand."""
import subprocess

import pytest
import yaml

from node import KIT, SOURCE, product_of, wait_for

FOLDER = SOURCE / "packaging" / "kubernetes" / "examples"
GIB = 1 << 30
DOCUMENTS = {path.stem: list(yaml.safe_load_all(path.read_text())) for path in sorted(FOLDER.glob("*.yaml"))}


def images(documents):
    for one in documents:
        spec = one.get("spec", {})
        spec = spec.get("template", {}).get("spec", spec)
        yield from (container["image"] for container in spec.get("containers", []))


@pytest.fixture(scope="module")
def big(node, tmp_path_factory):
    """One GPU of 80 GiB, by both roads, and an image by each of the examples' names, whose python sleeps."""
    from podman_host import make_root
    root = make_root(tmp_path_factory.mktemp("example"), product_of(node.prefix), "/bin/sleep")
    for name in ("python", "start-notebook.py"):
        (root / "bin" / name).write_text("#!/bin/sh\nexec /bin/sleep 3600\n")
        (root / "bin" / name).chmod(0o755)
    for number, image in enumerate(sorted({image for documents in DOCUMENTS.values() for image in images(documents)})):
        archive = root.parent / f"example-{number}.tar"
        subprocess.run([f"{KIT}/image", archive, image, root, "/bin/start-notebook.py"], check=True, timeout=120)
        node.inside("ctr", "-n", "k8s.io", "images", "import", archive)
    node.settings = {"FAKECUDA_TOTAL_MEM": 80 * GIB, "FAKECUDA_GPUS": 1}
    node.start_daemon()
    node.start_plugin("both")
    node.wait_published(1)
    yield node
    node.stop_all()
    node.settings = {}


@pytest.mark.parametrize("name, expected", [
    ("two-notebooks", {("notebook-0", 8 * GIB, 0.25, 0.25, "normal"), ("notebook-1", 8 * GIB, 0.25, 0.25, "normal")}),
    ("inference-beside-training", {("inference", 12 * GIB, 0.5, 1, "high"), ("training", 24 * GIB, 0.1, 1, "low")}),
    ("device-plugin", {("train", 6 * GIB, 0.2, 1, "low")}),
])
def test_an_example_runs_as_it_stands(big, space, name, expected):
    space.kubectl("apply", "-f", FOLDER / f"{name}.yaml")
    wait_for(lambda: {(one["pod"], one["vram_limit_bytes"], one["compute_min_ratio"], one["compute_max_ratio"], one["priority"])
                      for one in space.sessions()} == expected,
             lambda: f"{expected}: {space.sessions()} {space.events()} {big.log()}")
    for pod, *_ in expected:
        space.wait_phase(pod, "Running")


def test_a_quota_refuses_what_is_above_it(big, space):
    space.kubectl("apply", "-f", FOLDER / "quota.yaml")
    space.kubectl("apply", "-f", FOLDER / "two-notebooks.yaml")
    for pod in ("notebook-0", "notebook-1"):
        space.wait_phase(pod, "Running")
    space.kubectl("scale", "statefulset/notebook", "--replicas=6")
    space.wait_event("exceeded quota")
    assert len(space.sessions()) <= 4
    assert set(DOCUMENTS) == {"two-notebooks", "inference-beside-training", "device-plugin", "quota"}, "every example is tried"
