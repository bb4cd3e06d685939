"""gslice's users' scripts run as they are: its README's commands line by line, its variables, its shapes."""
import json
import os
import re
import socket
import subprocess

import pytest

from conftest import MIB, SOURCE, wait_for

TOKEN = "change-me"
# The commands of gslice's README, from "Run server" on; $(pwd) is its tree.
README = """
GPUSLICE_IPC_TOKEN=change-me ./bin/gpuslice run 134217728 120 \
  $(pwd)/native/interceptor/libgpuslice.so \
  $(pwd)/native/fakecuda \
  ./native/examples/target_app
"""


@pytest.fixture
def tree(product, tmp_path):
    """A folder that has what gslice's scripts expect where they expect it, from our tree."""
    (tmp_path / "native").mkdir()
    (tmp_path / "bin").symlink_to(product.prefix / "bin")
    (tmp_path / "native/interceptor").symlink_to(product.prefix / "lib/gpuslice")
    (tmp_path / "native/fakecuda").symlink_to(product.prefix / "lib/gpuslice/simulated")
    (tmp_path / "native/examples").symlink_to(product.prefix / "share/gpuslice/examples/bin")
    return tmp_path


def sh(daemon, tree, command, **more):
    environment = {**daemon.environment(), **more}
    environment.pop("LD_PRELOAD", None)
    return subprocess.run(["bash", "-uc", command], cwd=tree, env=environment, capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)


def test_its_readmes_run_helper(make_daemon, tree):
    daemon = make_daemon(GPUSLICE_IPC_TOKEN=TOKEN, GPUSLICE_IPC_TOKEN_REQUIRED=1).start()
    without = {key: value for key, value in daemon.environment().items() if key != "GPUSLICE_IPC_TOKEN"}
    for simulated in ({"GPUSLICE_SIMULATED": "1"}, {"GPUSLICE_SIMULATED": "0"}):  # libfakecuda.so in the folder says it too
        done = subprocess.run(["bash", "-uc", README], cwd=tree, capture_output=True, text=True, timeout=60,
                              env={**without, **simulated, "ALLOC_BYTES": str(64 * MIB), "ITERATIONS": "5"})
        assert done.stdout.splitlines()[:3] == ["ALLOC_OK iteration 0", "ALLOC_OK iteration 1",
                                                "ALLOC_FAIL at iteration 2 code=2"], done
        assert done.stderr.startswith("gpuslice: gslice's form of 'run'; it finds its libraries itself: gpuslice run "
                                      "--simulated --memory 134217728B --ttl 120s -- ./native/examples/target_app\n")
    refused = subprocess.run(["bash", "-uc", README.replace("change-me", "wrong")], cwd=tree, env=without, capture_output=True,
                             text=True, timeout=60)
    assert refused.returncode == 1 and "token" in refused.stderr


def test_allocate_run_existing_status_and_release(daemon, tree):
    made = json.loads(sh(daemon, tree, "./bin/gpuslice allocate 134217728 120").stdout)
    assert (made["vram_limit_bytes"], made["used_bytes"], made["state"]) == (128 * MIB, 0, "ACTIVE")
    assert made["expires_at"] > made["created_at"] and made["updated_at"]
    session = made["session_id"]
    ran = sh(daemon, tree, f"./bin/gpuslice run-existing {session} $(pwd)/native/interceptor/libgpuslice.so "
                           "$(pwd)/native/fakecuda ./native/examples/target_app", ALLOC_BYTES=str(64 * MIB), ITERATIONS="3")
    assert "ALLOC_FAIL at iteration 2 code=2" in ran.stdout
    assert f"gpuslice run --simulated --session {session} -- ./native/examples/target_app" in ran.stderr
    assert json.loads(sh(daemon, tree, f"./bin/gpuslice status {session}").stdout)["session_id"] == session
    assert sh(daemon, tree, f"./bin/gpuslice release {session}").returncode == 0
    gone = sh(daemon, tree, f"./bin/gpuslice status {session}")
    assert gone.returncode == 1 and gone.stdout == ""


