"""A driver that is newer than GPU Slice: what a program asks it for is named, and what it calls pins its memory. And which
functions a driver has."""
import subprocess

import pytest

import moved
from conftest import MIB, wait_for
from test_doctor import expect, findings

# Answers "asked" once it has memory and the function, and calls that at a line.
PROGRAM = """
import ctypes, sys
driver = ctypes.CDLL(sys.argv[1])
context, address = ctypes.c_void_p(), ctypes.c_uint64()
new = driver.cuBrandNew
new.argtypes = [ctypes.c_uint64]
if driver.cuInit(0) or driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) or \
        driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 << 20)):
    sys.exit("no memory")
print("asked", flush=True)
sys.stdin.readline()
print("called", new(address.value), flush=True)
sys.stdin.readline()
"""
NAME = "cuBrandNew"


@pytest.fixture
def begin(daemon, reap):
    def run(*options):
        driver = daemon.product.build / "tests/system/preloads/newer/libcuda.so.1"
        process = reap(daemon.spawn("run", "--name", "s", "--memory", "256MiB", *options, "--", "/usr/bin/python3", "-c", PROGRAM,
                                    driver))
        assert process.stdout.readline() == "asked\n", process.stderr.read()
        return process
    return run


@pytest.mark.parametrize("version, has", [("12.4", [True, False, False]), ("13.0", [True, True, False]),
                                          ("13.4", [True, True, True])])
def test_a_simulated_driver_exports_what_its_version_has(product, make_gpu, version, has):
    names = ["cuCtxSynchronize", "cuCtxSynchronize_v2", "cuGraphAddNode_v3"]
    program = f"import ctypes; driver = ctypes.CDLL('libcuda.so.1'); print([hasattr(driver, name) for name in {names}])"
    shown = subprocess.check_output(["/usr/bin/python3", "-c", program], text=True,
                                    env=make_gpu(FAKECUDA_CUDA_VERSION=version).environment())
    assert shown == f"{has}\n"


def call(process):
    process.stdin.write("\n")
    process.stdin.flush()


def see_it_named(daemon):
    wait_for(lambda: daemon.session("s")["processes"][0]["unknown_functions"] == NAME, "the name to be told")
    (event,) = [event for event in moved.events(daemon, daemon.session("s")) if event["kind"] == "process.unknown_functions"]
    assert event["functions"] == NAME and NAME in event["message"]
    expect(findings(daemon)["functions"], "warning", NAME, "newer GPU Slice")


def test_a_function_that_nobody_here_knows_is_passed_on_and_named(daemon, begin):
    process = begin()
    see_it_named(daemon)
    call(process)
    assert process.stdout.readline() == "called 0\n"


def test_memory_stays_once_such_a_function_is_called(daemon, begin):
    process = begin("--oversubscribe")
    see_it_named(daemon)
    assert moved.suspend(daemon, "s")["evicted_bytes"] == 64 * MIB  # to have asked for it pins nothing
    call(process)  # it waits until the memory is back, at which the driver may look
    moved.resume(daemon, "s")
    assert process.stdout.readline() == "called 0\n"
    stays = "64MiB stay (of programs that call functions of the driver which GPU Slice does not know)"
    assert moved.suspend_in_part(daemon, "s") == f"0B left the card, and {stays}"
    assert stays in daemon.cli("show", "s").stdout
    moved.resume(daemon, "s")
    call(process)
    assert NAME in process.communicate()[1]


def test_memory_stays_of_a_program_that_is_linked_with_such_a_function(daemon, reap):
    program = daemon.product.build / "tests/system/preloads/newer/newer_linked"
    process = reap(daemon.spawn("run", "--name", "s", "--memory", "256MiB", "--oversubscribe", "--", program))
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    see_it_named(daemon)
    assert moved.suspend_in_part(daemon, "s").startswith("0B left the card, and 64MiB stay (of programs that call functions")
    moved.resume(daemon, "s")
    call(process)
    assert process.wait(20) == 0
