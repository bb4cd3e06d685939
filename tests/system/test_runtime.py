"""Programs on the CUDA runtime, on the simulated GPU's own libcudart: plain, and inside a quota."""
import shutil
import subprocess

import pytest

from conftest import MIB

LIMIT = 64 * MIB
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


@pytest.fixture(params=["12", "13"])
def version(request):
    return request.param


def forms(product, version, environment, form, size, times):
    """What runtime_forms says: (result, free bytes) a time."""
    result = subprocess.run([product.program(f"runtime_forms_{version}"), form, str(size), str(times)],
                            env=environment, capture_output=True, text=True, timeout=60, check=True)
    return [(name, int(free)) for name, free in map(str.split, result.stdout.splitlines())]


@pytest.mark.parametrize("form", ["linear", "pitch", "box", "managed", "async"])
def test_the_quota_holds_for_allocations_of_every_form(product, gpu, version, form):
    answers = forms(product, version, gpu.standalone(LIMIT), form, 16 * MIB, 6)
    assert [name for name, _ in answers] == ["cudaSuccess"] * 4 + ["cudaErrorMemoryAllocation"] * 2
    assert [free for _, free in answers] == [48 * MIB, 32 * MIB, 16 * MIB, 0, 0, 0]


def test_pinned_host_memory_is_free(product, gpu, version):
    answers = forms(product, version, gpu.standalone(LIMIT), "pinned", 48 * MIB, 3)
    assert answers == [("cudaSuccess", LIMIT)] * 3


def test_without_a_quota_the_card_is_the_limit(product, gpu, version):
    answers = forms(product, version, gpu.environment(), "linear", 400 * MIB, 3)
    assert answers == [("cudaSuccess", 624 * MIB), ("cudaSuccess", 224 * MIB),
                       ("cudaErrorMemoryAllocation", 224 * MIB)]


def test_without_a_driver_it_says_so(product, gpu, version, tmp_path):
    shutil.copy(product.simulated / f"libcudart.so.{version}", tmp_path)
    answers = forms(product, version, gpu.environment(LD_LIBRARY_PATH=tmp_path), "count", 0, 1)
    assert answers == [("cudaErrorInsufficientDriver", 0)]


def test_it_needs_nothing_but_the_c_library(product, version):
    library = product.simulated / f"libcudart.so.{version}"
    dynamic = subprocess.check_output(["readelf", "--dynamic", "--wide", library], text=True)
    needed = {line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line}
    assert needed <= {"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    assert f"(SONAME)             Library soname: [libcudart.so.{version}]" in dynamic


@pytest.fixture(scope="module", params=[[], *(pytest.param([*words], marks=pytest.mark.long) for words in (["-default-stream", "per-thread"], ["-rdc=true"]))],
                ids=["plain", "per-thread-default-stream", "relocatable"])
def tour(request, tmp_path_factory):
    """examples/runtime_api.cu, built by nvcc."""
    if not NVCC:
        pytest.skip("no nvcc here")
    program = tmp_path_factory.mktemp("tour") / "runtime_api"
    source = request.config.rootpath / "examples" / "runtime_api.cu"
    subprocess.run([NVCC, "-cudart", "shared", *request.param, source, "-o", program], check=True, timeout=300)
    return program


@pytest.mark.parametrize("sliced", [False, True], ids=["alone", "in-a-quota"])
def test_a_program_built_with_nvcc_runs_unmodified(tour, gpu, sliced):
    environment = gpu.standalone(LIMIT) if sliced else gpu.environment()
    result = subprocess.run([tour], env=environment, capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.returncode) == ("PASS\n", 0), result.stderr
