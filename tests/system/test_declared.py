"""sessions.conf: sessions that are the file's, made, changed and ended by it, in both of its formats."""
import json
import os
import signal

import pytest

from conftest import wait_for
from test_events import kept, kinds
from test_quota import Puppet, in_session

MIB = 1 << 20
GIB = 1 << 30


def declare(daemon, text):
    """Replace the file, as an editor does."""
    daemon.config.mkdir(parents=True, exist_ok=True)
    (daemon.config / "sessions.conf.new").write_text(text)
    os.rename(daemon.config / "sessions.conf.new", daemon.config / "sessions.conf")


def sessions(daemon):
    return {s["name"]: s for s in json.loads(daemon.cli("list", "--json").stdout)}


def limits(daemon):
    return {name: s["vram_limit_bytes"] for name, s in sessions(daemon).items()}


def told(daemon, name):
    """The problem that `gpuslice config` tells of a declared session; None: none."""
    declared = json.loads(daemon.cli("config", "--json").stdout)["sessions"]
    return next(s["problem"] for s in declared if s["name"] == name)


def test_sessions_are_there_as_the_file_says_and_programs_run_in_them(make_daemon, make_gpu):
    daemon = make_daemon(make_gpu(FAKECUDA_GPUS=2))
    declare(daemon, "[train]\ngpus = 0,1\nmemory = 64MiB\ncompute = 10%..60%\npriority = high\n\n[plain]\n")
    daemon.start()
    there = sessions(daemon)
    assert set(there) == {"train", "plain"}
    train, plain = there["train"], there["plain"]
    assert [(g["index"], g["limit_bytes"], g["reserved"]) for g in train["gpus"]] == [(0, 64 * MIB, True), (1, 64 * MIB, True)]
    assert (train["compute_min_ratio"], train["compute_max_ratio"], train["priority"]) == (0.1, 0.6, "high")
    assert (train["declared"], train["owner_uid"], train["expires_at"]) == (True, os.geteuid(), None)
    assert [g["reserved"] for g in plain["gpus"]] == [False]
    assert daemon.cli("run", "--session", "train", "printenv", "GPUSLICE_SESSION").stdout.strip() == train["session_id"]
    assert [line.split()[2] for line in daemon.cli("list").stdout.splitlines() if "train" in line] == ["idle"]
    assert "declared in sessions.conf" in daemon.cli("show", "train").stdout


def test_more_than_any_gpu_has_is_told_although_others_wait(make_daemon, make_gpu):
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=GIB))
    declare(daemon, "[all]\nmemory = 1GiB\n\n[waits]\nmemory = 512MiB\n\n[greedy]\nmemory = 2GiB\n")
    daemon.start()
    assert "is more than GPU 0 has (1GiB, " in told(daemon, "greedy")
    assert told(daemon, "waits") is None
    rows = {line.split()[1]: line.split()[2:4] for line in daemon.cli("list").stdout.splitlines()[1:]}
    assert rows["waits"] == ["queued", "(1)"] and "greedy" not in rows
    assert "1 in the queue" in daemon.cli("show", "waits").stdout


def test_the_api_can_neither_change_nor_release_them(make_daemon):
    daemon = make_daemon()
    declare(daemon, "[train]\nmemory = 64MiB\n")
    daemon.start()
    where = f"session 'train' is declared in {daemon.config}/sessions.conf; change or remove it there"
    for words in (["set", "train", "--memory", "128MiB"], ["release", "train"], ["release", "--kill", "train"]):
        result = daemon.cli(*words, check=False)
        assert (result.returncode, result.stderr) == (1, f"gpuslice: {where}\n")
    status, answer = daemon.request("DELETE", "/v1/sessions/train")
    assert (status, answer["error"]["code"]) == (409, "ERR_DECLARED")
    assert limits(daemon) == {"train": 64 * MIB}


def test_a_change_of_the_file_changes_them_while_programs_run(make_daemon, reap):
    daemon = make_daemon()
    declare(daemon, "[a]\nmemory = 64MiB\n[b]\nmemory = 64MiB\n")
    daemon.start()
    before = sessions(daemon)
    program = reap(daemon.spawn("run", "--session", "b", daemon.product.program("worker"), "100"))
    wait_for(lambda: sessions(daemon)["b"]["processes"], "the program to attach")
    declare(daemon, "[a]\nmemory = 32MiB\npriority = low\n[b]\nmemory = 96MiB\n[c]\n")
    wait_for(lambda: limits(daemon) == {"a": 32 * MIB, "b": 96 * MIB, "c": GIB}, "the new limits")
    after = sessions(daemon)
    assert [after[n]["session_id"] for n in "ab"] == [before[n]["session_id"] for n in "ab"]
    assert after["a"]["priority"] == "low" and after["b"]["processes"]
    declare(daemon, "[b]\n[c]\n")
    wait_for(lambda: limits(daemon) == {"b": GIB, "c": GIB}, "one to end, and another to have no limit")
    assert not sessions(daemon)["b"]["gpus"][0]["reserved"]
    declare(daemon, "[c]\n")
    wait_for(lambda: sessions(daemon)["b"]["state"] == "expired", "the one with a program to take no more")
    declare(daemon, "[b]\nmemory = 48MiB\n[c]\n")
    wait_for(lambda: (sessions(daemon)["b"]["state"], limits(daemon)["b"]) == ("active", 48 * MIB), "it to be back")
    assert sessions(daemon)["b"]["session_id"] == before["b"]["session_id"]
    declare(daemon, "[c]\n")
    program.stdin.close()
    program.wait(20)
    wait_for(lambda: set(limits(daemon)) == {"c"}, "it to end with its program")


