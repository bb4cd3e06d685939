"""MIG: instances are GPUs of their own, for the daemon, for limits and for NVML as programs in a session see it."""
import pytest

from conftest import GIB, MIB, wait_for
from test_driver_line import OUT_OF_MEMORY, environment_of, new_session, sampled, start  # noqa: F401

TOTAL = 16 * GIB
FIRST, SECOND = 2 * GIB, 4 * GIB  # of 1g.2gb and 2g.4gb: eighths of the card


@pytest.fixture
def daemon(make_daemon, make_gpu):
    """GPU 0 in MIG mode with two instances, GPU 1 whole."""
    gpu = make_gpu(FAKECUDA_GPUS=2, FAKECUDA_TOTAL_MEM=TOTAL, FAKECUDA_MIG="1g.2gb,2g.4gb")
    return make_daemon(gpu=gpu).start()


def gpus(daemon):
    return daemon.request("GET", "/v1/gpus")[1]


def on(daemon, gpu, size):
    return new_session(daemon, gpus=[{"gpu": gpu, "memory_bytes": size}])


def test_instances_are_listed_and_their_card_is_not(daemon):
    first, second, whole = gpus(daemon)
    assert [(g["index"], g["mig_index"], g["total_bytes"]) for g in (first, second, whole)] == [
        (0, 0, FIRST), (0, 1, SECOND), (1, None, TOTAL)]
    assert first["uuid"].startswith("MIG-") and second["uuid"].startswith("MIG-") and whole["uuid"].startswith("GPU-")
    assert first["name"].endswith("MIG 1g.2gb") and second["name"].endswith("MIG 2g.4gb")
    table = daemon.cli("gpus").stdout.splitlines()
    assert [line.split()[0] for line in table[1:]] == ["0:0", "0:1", "1"]
    assert table[2].split()[1] == second["uuid"][:12]


@pytest.mark.parametrize("form", ["index", "uuid", "prefix", "bare"])
def test_an_instance_is_named_by_index_or_uuid(daemon, form):
    uuid = gpus(daemon)[1]["uuid"]
    name = {"index": "0:1", "uuid": uuid, "prefix": uuid[:14], "bare": uuid[4:]}[form]
    program = daemon.cli("run", "--gpu", name, "--memory", "1GiB", "--", "printenv", "CUDA_VISIBLE_DEVICES")
    assert program.stdout.strip() == uuid


def test_the_callers_cuda_visible_devices_may_name_an_instance(daemon):
    uuid = gpus(daemon)[1]["uuid"]
    program = daemon.cli("run", "--memory", "1GiB", "--", "printenv", "CUDA_VISIBLE_DEVICES",
                         env=daemon.environment(CUDA_VISIBLE_DEVICES=uuid))
    assert program.stdout.strip() == uuid


def test_a_card_in_mig_mode_is_refused_with_the_way_to_name_an_instance(daemon):
    refused = daemon.cli("create", "--gpu", "0", check=False)
    assert refused.returncode == 1
    assert "MIG mode" in refused.stderr and "0:" in refused.stderr
    assert daemon.cli("create", "--gpu", "0:2", check=False).returncode == 1
    status, answer = daemon.request("POST", "/v1/sessions", {"gpus": [{"gpu": "0:0", "memory_bytes": FIRST + 1}]})
    assert (status, answer["error"]["code"]) == (409, "ERR_ADMISSION")
    assert "GPU 0:0" in answer["error"]["message"]


def test_two_sessions_on_two_instances_of_a_card_are_exact_to_the_byte(daemon, start):  # noqa: F811
    limits = {"0:0": 300 * MIB, "0:1": 700 * MIB}
    sessions = {gpu: on(daemon, gpu, size) for gpu, size in limits.items()}
    programs = {gpu: start(environment_of(daemon, session)) for gpu, session in sessions.items()}
    for gpu, program in programs.items():
        assert not isinstance(program.do("context()"), str)
        assert program.do("info()") == [0, limits[gpu], limits[gpu]]
        assert program.do(f"alloc({limits[gpu]} - 4096)")[0] == 0
    for gpu, program in programs.items():
        assert program.do("alloc(4097)")[0] == OUT_OF_MEMORY
        assert program.do("alloc(4096)")[0] == 0
        assert program.do("alloc(1)")[0] == OUT_OF_MEMORY
        assert program.do("info()") == [0, 0, limits[gpu]]
        assert sampled(daemon, sessions[gpu])["used_bytes"] == limits[gpu]
    first, second, whole = gpus(daemon)
    assert [g["used_bytes"] for g in (first, second, whole)] == [300 * MIB, 700 * MIB, 0]
    assert [p["session_id"] for p in first["processes"]] == [sessions["0:0"]["session_id"]]
    assert [p["pid"] for p in second["processes"]] == [programs["0:1"].own_pid]


