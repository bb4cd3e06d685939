"""gpuslice.conf: what is in force and where it comes from, and changes of the files while the daemon runs."""
import json
import os
import signal

import pytest

from conftest import wait_for


def write(daemon, text, name="gpuslice.conf"):
    daemon.config.mkdir(parents=True, exist_ok=True)
    (daemon.config / name).write_text(text)


def value(daemon, section, key):
    """(value, origin, source) in force."""
    values = json.loads(daemon.cli("config", "--json").stdout)["values"]
    found = next(v for v in values if (v["section"], v["key"]) == (section, key))
    return found["value"], found["origin"], found["source"]


def problems(daemon):
    return [f["problem"] for f in json.loads(daemon.cli("config", "--json").stdout)["files"] if f["problem"]]


def test_each_value_says_where_it_comes_from(make_daemon):
    daemon = make_daemon(GPUSLICE_RECOVERY_INTERVAL="7s", GPUSLICE_IPC_TOKEN="swordfish")
    write(daemon, "[daemon]\nmetrics-debug = yes\nrecovery-interval = 5s\n[defaults]\nmemory = 64MiB\n")
    daemon.start("--idle-exit", "9s")
    file = daemon.config / "gpuslice.conf"
    assert value(daemon, "daemon", "recovery-interval") == ("7s", "environment", "GPUSLICE_RECOVERY_INTERVAL")
    assert value(daemon, "daemon", "idle-exit") == ("9s", "option", "--idle-exit")
    assert value(daemon, "daemon", "metrics-debug") == ("yes", "file", f"{file}:2")
    assert value(daemon, "defaults", "memory") == ("64MiB", "file", f"{file}:5")
    assert value(daemon, "defaults", "priority") == ("normal", "default", None)
    assert value(daemon, "daemon", "ipc-token") == ("(set)", "environment", "GPUSLICE_IPC_TOKEN")
    shown = daemon.cli("config").stdout
    assert "swordfish" not in shown
    assert f"{file}:5" in next(line for line in shown.splitlines() if line.startswith("[defaults] memory"))


def test_without_a_daemon_the_files_are_shown(make_daemon):
    daemon = make_daemon()
    write(daemon, "[user:bob]\nmemory = 8GiB\n")
    assert value(daemon, "user:bob", "memory") == ("8GiB", "file", f"{daemon.config}/gpuslice.conf:2")
    assert "no daemon is running" in daemon.cli("config").stdout


def test_check_names_the_line_and_changes_nothing(make_daemon, tmp_path):
    daemon = make_daemon()
    write(daemon, "[daemon]\nmetrics-debug = perhaps\n")
    result = daemon.cli("config", "check", check=False)
    assert result.returncode == 1
    assert result.stderr == (f"gpuslice: {daemon.config}/gpuslice.conf:2: metrics-debug: 'perhaps' is neither yes nor "
                             "no\n")
    good, gemini = tmp_path / "good.conf", tmp_path / "resource-config.txt"
    good.write_text("[defaults]\nmemory = 1GiB\n")
    gemini.write_text("1\nclient1 0.5 0.4 1024\n")
    assert daemon.cli("config", "check", good).stderr == ""
    assert "resource-config.txt:2: expected REQUEST up to LIMIT" in daemon.cli("config", "check", gemini, check=False).stderr
    missing = daemon.cli("config", "check", tmp_path / "none.conf", check=False)
    assert (missing.returncode, missing.stderr) == (1, f"gpuslice: {tmp_path}/none.conf does not exist\n")
    assert daemon.cli("config", "test", check=False).returncode == 2
    good.write_text("[user:*]\nsessions = 2\n[group:studnets]\nsessions = 1\n[user:0]\nsessions = 9\n[user:none-such]\n")
    checked = daemon.cli("config", "check", good)
    assert checked.stderr.splitlines() == [
        f"gpuslice: warning: {good}:3: there is no group 'studnets', so [group:studnets] has no effect",
        f"gpuslice: warning: {good}:7: there is no user 'none-such', so [user:none-such] has no effect"]


