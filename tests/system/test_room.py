"""What the driver keeps for itself is nobody's room: it is promised to no session, and programs that do not fit beside it take
turns."""
import socket
import subprocess

import pytest

from conftest import MIB, has_words, read_answer, wait_for

KEPT = {"default": 0, "h100": 551 * MIB, "t4": 262406144}
# What NVML may say of what the driver keeps: all of it; nothing; the call fails; the driver is older than the call.
NVML = {"says": {}, "silent": {"FAKECUDA_NVML_NO_RESERVED": 1}, "fails": {"FAKECUDA_NVML_NO_RESERVED": 2},
        "old": {"FAKECUDA_DRIVER_VERSION": "470.57.02"}}


def gpus(daemon):
    return daemon.request("GET", "/v1/gpus")[1]


@pytest.fixture
def begin(make_daemon, make_gpu):
    """begin(CARD, ...): a daemon whose card has 512 MiB for programs and looks like that one."""
    def make(card, **settings):
        settings = {"FAKECUDA_DEVICE": card, "FAKECUDA_TOTAL_MEM": 512 * MIB, **settings}
        return make_daemon(make_gpu(**settings)).start()
    return make


def take(daemon, reap, name, *what, options=("--oversubscribe",), memory="320MiB", **more):
    return reap(daemon.spawn("run", "--name", name, "--memory", memory, *options, "--", daemon.product.program("taker"), *map(str, what),
                             env=daemon.environment(**more)))


def hear(process):
    assert has_words(process.stdout, 60)
    return process.stdout.readline().split()


def assert_all_have(processes, bytes_wanted):
    """Each has got what it asked for, by turns, and what it wrote there."""
    for process in processes:
        got = hear(process)
        assert (got[0], got[2:]) == ("got", ["0"]) and int(got[1]) >= bytes_wanted, got
        process.stdin.write("check\n")
        process.stdin.flush()
    for process in processes:
        assert hear(process) == ["good"]
        process.stdin.close()
    for process in processes:
        assert process.wait(20) == 0


@pytest.mark.parametrize("nvml", [how if how != "old" else pytest.param(how, marks=pytest.mark.long) for how in NVML])
@pytest.mark.parametrize("card", ["h100", "t4"])
def test_what_the_driver_keeps_is_promised_to_nobody(begin, card, nvml):
    daemon = begin(card, **NVML[nvml])
    gpu = gpus(daemon)[0]
    assert (gpu["total_bytes"], gpu["kept_bytes"], gpu["used_bytes"], gpu["free_bytes"]) == (512 * MIB, KEPT[card], 0, 512 * MIB)
    assert gpu["unreserved_bytes"] == 512 * MIB
    daemon.cli("create", "--memory", "50%", "--name", "half")
    assert daemon.session("half")["gpus"][0]["limit_bytes"] == 256 * MIB
    refused = daemon.cli("create", "--memory", "300MiB", check=False)
    assert refused.returncode == 1 and "does not fit" in refused.stderr and "that the driver keeps for itself" in refused.stderr
    refused = daemon.cli("create", "--memory", "600MiB", check=False)
    assert refused.returncode == 1 and "is more than GPU 0 has (512MiB, " in refused.stderr
    assert "that the driver keeps for itself" in refused.stderr
    daemon.cli("create", "--memory", "256MiB", "--name", "rest")
    assert gpus(daemon)[0]["unreserved_bytes"] == 0


def test_what_the_driver_keeps_is_shown(begin):
    daemon = begin("h100")
    head, row = daemon.cli("gpus").stdout.splitlines()
    assert "DRIVER" in head and "512MiB" in row and "551MiB" in row
    assert f'gpuslice_gpu_memory_kept_bytes{{gpu="0",UUID="{gpus(daemon)[0]["uuid"]}"}} {551 * MIB}' in daemon.request("GET", "/metrics")[1]


