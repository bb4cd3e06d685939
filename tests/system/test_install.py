"""The installed tree: complete, and at home wherever it is moved to."""
import re
import shutil
import subprocess

import pytest

from conftest import SOURCE


def test_a_moved_tree_works(product, make_gpu, make_daemon, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(product.prefix, elsewhere, symlinks=True)
    daemon = make_daemon()
    daemon.product = type(product)(elsewhere, product.build)
    daemon.start()
    result = daemon.cli("run", "--memory", "8MiB", "--", "env", f"ALLOC_BYTES={4 << 20}", "ITERATIONS=3",
                        elsewhere / "share/gpuslice/examples/bin/target_app")
    assert result.stdout.splitlines()[:3] == ["ALLOC_OK iteration 0", "ALLOC_OK iteration 1",
                                              "ALLOC_FAIL at iteration 2 code=2"]


def test_the_tree_has_its_parts(product):
    for path in ["bin/gpuslice", "bin/gpusliced", "lib/gpuslice/libgpuslice.so",
                 "lib/gpuslice/libgpuslice-path.so",
                 "lib/gpuslice/simulated/libcuda.so.1", "lib/gpuslice/simulated/libnvidia-ml.so.1",
                 "share/doc/gpuslice/api.md", "share/doc/gpuslice/metrics.md", "share/doc/gpuslice/security.md",
                 "share/doc/gpuslice/examples/gpuslice.conf", "share/doc/gpuslice/examples/sessions.conf",
                 "share/gpuslice/examples/target_app.c", "share/gpuslice/examples/saxpy.c",
                 "share/gpuslice/examples/bin/target_app", "share/gpuslice/examples/bin/saxpy"]:
        assert (product.prefix / path).exists(), path


def test_no_file_of_the_tree_knows_where_it_was_built(product):
    found = subprocess.run(["grep", "-rlaF", str(product.build.parent), product.prefix / "bin", product.prefix / "lib"],
                           capture_output=True, text=True).stdout.split()
    # Debug information names sources; what is loaded at run time must not.
    for path in found:
        dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True).stdout
        assert "RUNPATH" not in dynamic and "RPATH" not in dynamic, path


def test_what_messages_and_pages_lead_to_is_installed(product):
    """A path below share that a program, a page or a document names exists in the tree."""
    named = set()
    for folder, pattern in (("src", "*.[ch]"), ("docs/man", "*.in"), ("packaging", "*")):
        for file in (SOURCE / folder).rglob(pattern):
            if file.is_file() and "kubernetes" not in file.parts:  # an image has paths of its own
                named |= set(re.findall(r"\bshare/(?:doc/)?gpuslice/[\w./-]*\w", file.read_text()))
                assert not re.search(r'"[^"\n]*\bdocs/\w+\.md', file.read_text()), f"{file} leads to docs, which is installed elsewhere"
    assert "share/doc/gpuslice/api.md" in named
    missing = {path for path in named if not (product.prefix / path).exists()}
    assert missing == set()


@pytest.mark.parametrize("name", ["gpuslice.conf", "sessions.conf"])
def test_the_examples_of_configuration_are_good_with_each_line_in_force(product, make_daemon, tmp_path, name):
    example = (product.prefix / "share/doc/gpuslice/examples" / name).read_text()
    daemon = make_daemon()
    for text in (example, re.sub(r"(?m)^#(\[|[\w-]+ = )", r"\1", example)):
        (tmp_path / name).write_text(text)
        daemon.cli("config", "check", tmp_path / name)
    assert text != example


def test_the_command_line_loads_few_libraries(product):
    """Every `gpuslice run` waits for them before its program starts."""
    listed = subprocess.run(["ldd", product.gpuslice], capture_output=True, text=True, check=True).stdout
    names = {line.split()[0].rpartition("/")[2] for line in listed.splitlines()}
    expected = {"libncursesw", "libtinfo", "libjansson", "libhttp_parser", "libc", "linux-vdso", "ld-linux-x86-64", "ld-linux-aarch64"}
    assert {name.split(".so")[0] for name in names} <= expected, names
