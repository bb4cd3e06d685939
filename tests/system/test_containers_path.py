"""libgpuslice-path.so: the programs started from one that has it find what its variables name."""
import os
import re
import subprocess

import pytest


def run(product, *command, **variables):
    environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(product.path_library), **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_a_started_program_is_found_in_the_added_folder(product, tmp_path):
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\necho \"$LD_LIBRARY_PATH\"\n")
    program.chmod(0o755)
    for variable in ("TF_PATH", "GPUSLICE_PATH", "TF_PREPEND_PATH", "GPUSLICE_PREPEND_PATH"):
        result = run(product, "sh", "-c", "only-here", **{variable: str(tmp_path), "TF_LD_LIBRARY_PATH": "/a:/b"})
        assert result.stdout == "/a:/b\n", result.stderr


def test_without_a_path_the_usual_programs_are_found_as_before(product, tmp_path):
    environment = {"LD_PRELOAD": str(product.path_library), "TF_PATH": str(tmp_path)}
    result = subprocess.run(["/bin/sh", "-c", "ls -d /; env | grep ^PATH="], env=environment, capture_output=True, text=True, timeout=60)
    assert result.stdout.startswith("/\nPATH=") and result.stdout.endswith(f":{tmp_path}\n"), result


def test_an_added_preload_is_loaded_into_what_is_started(product):
    result = run(product, "sh", "-c", "grep -c libgpuslice.so /proc/self/maps", TF_LD_PRELOAD=str(product.interceptor))
    assert int(result.stdout) > 0, result.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to make a program setuid")
def test_a_setuid_program_does_not_get_its_callers_preload_back(product, tmp_path):
    # Linked to the library, as the loader of a setuid program drops LD_PRELOAD.
    source = tmp_path / "show.c"
    source.write_text("#include <stdio.h>\n#include <stdlib.h>\n"
                      "int main(void) { puts(getenv(\"LD_PRELOAD\") ? \"again\" : \"dropped\"); return 0; }\n")
    library = tmp_path / "libgpuslice-path.so"
    library.write_bytes(product.path_library.read_bytes())
    program = tmp_path / "show"
    subprocess.run(["cc", source, "-o", program, "-Wl,--no-as-needed", library, f"-Wl,-rpath,{tmp_path}"], check=True)
    for path in (tmp_path, *tmp_path.parents):
        if str(path).startswith("/tmp/"):
            path.chmod(0o755)
    library.chmod(0o755)
    variables = {"PATH": "/bin", "TF_LD_PRELOAD": "/nowhere.so"}
    for mode, said in ((0o755, "again\n"), (0o4755, "dropped\n")):
        program.chmod(mode)
        result = subprocess.run([program], env=variables, user=65534, capture_output=True, text=True, timeout=60)
        assert result.stdout == said, result.stderr


def test_it_needs_no_glibc_newer_than_2_17(product):
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", subprocess.check_output(["readelf", "-VW", product.path_library], text=True))
    assert versions and max((int(major), int(minor)) for major, minor in versions) <= (2, 17)
