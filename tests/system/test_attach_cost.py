"""What attaching asks of the kernel in a program with threads: nothing that waits for all of them. Two calls do, for 10 to 30 ms:
registering for membarrier, and making room for descriptors beyond 64."""
import re
import subprocess

import pytest

from test_quota import in_session
from test_shares import Worker

pytestmark = pytest.mark.usefixtures("before_others")


@pytest.fixture
def calls(product, tmp_path):
    """calls(ENVIRONMENT, PROGRAM, WORDS...): the (thread, name, arguments, answer) of what one of the tests' programs calls."""
    def run(environment, program, *words, told=""):
        trace = tmp_path / "trace"
        preload = environment.pop("LD_PRELOAD")
        result = subprocess.run(["strace", "-f", "-o", trace, "-e", "trace=fcntl,dup3,membarrier", "-E", f"LD_PRELOAD={preload}",
                                 product.program(program), *map(str, words)], env=environment, input=told, capture_output=True,
                                text=True, timeout=60, check=False)
        if result.returncode != 0 and "ptrace" in result.stderr:
            pytest.skip(f"strace cannot trace here: {result.stderr.strip()}")
        assert result.returncode == 0, result.stderr
        # A call that others interrupt is written in two lines, of which the first has no answer.
        return re.findall(r"^(\d+) +(\w+)\((.*?)(?:\) += (-?\d+).*| <unfinished \.\.\.>)$", trace.read_text(), re.MULTILINE)
    return run


def registrations(made):
    return [call for call in made if call[1] == "membarrier" and "REGISTER" in call[2]]


def test_a_process_without_shares_waits_for_no_thread(daemon, product, calls):
    session = daemon.request("POST", "/v1/sessions", {"name": "quick", "memory_bytes": 1 << 26})[1]
    made = calls(in_session(daemon, session), "exits", 100, 1, 3)
    assert registrations(made) == []
    moved = [int(answer) for _, name, arguments, answer in made if name == "fcntl" and "F_DUPFD" in arguments and answer]
    assert moved and max(moved) < 64


def test_where_there_are_shares_the_agent_registers_and_once(daemon, reap, calls):
    rival = Worker(daemon, reap, "50%..100%", "200")
    rival.begin(600_000)
    session = daemon.request("POST", "/v1/sessions", {"name": "shared", "compute": "50%..100%"})[1]
    made = calls(in_session(daemon, session), "worker", 500, told="1000\n")
    (registered,) = registrations(made)
    assert registered[0] != made[0][0], "not by the program's own thread"
