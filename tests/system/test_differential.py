"""Random driver calls, valid and invalid, with and without the interceptor: the same results and error codes, but for
refusals at the quota; and with a small quota, what is charged is what the driver holds, to the byte, after every call.

The calls are made by tests/differential/differ.c. GPUSLICE_TEST_SEED chooses a seed, GPUSLICE_TEST_DIFFER_CALLS how many
calls a run makes (4000), and GPUSLICE_TEST_DIFFER_SEEDS with how many seeds memory leaves and comes back (1; 30 by ./run-tests --all).
"""
import os
import random
import re
import subprocess

import pytest

from conftest import GIB, MIB, SOURCE, Gpu

CALLS = int(os.environ.get("GPUSLICE_TEST_DIFFER_CALLS", "4000"))
MANY = int(os.environ.get("GPUSLICE_TEST_DIFFER_SEEDS") or 0)
CARD = 64 * GIB
PLENTY = CARD // 2  # never used up, and told apart from what the card has left
SMALL = 8 * MIB  # of which every seed's calls ask for more a hundred times


def differ(product, environment, seed, *quota):
    """Run it; its lines. The seed is in the message of every failure."""
    program = product.build / "tests" / "differential" / "differ"
    result = subprocess.run([program, str(seed), str(CALLS), *map(str, quota)], env=environment, capture_output=True,
                            text=True, timeout=600)
    lines = result.stdout.splitlines()
    assert result.returncode == 0, f"seed {seed}: {result.returncode}\n{result.stderr}\nafter: {lines[-3:]}"
    return lines


def is_refusal_of_the_impossible(outside, inside):
    """The quota is looked at before the driver looks at the other arguments: what asks for more than any quota
    and is wrong in another way too may be refused for either."""
    return (outside.endswith("(more than any quota)") and "CUDA_SUCCESS" not in outside
            and re.sub("= CUDA_ERROR_[A-Z_]+", "= CUDA_ERROR_OUT_OF_MEMORY", outside) == inside)


def assert_same(outside, inside, seed):
    for number, (one, other) in enumerate(zip(outside, inside)):
        assert one == other or is_refusal_of_the_impossible(one, other), (
            f"seed {seed}, line {number + 1}:\nwithout: {one}\nwith:    {other}\nbefore:  " +
            "\n         ".join(outside[max(0, number - 5):number]))
    assert len(outside) == len(inside), f"seed {seed}"


@pytest.fixture(params=["1", *(pytest.param(seed, marks=pytest.mark.long) for seed in ("2", "3", "another"))])
def seed(request):
    if request.param != "another":
        return int(request.param)
    chosen = int(os.environ.get("GPUSLICE_TEST_SEED") or random.randrange(1 << 32))
    print(f"seed {chosen}")
    return chosen


@pytest.fixture
def make_gpu(make_gpu):
    """What pointers are is told by the symbols that they are, so they must be those; and each symbol is called."""
    return lambda **settings: make_gpu(**{"FAKECUDA_APART_POINTERS": 0, "FAKECUDA_CUDA_VERSION": "13.4", **settings})


@pytest.fixture
def card(make_gpu):
    return lambda: make_gpu(FAKECUDA_GPUS=2, FAKECUDA_TOTAL_MEM=CARD)


@pytest.fixture
def coarse_card(make_gpu):
    """Like a card: contexts take memory, and linear memory is taken in blocks."""
    return lambda: make_gpu(FAKECUDA_GPUS=2, FAKECUDA_TOTAL_MEM=CARD, FAKECUDA_CONTEXT_BYTES=3 * MIB,
                            FAKECUDA_BLOCK_BYTES=2 * MIB)


@pytest.fixture
def unkind_card(make_gpu):
    """Whose calls cost time, whose code is loaded by launches, and whose processes are served in slices."""
    return lambda: make_gpu(FAKECUDA_GPUS=2, FAKECUDA_TOTAL_MEM=CARD, FAKECUDA_CONSTANTS="h100", **Gpu.AS_A_CARD)


def session_environment(daemon, memory):
    status, session = daemon.request("POST", "/v1/sessions", {"memory_bytes": memory, "gpus": [{"gpu": "0"}, {"gpu": "1"}]})
    assert status == 201, session
    product = daemon.product
    return {**daemon.gpu.environment(LD_PRELOAD=product.interceptor), **session["environment"],
            "LD_LIBRARY_PATH": str(product.simulated)}


def test_calls_answer_alike_with_and_without_the_interceptor(product, card, make_daemon, seed):
    outside = differ(product, card().environment(), seed)
    alone = differ(product, card().standalone(PLENTY), seed, PLENTY)
    assert_same(outside, alone, seed)
    # In a session a child of the program holds its own slot, and the driver line adds what the driver takes unasked.
    daemon = make_daemon(gpu=card()).start()
    environment = session_environment(daemon, PLENTY)
    assert_same(outside, differ(product, {**environment, "DIFFER_ALLOWED": "more"}, seed, PLENTY), seed)


def test_calls_answer_alike_on_an_unkind_card(product, unkind_card, make_daemon):
    outside = differ(product, unkind_card().environment(), 1)
    assert_same(outside, differ(product, unkind_card().standalone(PLENTY), 1, PLENTY), 1)
    daemon = make_daemon(gpu=unkind_card()).start()
    environment = session_environment(daemon, PLENTY)
    assert_same(outside, differ(product, {**environment, "DIFFER_ALLOWED": "more"}, 1, PLENTY), 1)


