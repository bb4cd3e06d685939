"""Fixtures for tests on a node of a real Kubernetes (node.py); without one, everything here is skipped."""
import os
import subprocess
import uuid

import pytest

from node import GPUS, IMAGE, KIT, OUT, Node, Space, product_of


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/kubernetes" in str(item.path) and not (OUT and KIT):
            item.add_marker(pytest.mark.skip(reason="needs a node: set GPUSLICE_TEST_NODE and GPUSLICE_TEST_NODE_KIT"))


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """With the tests' image, and what the chart has beside its DaemonSet."""
    from podman_host import make_root
    build, prefix = (os.environ[name] for name in ("GPUSLICE_TEST_BUILD", "GPUSLICE_TEST_PREFIX"))
    folder = tmp_path_factory.mktemp("node")
    made = Node(prefix, folder)
    root = make_root(tmp_path_factory.mktemp("root"), product_of(prefix), f"{prefix}/share/gpuslice/examples/bin/target_app",
                     f"{prefix}/share/gpuslice/examples/bin/busy", f"{build}/tests/system/programs/puppet",
                     f"{build}/tests/system/programs/worker", f"{build}/tests/system/programs/movable", "/bin/sleep", "/bin/ls",
                     "/usr/bin/id")
    subprocess.run([f"{KIT}/image", folder / "image.tar", IMAGE, root, "/bin/sh"], check=True, timeout=120)
    made.inside("ctr", "-n", "k8s.io", "images", "import", folder / "image.tar")
    made.apply_rights()
    yield made
    made.stop_all()


@pytest.fixture(scope="module")
def dra(node):
    """The node with its GPUs offered by the DRA driver."""
    node.start_daemon()
    node.start_plugin("dra")
    node.wait_published(GPUS)
    yield node
    node.stop_all()


@pytest.fixture(scope="module")
def slices(node):
    """The node with its GPUs offered by the device plug-in."""
    node.start_daemon()
    node.start_plugin("device-plugin")
    yield node
    node.stop_all()


@pytest.fixture
def make_space(node):
    made = []

    def make():
        made.append(Space(node, f"test-{uuid.uuid4().hex[:8]}"))
        return made[-1]

    yield make
    for space in made:
        space.remove()
    if "gpusliced" in node.processes:
        node.wait_without_sessions()


@pytest.fixture
def space(make_space):
    return make_space()
