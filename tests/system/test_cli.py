"""The command line over a running daemon: sessions made, shown, changed and ended; what is refused changes nothing."""
import json
import os
import subprocess
import time

import pytest

from conftest import GIB, MIB, wait_for
from test_quota import start  # noqa: F401 - a fixture


def sessions(daemon):
    return json.loads(daemon.cli("list", "--json").stdout)


def refused(daemon, *arguments, status=1, **options):
    """The one line that `gpuslice ARGUMENTS` refuses with."""
    result = daemon.cli(*arguments, check=False, **options)
    assert result.returncode == status, result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("gpuslice: "), result.stderr
    return lines[0].removeprefix("gpuslice: ")


def test_create_prints_the_id_of_a_session_with_the_limit_asked_for(daemon):
    session_id = daemon.cli("create", "--name", "train", "--memory", "256MiB").stdout.strip()
    assert len(session_id) == 12 and int(session_id, 16) >= 0
    session = daemon.session("train")
    assert session["session_id"] == session_id
    assert session["gpus"][0]["limit_bytes"] == 256 * MIB


def test_create_json_is_the_session(daemon):
    session = json.loads(daemon.cli("create", "--json", "--memory=1048577").stdout)
    assert session["vram_limit_bytes"] == 1048577
    assert [s["session_id"] for s in sessions(daemon)] == [session["session_id"]]


def test_gpus_can_be_set_apart(make_daemon, make_gpu):
    daemon = make_daemon(make_gpu(FAKECUDA_GPUS=3)).start()
    uuid = json.loads(daemon.cli("gpus", "--json").stdout)[2]["uuid"]
    daemon.cli("create", "--name", "a", "--gpu", "0", "--gpu", uuid[:16], "--memory", f"0=3MiB,{uuid[:16]}=5MiB")
    assert {g["index"]: g["limit_bytes"] for g in daemon.session("a")["gpus"]} == {0: 3 * MIB, 2: 5 * MIB}
    daemon.cli("create", "--name", "b", "--memory", "1=7MiB")
    assert {g["index"]: g["limit_bytes"] for g in daemon.session("b")["gpus"]} == {1: 7 * MIB}


def test_gpus_may_be_a_list(make_daemon, make_gpu):
    daemon = make_daemon(make_gpu(FAKECUDA_GPUS=4)).start()
    daemon.cli("create", "--name", "a", "--gpu", "0,2", "--gpu", "3")
    assert sorted(g["index"] for g in daemon.session("a")["gpus"]) == [0, 2, 3]
    for wrong in ("0,", ",0", "0,,1", "0,0"):
        refused(daemon, "create", "--gpu", wrong, status=2)


def test_without_gpu_those_of_cuda_visible_devices_count(make_daemon, make_gpu):
    daemon = make_daemon(make_gpu(FAKECUDA_GPUS=3)).start()
    daemon.cli("create", "--name", "a", env=daemon.environment(CUDA_VISIBLE_DEVICES="2,0"))
    assert sorted(g["index"] for g in daemon.session("a")["gpus"]) == [0, 2]
    line = refused(daemon, "create", env=daemon.environment(CUDA_VISIBLE_DEVICES="-1"))
    assert "CUDA_VISIBLE_DEVICES is '-1', which hides every GPU" in line
    assert len(sessions(daemon)) == 1


def test_the_other_names_of_verbs_do_the_same(daemon):
    daemon.cli("create", "--memory", "1MiB")
    assert daemon.cli("ps").stdout == daemon.cli("list").stdout


def test_ids_their_beginnings_and_names_find_a_session(daemon):
    session_id = daemon.cli("create", "--name", "train").stdout.strip()
    for word in (session_id, session_id[:11], "train"):
        assert json.loads(daemon.cli("show", "--json", word).stdout)["session_id"] == session_id


def test_set_changes_limit_and_name(daemon):
    daemon.cli("create", "--name", "old", "--memory", "1MiB")
    daemon.cli("set", "old", "--memory", "2MiB", "--name", "new")
    assert daemon.session("new")["vram_limit_bytes"] == 2 * MIB
    assert json.loads(daemon.cli("set", "new", "--memory", "0=3MiB", "--json").stdout)["vram_limit_bytes"] == 3 * MIB