def test_a_limit_is_a_part_of_the_gpu_too(make_daemon, make_gpu):
    daemon = make_daemon(make_gpu(FAKECUDA_TOTAL_MEM=512 * MIB))
    (daemon.config).mkdir(parents=True, exist_ok=True)
    (daemon.config / "gpuslice.conf").write_text("[defaults]\nmemory = 25%\n")
    declare(daemon, "[half]\nmemory = 50%\n")
    daemon.start()
    assert limits(daemon)["half"] == 256 * MIB
    daemon.cli("create", "--name", "quarter")
    assert limits(daemon)["quarter"] == 128 * MIB
    before = sessions(daemon)["half"]
    declare(daemon, "[half]\nmemory = 50%\n[other]\nmemory = 1MiB\n")
    wait_for(lambda: "other" in limits(daemon), "the file to be read")
    assert sessions(daemon)["half"] == before  # nothing has changed for it
    declare(daemon, "[half]\nmemory = 40%\n")
    wait_for(lambda: limits(daemon)["half"] == 512 * MIB * 4 // 10, "it to have less")


def test_the_end_of_its_section_is_not_the_end_of_a_sessions_time(make_daemon, product, reap):
    daemon = make_daemon()
    declare(daemon, "[job]\nmemory = 64MiB\n")
    (daemon.config / "gpuslice.conf").write_text("[defaults]\nttl-action = kill\n")
    daemon.start()
    assert sessions(daemon)["job"]["ttl_action"] == "none"
    program = Puppet(product, in_session(daemon, {"environment": daemon.request("GET", "/v1/sessions/job/environment")[1]}))
    reap(program.process)
    program.get("context", 0)
    declare(daemon, "")
    wait_for(lambda: sessions(daemon)["job"]["state"] == "expired", "the session to take no more programs")
    assert "removed: its section of sessions.conf was removed" in daemon.cli("show", "job").stdout
    daemon.cli("create", "--name", "later")
    told = kinds(kept(daemon))
    assert "session.created" in told[told.index("session.expired"):] and "session.ending" not in told
    declare(daemon, "[job]\nmemory = 48MiB\n")
    wait_for(lambda: limits(daemon).get("job") == 48 * MIB, "it to be back")
    program.get("alloc", MIB)


def test_they_outlive_daemons_and_what_left_the_file_meanwhile_ends(make_daemon):
    daemon = make_daemon()
    declare(daemon, "[kept]\nmemory = 64MiB\n[gone]\n")
    daemon.start()
    daemon.cli("create", "--name", "mine")
    before = sessions(daemon)
    daemon.kill()
    declare(daemon, "[kept]\nmemory = 32MiB\n[new]\nmemory = 16MiB\n")
    daemon.start()
    after = sessions(daemon)
    assert {n: (s["session_id"] == before.get(n, s)["session_id"], s["declared"]) for n, s in after.items()} == {
        "kept": (True, True), "mine": (True, False), "new": (True, True)}
    assert limits(daemon)["kept"] == 32 * MIB


def test_a_mistake_changes_nothing_not_even_at_the_start(make_daemon):
    daemon = make_daemon()
    declare(daemon, "[train]\nmemory = 64MiB\n")
    daemon.start()
    declare(daemon, "[train]\nmemory = 32MiB\n[other]\nmemory = lots\n")
    said = f"{daemon.config}/sessions.conf:4: memory: 'lots' is not a size"
    wait_for(lambda: said in daemon.log_text(), "the log to name the line")
    assert said in daemon.cli("config").stdout
    assert limits(daemon) == {"train": 64 * MIB}
    daemon.kill()
    daemon.start()
    assert limits(daemon) == {"train": 64 * MIB}
    declare(daemon, "[train]\nmemory = 32MiB\n")
    wait_for(lambda: limits(daemon) == {"train": 32 * MIB}, "the mended file to be in force")


def test_what_cannot_be_made_is_told_and_tried_again(make_daemon):
    daemon = make_daemon().start()
    daemon.cli("create", "--name", "taken")
    declare(daemon, "[taken]\n[absent]\ngpus = 7\n[large]\nmemory = 2GiB\n[fine]\nmemory = 16MiB\n")
    wait_for(lambda: "fine" in limits(daemon), "the one that can be made")
    assert "has the name 'taken' already" in told(daemon, "taken")
    assert "7" in told(daemon, "absent")
    assert "more than GPU 0 has" in told(daemon, "large")
    assert told(daemon, "fine") is None
    shown = daemon.cli("config").stdout
    assert f"{daemon.config}/sessions.conf:1: session" in shown or "has the name 'taken' already" in shown
    daemon.cli("release", "taken")
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: sessions(daemon).get("taken", {}).get("declared"), "it to be made")
    assert told(daemon, "taken") is None


