"""Programs that try by API calls alone to have more of a GPU than their account says, on the simulated GPU.

programs/charges.c takes memory by one way, as much as it gets, and keeps it. What the card shows as used beyond what it
showed before is compared with what the session is charged.
"""
import subprocess

import pytest

from conftest import MIB, has_words, wait_for
from test_driver_line import environment_of, new_session, sampled

DEADLINE_S = 30
LIMIT = 64 * MIB


class Taker:
    """charges.c in a session, which goes on to its next way when it is told to."""

    def __init__(self, daemon, session, *ways, reap, **more):
        environment = environment_of(daemon, session, **more)
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        self.process = subprocess.Popen([daemon.product.program("charges"), *map(str, ways)], bufsize=0, env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        reap(self.process)

    def result(self):
        """(the driver's first refusal, how many pieces it got)"""
        assert has_words(self.process.stdout, DEADLINE_S), "no answer"
        return tuple(map(int, self.process.stdout.readline().split()))

    def go_on(self):
        self.process.stdin.write(b"\n")


@pytest.fixture
def take(reap):
    def take(daemon, session, *ways, **more):
        return Taker(daemon, session, *ways, reap=reap, **more)
    return take


def card(daemon, gpu=0):
    """What programs have of the card, by NVML."""
    status, answer = daemon.request("GET", "/v1/gpus")
    assert status == 200
    return answer[gpu]["used_bytes"]


# --- GPUs outside of the session -------------------------------------------------------------------------------

@pytest.mark.parametrize("device", ["default", "h100"])
def test_no_call_reaches_a_gpu_outside_of_the_session(make_daemon, make_gpu, take, device):
    more = {} if device == "default" else {"FAKECUDA_DEVICE": device}
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_GPUS=2, FAKECUDA_TOTAL_MEM=4096 * MIB, **more)).start()
    session = new_session(daemon, gpus=[{"gpu": "0", "memory_bytes": 2048 * MIB}])
    before = card(daemon, 1)
    ways = ["default-pool", "managed-pool", "made-pool", "prefetch", "prefetch-batch", "advice", "physical"]
    taker = take(daemon, session, *[word for way in ways for word in (f"{way}@1", 100 * MIB, 3)])
    for way in ways:
        assert taker.result()[1] == 0, way
        assert card(daemon, 1) - before < 4 * MIB, way
        taker.go_on()


def test_managed_memory_counts_on_each_gpu_that_it_is_sent_to(make_daemon, make_gpu, take):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_GPUS=2)).start()
    session = new_session(daemon, gpus=[{"gpu": "0", "memory_bytes": 256 * MIB}, {"gpu": "1", "memory_bytes": LIMIT}])
    taker = take(daemon, session, "prefetch@1", 16 * MIB, 10, "advice@1", 16 * MIB, 10)
    assert taker.result() == (2, 4)
    assert [gpu["used_bytes"] for gpu in sampled(daemon, session)["gpus"]] == [5 * 16 * MIB, LIMIT]
    taker.go_on()
    assert taker.result() == (2, 0)


# --- What the driver rounds up -------------------------------------------------------------------------------------

def new_taker(make_daemon, make_gpu, take, device, *ways, memory_bytes=LIMIT, total=4096 * MIB, **more):
    """A session of `memory_bytes` on a card whose contexts cost nothing; with what the card shows as used before."""
    settings = {} if device == "default" else {"FAKECUDA_DEVICE": device}
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_TOTAL_MEM=total, **settings)).start()
    session = new_session(daemon, memory_bytes=memory_bytes, **more)
    before = card(daemon)
    return daemon, session, before, take(daemon, session, *ways)


@pytest.mark.parametrize("device", ["default", "h100"])
@pytest.mark.parametrize("more", [{}, {"oversubscribe": "swap"}], ids=["plain", "swap"])
@pytest.mark.parametrize("size", [1, 513, MIB + 1])
def test_linear_memory_counts_as_the_driver_rounds_it(make_daemon, make_gpu, take, device, more, size):
    daemon, session, before, taker = new_taker(make_daemon, make_gpu, take, device, "linear", size, 40000,
                                               memory_bytes=16 * MIB, **more)
    assert taker.result()[0] == 2
    assert card(daemon) - before <= 16 * MIB + 4 * MIB  # the extent that is being filled, and one that is kept
    assert sampled(daemon, session)["used_bytes"] >= card(daemon) - before - MIB