def test_a_share_and_a_priority_are_given_shown_and_changed(daemon):
    def facts():
        session = daemon.session("a")
        return session["compute_min_ratio"], session["compute_max_ratio"], session["priority"]

    daemon.cli("create", "--name", "a")
    assert facts() == (0, 1, "normal")
    daemon.cli("set", "a", "--compute", "20%..62.5%", "--priority", "high")
    assert facts() == (0.2, 0.625, "high")
    assert "20%..62.5%" in daemon.cli("show", "a").stdout
    assert "20%..62.5%" in daemon.cli("list").stdout
    daemon.cli("set", "a", "--compute", "25%")
    assert facts() == (0.25, 0.25, "high")
    daemon.stop()
    daemon.start()
    assert facts() == (0.25, 0.25, "high")


def test_a_share_needs_no_percent_sign_where_it_can_only_be_one(daemon):
    daemon.cli("create", "--name", "a", "--compute", "25")
    daemon.cli("create", "--name", "b", "--compute", "20..60")
    assert [daemon.session(name)["compute_max_ratio"] for name in "ab"] == [0.25, 0.6]
    assert "'0.25' is not a share; write a percentage" in refused(daemon, "set", "a", "--compute", "0.25", status=2)


def test_json_has_numbers_as_short_as_they_are(daemon):
    daemon.cli("create", "--name", "a", "--compute", "12.34%")
    rows = json.loads(daemon.cli("scheduler", "--tunables", "--json").stdout)
    assert {"name": "NEEDY_NS", "value": 40000000.0, "unit": "ns"}.items() <= next(row for row in rows if row["name"] == "NEEDY_NS").items()
    assert all(row["source"] in ("ASSUMED", "SIMULATED", "CARD", "USERS") and row["text"] for row in rows)
    assert "NEEDY_NS " in daemon.cli("scheduler", "--tunables").stdout
    daemon.cli("scheduler", "--quantum", "29ms")
    assert '"quantum_seconds": 0.029,' in daemon.cli("scheduler", "--json").stdout
    assert '"compute_min_ratio": 0.1234,' in daemon.cli("show", "a", "--json").stdout


def test_set_gives_a_session_another_end(daemon):
    daemon.cli("create", "--name", "a", "--ttl", "1h")
    before = daemon.session("a")["expires_at"]
    daemon.cli("set", "a", "--ttl", "2h")
    assert daemon.session("a")["expires_at"] > before
    daemon.stop()
    daemon.start()
    assert daemon.session("a")["expires_at"] > before
    daemon.cli("set", "a", "--ttl", "never")
    assert daemon.session("a")["expires_at"] is None
    daemon.cli("set", "a", "--ttl", "1s")
    wait_for(lambda: sessions(daemon) == [], "its end")


def test_minimum_shares_beyond_the_whole_are_refused(make_daemon, make_gpu):
    daemon = make_daemon(make_gpu(FAKECUDA_GPUS=2)).start()
    daemon.cli("create", "--gpu", "0", "--compute", "60%")
    daemon.cli("create", "--gpu", "0", "--name", "b", "--compute", "30%..100%")
    assert "ERR" not in (line := refused(daemon, "create", "--gpu", "0", "--compute", "10.01%"))
    assert "leaves 10%" in line
    assert "leaves 40%" in refused(daemon, "set", "b", "--compute", "41%")
    assert daemon.session("b")["compute_min_ratio"] == 0.3
    daemon.cli("set", "b", "--compute", "40%")
    daemon.cli("create", "--gpu", "1", "--compute", "100%")


def test_release_ends_each_session_named_also_behind_an_unknown_one(daemon):
    for name in "abc":
        daemon.cli("create", "--name", name)
    result = daemon.cli("release", "a", "nobody", "b", check=False)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1 and "nobody" in result.stderr
    assert [s["name"] for s in sessions(daemon)] == ["c"]


