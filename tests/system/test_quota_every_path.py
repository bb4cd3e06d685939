"""The rarer ways of taking memory, on the simulated GPU inside a quota: to the byte, refused at it, given back."""
import subprocess

import pytest

from conftest import DEADLINE_S, MIB

LIMIT = 64 * MIB
OK, OUT_OF_MEMORY = 0, 2
STEPS = {"multicast": 2 * MIB, "bound_v2": 2 * MIB, "tiles": 2 * MIB}  # what a way's sizes are multiples of
WAYS = ["array", "oldarray", "mipmap", "pool", "limit", "graph", "multicast", "bound_v2", "tiles"]


def paths(product, gpu, *words, deadline_s=DEADLINE_S):
    output = subprocess.run([product.program("paths"), *map(str, words)], env=gpu.standalone(LIMIT, FAKECUDA_DEVICE="h100", FAKECUDA_CUDA_VERSION="13.4"), check=True,
                            capture_output=True, text=True, timeout=deadline_s).stdout
    return [int(word) for word in output.split()]


@pytest.mark.parametrize("way", WAYS)
def test_a_way_is_charged_by_what_it_takes_and_given_back(product, gpu, way):
    assert paths(product, gpu, way, 32 * MIB) == [OK, 32 * MIB, 0]


@pytest.mark.parametrize("way", WAYS)
def test_a_way_is_granted_the_whole_quota_and_not_more(product, gpu, way):
    assert paths(product, gpu, way, LIMIT) == [OK, LIMIT, 0]
    result, taken, left = paths(product, gpu, way, LIMIT + STEPS.get(way, 1024))
    assert (result, taken, left) == (OUT_OF_MEMORY, 0, 0)


def test_a_graph_is_charged_on_each_device_where_it_takes_memory(product, make_gpu):
    assert paths(product, make_gpu(FAKECUDA_GPUS=2), "othergraph", 8 * MIB) == [OK, 8 * MIB, 0]


@pytest.mark.parametrize("way", ["sparse", "deferred"])
def test_an_array_without_memory_of_its_own_takes_nothing(product, gpu, way):
    assert paths(product, gpu, way, 2 * LIMIT) == [OK, 0, 0]


def test_allocating_at_the_quota_100000_times_is_never_refused(product, gpu):
    done, _ = paths(product, gpu, "async", LIMIT, 100000, deadline_s=4 * DEADLINE_S)
    assert done == 100000


def test_100000_allocations_of_1_kib_count_each_byte(product, gpu):
    done, free = paths(product, gpu, "small", 1024, 100000, deadline_s=4 * DEADLINE_S)
    assert (done, free) == (LIMIT // 1024, 0)
