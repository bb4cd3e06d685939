"""gpuslice run: the program is itself in all that others see of it, and leaves nothing behind."""
import json
import os
import signal
import subprocess

import pytest

from conftest import MIB, wait_for


def sessions(daemon):
    return json.loads(daemon.cli("list", "--json").stdout)


def run(daemon, *words, **options):
    return daemon.cli("run", "--memory", "1MiB", "--", *words, check=False, **options)


@pytest.mark.parametrize("status", [0, 1, 2, 42, 255])
def test_the_status_is_the_programs_own(daemon, status):
    assert run(daemon, "sh", "-c", f"exit {status}").returncode == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGSEGV])
def test_death_by_a_signal_is_the_programs_own(daemon, number):
    assert run(daemon, "sh", "-c", f"kill -{int(number)} $$").returncode == -number


def test_a_signal_reaches_the_program(daemon, reap):
    program = reap(daemon.spawn("run", "--", "sh", "-c", "trap 'echo caught; exit 3' TERM; echo ready; read x"))
    assert program.stdout.readline() == "ready\n"
    program.send_signal(signal.SIGTERM)
    assert program.stdout.readline() == "caught\n"
    assert program.wait(20) == 3


def test_the_pid_is_the_programs_own(daemon, reap):
    program = reap(daemon.spawn("run", "--", "sh", "-c", "echo $$; exec sleep 60"))
    assert int(program.stdout.readline()) == program.pid
    wait_for(lambda: os.readlink(f"/proc/{program.pid}/exe").endswith("/sleep"), "sleep to run")


def test_a_command_that_is_not_there_ends_with_127_and_leaves_no_session(daemon):
    for word in ("no-such-command", "/no/such/command"):
        result = run(daemon, word)
        assert result.returncode == 127
        assert result.stderr == (f"gpuslice: cannot run '{word}': No such file or directory; "
                                 "expected a program in PATH or a path to one\n")
    wait_for(lambda: sessions(daemon) == [], "the sessions to end")


def test_a_command_that_cannot_be_run_ends_with_126_and_leaves_no_session(daemon, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    for word in (script, tmp_path):
        assert run(daemon, word).returncode == 126
    wait_for(lambda: sessions(daemon) == [], "the sessions to end")


def test_the_session_ends_with_the_program(daemon, reap):
    program = reap(daemon.spawn("run", "--name", "mine", "--memory", "3MiB", "--", "cat"))
    wait_for(lambda: [s["name"] for s in sessions(daemon)] == ["mine"], "the session")
    assert daemon.session("mine")["vram_limit_bytes"] == 3 * MIB
    program.kill()
    wait_for(lambda: sessions(daemon) == [], "the session to end")


def test_a_session_of_create_outlives_its_runs(daemon):
    session_id = daemon.cli("create", "--name", "kept").stdout.strip()
    for _ in range(2):
        assert daemon.cli("run", "--session", "kept", "sh", "-c", "echo $GPUSLICE_SESSION").stdout.strip() == session_id
    assert [s["session_id"] for s in sessions(daemon)] == [session_id]


def test_the_program_sees_its_session_and_the_interceptor(daemon, product):
    environment = dict(line.split("=", 1) for line in run(daemon, "env").stdout.splitlines() if "=" in line)
    assert environment["LD_PRELOAD"] == str(product.interceptor)
    assert environment["LD_LIBRARY_PATH"] == str(product.simulated)
    assert environment["GPUSLICE_IPC_SOCK"] == str(daemon.attach_socket)
    assert environment["CUDA_VISIBLE_DEVICES"].startswith("GPU-")
    assert len(environment["GPUSLICE_SESSION"]) == 12


def test_what_was_preloaded_stays_also_in_a_run_within_a_run(daemon, product):
    own = "libc.so.6"
    result = run(daemon, product.gpuslice, "run", "--", "sh", "-c", "echo $LD_PRELOAD; echo $LD_LIBRARY_PATH",
                 env={**daemon.environment(), "LD_PRELOAD": own, "LD_LIBRARY_PATH": "/nowhere"})
    assert result.stdout.splitlines() == [f"{product.interceptor}:{own}", f"{product.simulated}:/nowhere"]


def test_a_run_within_a_run_is_in_a_session_of_its_own(daemon, product):
    result = run(daemon, "sh", "-c", f"echo $GPUSLICE_SESSION; {product.gpuslice} run sh -c 'echo $GPUSLICE_SESSION'")
    outer, inner = result.stdout.split()
    assert outer != inner


def test_descriptors_and_signals_are_as_the_caller_left_them(daemon):
    script = "ls /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status"
    outside = subprocess.run(["sh", "-c", script], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    assert run(daemon, "sh", "-c", script).stdout == outside


def test_the_simulated_gpu_is_never_chosen_by_itself(daemon):
    if any(os.path.exists(path) for path in ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg")):
        pytest.skip("this machine has an NVIDIA driver")
    for words in (["run", "true"], ["create"]):
        result = daemon.cli(*words, check=False, env={**daemon.environment(), "GPUSLICE_SIMULATED": "0"})
        assert (result.returncode, result.stderr) == (
            1, "gpuslice: there is no NVIDIA driver here (no /dev/nvidiactl); 'gpuslice doctor' says more; --simulated runs on a "
            "simulated GPU\n")
