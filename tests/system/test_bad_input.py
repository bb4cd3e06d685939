"""What is asked wrongly gets one line that says what was wrong, the right status, and changes nothing."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from attach_client import Client, Refused
from conftest import MIB, wait_for
from test_quota import OUT_OF_MEMORY, in_session, start  # noqa: F401 - a fixture


def line_of(result, status, program="gpuslice"):
    """The one line on stderr, without the program's name."""
    assert (result.returncode, result.stdout) == (status, ""), result
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"{program}: "), result.stderr
    return lines[0].removeprefix(f"{program}: ")


def refused(daemon, *arguments, status=1, **options):
    return line_of(daemon.cli(*arguments, check=False, **options), status)


@pytest.fixture
def kept(daemon):
    """A daemon with a session that must stay as it is."""
    daemon.cli("create", "--name", "kept", "--memory", "3MiB", "--compute", "20%..60%")
    before = daemon.cli("list", "--json").stdout
    yield daemon
    assert daemon.cli("list", "--json").stdout == before


SIZES = ["0", "-1", "12XB", "1e30", "", "abc", "18446744073709551616", "16EiB", " 1GiB", "1GiB ", "0x10", "1,5GiB", "1\nGiB",
         "1\x1b[2J", "٣", "9" * 400, "1=1GiB,", "=1GiB", "0=0"]
SHARES = ["0.25", "0%", "101%", "-1%", "60%..20%", "20%..", "..60%", "20%..101%", "0%..0%", "12.345%", "abc", "", "%", "1e1%",
          "9" * 400 + "%", "20%...60%", "25%\n"]


@pytest.mark.parametrize("option, words", [("--memory", SIZES), ("--compute", SHARES)], ids=["sizes", "shares"])
def test_invalid_sizes_and_shares(kept, option, words):
    for word in words:
        for verb in (["create"], ["set", "kept"], ["run"]):
            command = ["true"] if verb == ["run"] else []
            line = refused(kept, *verb, option, word, *command, status=2)
            assert "; see 'gpuslice " in line


@pytest.mark.parametrize("value", ["0", "-5", "1.5h", "5x", "", "366000d", "soon"])
def test_invalid_durations(kept, value):
    for option in ("--ttl", "--wait"):
        refused(kept, "create", f"{option}={value}", status=2)


@pytest.mark.parametrize("word", ["a/b/c/d", "../sessions", "/", "..//", "a b", "", "a\nb", "%2e%2e", "x" * 300, "?a=b", "ü"])
def test_invalid_ids(kept, word):
    for verb in (["show"], ["release"], ["set", "--memory", "1MiB"], ["run", "--session"]):
        command = ["true"] if verb[0] == "run" else []
        refused(kept, *verb, word, *command, status=2)


@pytest.mark.parametrize("word", ["..", "nobody", "ffffffffffff", "x" * 63, "a/b"])
def test_ids_of_no_session(kept, word):
    for verb in (["show"], ["release"], ["set", "--memory", "1MiB"], ["run", "--session"]):
        command = ["true"] if verb[0] == "run" else []
        assert word in refused(kept, *verb, word, *command)


def test_an_expired_session_takes_no_program(daemon, product, reap):
    session = daemon.cli("create", "--name", "short", "--memory", "256MiB", "--ttl", "1s").stdout.strip()
    program = reap(daemon.spawn("run", "--session", "short", product.program("target_app"),
                                env=daemon.environment(ALLOC_BYTES=MIB, ITERATIONS=1, HOLD="stdin")))
    wait_for(lambda: daemon.session("short")["state"] == "expired", "the session to expire under its program")
    before = daemon.session("short")
    assert "has expired" in refused(daemon, "run", "--session", session, product.program("target_app"))
    assert [process["pid"] for process in daemon.session("short")["processes"]] == [program.pid]
    assert daemon.session("short")["used_bytes"] == before["used_bytes"]


