"""Processes that end with work in flight, under gates: after the driver's own exit handler nobody may call it, we least of all."""
import os
import signal
import subprocess

import pytest

from conftest import GIB
from test_quota import in_session
from test_shares import Worker

ROUNDS = int(os.environ.get("GPUSLICE_TEST_EXITS") or 15)  # ./run-tests --all: 560, which makes 10,000 of all tests together


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
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGABRT if "abort" in words else 0, "", "")


@pytest.mark.parametrize("words", [(2000, 4), (50, 200), (2000, 4, 3)], ids=["long", "many", "threads"])
def test_a_process_under_a_cap_of_its_own_ends_quietly(product, gpu, ending, words):
    environment = gpu.standalone(GIB, GPUSLICE_COMPUTE_LIMIT="50%") | ending
    for _ in range(ROUNDS):
        ends_quietly(product, environment, *words)


@pytest.fixture
def ends_in_a_session(daemon, reap, product):
    """ends_in_a_session(environment, words...): so many rounds in a session whose gates close every millisecond or so."""
    daemon.cli("scheduler", "--quantum", "1ms")
    rival = Worker(daemon, reap, "50%..100%", "200")
    rival.begin(600_000)
    session = daemon.request("POST", "/v1/sessions", {"name": "ends", "compute": "50%..100%"})[1]

    def end(environment, *words):
        for _ in range(ROUNDS):
            ends_quietly(product, in_session(daemon, session) | environment, *words)
        assert rival.process.poll() is None
    return end


def test_a_process_of_a_session_whose_gates_close_ends_quietly(ends_in_a_session, ending):
    ends_in_a_session(ending, 2000, 4)


@pytest.mark.parametrize("how", ["exit", "_exit", "abort", "atexit", "dlclose", "fork"])
def test_it_ends_quietly_in_whatever_way(ends_in_a_session, how):
    ends_in_a_session({"FAKECUDA_EXIT_HANDLER": "1"}, 2000, 3, 1, how)


@pytest.mark.parametrize("constants", ["default", "h100"])
@pytest.mark.parametrize("kernel_us", [50, 2000])
def test_it_ends_quietly_with_threads_inside_the_driver(ends_in_a_session, constants, kernel_us):
    """Nobody knows where they are when the driver's own handler has run: here it takes no calls then, and harms nobody."""
    ends_in_a_session({"FAKECUDA_CONSTANTS": constants, "FAKECUDA_EXIT_HANDLER": "0"}, kernel_us, 2, 4, "inside")