def test_list_is_a_table_that_says_what_is_used(daemon):
    assert daemon.cli("list").stdout == "no sessions; 'gpuslice run' and 'gpuslice create' make one\n"
    first = daemon.cli("create", "--name", "a-long-name", "--memory", "256MiB").stdout.strip()
    second = daemon.cli("create", "--memory", "1536KiB").stdout.strip()
    assert daemon.cli("list").stdout.splitlines() == [
        "ID            SESSION      STATUS  GPU  MEMORY        USED / LIMIT  COMPUTE  TIME  PROCS",
        f"{first}  a-long-name  idle      0  [..........]   0B / 256MiB        -     -      0",
        f"{second}  -            idle      0  [..........]   0B / 1.5MiB        -     -      0",
    ]


def test_list_is_sorted_and_has_the_columns_that_are_asked_for(daemon):
    for name in "b", "c", "a":
        daemon.cli("create", "--name", name, "--memory", "64MiB")
    assert daemon.cli("list", "--sort", "session", "--columns", "used,session").stdout.splitlines() == [
        "USED / LIMIT  SESSION", "  0B / 64MiB  a", "  0B / 64MiB  b", "  0B / 64MiB  c"]
    assert daemon.cli("list", "--sort", "created", "-o", "name").stdout.split() == ["b", "c", "a"]
    for words, told in ((("--columns", "sessions"), "there is no column 'sessions'"), (("--columns", "held"), "list has no column 'held'"),
                        (("--sort", "size"), "cannot sort by 'size'")):
        failed = daemon.cli("list", *words, check=False)
        assert failed.returncode == 2 and told in failed.stderr


def test_list_and_show_follow_a_program(daemon, product, reap):
    daemon.cli("create", "--name", "train", "--memory", "256MiB")
    program = reap(daemon.spawn("run", "--session", "train", product.program("target_app"),
                                env=daemon.environment(ALLOC_BYTES=128 * MIB, ITERATIONS=3, HOLD="stdin")))
    wait_for(lambda: daemon.session("train")["used_bytes"] == 256 * MIB, "two allocations to be charged")
    wait_for(lambda: daemon.session("train")["processes"][0]["denied_allocations"] == 1, "the third to be refused")
    assert "[##########]  256MiB / 256MiB        -     -      1" in daemon.cli("list").stdout
    shown = daemon.cli("show", "train").stdout.splitlines()
    row = next(line for line in shown if " target_app " in line and " UTC" in line).split()
    assert any(f"process {program.pid} " in line for line in shown[-5:])  # its last events
    assert row[:4] == [str(program.pid), "target_app", "256MiB", "1"]
    program.stdin.close()
    assert program.wait(20) == 0
    wait_for(lambda: daemon.session("train")["used_bytes"] == 0, "the bytes to be back")


def test_gpus_is_a_table_of_the_cards(make_daemon, make_gpu):
    daemon = make_daemon(make_gpu(FAKECUDA_GPUS=2)).start()
    daemon.cli("create", "--gpu", "1", "--memory", "256MiB")
    cards = json.loads(daemon.cli("gpus", "--json").stdout)
    assert [card["reserved_bytes"] for card in cards] == [0, 256 * MIB]
    rows = daemon.cli("gpus").stdout.splitlines()
    assert rows[0].split() == "GPU UUID NAME MEMORY USED / TOTAL BUSY TEMP POWER DRIVER OUTSIDE RESERVED SESS".split()
    assert f"  0%   {cards[0]['temperature_celsius']}C    {cards[0]['power_watts']:.0f}W  " in rows[1]
    assert rows[1].split()[:2] == ["0", cards[0]["uuid"][:12]] and rows[1].split()[-2:] == ["0B", "0"]
    assert rows[2].split()[:2] == ["1", cards[1]["uuid"][:12]] and rows[2].split()[-2:] == ["256MiB", "1"]


def test_version_names_the_daemon_that_runs(make_daemon):
    daemon = make_daemon()
    assert daemon.cli("version").stdout.splitlines()[1] == "gpusliced is not running"
    assert json.loads(daemon.cli("version", "--json").stdout)["daemon"] is None
    daemon.start()
    both = json.loads(daemon.cli("version", "--json").stdout)
    assert both["daemon"]["version"] == both["version"]