def test_calls_answer_alike_with_memory_of_another_process(product, card, make_daemon, seed):
    outside = differ(product, card().environment(DIFFER_PEER=1), seed)
    assert sum(" the peer's " in line and "SUCCESS" in line for line in outside) > 5, "nothing was imported"
    assert_same(outside, differ(product, card().standalone(PLENTY, DIFFER_PEER=1), seed, PLENTY), seed)
    daemon = make_daemon(gpu=card()).start()
    environment = {**session_environment(daemon, PLENTY), "DIFFER_PEER": "1", "DIFFER_ALLOWED": "more"}
    assert_same(outside, differ(product, environment, seed, PLENTY), seed)


def test_calls_answer_alike_where_the_driver_takes_memory_of_its_own(product, coarse_card, make_daemon, seed):
    outside = differ(product, coarse_card().environment(), seed)
    # Blocks are not charged by the interceptor alone, so that what is held cannot be compared: no quota is named.
    assert_same(outside, differ(product, coarse_card().standalone(PLENTY), seed), seed)
    daemon = make_daemon(gpu=coarse_card()).start()
    assert_same(outside, differ(product, session_environment(daemon, PLENTY), seed), seed)


@pytest.mark.parametrize("seed", range(1, MANY + 1) if MANY else [2])
def test_calls_answer_alike_while_memory_leaves_and_comes_back(product, make_gpu, seed):
    """Some hundred evictions and restores at random moments, and nobody sees any."""
    settings = {"FAKECUDA_GPUS": 2, "FAKECUDA_TOTAL_MEM": CARD, "FAKECUDA_CONTEXT_BYTES": 3 * MIB}
    outside = differ(product, make_gpu(**settings).environment(DIFFER_MOVES=1), seed)
    moved = make_gpu(**settings).standalone(PLENTY, DIFFER_MOVES=1, GPUSLICE_OVERSUBSCRIBE="swap,2ms")
    assert_same(outside, differ(product, moved, seed), seed)


def test_calls_answer_alike_where_cards_cannot_reach_each_others_mapped_memory(product, make_gpu):
    """Memory that can leave is mapped, and yet copied and set in any context, as memory of cuMemAlloc is. Not so where it is a pool's
    on a card on which the process has no context: this seed has none of that."""
    settings = {"FAKECUDA_GPUS": 2, "FAKECUDA_TOTAL_MEM": CARD, "FAKECUDA_CONTEXT_BYTES": 3 * MIB, "FAKECUDA_REACH_ALL": 0}
    outside = differ(product, make_gpu(**settings).environment(DIFFER_MOVES=1), 4)
    moved = make_gpu(**settings).standalone(PLENTY, DIFFER_MOVES=1, GPUSLICE_OVERSUBSCRIBE="swap,2ms")
    assert_same(outside, differ(product, moved, 4), 4)


def test_calls_answer_alike_where_the_driver_pages_memory(product, make_gpu):
    """The same with memory that is managed, and turns that end and begin at random moments. But for what
    the device's pool says of itself, which holds none of it, for the context that its memory has then (attribute 1), and for
    whether legacy IPC can have it (attribute 10), which it cannot;
    and nothing is done with memory of a context that has gone, as all of it goes along."""
    settings = {"FAKECUDA_GPUS": 2, "FAKECUDA_TOTAL_MEM": CARD, "FAKECUDA_CONTEXT_BYTES": 3 * MIB}
    outside = differ(product, make_gpu(**settings).environment(DIFFER_MOVES="managed"), 5)
    moved = make_gpu(**settings).standalone(PLENTY, DIFFER_MOVES="managed", GPUSLICE_OVERSUBSCRIBE="managed,2ms")
    differs = re.compile(r" cuMemPoolGetAttribute | cuPointerGetAttribute \w+ (1|10) |^covered cuPointerGetAttribute | cuIpc\w+MemHandle(_v2)? ")
    assert_same(*([line for line in lines if not differs.search(line)] for lines in (outside, differ(product, moved, 5))), 5)


def test_a_small_quota_refuses_what_does_not_fit_and_nothing_else(product, card, make_daemon, seed):
    lines = differ(product, card().standalone(SMALL), seed, SMALL)
    assert sum("OUT_OF_MEMORY" in line and "more than any quota" not in line for line in lines) > 20, "no refusals"
    daemon = make_daemon(gpu=card()).start()
    environment = session_environment(daemon, SMALL)
    differ(product, {**environment, "DIFFER_ALLOWED": "more"}, seed, SMALL)


def hooked():
    text = (SOURCE / "src/intercept/resolve/hooks.def").read_text()
    return re.findall(r"^(?:NVML_)?HOOK\((\w+)\)", text, re.MULTILINE)


def test_every_hook_is_called(product, card):
    """Each seed calls each entry point that has a hook; those without a row of their own, with nothing but zeros."""
    called, tried = {}, set()
    for line in differ(product, card().environment(), 1):
        if line.startswith("covered "):
            _, symbol, calls, successes = line.split()
            called[symbol] = int(calls)
        elif line.startswith("tried "):
            tried.add(line.split()[1])
    never = [symbol for symbol in hooked() if not called.get(symbol) and symbol not in tried]
    assert not never, f"no call of {never}: add rows to tests/differential"
