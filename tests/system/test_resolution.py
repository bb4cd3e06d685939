"""Who gets which function: the library's shape, and every way a program can look up an entry point, inside and outside.

The driver here is tests/system/preloads/driver, whose functions do nothing but say which they are; lookups.c asks. What
the product does with real calls is tested on the simulated GPU, at the end and elsewhere.
"""
import itertools
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import SOURCE

VERSIONS = (0, 2000, 3020, 4000, 7000, 10020, 11020, 11030, 11040, 12000, 12050, 13000, 13010, 99999)
LIBRARY = "libgpuslice.so"


def rows(kind):
    """Names in the tables of hooks; those of SUBMITS are hooks too."""
    text = (SOURCE / "src/intercept/resolve/hooks.def").read_text()
    found = set(re.findall(rf"^{kind}\((\w+)\)", text, re.MULTILINE))
    if kind == "HOOK":
        submits = (SOURCE / "src/intercept/submit/submit.def").read_text()
        found |= set(re.findall(r"^(?:SUBMITS|COPIES_SYNC|COPIES_ASYNC|REACHES|LAUNCHES)\((\w+),", submits, re.MULTILINE))
    return found


def dynamic_symbols(library):
    """(defined names, [(undefined name, version)])"""
    lines = subprocess.check_output(["objdump", "-T", library], text=True).splitlines()
    undefined = [re.search(r"\*UND\*\s+\w+\s+\(?([\w.]*)\)?\s+(\w+)$", line) for line in lines if "*UND*" in line]
    defined = {line.split()[-1] for line in lines if re.match(r"^[0-9a-f]{16} g", line)}
    return defined, [(match[2], match[1]) for match in undefined]


class Lookups:
    """Runs lookups.c with the lookup driver."""

    def __init__(self, product):
        self.product = product
        self.driver = product.build / "tests/system/preloads/driver"
        self.tracer = product.build / "tests/system/preloads/libtracer.so"

    def run(self, *arguments, program="lookups", preload=(), libraries=None, **environment):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSLICE_", "LD_", "DRIVER_", "TRACER_"))}
        result = subprocess.run(
            [self.product.program(program), *map(str, arguments)],
            env={**clean, "LD_LIBRARY_PATH": str(libraries or self.driver),
                 "LD_PRELOAD": ":".join(map(str, preload)), **environment},
            capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 0, f"{arguments}: {result.returncode}\n{result.stdout}{result.stderr}"
        self.stderr = result.stderr
        return result.stdout

    def inside(self, *arguments, **options):
        return self.run(*arguments, preload=[self.product.interceptor], **options)

    def found(self, how, *names, **options):
        """{name: "object:symbol"} inside."""
        return dict(line.split("\t") for line in self.inside("find", how, *names, **options).splitlines())


@pytest.fixture
def lookups(product):
    return Lookups(product)


# The library's shape.

def test_it_exports_its_hooks_and_the_two_lookups_and_nothing_else(product):
    defined, _ = dynamic_symbols(product.interceptor)
    assert defined == rows("HOOK") | rows("NVML_HOOK") | {"dlsym", "dlvsym"}


def test_it_imports_nothing_newer_than_glibc_2_17(product):
    _, undefined = dynamic_symbols(product.interceptor)
    assert undefined
    for name, version in undefined:
        numbers = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)+)", version)
        assert numbers, f"{name} has the version '{version}', expected one of glibc's"
        assert tuple(map(int, numbers[1].split("."))) <= (2, 17), f"{name}@{version} is newer than GLIBC_2.17"


def test_it_needs_glibc_alone_and_names_where_old_glibc_keeps_threads_and_dlsym(product):
    dynamic = subprocess.check_output(["readelf", "-dW", product.interceptor], text=True)
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    assert {"libc.so.6", "libdl.so.2", "libpthread.so.0"} <= needed
    assert all(re.match(r"lib(c|dl|pthread|rt)\.so\.\d$|ld-linux", name) for name in needed), needed
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
    assert "NODELETE" in dynamic


