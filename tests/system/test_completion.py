"""Shell completion: what a Tab offers, asked of bash itself; zsh and fish read their scripts, where they are installed."""
import os
import shutil
import subprocess

import pytest

TAB = """
source <("$1" completion bash)
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_gpuslice
printf '%s\\n' "${COMPREPLY[@]}"
"""


def offered(daemon, *words, simulated="1", **options):
    """What bash offers for the last of `words`, which bash has cut at "=" as it does."""
    environment = {**daemon.environment(), "PATH": f"{daemon.product.prefix}/bin:{os.environ['PATH']}",
                   "GPUSLICE_SIMULATED": simulated}
    done = subprocess.run(["bash", "--norc", "-c", TAB, "bash", daemon.product.gpuslice, "gpuslice", *words],
                          env=environment, capture_output=True, text=True, timeout=60, **options)
    assert (done.returncode, done.stderr) == (0, ""), done
    return set(done.stdout.split())


@pytest.fixture
def trained(daemon):
    daemon.cli("create", "--name", "train", "--memory", "8MiB")
    return daemon


def test_verbs_with_their_other_names(daemon):
    assert offered(daemon, "re") == {"release"}
    assert offered(daemon, "all") == {"allocate"}


def test_options_of_the_verb(daemon):
    assert offered(daemon, "run", "--me") == {"--memory"}
    assert offered(daemon, "release", "--") == {"--all", "--kill", "--simulated", "--help"}


def test_sessions_as_operands_and_values(trained):
    session_id = trained.session("train")["session_id"]
    assert offered(trained, "show", "") == {"train", session_id}
    assert offered(trained, "run", "--session", "t") == {"train"}
    assert offered(trained, "run", "--session", "=") == {"train", session_id}
    assert offered(trained, "run", "--session", "=", "t") == {"train"}
    assert offered(trained, "run", "--session=t") == {"--session=train"}


def test_a_session_that_waits_in_line_is_offered(daemon, reap):
    daemon.cli("create", "--name", "big", "--memory", "1GiB")
    reap(daemon.spawn("create", "--name", "next", "--memory", "1GiB", "--wait")).stderr.readline()
    assert offered(daemon, "release", "n") == {"next"}


def test_simulated_on_the_line_asks_the_simulated_daemon(trained):
    assert offered(trained, "show", "t", simulated="0") == set()
    assert offered(trained, "show", "--simulated", "t", simulated="0") == {"train"}
    assert offered(trained, "run", "--simulated", "--session", "=", "t", simulated="0") == {"train"}
    assert "0" in offered(trained, "run", "--simulated", "--gpu", "", simulated="0")


def test_config_check_takes_a_file(daemon, tmp_path):
    (tmp_path / "my.conf").touch()
    assert offered(daemon, "config", "c") == {"check"}
    assert offered(daemon, "config", "check", "my", cwd=tmp_path) == {"my.conf"}


def test_behind_the_options_of_run_stands_a_command(daemon):
    assert "cat" in offered(daemon, "run", "--memory", "1GiB", "ca")
    assert "cat" in offered(daemon, "run", "--memory", "=", "1GiB", "--simulated", "--", "ca")
    assert offered(daemon, "run", "--priority", "h") == {"high"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_is_read_without_complaint(daemon, shell, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    script = tmp_path / "script"
    script.write_text(daemon.cli("completion", shell).stdout)
    subprocess.run([shell, "-n", script], check=True)
