"""Programs that ask what GPUs there are: in a session they see what is the session's."""
import re
import shutil
import subprocess

import pytest

GIB = 1 << 30


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("boinc"), reason="BOINC is missing; see scripts/install-deps programs")
def test_boinc_finds_the_gpu_with_the_sessions_memory(make_daemon, make_gpu, tmp_path):
    """BOINC's client looks for GPUs in a child of its own, which asks the driver by dlopen, and writes down what it found."""
    daemon = make_daemon(make_gpu(FAKECUDA_DEVICE="rtx5090", FAKECUDA_TOTAL_MEM=8 * GIB, FAKECUDA_CUDA_VERSION="12.8")).start()

    def found(folder, words, environment):
        folder.mkdir()
        subprocess.run([*words, "boinc", "--detect_gpus", "--dir", folder], env=environment, cwd=folder, check=True, timeout=60,
                       capture_output=True)
        told = (folder / "coproc_info.xml").read_text()
        return {name: re.search(f"<{name}>(.*)</{name}>", told)[1] for name in ("name", "cudaVersion", "major", "totalGlobalMem")}

    outside = found(tmp_path / "outside", [], daemon.gpu.environment())
    inside = found(tmp_path / "inside", [daemon.product.gpuslice, "run", "--memory", "1GiB", "--"], daemon.environment())
    assert outside["name"] == inside["name"] == "NVIDIA GeForce RTX 5090"
    assert outside["cudaVersion"] == inside["cudaVersion"] == "12080" and inside["major"] == "12"
    assert float(outside["totalGlobalMem"]) == 8 * GIB and float(inside["totalGlobalMem"]) == GIB