def test_one_without_room_waits_in_line(make_daemon):
    daemon = make_daemon().start()
    daemon.cli("create", "--name", "big", "--memory", "1GiB")
    declare(daemon, "[small]\nmemory = 64MiB\n")
    wait_for(lambda: sessions(daemon).get("small", {}).get("state") == "queued", "it to wait")
    declare(daemon, "[small]\nmemory = 32MiB\n")
    daemon.cli("release", "big")
    wait_for(lambda: limits(daemon) == {"small": 32 * MIB}, "it to be admitted as the file says by now")
    wait_for(lambda: sessions(daemon)["small"]["state"] == "active", "it to be active")


def test_those_that_wait_keep_their_places_when_other_things_change(make_daemon):
    daemon = make_daemon().start()
    daemon.cli("create", "--name", "big", "--memory", "1GiB")
    first, second = "[first]\nmemory = 64MiB\ngpus = 0\n", "[second]\nmemory = 64MiB\ncompute = 10%..50%\n"
    declare(daemon, first + second)

    def line():
        return {n: (s["queue_position"], s["session_id"]) for n, s in sessions(daemon).items() if s["state"] == "queued"}

    wait_for(lambda: len(line()) == 2, "two to wait")
    before = line()
    daemon.request("POST", "/v1/sessions", {"name": "third", "memory_bytes": MIB, "wait": True})
    (daemon.config / "gpuslice.conf").write_text("[defaults]\nttl = 1h\n")
    wait_for(lambda: "config.read" in kinds(kept(daemon)), "the configuration to be read")
    assert {name: line()[name] for name in before} == before
    declare(daemon, first.replace("64", "32") + second)
    wait_for(lambda: sessions(daemon)["first"]["vram_limit_bytes"] == 32 * MIB, "one to ask for something else")
    after = line()
    assert after["second"] == (1, before["second"][1]) and after["first"][0] > 1


def test_geminis_file_declares_sessions_with_shares(make_daemon):
    daemon = make_daemon()
    declare(daemon, "2\nclient1 0.25 0.5 33554432\nspace/client2 0 1.0 327374182400\n")
    daemon.start()
    there = sessions(daemon)
    assert {n: (s["compute_min_ratio"], s["compute_max_ratio"], s["vram_limit_bytes"]) for n, s in there.items()} == {
        "client1": (0.25, 0.5, 32 * MIB), "space.client2": (0, 1, GIB)}
    assert not there["space.client2"]["gpus"][0]["reserved"]


def test_defaults_hold_for_them_and_a_ceiling_does_not(make_daemon):
    daemon = make_daemon()
    daemon.config.mkdir(parents=True)
    (daemon.config / "gpuslice.conf").write_text(
        f"[defaults]\nmemory = 48MiB\nttl = 1h\n[user:{os.geteuid()}]\nmemory = 32MiB\n")
    declare(daemon, "[train]\n")
    daemon.start()
    assert limits(daemon) == {"train": 48 * MIB}
    assert sessions(daemon)["train"]["expires_at"] is None
    result = daemon.cli("create", "--memory", "1MiB", check=False)
    assert "beside the 48MiB of your other sessions is more than the 32MiB allowed" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a system daemon")
def test_a_system_daemons_sessions_have_the_owners_that_the_file_names(make_daemon):
    daemon = make_daemon()
    declare(daemon, "[a]\nowner = games\n[b]\nowner = 12345\n[c]\n")
    daemon.start("--system")
    owners = {name: s["owner_uid"] for name, s in sessions(daemon).items()}
    assert owners["b"] == 12345 and owners["c"] == 0 and owners["a"] not in (0, 12345)


def test_a_users_daemon_makes_none_for_others(make_daemon):
    daemon = make_daemon()
    declare(daemon, "[a]\nowner = 12345\n[b]\n")
    daemon.start()
    assert set(limits(daemon)) == {"b"}
    assert "this daemon serves user" in told(daemon, "a")
