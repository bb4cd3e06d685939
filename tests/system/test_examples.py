"""The examples, on the simulated GPU without the interceptor: what they print, exactly."""
import signal
import subprocess

from conftest import MIB


def run(product, name, environment):
    return subprocess.run([product.program(name)], env=environment, capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)


def used_mib(total_mib, product, gpu):
    """What saxpy sees as taken, as a program beside others would."""
    first = run(product, "saxpy", gpu.environment()).stdout.splitlines()[0]
    return total_mib - int(first.split(", ")[1].split()[0])


def test_saxpy_checks_itself(product, gpu):
    result = run(product, "saxpy", gpu.environment())
    assert result.stdout.splitlines() == [
        "GPU Slice Simulated GPU: 1024 MiB of memory, 1024 MiB free",
        "saxpy: 0 of 1048576 elements differ from the CPU's",
        "checksum: 0x8f8c405d, the CPU's is 0x8f8c405d",
        "spin: asked for 2000 us, took as long",
        "PASS",
    ]
    assert (result.returncode, result.stderr) == (0, "")


def test_saxpy_names_the_call_that_failed(product, make_gpu):
    result = run(product, "saxpy", make_gpu(FAKECUDA_TOTAL_MEM=6 * MIB).environment())
    assert result.returncode == 1
    assert "PASS" not in result.stdout
    assert result.stderr == ("cuMemAlloc_v2(&y_gpu, COUNT * sizeof(float))\n"
                             "failed: CUDA_ERROR_OUT_OF_MEMORY (2)\n")


def test_target_app_takes_all_it_wants(product, gpu):
    result = run(product, "target_app", gpu.environment(ITERATIONS=3))
    assert result.stdout.splitlines() == [
        "ALLOC_OK iteration 0", "ALLOC_OK iteration 1", "ALLOC_OK iteration 2",
        "FREE_OK iteration 0", "FREE_OK iteration 1", "FREE_OK iteration 2",
    ]
    assert (result.returncode, result.stderr) == (0, "")


def test_target_app_is_refused_where_the_card_ends(product, make_gpu):
    """As gslice's: status 0 also when it was refused."""
    small = make_gpu(FAKECUDA_TOTAL_MEM=128 * MIB)
    result = run(product, "target_app", small.environment(ALLOC_BYTES=64 * MIB, ITERATIONS=5))
    assert result.stdout.splitlines() == [
        "ALLOC_OK iteration 0", "ALLOC_OK iteration 1", "ALLOC_FAIL at iteration 2 code=2",
        "FREE_OK iteration 0", "FREE_OK iteration 1",
    ]
    assert (result.returncode, result.stderr) == (0, "")


def test_target_app_counts_a_refused_context_as_its_first_allocation(product, make_gpu):
    full = make_gpu(FAKECUDA_TOTAL_MEM=128 * MIB, FAKECUDA_CONTEXT_BYTES=256 * MIB)
    result = run(product, "target_app", full.environment())
    assert result.stdout == "ALLOC_FAIL at iteration 0 code=2\n"
    assert result.returncode == 0


def test_target_app_wants_numbers(product, gpu):
    result = run(product, "target_app", gpu.environment(ALLOC_BYTES="64MiB"))
    assert result.returncode == 2
    assert result.stdout == ""
    assert "ALLOC_BYTES is '64MiB'" in result.stderr


def test_held_memory_is_missed_by_others_until_a_line_comes(product, gpu, reap):
    holder = reap(subprocess.Popen([product.program("target_app")], env=gpu.environment(ITERATIONS=2, HOLD="stdin"),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    assert [holder.stdout.readline() for _ in range(2)] == ["ALLOC_OK iteration 0\n", "ALLOC_OK iteration 1\n"]
    assert used_mib(1024, product, gpu) == 128
    output, _ = holder.communicate("\n", timeout=20)
    assert output.splitlines() == ["FREE_OK iteration 0", "FREE_OK iteration 1"]
    assert holder.returncode == 0
    assert used_mib(1024, product, gpu) == 0


def test_held_memory_is_freed_at_a_signal_and_after_a_kill(product, gpu, reap):
    def hold():
        holder = reap(subprocess.Popen([product.program("target_app")], stdin=subprocess.DEVNULL,
                                       env=gpu.environment(ITERATIONS=1, HOLD="signal"),
                                       stdout=subprocess.PIPE, text=True))
        assert holder.stdout.readline() == "ALLOC_OK iteration 0\n"
        assert used_mib(1024, product, gpu) == 64
        return holder

    holder = hold()
    holder.send_signal(signal.SIGUSR1)
    assert holder.communicate(timeout=20)[0] == "FREE_OK iteration 0\n"
    assert used_mib(1024, product, gpu) == 0

    holder = hold()
    holder.kill()
    holder.wait()
    assert used_mib(1024, product, gpu) == 0


def test_the_installed_examples_are_programs_and_their_sources(product, gpu):
    folder = product.prefix / "share" / "gpuslice" / "examples"
    for name in ("target_app.c", "saxpy.c", "check.h", "kernels.ptx", "kernels_ptx.h"):
        assert (folder / name).stat().st_size > 0
    result = subprocess.run([folder / "bin" / "saxpy"], env=gpu.environment(), capture_output=True, text=True,
                            timeout=60)
    assert result.stdout.splitlines()[-1] == "PASS"
    # A program built here must not remember our build folder's simulated driver: on a machine with a card it uses that.
    dynamic = subprocess.run(["readelf", "-d", folder / "bin" / "saxpy"], capture_output=True, text=True).stdout
    assert "Shared library: [libcuda.so.1]" in dynamic
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
