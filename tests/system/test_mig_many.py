"""As many MIG instances as a ledger has room for: the daemon's lists, samples and gates at their widest."""
import json
import time

import pytest

from attach_client import Client
from conftest import GIB, MIB, wait_for
from test_driver_line import OUT_OF_MEMORY, environment_of, new_session, start  # noqa: F401
from test_top import open_top  # noqa: F401
from workers import Worker

MOST = 64
LAST = "9:0"
INSTANCE = 2 * GIB


def machine(make_gpu, instances):
    """Cards with seven small instances each, and the last with what is left."""
    cards = [min(7, instances - first) for first in range(0, instances, 7)]
    return make_gpu(FAKECUDA_GPUS=len(cards), FAKECUDA_TOTAL_MEM=8 * INSTANCE,
                    FAKECUDA_MIG=";".join(",".join(["1g.2gb"] * count) for count in cards))


@pytest.fixture
def daemon(make_daemon, make_gpu):
    return make_daemon(gpu=machine(make_gpu, MOST)).start()


def gpus(daemon):
    return daemon.request("GET", "/v1/gpus")[1]


def samples_of(daemon, metric):
    return sum(line.startswith(metric + "{") for line in daemon.request("GET", "/metrics")[1].splitlines())


def test_a_session_may_have_all_instances(daemon):
    assert [gpu["total_bytes"] for gpu in gpus(daemon)] == [INSTANCE] * MOST
    assert samples_of(daemon, "gpuslice_gpu_memory_bytes") == MOST
    made = new_session(daemon, name="all", gpus=[{"gpu": gpu["uuid"], "memory_bytes": MIB} for gpu in gpus(daemon)])
    client = Client(daemon.attach_socket).attach(made["session_id"])
    for gpu in range(MOST):
        assert client.limit(gpu) == MIB
        client.hold((gpu + 1) * 1000, gpu)
    used = [(gpu + 1) * 1000 for gpu in range(MOST)]
    for look in range(2):
        session = daemon.session("all")
        assert [gpu["used_bytes"] for gpu in session["gpus"]] == used
        assert session["used_bytes"] == sum(used)
        assert [gpu["sessions"] for gpu in gpus(daemon)] == [1] * MOST
        assert len(daemon.cli("show", "all").stdout.splitlines()) > MOST
        if look == 0:
            daemon.kill()
            daemon.start()
    client.close()


def test_each_instance_has_a_session_and_each_session_its_limit(daemon, start, open_top):  # noqa: F811
    sessions = [new_session(daemon, name=f"s{number}", gpus=[{"gpu": gpu["uuid"], "memory_bytes": 3 * MIB}])
                for number, gpu in enumerate(gpus(daemon))]
    for number in (0, MOST // 2, MOST - 1):
        program = start(environment_of(daemon, sessions[number]))
        program.do("context()")
        assert program.do(f"alloc({3 * MIB})")[0] == 0
        assert program.do("alloc(1)")[0] == OUT_OF_MEMORY
        assert daemon.session(f"s{number}")["used_bytes"] == 3 * MIB
    listed = {session["name"]: session for session in json.loads(daemon.cli("list", "--json").stdout)}
    assert [listed[f"s{number}"]["gpus"][0]["uuid"] for number in range(MOST)] == [gpu["uuid"] for gpu in gpus(daemon)]
    assert samples_of(daemon, "gpuslice_session_used_bytes") == MOST
    top = open_top(daemon)
    top.shows(f"{MOST} sessions on {MOST} GPUs")
    assert daemon.request("POST", "/v1/sessions", {"gpus": [{"gpu": LAST, "memory_bytes": INSTANCE}]})[0] == 409


def test_turns_are_kept_on_the_last_instance(daemon, reap):
    workers = [Worker(reap(daemon.spawn("run", "--name", name, "--gpu", LAST, "--compute", compute, "--",
                                        daemon.product.program("worker"), "500")))
               for name, compute in (("small", "10%..10%"), ("large", "50%..100%"))]
    begin = time.monotonic()
    for worker in workers:
        worker.begin(600_000)

    def seconds(name):
        return daemon.session(name)["gpus"][0]["gpu_seconds"]
    wait_for(lambda: seconds("large") > 1, "a second of work")
    assert 0 < seconds("small") < 0.1 * (time.monotonic() - begin) + 0.2, "a tenth of the GPU, and what it has ahead"
    assert {daemon.session(name)["gpus"][0]["mig_index"] for name in ("small", "large")} == {0}


def test_more_than_there_is_room_for_are_left_out_and_said(make_daemon, make_gpu):
    daemon = make_daemon(gpu=machine(make_gpu, MOST + 1)).start()
    assert len(gpus(daemon)) == MOST
    assert f"the machine has {MOST + 1} GPUs and MIG instances, and sessions can have the first {MOST}\n" in daemon.log_text()
    assert daemon.cli("create", "--gpu", "9:1", check=False).returncode == 1