def test_allocate_without_numbers_takes_the_defaults(make_daemon, tree):
    daemon = make_daemon(GPUSLICE_DEFAULT_VRAM=64 * MIB, GPUSLICE_DEFAULT_TTL="10m").start()
    made = json.loads(sh(daemon, tree, "./bin/gpuslice allocate").stdout)
    assert made["vram_limit_bytes"] == 64 * MIB and made["expires_at"]
    for wrong in ("allocate lots 120", "allocate 1 soon", "allocate 0 1", "allocate 1 2 3", "run-existing only-this"):
        done = sh(daemon, tree, f"./bin/gpuslice {wrong}")
        assert (done.returncode, done.stdout) == (2, ""), wrong
    assert len(daemon.request("GET", "/sessions")[1]) == 1


@pytest.mark.parametrize("form", ["run 134217728 120", "run-existing train"])
def test_a_program_that_starts_containers_is_refused(daemon, tree, form):
    """The containers would run without limits."""
    daemon.cli("create", "--name", "train", "--memory", "8MiB")
    done = sh(daemon, tree, f"./bin/gpuslice {form} $(pwd)/native/interceptor/libgpuslice.so $(pwd)/native/fakecuda "
                            "docker run IMAGE")
    assert done.returncode == 2 and "'docker' starts programs in a container" in done.stderr, done


def test_a_program_by_hand_with_the_daemons_socket(make_daemon, tree):
    socket_path = tree / "gpusliced.sock"
    daemon = make_daemon(GPUSLICE_IPC_SOCK=socket_path)
    socket_path.symlink_to(tree / "of-a-daemon-that-was-killed")
    daemon.start()
    assert socket_path.is_socket()
    made = json.loads(sh(daemon, tree, "./bin/gpuslice allocate 134217728 120").stdout)
    ran = sh(daemon, tree, "LD_LIBRARY_PATH=$(pwd)/native/fakecuda LD_PRELOAD=$(pwd)/native/interceptor/libgpuslice.so "
                           "./native/examples/target_app", GPUSLICE_SESSION=made["session_id"], ALLOC_BYTES=str(64 * MIB), ITERATIONS="3")
    assert "ALLOC_FAIL at iteration 2 code=2" in ran.stdout, ran
    daemon.kill()
    daemon.start()
    assert "cannot link" not in daemon.log_text()
    daemon.stop()
    assert not socket_path.is_symlink()


def test_what_has_no_effect_is_said(make_daemon):
    daemon = make_daemon(GPUSLICE_DB_PATH="./var/demo.db").start()
    assert "GPUSLICE_DB_PATH has no effect" in daemon.log_text() and "GPUSLICE_STATE_DIR" in daemon.log_text()


def test_a_user_may_ask_as_often_as_the_rate_says(make_daemon):
    daemon = make_daemon(GPUSLICE_IPC_RATE_PER_SEC=2).start()
    answers = [daemon.request("GET", "/v1/version") for _ in range(20)]
    refused = [answer for status, answer in answers if status == 429]
    assert answers[0][0] == 200 and refused and refused[0]["error"]["code"] == "ERR_TOO_MANY"
    assert "makes more than 2 requests a second" in refused[0]["error"]["message"]
    assert daemon.request("GET", "/healthz")[0] == 200  # whoever watches the daemon does not count
    wait_for(lambda: daemon.request("GET", "/v1/version")[0] == 200, "the next second")


def test_an_address_without_a_host_is_this_machine(make_daemon):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    make_daemon(GPUSLICE_HTTP_ADDR=f":{port}").start()
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b" 200 " in connection.recv(4096)


def test_sessions_have_its_states(daemon, reap):
    daemon.cli("create", "--name", "a", "--memory", "8MiB")
    daemon.cli("create", "--name", "b", "--memory", "8MiB", "--ttl", "1h")
    assert [s["state"] for s in daemon.request("GET", "/sessions")[1]] == ["ACTIVE", "ACTIVE"]
    assert daemon.request("GET", "/sessions/a")[1]["state"] == "ACTIVE"
    status, made = daemon.request("POST", "/sessions", {"limit_bytes": MIB, "ttl_seconds": 60})
    assert (status, made["state"], made["vram_limit_bytes"]) == (200, "ACTIVE", MIB)
    assert daemon.session("a")["state"] == "active"
    assert daemon.request("DELETE", f"/sessions/{made['session_id']}")[0] == 204