def test_a_program_of_a_session_that_has_ended_is_not_told_to_start_a_daemon(daemon, start):  # noqa: F811
    environment = in_session(daemon, daemon.request("POST", "/v1/sessions", {"name": "gone"})[1])
    daemon.cli("release", "gone")
    puppet = start(environment, context=False)
    assert puppet.code("context", 0) == OUT_OF_MEMORY
    said = puppet.end()
    assert "was released or has ended" in said and "start it again by 'gpuslice run'" in said and "daemon" not in said


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")
def test_another_users_session_is_out_of_reach(kept):
    for path in (kept.folder, kept.runtime, kept.runtime / "simulated"):
        path.chmod(0o755)
    kept.control_socket.chmod(0o666)
    session = kept.session("kept")["session_id"]
    for verb in (["show"], ["release"], ["set", "--memory", "1MiB"], ["run", "--session"]):
        command = ["true"] if verb[0] == "run" else []
        assert "another user" in refused(kept, *verb, session, *command, user=12345, extra_groups=[])
        refused(kept, *verb, "kept", *command, user=12345, extra_groups=[])  # a name tells nothing


@pytest.mark.parametrize("command, status", [
    (["fly"], 2), ([], 2), (["run"], 2), (["run", "--"], 2), (["--fly"], 2), (["show", "kept", "twice"], 2),
    (["run", "--gpu", "7", "true"], 1), (["create", "--gpu", "GPU-ffff"], 1), (["create", "--gpu", "x" * 300], 2),
    (["run", "/nonexistent/command"], 127), (["run", "/etc/passwd"], 126), (["run", "/"], 126),
    (["create", "--memory", "7PiB"], 1), (["create", "--name", "kept"], 1), (["create", "--name", "x" * 64], 2),
], ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "")
def test_commands_that_cannot_be(kept, command, status):
    refused(kept, *command, status=status)


def test_a_socket_path_that_is_too_long_is_named_with_what_to_do(make_daemon, tmp_path):
    daemon = make_daemon()
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    environment = daemon.environment()
    environment["GPUSLICE_RUNTIME_DIR"] = str(folder)
    assert "GPUSLICE_RUNTIME_DIR" in refused(daemon, "list", env=environment)
    result = subprocess.run([daemon.product.gpusliced, "--simulated"], env=environment, capture_output=True, text=True,
                            timeout=60)
    assert "GPUSLICE_RUNTIME_DIR" in line_of(result, 1, "gpusliced")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--nonsense"], ["--idle-exit"], ["--idle-exit", "x"], ["--simulated=1"], ["word"]],
                         ids=" ".join)
def test_gpusliced_says_in_one_line_what_it_does_not_know(product, arguments):
    result = subprocess.run([product.gpusliced, *arguments], capture_output=True, text=True, timeout=60)
    line_of(result, 2, "gpusliced")


@pytest.mark.parametrize("variable", ["GPUSLICE_RUNTIME_DIR", "GPUSLICE_STATE_DIR"])
def test_a_folder_that_cannot_be_made_is_named(make_daemon, tmp_path, variable):
    daemon = make_daemon()
    (tmp_path / "file").write_text("")
    environment = {**daemon.environment(), variable: str(tmp_path / "file" / "folder")}
    result = subprocess.run([daemon.product.gpusliced, "--simulated"], env=environment, capture_output=True, text=True,
                            timeout=60)
    assert str(tmp_path / "file") in line_of(result, 1, "gpusliced")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def fill(folder):
    """Take what is left on the disk. Returns the file that does."""
    path = folder / "filler"
    with open(path, "wb", buffering=0) as file:
        for block in (65536, 4096, 1):
            try:
                while file.write(b"\0" * block) == block:
                    pass
            except OSError:
                pass
    return path


def test_a_full_disk_for_ledgers_refuses_the_process_and_harms_no_other(make_daemon, small_disk):
    daemon = make_daemon()
    daemon.use_runtime(small_disk("run", 4))
    daemon.start()
    first, second = (daemon.cli("create", "--memory", "1MiB").stdout.strip() for _ in range(2))
    attached = Client(daemon.attach_socket).attach(first)
    filler = fill(daemon.runtime)
    with pytest.raises(Refused, match="No space left on device"):
        Client(daemon.attach_socket).attach(second, map_it=False)
    attached.hold(4096)  # a page that was set aside for it
    assert daemon.session(first)["used_bytes"] == 4096
    assert (daemon.session(second)["state"], daemon.session(second)["processes"]) == ("active", [])
    filler.unlink()
    Client(daemon.attach_socket).attach(second, map_it=False).close()
    attached.close()


