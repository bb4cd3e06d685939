"""Processes that end with work in flight, under gates: after the driver's own exit handler nobody may call it, we least of all."""
import os
import subprocess

import pytest

from conftest import GIB
from test_quota import in_session
from test_shares import Worker

ROUNDS = int(os.environ.get("GPUSLICE_TEST_EXITS") or 15)  # ./run-tests --all: 500


@pytest.fixture
def dying(remote, product):
    """A driver that takes 20 ms to end, and is not to be called from then on."""
    return {**remote(product.simulated), "REMOTE_DIES_MS": "20"}


@pytest.fixture(params=["a driver that must not be called", "the simulated one, which crashes"])
def ending(request, dying):
    """Environment of a driver whose calls must not come after its exit handler."""
    return dying if request.param.startswith("a driver") else {"FAKECUDA_EXIT_HANDLER": "1"}


def ends_quietly(product, environment, *words):
    result = subprocess.run([product.program("exits"), *map(str, words)], env=environment, capture_output=True, text=True,
                            timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("words", [(2000, 4), (50, 200), (2000, 4, 3)], ids=["long", "many", "threads"])
def test_a_process_under_a_cap_of_its_own_ends_quietly(product, gpu, ending, words):
    environment = gpu.standalone(GIB, GPUSLICE_COMPUTE_LIMIT="50%") | ending
    for _ in range(ROUNDS):
        ends_quietly(product, environment, *words)


def test_a_process_of_a_session_whose_gates_close_ends_quietly(daemon, reap, product, ending):
    daemon.cli("scheduler", "--quantum", "1ms")
    rival = Worker(daemon, reap, "50%..100%", "200")
    rival.begin(600_000)
    session = daemon.request("POST", "/v1/sessions", {"name": "ends", "compute": "50%..100%"})[1]
    for _ in range(ROUNDS):
        ends_quietly(product, in_session(daemon, session) | ending, 2000, 4)
    assert rival.process.poll() is None