def test_it_has_no_constructors_and_no_destructors(product):
    dynamic = subprocess.check_output(["readelf", "-dW", product.interceptor], text=True)
    assert not re.search(r"\((INIT|FINI)(_ARRAY)?\)", dynamic)


def test_its_hooks_are_its_own_however_the_libraries_stand(product):
    """A relocation by symbol for one of our exports would take another library's function in its place."""
    defined, _ = dynamic_symbols(product.interceptor)
    relocations = subprocess.check_output(["readelf", "-rW", product.interceptor], text=True)
    assert not defined & set(re.findall(r"(\w+)(?:@\S+)? \+ 0$", relocations, re.MULTILINE))


def test_nothing_it_imports_is_missing(product):
    assert "undefined symbol" not in subprocess.run(["ldd", "-r", product.interceptor], capture_output=True,
                                                    text=True, check=True).stdout


def system_calls(folder, preload):
    trace = folder / f"trace-{bool(preload)}"
    environment = {"PATH": os.environ["PATH"], **({"LD_PRELOAD": str(preload)} if preload else {})}
    run = subprocess.run(["strace", "-f", "-o", trace, "-E", f"LD_PRELOAD={preload or ''}", "/bin/true"],
                         env={**environment, "LD_PRELOAD": ""}, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        pytest.skip(f"strace cannot trace here: {run.stderr.strip()}")
    return [re.sub(r"^\d+ +", "", line) for line in trace.read_text().splitlines()]


def test_a_program_without_cuda_makes_no_system_call_for_it_but_the_loaders(product, tmp_path):
    """Cost at start is counted, not timed: what the loader does to map three more files, and nothing else."""
    names = [[re.match(r"\w+", line)[0] for line in system_calls(tmp_path, preload) if re.match(r"\w+\(", line)]
             for preload in (None, product.interceptor)]
    for name in set(names[1]):
        more = names[1].count(name) - names[0].count(name)
        if name in ("openat", "open", "read", "pread64", "fstat", "newfstatat", "close"):
            assert more <= 4, f"{name}: {more} more"
        elif name in ("mmap", "mprotect", "munmap", "access", "brk"):
            assert more <= 24, f"{name}: {more} more"
        else:
            assert more <= 0, f"{name}: {more} more, by a program that uses no CUDA"


# Every lookup, inside and outside.

def columns(text):
    return [line.split("\t") for line in text.splitlines()]


@pytest.mark.parametrize("program, simulated", [("lookups", False), ("lookups_linked", False), ("lookups", True)])
def test_every_lookup_answers_as_outside_but_with_our_functions_where_we_have_one(lookups, gpu, program, simulated):
    """All names, versions, flags and forms: results and statuses the same; the function is ours exactly where the one
    outside has a hook."""
    options = {"program": program}
    if simulated:
        options |= {"libraries": lookups.product.simulated, **gpu.settings, "FAKECUDA_APART_POINTERS": "0", "FAKECUDA_CUDA_VERSION": "13.4"}
    outside = columns(lookups.run("table", *VERSIONS, **options))
    inside = columns(lookups.inside("table", *VERSIONS, **options))
    assert len(outside) == len(inside) > 50_000
    hooked, replaced = rows("HOOK"), set()
    for before, after in zip(outside, inside):
        assert before[:5] == after[:5]
        symbol = before[5].partition(":")[2]
        expected = f"{LIBRARY}:{symbol}" if symbol in hooked else before[5]
        assert after[5] == expected, f"{after}: expected {expected}"
        if symbol in hooked:
            replaced.add(symbol)
    assert replaced == hooked


def test_the_first_lookups_of_racing_threads_all_get_ours(lookups):
    ours = f"{LIBRARY}:cuGetProcAddress_v2"
    assert lookups.inside("threads").splitlines() == [f"{ours}\t{ours}"] * 8


def test_what_dlerror_says_is_as_outside(lookups):
    for program in ("lookups", "lookups_linked"):
        assert lookups.inside("errors", program=program) == lookups.run("errors", program=program)


def test_dlvsym_finds_ours_too(lookups):
    assert lookups.found("dlvsym", "cuGetProcAddress_v2") == {"cuGetProcAddress_v2": "NULL"}
    outside = lookups.run("find", "dlvsym", "cuGetProcAddress_v2", "cuInit")
    assert lookups.inside("find", "dlvsym", "cuGetProcAddress_v2", "cuInit") == outside


def test_the_program_itself_finds_ours_by_pseudo_handles(lookups):
    for how in ("default", "next", "main"):
        assert lookups.found(how, "cuGetProcAddress_v2", program="lookups_linked") \
            == {"cuGetProcAddress_v2": f"{LIBRARY}:cuGetProcAddress_v2"}


def test_names_without_a_hook_and_names_of_others_are_untouched(lookups):
    names = ["cuInit", "cuDriverGetVersion", "malloc", "dlopen", "cufftPlan1d", "c", "nvml", "n", ""]
    for how in ("handle", "default", "next"):
        assert lookups.inside("find", how, *names) == lookups.run("find", how, *names)


def test_nvml_lookups_get_the_hooks_there_are(lookups):
    found = lookups.found("nvml", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2", "nvmlInit_v2", "nvmlNothing")
    hooked = rows("NVML_HOOK")
    for name, where in found.items():
        expected = LIBRARY if name in hooked else "libnvidia-ml.so.1"
        assert where == (f"{expected}:{name}" if name != "nvmlNothing" else "NULL")


def test_a_driver_under_another_name_is_the_driver(lookups, tmp_path):
    """Its SONAME is what counts: compatibility packages load theirs by its full name."""
    path = tmp_path / "libcuda.so.580.65.06"
    shutil.copy(lookups.driver / "libcuda.so.1", path)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert lookups.found(path, "cuGetProcAddress_v2", "cuMemAlloc_v2", "cuInit", libraries=empty) == {
        "cuGetProcAddress_v2": f"{LIBRARY}:cuGetProcAddress_v2",
        "cuMemAlloc_v2": f"{LIBRARY}:cuMemAlloc_v2",
        "cuInit": "libcuda.so.580.65.06:cuInit"}


def test_a_second_copy_of_the_driver_is_hooked_by_name(lookups, tmp_path):
    path = tmp_path / "libcuda.so.1"
    shutil.copy(lookups.driver / "libcuda.so.1", path)
    # Linked: the copy beside the program is loaded already.
    assert lookups.found(path, "cuMemAlloc_v2", "cuMemGetInfo_v2", "cuInit", program="lookups_linked",
                         GPUSLICE_DEBUG="1") == {
        "cuMemAlloc_v2": f"{LIBRARY}:cuMemAlloc_v2",
        "cuMemGetInfo_v2": f"{LIBRARY}:cuMemGetInfo_v2",
        "cuInit": "libcuda.so.1:cuInit"}
    for name in ("cuMemAlloc_v2", "cuMemGetInfo_v2"):
        assert f"{name}: the driver answered with a function that GPU Slice does not know" in lookups.stderr


def test_a_function_the_driver_exports_nowhere_is_hooked_by_name(lookups):
    assert lookups.inside("ask", "cuMemAlloc", 12000, DRIVER_HIDES="cuMemAlloc") == f"0\t{LIBRARY}:cuMemAlloc_v2\n"
    assert lookups.inside("ask", "cuMemAlloc", 13010, DRIVER_HIDES="cuMemAlloc") == f"0\t{LIBRARY}:cuMemAlloc_v2\n"
    assert lookups.inside("ask", "cuMemGetInfo", 12000, DRIVER_HIDES="cuMemGetInfo") == f"0\t{LIBRARY}:cuMemGetInfo_v2\n"
    assert lookups.inside("ask", "cuInit", 12000, DRIVER_HIDES="cuInit") == "0\tlibcuda.so.1:?\n"


def test_a_form_newer_than_the_table_is_never_taken_for_one_we_know(lookups):
    assert lookups.inside("ask", "cuMemAlloc", 14000, DRIVER_NEWER="cuMemAlloc", GPUSLICE_DEBUG="1") \
        == f"0\t{LIBRARY}:?\n"
    assert "cuMemAlloc: GPU Slice does not know this function of the driver" in lookups.stderr
    assert lookups.inside("ask", "cuMemAlloc", 13000, DRIVER_NEWER="cuMemAlloc") == f"0\t{LIBRARY}:cuMemAlloc_v2\n"


def test_a_name_newer_than_the_table_is_passed_on_by_a_thunk(lookups):
    assert lookups.inside("ask", "cuBrandNew", 14000, DRIVER_HIDES="cuBrandNew", GPUSLICE_DEBUG="1") == f"0\t{LIBRARY}:?\n"
    assert "cuBrandNew: GPU Slice does not know this function of the driver" in lookups.stderr
    assert lookups.run("ask", "cuBrandNew", 14000, DRIVER_HIDES="cuBrandNew") == "0\tlibcuda.so.1:?\n"


def test_without_a_driver_our_functions_say_that_there_is_no_device(lookups, tmp_path):
    for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (tmp_path / library).touch()  # in the way of the machine's own, if it has one
    hooks = sorted(rows("HOOK") | rows("NVML_HOOK"))
    called = dict(line.split("\t") for line in lookups.inside("call", *hooks, libraries=tmp_path).splitlines())
    assert called == {name: "12" if name.startswith("nvml") else "100" for name in hooks}


def test_a_program_built_with_a_sanitizer_starts_and_finds_ours(lookups):
    """Its start-up looks functions up by dlsym before its own are ready."""
    assert lookups.found("handle", "cuGetProcAddress_v2", program="lookups_sanitized",
                         ASAN_OPTIONS="verify_asan_link_order=0:detect_leaks=0") \
        == {"cuGetProcAddress_v2": f"{LIBRARY}:cuGetProcAddress_v2"}


def test_it_works_under_an_older_glibc(lookups):
    """Where dlsym is libdl's and threads are libpthread's."""
    folder = os.environ.get("GPUSLICE_TEST_OLD_LIBC")
    if not folder:
        pytest.skip("set GPUSLICE_TEST_OLD_LIBC to a folder made by tests/system/preloads/fetch-old-libc")
    libraries = next(pathlib.Path(folder).resolve().glob("lib/*-linux-gnu"))
    loader = next(path for path in libraries.glob("ld-linux-*.so.*"))
    program = lookups.product.program("old_program")
    result = subprocess.run([loader, "--library-path", f"{libraries}:{lookups.driver}", "--preload",
                             lookups.product.interceptor, program], capture_output=True, text=True, check=False,
                            env={})
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [str(lookups.product.interceptor)] * 2


# Another preloaded library, before us and behind us.

def traced(lookups, preload, program="lookups_linked", **environment):
    return {line[0]: line[1:] for line in columns(lookups.run("traced", program=program, preload=preload, **environment))}


def test_rtld_next_of_a_library_before_us_is_ours_and_of_one_behind_us_the_drivers(lookups):
    ours = lookups.product.interceptor
    before, behind = traced(lookups, [lookups.tracer, ours]), traced(lookups, [ours, lookups.tracer])
    for name in ("cuMemAlloc_v2", "cuGetProcAddress_v2"):
        assert before[name] == [f"{LIBRARY}:{name}", f"libtracer.so:{name}", f"{LIBRARY}:{name}"]
        # Behind us it is asked by us: what it looks up is what it calls next, or calls would go round.
        assert behind[name] == [f"libcuda.so.1:{name}", f"{LIBRARY}:{name}", f"libcuda.so.1:{name}"]


def test_other_names_in_another_library_are_found_as_without_us(lookups):
    alone = traced(lookups, [lookups.tracer])
    for preload in itertools.permutations([lookups.tracer, lookups.product.interceptor]):
        with_us = traced(lookups, preload)
        assert with_us["malloc"] == alone["malloc"] == ["libc.so.6:malloc", "libtracer.so:malloc", "libc.so.6:malloc"]
        assert with_us["mallocs"] == ["counted"]


@pytest.mark.parametrize("asks", ["next", "handle"])
def test_a_linked_call_passes_both_libraries_once_in_either_order(lookups, asks):
    for preload in itertools.permutations([lookups.tracer, lookups.product.interceptor]):
        assert traced(lookups, preload, TRACER_ASKS=asks)["lookups"] == ["1", "0", f"{LIBRARY}:cuGetProcAddress_v2"]


# Real calls, on the simulated GPU.

MIB = 1 << 20


def allocate(gpu, program, preload, ways, **environment):
    """{way: result}, and how many calls the tracer saw: each way asks 2 MiB under a quota that one way less fits in."""
    result = subprocess.run(
        [gpu.product.program(program), *[f"{way}:{2 * MIB}" for way in ways]], capture_output=True, text=True,
        env=gpu.standalone((len(ways) - 1) * 2 * MIB, **environment) | {"LD_PRELOAD": ":".join(map(str, preload))},
        timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    answers = columns(result.stdout)
    return [[way, int(code)] for way, code in answers if way != "traced"], \
        next((int(code) for way, code in answers if way == "traced"), None)


@pytest.mark.parametrize("order", ["alone", "before", "behind"])
@pytest.mark.parametrize("asks", ["next", "handle"])
@pytest.mark.parametrize("program, ways", [
    ("calls", ["handle", "procaddress", "handle", "procaddress"]),
    ("calls_linked", ["linked", "default", "next", "handle", "procaddress", "linked"]),
])
def test_the_quota_holds_by_every_way_beside_another_library(lookups, gpu, order, asks, program, ways):
    ours, tracer = lookups.product.interceptor, lookups.tracer
    preload = {"alone": [ours], "before": [tracer, ours], "behind": [ours, tracer]}[order]
    answers, traced_calls = allocate(gpu, program, preload, ways, TRACER_ASKS=asks)
    assert answers == [[way, 0] for way in ways[:-1]] + [[ways[-1], 2]]
    if order == "before":
        # It stands before linked callers and RTLD_DEFAULT, RTLD_NEXT; a handle leads past it, as without us.
        assert traced_calls == sum(way in ("linked", "default", "next") for way in ways)
    if order == "behind" and program == "calls_linked":
        # Every call passes it on the way to the driver, except the one that the quota refused.
        assert traced_calls == len(ways) - 1


def test_a_driver_that_looks_another_one_up_is_answered_as_without_us(lookups, gpu, remote):
    ways = ["handle", "procaddress", "handle", "procaddress"]
    answers, _ = allocate(gpu, "calls", [lookups.product.interceptor], ways, **remote(lookups.product.simulated))
    assert answers == [[way, 0] for way in ways[:-1]] + [[ways[-1], 2]]


@pytest.mark.parametrize("program", ["lookups", "lookups_linked"])
def test_every_hook_stands_before_a_driver_that_hands_out_what_it_does_not_export(lookups, remote, program):
    """Of every class: each function of the other driver's, which this one does not export, is known by its name."""
    options = remote(lookups.driver)
    options["libraries"] = options.pop("LD_LIBRARY_PATH")
    outside = columns(lookups.run("table", *VERSIONS, program=program, **options))
    inside = columns(lookups.inside("table", *VERSIONS, program=program, **options))
    hooked, replaced = rows("HOOK"), set()
    for before, after in zip(outside, inside, strict=True):
        assert before[:5] == after[:5]
        symbol = before[5].partition(":")[2]
        assert after[5] == (f"{LIBRARY}:{symbol}" if symbol in hooked else before[5])
        replaced |= hooked & {symbol}
    assert replaced == hooked
