"""nvtop and gpustat, as Debian has them, inside and outside of a session on a simulated GPU."""
import os
import pathlib
import platform
import shutil
import subprocess
import uuid

import pytest

from conftest import GIB, MIB, SOURCE, wait_for
from test_quota import in_session, start  # noqa: F401 - a fixture


@pytest.fixture(scope="module")
def tools():
    fetched = subprocess.run([SOURCE / "scripts" / "nvml-tools"], capture_output=True, text=True)
    if fetched.returncode:
        pytest.skip(fetched.stderr.strip())
    return pathlib.Path(fetched.stdout.strip())


@pytest.fixture
def scene(make_daemon, make_gpu, start):
    """A session of 1 GiB that holds 600 MiB on a card of 8 GiB, and a program outside that holds 2 GiB."""
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_TOTAL_MEM=8 * GIB)).start()
    session = daemon.request("POST", "/v1/sessions", {"name": "lab", "memory_bytes": GIB})[1]
    inside, outside = start(in_session(daemon, session)), start(daemon.gpu.environment())
    inside.get("alloc", 600 * MIB)
    outside.get("alloc", 2 * GIB)
    daemon.inside, daemon.outside = inside.process.pid, outside.process.pid
    return daemon


def places(scene, tools, in_the_session):
    libraries = tools / "usr/lib" / f"{platform.machine()}-linux-gnu"
    given = in_session(scene, scene.request("GET", "/v1/sessions/lab")[1] | {
        "environment": scene.request("GET", "/v1/sessions/lab/environment")[1]}) if in_the_session else scene.gpu.environment()
    return {**given, "LD_LIBRARY_PATH": f"{scene.product.simulated}:{libraries}",
            "PYTHONPATH": str(tools / "usr/lib/python3/dist-packages"), "TERM": "screen-256color", "LC_ALL": "C.UTF-8",
            "HOME": str(scene.folder)}


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is missing; see scripts/install-deps")
@pytest.mark.parametrize("in_the_session, memory", [(True, "/1.000Gi"), (False, "/8.000Gi")], ids=["inside", "outside"])
def test_nvtop_shows_the_session_or_the_card(scene, tools, in_the_session, memory):
    server = f"gpuslice-{uuid.uuid4().hex[:8]}"

    def tmux(*words, **options):
        return subprocess.run(["tmux", "-L", server, *words], capture_output=True, text=True, **options).stdout

    tmux("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "30", "/bin/sh", env=places(scene, tools, in_the_session))
    try:
        tmux("send-keys", f"{tools}/usr/bin/nvtop; echo status $?", "Enter")
        screen = wait_for(lambda: str(scene.inside) in (text := tmux("capture-pane", "-p")) and text, "the session's program in nvtop")
        assert memory in screen
        assert (f" {scene.outside} " in screen) is not in_the_session  # what runs elsewhere is not the session's to see
        tmux("send-keys", "q")
        wait_for(lambda: "status 0" in tmux("capture-pane", "-p"), "nvtop to end")
    finally:
        tmux("kill-server")


@pytest.mark.parametrize("in_the_session, line", [(True, "600 /  1024 MB"), (False, "2648 /  8192 MB")], ids=["inside", "outside"])
def test_gpustat_shows_the_session_or_the_card(scene, tools, in_the_session, line):
    if not os.path.exists("/usr/bin/python3"):
        pytest.skip("Debian's Python is missing")
    shown = subprocess.run(["/usr/bin/python3", tools / "usr/bin/gpustat", "--no-color", "--show-pid"],
                           env=places(scene, tools, in_the_session), capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert line in shown.stdout
    assert str(scene.inside) in shown.stdout and (str(scene.outside) in shown.stdout) is not in_the_session