@pytest.mark.parametrize("arguments", [
    ["create", "--memory", "0"],
    ["create", "--memory", "-1"],
    ["create", "--memory", "12XB"],
    ["create", "--memory", "1e30"],
    ["create", "--memory", ""],
    ["create", "--memory", "abc"],
    ["create", "--memory", "18446744073709551616"],
    ["create", "--memory", "4096"],
    ["create", "--ttl", "8"],
    ["create", "--memory", "0=1GiB,0=2GiB"],
    ["create", "--memory"],
    ["create", "--gpu", "first"],
    ["create", "--gpu", "0", "--memory", "1=1GiB"],
    ["create", "--name", "a b"],
    ["create", "extra"],
    ["run"],
    ["run", "--"],
    ["run", "--memory", "1GiB"],
    ["run", "--memory", "0", "true"],
    ["run", "--compute", "0.25", "true"],
    ["set", "kept", "--ttl", "1500ms"],
    ["set", "kept", "--ttl-action", "stop"],
    ["set", "kept", "--compute", "0%"],
    ["create", "--compute", "50%..101%"],
    ["create", "--priority", "9"],
    ["run", "--session", "kept", "--memory", "1GiB", "true"],
    ["set", "kept"],
    ["set", "kept", "--memory", "0"],
    ["show"],
    ["show", "../sessions"],
    ["release"],
    ["list", "everything"],
    ["completion", "csh"],
    ["fly"],
    ["--strange"],
    [],
], ids=" ".join)
def test_wrong_usage_ends_with_2_and_changes_nothing(daemon, arguments):
    daemon.cli("create", "--name", "kept", "--memory", "3MiB")
    before = daemon.cli("list", "--json").stdout
    line = refused(daemon, *arguments, status=2)
    assert "; see 'gpuslice " in line and line.endswith("--help'")
    assert daemon.cli("list", "--json").stdout == before


