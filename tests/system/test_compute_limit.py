"""A cap on the GPU time of one process without a daemon: GPUSLICE_COMPUTE_LIMIT."""
import subprocess

import pytest

pytestmark = pytest.mark.usefixtures("before_others")

WINDOW_MS = 3000
SHORT_MS = 1000  # enough to see whether a cap is in force
BEYOND_MS = 50 + 30  # what may have been saved up before, and a long kernel
TRIES = 3


@pytest.fixture
def share(make_gpu, product, reap):
    """share(*words, window_ms=WINDOW_MS, VARIABLE=value): percent of a GPU that `worker WORDS` gets in a window; without a variable, a program
    without us."""
    def run(*words, window_ms=WINDOW_MS, **variables):
        environment = make_gpu().environment(**variables)
        if variables:
            environment["LD_PRELOAD"] = product.interceptor
        worker = reap(subprocess.Popen([product.program("worker"), *words], env=environment, text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        out, err = worker.communicate(f"500\n{window_ms}\n", timeout=60)
        assert worker.returncode == 0 and not err, err
        done_ns, wall_ns = map(int, out.splitlines()[-1].split())
        return 100 * done_ns / wall_ns
    return run


@pytest.fixture
def assert_gets(share):
    """assert_gets(CAP, *words, window_ms=WINDOW_MS, VARIABLE=value): never more than the cap's percent and the bucket; and as much, within 4
    points, of what the same program gets without us at that time. The CPUs are shared with other tests, and who is not run
    cannot launch: so there are several tries."""
    def check(cap, *words, window_ms=WINDOW_MS, **variables):
        seen = []
        for _ in range(TRIES):
            got = share(*words, window_ms=window_ms, **variables)
            assert got <= cap + 100 * BEYOND_MS / window_ms
            if got >= cap - 4:
                return
            alone = share(*words, window_ms=window_ms)
            if got >= (cap - 4) * alone / 100:
                return
            seen.append((got, alone))
        pytest.fail(f"expected {cap}, got (with, without us): {seen}")
    return check


@pytest.mark.parametrize("words", [("50",), ("500", "streams=4"), ("50", "graph=20")], ids=["small", "streams", "graphs"])
def test_the_cap_is_kept(assert_gets, words):
    assert_gets(25, *words, GPUSLICE_COMPUTE_LIMIT="25%")


def test_long_kernels_are_paid_for(assert_gets):
    assert_gets(50, "20000", GPUSLICE_COMPUTE_LIMIT="50%")


@pytest.mark.parametrize("limit", ['{"0": 25}', '{"0": "10%..25%", "1": "100%"}'])
def test_a_cap_by_index_is_found(assert_gets, limit):
    assert_gets(25, "500", window_ms=SHORT_MS, GPUSLICE_COMPUTE_LIMIT=limit)


def test_the_name_that_vgpu_uses_is_read_too(assert_gets):
    assert_gets(25, "500", window_ms=SHORT_MS, TENSOR_FUSION_CUDA_UP_LIMIT='{"0": 25}')


@pytest.mark.parametrize("limit", ['{"7": 25}', "100%"])
def test_other_gpus_and_no_cap_cost_nothing(assert_gets, limit):
    assert_gets(100, "500", window_ms=SHORT_MS, GPUSLICE_COMPUTE_LIMIT=limit)


def test_memory_is_not_limited_by_a_cap_on_time(make_gpu, product):
    gpu = make_gpu(FAKECUDA_TOTAL_MEM=64 << 20)
    program = [product.program("target_app")]
    alone = subprocess.run(program, env=gpu.environment(ALLOC_BYTES=1 << 20, ITERATIONS=100, HOLD="0"), text=True,
                           capture_output=True, timeout=60)
    capped = subprocess.run(program, env=gpu.environment(ALLOC_BYTES=1 << 20, ITERATIONS=100, HOLD="0",
                                                         LD_PRELOAD=product.interceptor, GPUSLICE_COMPUTE_LIMIT="25%"),
                            text=True, capture_output=True, timeout=60)
    assert (capped.returncode, capped.stdout.count("\n")) == (alone.returncode, alone.stdout.count("\n"))


def test_an_invalid_cap_is_reported_and_fails_closed(make_gpu, product):
    gpu = make_gpu()
    result = subprocess.run([product.program("target_app")], text=True, capture_output=True, timeout=60,
                            env=gpu.environment(ALLOC_BYTES=1 << 20, ITERATIONS=1, LD_PRELOAD=product.interceptor,
                                                GPUSLICE_COMPUTE_LIMIT="plenty"))
    assert "ALLOC_FAIL" in result.stdout
    lines = [line for line in result.stderr.splitlines() if "GPUSLICE_COMPUTE_LIMIT" in line]
    assert len(lines) == 1 and "'plenty' is not a share" in lines[0]
