"""Variables of HAMi and vgpu.rs that are accepted, and that none of them takes a program out of a session
(docs/from-hami.md, docs/from-vgpu.rs.md)."""
import json
import subprocess
import sys

import pytest

from conftest import GIB, MIB, SOURCE
from test_compute_limit import assert_gets, share  # noqa: F401 - fixtures
from test_quota import LIMIT, OK, OUT_OF_MEMORY, session_environment, start  # noqa: F401 - a fixture


def preloaded(gpu, **more):
    return gpu.environment(LD_PRELOAD=gpu.product.interceptor, **more)


def holds(puppet, limit):
    """Whether the limit is that, to the byte."""
    return puppet.code("alloc", limit + 1) == OUT_OF_MEMORY and puppet.code("alloc", limit) == OK


@pytest.mark.parametrize("value, limit", [("64m", 64 * MIB), ("1g", GIB), ("65536k", 64 * MIB), ("67108864", 64 * MIB), ("64M", 64 * MIB)])
def test_hamis_memory_limit(make_gpu, start, value, limit):
    gpu = make_gpu(FAKECUDA_TOTAL_MEM=4 * GIB)
    assert holds(start(preloaded(gpu, CUDA_DEVICE_MEMORY_LIMIT=value)), limit)


def test_hamis_memory_limit_of_one_gpu(make_gpu, start):
    gpu = make_gpu(FAKECUDA_GPUS=2)
    for variables, first, second in (({"_1": "32m"}, GIB, 32 * MIB), ({"": "64m", "_1": "32m"}, 64 * MIB, 32 * MIB),
                                     ({"": "64m", "_0": "0m"}, GIB, 64 * MIB)):
        environment = preloaded(gpu, **{f"CUDA_DEVICE_MEMORY_LIMIT{behind}": value for behind, value in variables.items()})
        for ordinal, limit in ((0, first), (1, second)):
            puppet = start(environment, context=False)
            puppet.get("context", ordinal)
            assert holds(puppet, limit), (variables, ordinal)
            puppet.end()


def test_our_own_limit_goes_before_others(gpu, start):
    environment = preloaded(gpu, CUDA_DEVICE_MEMORY_LIMIT="32m", GPUSLICE_MEMORY_LIMIT=LIMIT)
    assert holds(start(environment), LIMIT)


def test_an_invalid_limit_gives_no_memory(gpu, start):
    puppet = start(preloaded(gpu, CUDA_DEVICE_MEMORY_LIMIT="lots"), context=False)
    assert puppet.code("context", 0) == OUT_OF_MEMORY
    assert "'lots'" in puppet.end()


@pytest.mark.parametrize("name", ["GPU_MEMORY_LIMIT", "TF_GPU_MEMORY_LIMIT", "TF_CUDA_MEMORY_LIMIT"])
def test_a_limit_that_is_not_read_is_said_not_to_count(gpu, start, name):
    puppet = start(preloaded(gpu, **{name: "32"}))
    puppet.get("alloc", 64 * MIB)
    assert puppet.end().count(f"{name} is set, but does not limit this program") == 1
    limited = start(preloaded(gpu, **{name: "32", "GPUSLICE_MEMORY_LIMIT": LIMIT}))
    assert holds(limited, LIMIT) and name not in limited.end()


def test_hamis_share(assert_gets):
    assert_gets(25, "500", CUDA_DEVICE_SM_LIMIT="25")


OFF = [{"DISABLE_GPU_LIMITER": "true"}, {"ENABLE_CUDA_HOOKS": "false"}]


@pytest.mark.parametrize("off", OFF)
def test_the_limiter_is_switched_off_by_programs_that_limit_themselves(gpu, start, off):
    assert start(preloaded(gpu, GPUSLICE_MEMORY_LIMIT=LIMIT, **off)).code("alloc", 2 * LIMIT) == OK


@pytest.mark.parametrize("off", OFF + [{"CUDA_DEVICE_MEMORY_LIMIT": "1g"}, {"ENABLE_NVML_HOOKS": "false"}])
def test_nothing_takes_a_program_out_of_its_session(daemon, start, off):
    puppet = start({**session_environment(daemon, memory_bytes=LIMIT), **off})
    assert holds(puppet, LIMIT)
    assert puppet.do("info")[1:] == [0, LIMIT]


def nvml_total(environment):
    program = subprocess.run([sys.executable, SOURCE / "tests/system/nvml_total.py"], env=environment, capture_output=True, text=True)
    return int(program.stdout)


def test_nvml_shows_the_whole_card_where_that_is_asked(gpu, daemon):
    limited = {"GPUSLICE_MEMORY_LIMIT": LIMIT}
    assert nvml_total(preloaded(gpu, **limited)) == LIMIT
    assert nvml_total(preloaded(gpu, ENABLE_NVML_HOOKS="false", **limited)) == GIB
    assert nvml_total({**session_environment(daemon, memory_bytes=LIMIT), "ENABLE_NVML_HOOKS": "false"}) == LIMIT


def test_what_helps_to_find_faults_is_told_where_it_is_asked(gpu, start, tmp_path):
    def said(**variables):
        puppet = start(preloaded(gpu, GPUSLICE_MEMORY_LIMIT="bad", **variables), context=False)
        puppet.code("context", 0)
        return puppet.end()

    assert "'bad'" in said(TF_LOG_LEVEL="debug", TF_ENABLE_LOG="off")  # that is no fault of ours: it is told in any case
    for place, file in ((tmp_path / "a.log", tmp_path / "a.log"), (tmp_path, tmp_path / "tf.log")):
        assert "'bad'" in said(TF_LOG_PATH=place) and "'bad'" in file.read_text()


def test_visible_devices_of_vgpu_rs(make_daemon, make_gpu):
    daemon = make_daemon(gpu=make_gpu(FAKECUDA_GPUS=3)).start()
    uuids = [gpu["uuid"] for gpu in daemon.request("GET", "/v1/gpus")[1]]

    def chosen(*options, **variables):
        made = daemon.cli("create", "--json", *options, env=daemon.environment(**variables))
        return [gpu["index"] for gpu in json.loads(made.stdout)["gpus"]]

    both = f"{uuids[2]},{uuids[1]}"
    assert chosen(TF_VISIBLE_DEVICES=both) == [2, 1]
    assert chosen(TF_VISIBLE_DEVICES=both, CUDA_VISIBLE_DEVICES="1") == [1]
    assert chosen("--gpu", "0", TF_VISIBLE_DEVICES=both) == [0]
    refused = daemon.cli("create", env=daemon.environment(TF_VISIBLE_DEVICES=both, CUDA_VISIBLE_DEVICES="2"), check=False)
    assert refused.returncode == 1 and "TF_VISIBLE_DEVICES has 2" in refused.stderr