def test_a_refusal_names_the_instance(daemon):
    uuid = gpus(daemon)[1]["uuid"]
    code = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); h = ctypes.c_void_p();" \
           "c.cuCtxCreate_v2(ctypes.byref(h), 0, 0); print(c.cuMemAlloc_v2(ctypes.byref(h), ctypes.c_size_t(1 << 21)))"
    program = daemon.cli("run", "--gpu", "0:1", "--memory", "1MiB", "--", "/usr/bin/python3", "-c", code)
    assert program.stdout.strip() == str(OUT_OF_MEMORY)
    assert f"on {uuid};" in program.stderr


def test_an_instance_is_finite_beside_an_emptier_one(daemon, start):  # noqa: F811
    one, other = (start(environment_of(daemon, new_session(daemon, gpus=[{"gpu": "0:0"}]))) for _ in range(2))
    for program in (one, other):
        program.do("context()")
    assert one.do(f"alloc({FIRST} - 1)")[0] == 0
    assert other.do("info()") == [0, 1, FIRST]
    assert other.do("alloc(2)")[0] == OUT_OF_MEMORY
    assert other.do("alloc(1)")[0] == 0


def test_nvml_of_an_instance_says_what_cuda_says(daemon, start):  # noqa: F811
    session, stranger = on(daemon, "0:1", 512 * MIB), on(daemon, "0:1", 512 * MIB)
    uuid = session["gpus"][0]["uuid"]
    program, mate = (start(environment_of(daemon, session)) for _ in range(2))
    other = start(environment_of(daemon, stranger))
    for each, size in ((program, 100), (mate, 50), (other, 200)):
        each.do("context()")
        assert each.do(f"alloc({size * MIB})")[0] == 0
    assert program.do("uuid_of(instance(0, 1))") == uuid
    for handle in ("instance(0, 1)", f"by_uuid('{uuid}')"):
        assert program.do(f"memory({handle})") == [512 * MIB, 362 * MIB, 150 * MIB]
    assert program.do("info()") == [0, 362 * MIB, 512 * MIB]
    assert program.do("memory(instance(0, 0))")[1] == 0  # not the session's
    expected = sorted([[program.own_pid, 100 * MIB], [mate.own_pid, 50 * MIB]])
    for handle in ("instance(0, 1)", "by_index(0)"):
        for version in ("_v3", "_v2", ""):
            result, count, listed = program.do(f"processes({handle}, '{version}')")
            assert (result, count, sorted(listed)) == (0, 2, expected)
        result, count, listed = program.do(f"details({handle})")
        assert (result, count, sorted(listed)) == (0, 2, expected)
    listed, own = program.do("instance_ids(instance(0, 1))")
    assert sorted(listed) == sorted([[program.own_pid, *own], [mate.own_pid, *own]])
    for handle in ("instance(0, 0)", "by_index(1)"):
        assert program.do(f"processes({handle})") == [0, 0, []]
        assert program.do(f"details({handle})") == [0, 0, []]
        assert program.do(f"processes({handle}, '_v3', 'MPSCompute')") == [0, 0, []]


def test_the_driver_line_of_an_instance_is_sampled(make_daemon, make_gpu, start):  # noqa: F811
    gpu = make_gpu(FAKECUDA_TOTAL_MEM=TOTAL, FAKECUDA_MIG="1g.2gb,1g.2gb", FAKECUDA_BLOCK_BYTES=2 * MIB)
    daemon = make_daemon(gpu=gpu).start()
    session = on(daemon, "0:1", 512 * MIB)
    program = start(environment_of(daemon, session))
    program.do("context()")
    assert program.do("alloc(1000)")[0] == 0
    wait_for(lambda: sampled(daemon, session)["driver_bytes"] == 2 * MIB - 1024, "the slack to be seen")
    assert program.do("info()") == [0, 510 * MIB, 512 * MIB]


def test_a_session_on_an_instance_outlives_the_daemon(daemon, start):  # noqa: F811
    session = on(daemon, "0:1", 64 * MIB)
    program = start(environment_of(daemon, session))
    program.do("context()")
    assert program.do(f"alloc({40 * MIB})")[0] == 0
    daemon.kill()
    daemon.start()
    again = daemon.session(session["session_id"])
    assert again["gpus"][0]["uuid"] == session["gpus"][0]["uuid"]
    assert (again["gpus"][0]["index"], again["gpus"][0]["mig_index"]) == (0, 1)
    assert again["used_bytes"] == 40 * MIB