def test_a_program_that_fills_the_disk_of_ledgers_keeps_nobody_out(make_daemon, small_disk):
    """By its usage file: it makes that longer than the disk, or writes where its session has no GPU."""
    daemon = make_daemon()
    daemon.use_runtime(small_disk("run", 16))
    daemon.start()
    names = [daemon.cli("create", "--memory", "1MiB").stdout.strip() for _ in range(12)]
    fillers = [Client(daemon.attach_socket).attach(name) for name in names[:3]]
    try:
        for name in names[3:]:
            daemon.process.send_signal(signal.SIGSTOP)  # lest it looks before the disk is full
            os.waitid(os.P_PID, daemon.process.pid, os.WSTOPPED)
            for filler in fillers[1:]:
                with contextlib.suppress(OSError):
                    os.posix_fallocate(filler.fds[1], 0, filler.usage_bytes)
            with contextlib.suppress(OSError):
                os.posix_fallocate(fillers[0].fds[1], fillers[0].usage_bytes, 64 * MIB)
            at = fillers[0].usage_bytes
            with contextlib.suppress(OSError):  # up to the last page
                while os.pwrite(fillers[0].fds[1], b"x", at):
                    at += 4096
            assert os.statvfs(daemon.runtime).f_bavail == 0
            daemon.process.send_signal(signal.SIGCONT)
            Client(daemon.attach_socket).attach(name, map_it=False).close()
        wait_for(lambda: all(os.fstat(filler.fds[1]).st_blocks * 512 < MIB for filler in fillers), "all to be taken back")
    finally:
        for filler in fillers:
            filler.close()


def test_a_full_disk_takes_ends_and_lets_the_daemon_start(make_daemon, small_disk):
    daemon = make_daemon()
    daemon.state = small_disk("state", 2)
    daemon.more["GPUSLICE_STATE_DIR"] = str(daemon.state)
    daemon.start()
    for number in range(3):
        daemon.cli("create", "--name", f"s{number}", "--memory", "1MiB")
    fill(daemon.state)
    for number in range(200):  # until SQLite's own room in the file is used up
        if daemon.cli("create", "--name", f"late{number}", "--memory", "1B", check=False).returncode:
            break
    else:
        pytest.fail("the disk is not full")
    assert daemon.request("DELETE", "/v1/sessions/s0")[0] == 204
    assert daemon.request("DELETE", "/v1/sessions/s1")[0] == 204
    daemon.kill()
    daemon.start()
    names = {session["name"] for session in json.loads(daemon.cli("list", "--json").stdout)}
    assert "s2" in names and not names & {"s0", "s1"}


def test_a_full_disk_for_the_state_file_makes_no_session_and_none_is_lost(make_daemon, small_disk):
    daemon = make_daemon()
    daemon.state = small_disk("state", 2)
    daemon.more["GPUSLICE_STATE_DIR"] = str(daemon.state)
    daemon.start()
    daemon.cli("create", "--name", "kept", "--memory", "1MiB")
    before = daemon.cli("list", "--json").stdout
    filler = fill(daemon.state)
    for number in range(200):  # until SQLite's own room in the file is used up
        result = daemon.cli("create", "--name", f"late{number}", "--memory", "1B", check=False)
        if result.returncode:
            break
    assert "cannot store the session; it was not made" in line_of(result, 1)
    names = {session["name"] for session in json.loads(daemon.cli("list", "--json").stdout)}
    assert f"late{number}" not in names
    assert daemon.request("GET", "/healthz")[0] == 200
    wait_for(lambda: "history.unwritten" in daemon.request("GET", "/v1/events?follow=false")[1],
             "the history to say that it cannot be written")
    filler.unlink()
    daemon.kill()
    daemon.start()
    assert {session["name"] for session in json.loads(daemon.cli("list", "--json").stdout)} == names
    assert json.loads(before)[0]["session_id"] == daemon.session("kept")["session_id"]
    daemon.cli("create", "--name", "late", "--memory", "1MiB")