def test_the_audit_file_has_what_was_allocated_denied_and_ended(make_daemon, tree, product):
    daemon = make_daemon(GPUSLICE_AUDIT_PATH="audit.jsonl")
    daemon.process = subprocess.Popen([product.gpusliced, "--simulated"], cwd=tree, env=daemon.environment(),
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(daemon._ready_or_dead, "the daemon to be ready")
    first = json.loads(sh(daemon, tree, "./bin/gpuslice allocate 8388608 120").stdout)["session_id"]
    assert sh(daemon, tree, "./bin/gpuslice allocate 99999999999999 120").returncode == 1
    daemon.cli("run", "--session", first, product.program("target_app"),
               env=daemon.environment(ALLOC_BYTES=6 * MIB, ITERATIONS=2))
    sh(daemon, tree, f"./bin/gpuslice release {first}")

    def lines():
        return [json.loads(line) for line in (tree / "audit.jsonl").read_text().splitlines()]

    wait_for(lambda: len(lines()) == 4, "four lines")
    said = {(line["action"], line.get("session_id")) for line in lines()}
    assert said == {("allocated", first), ("denied", None), ("denied", first), ("ended", first)}
    assert lines()[0]["vram_limit_bytes"] == 8 * MIB and lines()[0]["owner_uid"] == os.geteuid()
    assert "is more than GPU" in lines()[1]["message"] and lines()[1]["owner_uid"] == os.geteuid()
    assert (tree / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_metrics_under_its_names(make_daemon):
    names = ["gpuslice_sessions_active", "gpuslice_used_bytes_total", "gpuslice_alloc_events_total",
             "gpuslice_denied_alloc_total", "gpuslice_recovered_bytes_total"]
    own = make_daemon().start().request("GET", "/metrics")[1]
    assert "gpuslice_used_bytes_total" not in own and 'gpuslice_alloc_events_total{gpu="0"' in own
    daemon = make_daemon(GPUSLICE_METRICS_COMPAT="gslice").start()
    daemon.cli("create", "--memory", "8MiB")
    text = daemon.request("GET", "/metrics")[1]
    values = dict(re.findall(r"^(\w+) (\S+)$", text, re.MULTILINE))
    assert [values[name] for name in names] == ["1", "0", "0", "0", "0"]


def test_a_program_that_was_linked_with_libfakecuda(make_gpu, product, tmp_path):
    """Unchanged: of functions of the CUDA runtime, by the name of gslice's library."""
    assert (product.simulated / "libfakecuda.so").exists()
    source = tmp_path / "program.c"
    source.write_text("#include <stdio.h>\nint cudaMalloc(void **, unsigned long);\nint main(void)\n{\n    void *p;\n"
                      "    for (int i = 0, r; ; i++)\n        if ((r = cudaMalloc(&p, 67108864))) {\n"
                      '            printf("ALLOC_FAIL at iteration %d code=%d\\n", i, r);\n            return 0;\n        }\n}\n')
    # As gslice's own build leaves it: it needs a library of the name libfakecuda.so.
    (tmp_path / "stub.c").write_text("int cudaMalloc(void **p, unsigned long n) { return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libfakecuda.so", tmp_path / "stub.c"], check=True)
    subprocess.run(["cc", "-o", tmp_path / "program", source, "-L", tmp_path, "-lfakecuda"], check=True)
    gpu = make_gpu(FAKECUDA_TOTAL_MEM=128 * MIB)
    done = subprocess.run([tmp_path / "program"], env=gpu.environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout == "ALLOC_FAIL at iteration 2 code=2\n"


def test_its_make_targets_exist():
    for target in ("build", "test", "lint", "run-server", "demo", "demo-fake", "clean", "install"):
        subprocess.run(["make", "-n", target], cwd=SOURCE, check=True, capture_output=True)