def test_what_the_probe_finds_is_kept_for_the_next_daemon(make_daemon, make_gpu):
    """Of a real card, as which this daemon takes the simulated one."""
    daemon = make_daemon(make_gpu(FAKECUDA_DEVICE="h100", FAKECUDA_TOTAL_MEM=512 * MIB, FAKECUDA_CONTEXT_BYTES=32 * MIB,
                                  FAKECUDA_NVML_NO_RESERVED=1))
    for probes in (1, 0):
        with daemon.as_on_a_card(), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(daemon.runtime / "control.sock"))
            connection.sendall(b"GET /v1/gpus HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            gpu = read_answer(connection)[1][0]
        assert (gpu["total_bytes"], gpu["kept_bytes"], gpu["context_bytes"]) == (512 * MIB, KEPT["h100"], 32 * MIB)
        assert daemon.log_text().count("a context on GPU 0 costs") == probes


def test_a_mig_instance_keeps_nothing(make_daemon, make_gpu):
    daemon = make_daemon(make_gpu(FAKECUDA_DEVICE="h100", FAKECUDA_GPUS=2, FAKECUDA_TOTAL_MEM=1024 * MIB, FAKECUDA_MIG="1g.10gb")).start()
    assert [(gpu["total_bytes"], gpu["kept_bytes"]) for gpu in gpus(daemon)] == [(128 * MIB, 0), (1024 * MIB, KEPT["h100"])]


def test_what_two_sessions_were_promised_they_get(begin, reap):
    daemon = begin("h100", FAKECUDA_CONTEXT_BYTES=32 * MIB)
    first, second = (take(daemon, reap, name, "linear", want * MIB, 2 * MIB, options=(), memory=f"{want + 32}MiB")
                     for name, want in (("one", 288), ("two", 160)))
    assert_all_have([first], 288 * MIB)
    assert_all_have([second], 160 * MIB)


# Parts as PyTorch takes them, one that takes the rest of a card, and sizes by chance.
@pytest.mark.parametrize("card, nvml, engine, what", [
    ("h100", "says", "swap", ("linear", 256 * MIB, 2 * MIB)),
    ("h100", "says", "swap", ("linear", 256 * MIB, 256 * MIB)),
    ("h100", "silent", "swap", ("physical", 256 * MIB, 20 * MIB)),
    ("h100", "says", "managed", ("linear", 256 * MIB, 2 * MIB)),
    ("t4", "says", "swap", ("in-turn", 256 * MIB, 3 * MIB, 11)),
    *(pytest.param(*case, marks=pytest.mark.long) for case in [
        ("h100", "says", "swap", ("linear", 256 * MIB, 20 * MIB)),
        ("h100", "old", "swap", ("linear", 256 * MIB, 2 * MIB)),
        ("h100", "says", "swap", ("physical", 256 * MIB, 2 * MIB)),
        ("h100", "says", "swap", ("async", 256 * MIB, 2 * MIB)),
        ("h100", "says", "swap", ("in-turn", 256 * MIB, 12 * MIB, 7)),
        ("default", "says", "swap", ("in-turn", 256 * MIB, 30 * MIB, 13)),
    ])])
def test_programs_that_do_not_fit_beside_what_the_driver_keeps_take_turns(begin, reap, card, nvml, engine, what):
    daemon = begin(card, FAKECUDA_CONTEXT_BYTES=32 * MIB, **NVML[nvml])
    # Parts of more than 1 MiB take whole extents of 2 MiB, and count so.
    assert_all_have([take(daemon, reap, name, *what, options=(f"--oversubscribe={engine}",), memory="400MiB") for name in "ab"], 256 * MIB)


def test_three_sessions_take_turns_on_each_of_two_gpus(begin, reap):
    daemon = begin("h100", FAKECUDA_GPUS=2, FAKECUDA_CONTEXT_BYTES=32 * MIB)
    assert_all_have([take(daemon, reap, f"s{number}", "in-turn", 160 * MIB, (number + 1) * 4 * MIB, number + 1, memory="256MiB",
                          options=("--oversubscribe", "--gpu", str(number % 2))) for number in range(6)], 160 * MIB)


def test_programs_take_turns_on_a_mig_instance(make_daemon, make_gpu, reap):
    daemon = make_daemon(make_gpu(FAKECUDA_DEVICE="h100", FAKECUDA_TOTAL_MEM=4096 * MIB, FAKECUDA_MIG="1g.10gb,1g.10gb",
                                  FAKECUDA_CONTEXT_BYTES=32 * MIB)).start()
    assert_all_have([take(daemon, reap, name, "linear", 256 * MIB, 2 * MIB, options=("--oversubscribe", "--gpu", "0:0")) for name in "ab"],
                    256 * MIB)


@pytest.mark.parametrize("part", [64 << 10, 144 * MIB, *(pytest.param(part * MIB, marks=pytest.mark.long) for part in (2, 20))])
def test_the_driver_s_refusal_is_a_need_for_room_whatever_the_daemon_believes(begin, reap, product, part):
    """NVML does not tell what a program outside of sessions has, so by the daemon's figures there is room."""
    daemon = begin("h100", FAKECUDA_NVML_NO_FIGURES=2, FAKECUDA_CONTEXT_BYTES=0)
    outsider = reap(subprocess.Popen([product.program("taker"), "linear", str(320 * MIB), str(2 * MIB)], text=True, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=daemon.gpu.environment()))
    assert hear(outsider) == ["got", str(320 * MIB), "0"]
    assert_all_have([take(daemon, reap, name, "linear", 144 * MIB, part) for name in "ab"], 144 * MIB)
    outsider.kill()