def test_a_daemon_does_not_start_with_a_mistake(make_daemon):
    daemon = make_daemon()
    write(daemon, "[defaults]\nmemory = lots\n")
    result = daemon.cli("create", check=False)
    assert result.returncode == 1
    assert f"cannot start the daemon: {daemon.config}/gpuslice.conf:2: memory: 'lots' is not a size" in result.stderr


@pytest.mark.parametrize("how", ["write", "rename", "link", "folder", "signal"])
def test_a_change_is_in_force_at_once(make_daemon, how, tmp_path):
    daemon = make_daemon()
    text = "[defaults]\nmemory = 96MiB\n"
    if how == "folder":  # nothing of the path is there yet
        daemon.start()
        (daemon.folder / "other").mkdir()
        write(daemon, text)
    elif how == "link":  # as a mounted ConfigMap changes: by the link it stands behind
        for name, content in (("old", ""), ("new", text)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "gpuslice.conf").write_text(content)
        daemon.config.mkdir(parents=True)
        (daemon.config / "data").symlink_to(tmp_path / "old")
        (daemon.config / "gpuslice.conf").symlink_to("data/gpuslice.conf")
        daemon.start()
        (daemon.config / "data2").symlink_to(tmp_path / "new")
        os.rename(daemon.config / "data2", daemon.config / "data")
    elif how == "signal":  # of a change that no event tells of
        write(daemon, "", name="elsewhere")
        file = tmp_path / "real.conf"
        file.write_text("")
        (daemon.config / "gpuslice.conf").symlink_to(file)
        daemon.start()
        file.write_text(text)
        daemon.process.send_signal(signal.SIGHUP)
    else:
        write(daemon, "[defaults]\nmemory = 32MiB\n")
        daemon.start()
        if how == "write":
            write(daemon, text)
        else:
            write(daemon, text, name="gpuslice.conf.new")
            os.rename(daemon.config / "gpuslice.conf.new", daemon.config / "gpuslice.conf")
    wait_for(lambda: value(daemon, "defaults", "memory")[0] == "96MiB", "the new value to be in force")


def test_a_ceiling_can_be_taken_out(make_daemon):
    daemon = make_daemon()
    write(daemon, "[user:0]\nmemory = 1GiB\n")
    daemon.start()
    assert value(daemon, "user:0", "memory")[0] == "1GiB"
    write(daemon, "")

    def sections():
        return {v["section"] for v in json.loads(daemon.cli("config", "--json").stdout)["values"]}
    wait_for(lambda: sections() == {"daemon", "defaults", "scheduler"}, "the ceiling to go")
    assert daemon.process.poll() is None and problems(daemon) == []


def test_a_mistake_changes_nothing_and_is_told_until_it_is_mended(make_daemon):
    daemon = make_daemon()
    write(daemon, "[defaults]\nmemory = 32MiB\n")
    daemon.start()
    write(daemon, "[defaults]\nmemory = 48MiB\npriority = urgent\n")
    said = wait_for(lambda: problems(daemon), "the mistake to be told")
    assert said == [f"{daemon.config}/gpuslice.conf:3: priority: 'urgent' is not a priority; expected low, normal, high "
                    "or critical"]
    assert said[0] in daemon.log_text()
    assert said[0] in daemon.cli("config").stdout
    assert value(daemon, "defaults", "memory")[0] == "32MiB"
    write(daemon, "[defaults]\nmemory = 48MiB\n")
    wait_for(lambda: value(daemon, "defaults", "memory")[0] == "48MiB", "the mended file to be in force")
    assert problems(daemon) == []


def test_what_takes_a_start_says_so(make_daemon):
    daemon = make_daemon()
    write(daemon, "[daemon]\nrecovery-interval = 30s\n")
    daemon.start()
    write(daemon, "[daemon]\nrecovery-interval = 20s\n")
    wait_for(lambda: "recovery-interval takes effect when the daemon starts next" in daemon.log_text(), "the log to say so")
    assert value(daemon, "daemon", "recovery-interval")[0] == "30s"
    waits = [v for v in json.loads(daemon.cli("config", "--json").stdout)["values"] if v["waits_for_start"]]
    assert [(v["key"], v["next_value"]) for v in waits] == [("recovery-interval", "20s")]
    daemon.stop()
    daemon.start()
    assert value(daemon, "daemon", "recovery-interval")[0] == "20s"