# --- What only a descriptor keeps ----------------------------------------------------------------------------------

@pytest.mark.parametrize("device", ["default", pytest.param("h100", marks=pytest.mark.long)])
@pytest.mark.parametrize("way", ["descriptor", pytest.param("import", marks=pytest.mark.long), "external", "pool-pointer"])
def test_what_a_descriptor_keeps_stays_charged_until_the_card_shows_it_gone(make_daemon, make_gpu, take, device, way):
    daemon, session, before, taker = new_taker(make_daemon, make_gpu, take, device, way, 64 * MIB, 40, memory_bytes=256 * MIB)
    assert taker.result() in [(2, 3), (2, 4)]
    wait_for(lambda: card(daemon) - before >= 3 * 64 * MIB, "a sample")
    for _ in range(5):  # it does not wear off
        assert sampled(daemon, session)["used_bytes"] >= card(daemon) - before
    wait_for(lambda: abs(sampled(daemon, session)["used_bytes"] - (card(daemon) - before)) < MIB, "nothing to count twice")
    taker.process.kill()
    wait_for(lambda: sampled(daemon, session)["used_bytes"] == 0, "the bytes to be back")


# --- What the driver sizes ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("device", ["default", "h100"])
@pytest.mark.parametrize("way, size", [("volume", 16384), ("module", 40 * MIB), pytest.param("module", 1000 * MIB, marks=pytest.mark.long)])
def test_what_the_driver_sizes_is_refused_where_it_does_not_fit(make_daemon, make_gpu, take, device, way, size):
    daemon, session, before, taker = new_taker(make_daemon, make_gpu, take, device, way, size, 2048, total=8192 * MIB)
    assert taker.result()[0] == 2
    wait_for(lambda: card(daemon) - before <= sampled(daemon, session)["used_bytes"] <= LIMIT, "the account to have it all")


@pytest.mark.parametrize("device", [pytest.param("default", marks=pytest.mark.long), "h100"])
@pytest.mark.parametrize("way", ["library", "library-variable", "library-launch"])
def test_what_the_first_use_of_a_library_takes_is_refused_where_it_does_not_fit(make_daemon, make_gpu, take, device, way):
    daemon, session, before, taker = new_taker(make_daemon, make_gpu, take, device, way, 8 * MIB, 60, way, 1000 * MIB, 1, total=8192 * MIB)
    assert taker.result()[0] == 2
    allowed = LIMIT + (32 if way == "library-launch" else 4) * MIB  # launches load code, and take local memory
    wait_for(lambda: card(daemon) - before <= sampled(daemon, session)["used_bytes"] <= allowed, "the account to have it all")
    taker.go_on()
    assert taker.result() == (2, 0)
    wait_for(lambda: card(daemon) - before <= sampled(daemon, session)["used_bytes"] <= allowed, "what did not fit to be gone")


@pytest.mark.parametrize("way", ["local", "graph-local", "changed-graph"])
def test_a_kernel_whose_local_memory_is_more_than_the_limit_never_runs(make_daemon, make_gpu, take, way):
    daemon, session, before, taker = new_taker(make_daemon, make_gpu, take, "h100", way, 65536, 1, total=32768 * MIB)
    assert taker.result() == (2, 0)
    assert card(daemon) - before < 8 * MIB


def test_local_memory_is_in_the_account_soon_though_nobody_asks(make_daemon, make_gpu, take):
    daemon, session, before, taker = new_taker(make_daemon, make_gpu, take, "h100", "local", 2048, 1,
                                               memory_bytes=1024 * MIB, total=8192 * MIB)
    assert taker.result() == (0, 1)
    wait_for(lambda: daemon.session(session["session_id"])["used_bytes"] > 200 * MIB, "the account to have it", deadline_s=4)


def test_what_is_passed_on_beyond_all_joint_places_is_charged(make_daemon, make_gpu, take):
    daemon, session, before, taker = new_taker(make_daemon, make_gpu, take, "default", "passed-on", 2 * MIB, 900,
                                               memory_bytes=640 * MIB)
    assert taker.result()[0] == 2
    assert card(daemon) - before <= 640 * MIB
    wait_for(lambda: sampled(daemon, session)["used_bytes"] >= card(daemon) - before, "the account to have it all")