@pytest.mark.parametrize("arguments, reason", [
    (["create", "--gpu", "7"], "7"),
    (["create", "--gpu", "GPU-ffffffffffff"], "GPU-ffffffffffff"),
    (["create", "--memory", "2GiB"], ""),
    (["create", "--name", "kept"], "kept"),
    (["run", "--gpu", "7", "true"], "7"),
    (["run", "--session", "nobody", "true"], "nobody"),
    (["show", "nobody"], "nobody"),
    (["show", ".."], ".."),
    (["set", "nobody", "--memory", "1MiB"], "nobody"),
    (["set", "kept", "--memory", "2GiB"], ""),
    (["set", "kept", "--memory", "1=1MiB"], "1"),
    (["release", "nobody"], "nobody"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_what_is_not_there_or_does_not_fit_ends_with_1_and_changes_nothing(daemon, arguments, reason):
    daemon.cli("create", "--name", "kept", "--memory", "3MiB")
    before = daemon.cli("list", "--json").stdout
    assert reason in refused(daemon, *arguments)
    assert daemon.cli("list", "--json").stdout == before


@pytest.mark.parametrize("word, meant", [("lst", "list"), ("crate", "create"), ("relaese", "release"), ("dash", "dashboard")])
def test_a_verb_that_is_nearly_one_is_asked_for(daemon, word, meant):
    assert refused(daemon, word, status=2).startswith(f"'{word}' is not a verb; did you mean {meant}?")


def test_an_option_of_later_versions_is_named(daemon):
    assert refused(daemon, "run", "--teleport", "true", status=2).startswith(
        "'gpuslice run' has no option '--teleport'; expected one of ")


def test_help_needs_no_daemon_and_names_every_option(make_daemon):
    daemon = make_daemon()
    overview = daemon.cli("help").stdout
    verbs = [line.split()[0] for line in overview.splitlines() if line[:2] == "  " and line[2] != " " and "gpuslice" not in line[:12]]
    assert {"run", "create", "list", "show", "set", "suspend", "resume", "release", "gpus", "scheduler", "usage", "history", "top", "dashboard", "events", "doctor", "config", "backup",
            "cdi", "completion", "version",
            "help", "allocate", "status", "run-existing"} == set(verbs)
    for verb in verbs:
        text = daemon.cli(verb, "--help").stdout
        assert text == daemon.cli("help", verb).stdout
        assert "--help" in text
        assert max(map(len, text.splitlines())) <= 80
    assert "--memory SIZE" in daemon.cli("run", "--help").stdout
    assert not daemon.control_socket.exists()


def test_completion_knows_every_option_of_run(make_daemon):
    daemon = make_daemon()
    for shell in ("bash", "zsh", "fish"):
        script = daemon.cli("completion", shell).stdout
        for option in ("name", "gpu", "memory", "session", "simulated", "help"):
            assert f"-l {option}" in script if shell == "fish" else f"--{option}" in script


def test_what_needs_a_session_starts_no_daemon(make_daemon):
    daemon = make_daemon()
    for arguments in (["list", "--watch"], ["show", "a"], ["set", "a", "--memory", "1MiB"], ["release", "a", "b"],
                      ["run", "--session", "a", "true"]):
        assert refused(daemon, *arguments).startswith("no daemon is running; expected one at ")
    assert not daemon.control_socket.exists()


def test_a_daemon_of_the_other_kind_is_hinted_at(daemon):
    line = refused(daemon, "show", "a", env={**daemon.environment(), "GPUSLICE_SIMULATED": "0"})
    assert line.startswith("no daemon is running; ") and line.endswith("; a daemon for simulated GPUs is running: add --simulated")


def test_a_full_standard_output_is_a_failure(daemon):
    with open("/dev/full", "w") as full:
        done = subprocess.run([daemon.product.gpuslice, "list"], env=daemon.environment(), stdout=full,
                              stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("gpuslice: cannot write to standard output")


def test_run_names_programs_that_came_to_the_gpu_outside_of_the_session_meanwhile(daemon, start):  # noqa: F811
    before = start(daemon.gpu.environment())
    before.get("alloc", MIB)
    started = int(open(f"/proc/{before.process.pid}/stat").read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    wait_for(lambda: time.clock_gettime(time.CLOCK_BOOTTIME) > started + 0.1, "the clock of start times to go on")
    command = subprocess.Popen([daemon.product.gpuslice, "run", "--", "cat"], env=daemon.environment(),
                               stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: os.readlink(f"/proc/{command.pid}/exe").endswith("cat"), "run to become cat")
    outside = start(daemon.gpu.environment())
    outside.get("alloc", 8 * MIB)
    wait_for(lambda: daemon.request("GET", "/v1/gpus")[1][0]["uncovered_bytes"] == 9 * MIB, "both to be seen")
    _, said = command.communicate(timeout=30)
    assert f"puppet (pid {outside.process.pid}) was started meanwhile and holds 8MiB of GPU 0 outside" in said
    assert f"pid {before.process.pid})" not in said and command.returncode == 0


def test_a_program_that_comes_to_the_gpu_after_the_command_is_named_too(daemon, start, tmp_path):  # noqa: F811
    with open(tmp_path / "said", "wb") as said:
        command = subprocess.Popen([daemon.product.gpuslice, "run", "--", "cat"], env=daemon.environment(),
                                   stdin=subprocess.PIPE, stderr=said)
    wait_for(lambda: os.readlink(f"/proc/{command.pid}/exe").endswith("cat"), "run to become cat")
    outside = start(daemon.gpu.environment(), context=False)
    command.communicate(timeout=30)
    outside.get("context", 0)
    outside.get("alloc", 8 * MIB)
    wait_for(lambda: f"puppet (pid {outside.process.pid}) was started meanwhile" in (tmp_path / "said").read_text(), "it to be named")


def test_a_name_that_begins_as_another_sessions_id_is_refused(daemon):
    session = daemon.cli("create").stdout.strip()
    for name in (session, session[:4]):
        assert f"the ID of session {session} begins with '{name}'" in refused(daemon, "create", "--name", name)
    daemon.cli("create", "--name", session[:3])


def test_release_all_says_what_it_leaves_alone(make_daemon):
    daemon = make_daemon()
    daemon.config.mkdir(parents=True, exist_ok=True)
    (daemon.config / "sessions.conf").write_text("[kept]\nmemory = 8MiB\n")
    daemon.start()
    daemon.cli("create", "--name", "mine")
    assert "1 session is left alone" in daemon.cli("release", "--all").stderr
    assert [session["name"] for session in sessions(daemon)] == ["kept"]
