"""Shell completion: what a Tab offers, asked of the shells themselves."""
import contextlib
import os
import pty
import shutil
import subprocess
import threading

import pytest

from conftest import MIB, wait_for
from test_quota import Puppet

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
    assert offered(daemon, "rel") == {"release"}
    assert offered(daemon, "re") == {"release", "resume"}
    assert offered(daemon, "all") == {"allocate"}


def test_options_of_the_verb(daemon):
    assert offered(daemon, "run", "--me") == {"--memory"}
    assert offered(daemon, "release", "--") == {"--all", "--kill", "--simulated", "--help"}


def test_what_happens_at_the_ttl(daemon):
    assert offered(daemon, "create", "--ttl-action", "") == {"none", "kill"}


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


def test_letters_take_values_as_names_do(daemon):
    assert "cat" in offered(daemon, "run", "-m", "1GiB", "ca")
    assert offered(daemon, "list", "-o", "wi") == {"wide"}


def test_values_that_bash_cuts_are_one_word(daemon):
    assert "cat" in offered(daemon, "run", "--gpu", "0", ":", "1", "--", "ca")
    assert "cat" in offered(daemon, "run", "--memory", "0", "=", "4GiB,1", "=", "2GiB", "ca")
    assert "cat" in offered(daemon, "run", "--memory", "=", "0", "=", "4GiB", "ca")
    assert offered(daemon, "run", "--memory", "0", "=", "4GiB", "--pri") == {"--priority"}


def test_mig_instances_are_offered(make_daemon, make_gpu):
    daemon = make_daemon(make_gpu(FAKECUDA_DEVICE="h100", FAKECUDA_MIG="1g.10gb,2g.20gb", FAKECUDA_GPUS=1)).start()
    assert {"0:0", "0:1"} <= offered(daemon, "run", "--gpu", "0")
    assert offered(daemon, "run", "--gpu", "0", ":") == {"0", "1"}, "bash puts them behind the colon"


def test_programs_outside_of_sessions_are_not_gpus(daemon, product, reap):
    puppet = Puppet(product, daemon.gpu.environment())
    reap(puppet.process)
    puppet.get("context", 0)
    puppet.get("alloc", MIB)
    wait_for(lambda: "outside of sessions" in daemon.cli("gpus").stdout, "a line about it")
    gpus = offered(daemon, "run", "--gpu", "")
    assert "0" in gpus and all(word == "0" or word.startswith("GPU-") for word in gpus), gpus


ZSH = r"""
PS1= ; setopt no_prompt_sp; unsetopt zle_bracketed_paste 2>/dev/null
autoload -Uz compinit; compinit -u -D
source <(gpuslice completion zsh)
compadd() {
    local -a matching_words
    [[ -n ${(M)argv[1,(i)(-|--)]:#-[ODA]} ]] || { builtin compadd -O matching_words "$@"; (( $#matching_words )) && print -rl -- $matching_words >>$OFFERED }
    builtin compadd "$@"
}
told() { print told >>$OFFERED }
zle -N told; bindkey "^X" told
print told >>$OFFERED
"""


@pytest.fixture
def in_zsh(trained, tmp_path):
    """What zsh offers for the last word of a line that is typed into it."""
    if not shutil.which("zsh"):
        pytest.skip("no zsh here")
    (tmp_path / ".zshrc").write_text(ZSH)
    offered_file = tmp_path / "offered"
    ours, its = pty.openpty()
    environment = {**trained.environment(), "PATH": f"{trained.product.prefix}/bin:{os.environ['PATH']}", "TERM": "xterm",
                   "GPUSLICE_SIMULATED": "1", "ZDOTDIR": str(tmp_path), "OFFERED": str(offered_file)}
    shell = subprocess.Popen(["zsh", "-d", "-i"], env=environment, stdin=its, stdout=its, stderr=its, start_new_session=True)
    os.close(its)
    threading.Thread(target=read_all, args=(ours,), daemon=True).start()

    def words_offered():
        words = offered_file.read_text().split("\n")[:-1] if offered_file.exists() else []
        return words[:-1] if words and words[-1] == "told" else None

    def ask(line):
        wait_for(lambda: words_offered() is not None, "zsh to be ready")
        offered_file.write_text("")
        os.write(ours, f"\x15{line}\t\x18".encode())
        wait_for(lambda: words_offered() is not None, "zsh to complete")
        return set(words_offered())

    yield ask
    shell.kill()
    shell.wait()


def read_all(terminal):
    with contextlib.suppress(OSError):
        while os.read(terminal, 4096):
            pass


def test_zsh_offers_verbs_options_and_values(in_zsh, trained):
    both = {"train", trained.session("train")["session_id"]}
    assert in_zsh("gpuslice rel") == {"release"}
    assert in_zsh("gpuslice run --me") == {"--memory"}
    assert in_zsh("gpuslice show ") == both
    assert in_zsh("gpuslice run --session ") == both
    assert in_zsh("gpuslice run --session=") == both
    assert in_zsh("gpuslice run --priority h") == {"high"}
    assert "truncate" in in_zsh("gpuslice run --memory 1GiB trunc")
    assert "truncate" in in_zsh("gpuslice run -m 1GiB trunc")
    assert in_zsh("gpuslice list -o wi") == {"wide"}


def test_fish_offers_verbs_options_and_values(trained):
    if not shutil.which("fish"):
        pytest.skip("no fish here")
    both = {"train", trained.session("train")["session_id"]}

    def in_fish(line):
        environment = {**trained.environment(), "PATH": f"{trained.product.prefix}/bin:{os.environ['PATH']}",
                       "GPUSLICE_SIMULATED": "1"}
        done = subprocess.run(["fish", "--no-config", "-c", f"gpuslice completion fish | source; complete -C '{line}'"],
                              env=environment, capture_output=True, text=True, timeout=60, check=True)
        assert done.stderr == ""
        return {row.partition("\t")[0] for row in done.stdout.splitlines()}

    assert in_fish("gpuslice rel") == {"release"}
    assert in_fish("gpuslice run --me") == {"--memory"}
    assert in_fish("gpuslice show ") == both
    assert in_fish("gpuslice run --session ") == both
    assert in_fish("gpuslice run --session=") == {f"--session={name}" for name in both}
    assert in_fish("gpuslice run --priority h") == {"high"}
    assert "truncate" in in_fish("gpuslice run --memory 1GiB trunc")
    assert "truncate" in in_fish("gpuslice run -m 1GiB trunc")
    assert in_fish("gpuslice list -o wi") == {"wide"}
    assert in_fish("gpuslice allocate ") == set()
